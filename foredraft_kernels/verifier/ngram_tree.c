/* The draft tree of a text's own n-grams: foredraft/ngram/tree.py, number for number. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>

#include "common/functions.h"
#include "structs.h"

/* A token that followed the last tokens of a history, and how often it followed 1, 2, ... of them. */
typedef struct {
    int32_t token, counts[MAX_ORDERS];
    double share;
} follower;

/* A node that may join the tree, which comes first if its mass is greater, or if it was found before. */
typedef struct {
    double mass;
    int64_t found;
    int32_t parent, token;
} candidate;

typedef struct {
    candidate *at; /* a binary heap */
    int64_t count, found;
} candidates;

static int before(const candidate *a, const candidate *b) {
    return a->mass > b->mass || (a->mass == b->mass && a->found < b->found);
}

static void put(candidates *all, double mass, int32_t parent, int32_t token) {
    candidate new = {mass, all->found++, parent, token};
    int64_t i = all->count++;
    for (; i && before(&new, all->at + (i - 1) / 2); i = (i - 1) / 2)
        all->at[i] = all->at[(i - 1) / 2];
    all->at[i] = new;
}

static candidate take_first(candidates *all) {
    candidate first = all->at[0], last = all->at[--all->count];
    int64_t i = 0, child;
    for (; (child = 2 * i + 1) < all->count; i = child) {
        if (child + 1 < all->count && before(all->at + child + 1, all->at + child)) child++;
        if (!before(all->at + child, &last)) break;
        all->at[i] = all->at[child];
    }
    all->at[i] = last;
    return first;
}

/* Write the last tokens after a node, latest first; return how many there are. */
static int64_t history_of(const ngram_text *t, const int32_t *tokens, const int32_t *parents,
                          int32_t node, int32_t *history) {
    int64_t known = 0;
    for (; node >= 0 && known < t->orders; node = parents[node]) history[known++] = tokens[node];
    for (int64_t i = t->length - 1; i >= 0 && known < t->orders; i--) history[known++] = t->text[i];
    return known;
}

/* Find what followed a history, what followed last first; return how many tokens. */
static int64_t follow(const ngram_text *t, const int32_t *history, int64_t known,
                      follower *found, int64_t *totals) {
    int64_t count = 0, places = MAX_PLACES;
    int64_t first = t->length - t->window - 1 > 0 ? t->length - t->window - 1 : 0;
    for (int64_t o = 0; o < t->orders; o++) totals[o] = 0;
    for (int64_t i = t->length - 2; known && i >= first && places; i--) {
        if (t->text[i] != history[0]) continue;
        places--;
        follower *f = found;
        while (f < found + count && f->token != t->text[i + 1]) f++;
        if (f == found + count) *f = (follower){.token = t->text[i + 1]}, count++;
        for (int64_t o = 0; o < known && o <= i && t->text[i - o] == history[o]; o++)
            f->counts[o]++, totals[o]++;
    }
    return count;
}

/* Add what may follow a node of some mass; return how likely it is that any of it does. */
static double push(const ngram_text *t, const int32_t *tokens, const int32_t *parents, int32_t node,
                   double mass, candidates *all) {
    int32_t history[MAX_ORDERS];
    follower found[MAX_PLACES];
    int64_t totals[MAX_ORDERS];
    int64_t count = follow(t, history, history_of(t, tokens, parents, node, history), found, totals);
    for (int64_t o = 0; o < t->orders && totals[o]; o++) {
        double a = t->pseudocounts[o], total = a + (double)totals[o];
        for (follower *f = found; f < found + count; f++) {
            f->share = a * f->share / total;
            if (f->counts[o]) f->share += f->counts[o] / total;
        }
    }
    double sum = 0;
    for (follower *f = found; f < found + count; f++) {
        sum += f->share;
        if (mass * f->share >= t->min_node_prob) put(all, mass * f->share, node, f->token);
    }
    return sum;
}

static int is_stop(const ngram_text *t, int32_t token) {
    for (int64_t i = 0; i < t->num_stops; i++)
        if (t->stops[i] == token) return 1;
    return 0;
}

static int64_t grow(const ngram_text *t, candidates *all, int32_t *tokens, int32_t *parents,
                    double *expected) {
    int64_t count = 0, depth;
    double sum = 0;
    if (push(t, tokens, parents, -1, 1.0, all) * (double)t->depth < t->min_expected) return 0;
    while (all->count && count < t->most) {
        candidate next = take_first(all);
        int32_t node = (int32_t)count++;
        tokens[node] = next.token;
        parents[node] = next.parent;
        sum += expected[node] = next.mass;
        depth = 1;
        for (int32_t above = next.parent; above >= 0; above = parents[above]) depth++;
        if (depth < t->depth && !is_stop(t, next.token))
            push(t, tokens, parents, node, next.mass, all);
    }
    return sum < t->min_expected ? 0 : count;
}

/* Write a tree of up to t->most nodes; return how many it has, or -1 where memory ran out. */
EXPORTED int64_t fd_ngram_tree(const ngram_text *t, int32_t *tokens, int32_t *parents,
                               double *expected) {
    candidates all = {malloc((size_t)(1 + t->most) * MAX_PLACES * sizeof(candidate)), 0, 0};
    if (!all.at) return -1;
    int64_t count = grow(t, &all, tokens, parents, expected);
    free(all.at);
    return count;
}
