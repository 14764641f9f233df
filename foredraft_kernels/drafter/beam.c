/* core/path_search.py's beam over a block's pruned lattice, with a proxy of the edge head and the
 * text's own n-grams (core/causal_scorer.py): the same operations in the same order.
 */
#include "common/functions.h"
#include "searches.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LEAST 1e-30 /* of any probability */

/* A prefix: the state before its last token, -1 for none, that token and its column. */
typedef struct {
    double total;
    int64_t before, token, column;
} state;

/* A search: states [slots, beam], and 1 / temperature, 1 at temperature 0. */
typedef struct {
    const beam_settings *settings;
    const block_scores *scores;
    const counted_text *text;
    state *states;
    double scale;
} search;

/* Write the last tokens behind a state, latest first: its prefix's, then the text's. */
static int64_t recent(const state *states, int64_t at, const counted_text *t, int64_t *history) {
    int64_t n = 0, most = t->order - 1;
    for (; n < most && at >= 0; at = states[at].before) history[n++] = states[at].token;
    for (int64_t i = t->length; n < most && i > 0;) history[n++] = t->tokens[--i];
    return n;
}

/* Add `weight` times softmax(log q + edge) to p; edge [width] may be NULL. */
static void add_edges(const choices *at, const float *edge, double weight, double *p) {
    double most = -INFINITY, sum = 0, each[MAX_WIDTH];
    for (int64_t c = 0; c < at->count; c++) {
        each[c] = edge ? at->log_q[c] + edge[at->columns[c]] : at->log_q[c];
        most = fmax(most, each[c]);
    }
    for (int64_t c = 0; c < at->count; c++) sum += each[c] = exp(each[c] - most);
    for (int64_t c = 0; c < at->count; c++) p[c] += weight * fmax(each[c] / sum, LEAST);
}

/* Write what a path has with each choice of a slot behind a state; alone is their unigram. */
static void extended(const search *x, int64_t slot, const choices *choice, const double *alone,
                     int64_t at, double *totals) {
    const beam_settings *s = x->settings;
    const block_scores *scores = x->scores;
    double p[MAX_WIDTH] = {0}, causal = (1 - s->weight) * x->scale, own = s->weight * x->scale;
    if (s->context > 0) {
        int64_t history[MAX_ORDER], known = recent(x->states, at, x->text, history);
        memcpy(p, alone, choice->count * sizeof *p);
        interpolate_followers(x->text, history, known, choice, p);
        for (int64_t c = 0; c < choice->count; c++) p[c] *= s->context;
    }
    if (s->edge > 0) {
        int64_t row = slot * scores->width + (at >= 0 ? x->states[at].column : 0);
        const float *edge = scores->edge ? scores->edge + row * scores->width : 0;
        add_edges(choice, edge, s->edge, p);
    }
    for (int64_t c = 0; c < choice->count; c++) {
        double q = choice->log_q[c], before = at >= 0 ? x->states[at].total : 0;
        totals[c] = log(p[c]) * causal + (q * own + choice->noise[c]) + before;
        if (!(q > -INFINITY)) totals[c] = -INFINITY;
    }
}

/* Enter a state among the best, best first, behind its equals; return how many there are. */
static int64_t enter(state *best, int64_t count, int64_t most, state new) {
    if (count == most && !(new.total > best[count - 1].total)) return count;
    int64_t i = count < most ? count++ : count - 1;
    for (; i > 0 && new.total > best[i - 1].total; i--) best[i] = best[i - 1];
    best[i] = new;
    return count;
}

static int64_t trace(const state *states, int64_t at, int64_t *path) {
    int64_t length = 0;
    for (int64_t i = at; i >= 0; i = states[i].before) length++;
    for (int64_t i = length; i > 0; at = states[at].before) path[--i] = states[at].token;
    return length;
}

/* The best path that chose EOS so far, and room for another. */
typedef struct {
    double total;
    int64_t length, *path, *other;
} ending;

/* Return whether a [n] comes behind b [m] in the order of tuples. */
static int behind(const int64_t *a, int64_t n, const int64_t *b, int64_t m) {
    for (int64_t i = 0; i < n && i < m; i++)
        if (a[i] != b[i]) return a[i] > b[i];
    return n > m;
}

static void end_behind(ending *e, const state *states, int64_t at, double total, int64_t eos) {
    int64_t length = trace(states, at, e->other), *path = e->other;
    path[length++] = eos;
    if (e->length && (total < e->total ||
                      (total == e->total && !behind(path, length, e->path, e->length))))
        return;
    *e = (ending){total, length, path, e->path};
}

/* Write [depth + 1] what EOS earns at each slot and all behind it, and at the end. */
static void eos_tail(const block_scores *s, int64_t depth, double scale, double *tail) {
    double log_q = 0, noise = 0;
    tail[depth] = 0;
    for (int64_t slot = depth - 1; slot >= 0; slot--) {
        for (int64_t i = slot * s->width; i < (slot + 1) * s->width; i++) {
            log_q += s->tokens[i] == s->eos ? s->log_q[i] : 0;
            noise += s->tokens[i] == s->eos ? s->noise[i] : 0;
        }
        tail[slot] = log_q * scale + noise;
    }
}

/* Find the best path over the first depth slots. */
static void run(const search *x, int64_t depth, const double *tail, ending *ended) {
    const beam_settings *s = x->settings;
    int64_t live = 1, eos = x->scores->eos;
    for (int64_t slot = 0; slot < depth && live; slot++) {
        int64_t count = live, last = -1, ends = 0;
        double alone[MAX_WIDTH], totals[MAX_WIDTH], most = -INFINITY;
        choices choice;
        prune_slot(x->scores, slot, s->tau, s->max_candidates, &choice);
        if (s->context > 0) unigram(x->text, &choice, alone);
        live = 0;
        for (int64_t b = 0; b < count; b++) {
            int64_t at = slot ? (slot - 1) * s->beam + b : -1, ended_here = 0;
            extended(x, slot, &choice, alone, at, totals);
            for (int64_t c = 0; c < choice.count; c++) {
                if (choice.tokens[c] == eos && !ended_here) {
                    ended_here = 1;
                    if (!ends++ || totals[c] > most) most = totals[c], last = at;
                } else if (totals[c] > -INFINITY) {
                    state new = {totals[c], at, choice.tokens[c], choice.columns[c]};
                    live = enter(x->states + slot * s->beam, live, s->beam, new);
                }
            }
        }
        if (ends) end_behind(ended, x->states, last, most + tail[slot + 1], eos);
    }
    int64_t best = (depth - 1) * s->beam;
    if (live && !(ended->total > x->states[best].total)) {
        ended->path = ended->other;
        ended->length = trace(x->states, best, ended->path);
    }
}

/* Search the pruned lattice behind the text, whose chains are made here. Write the best path to
 * paths, which has room for two of a token for each slot, and return its length: 0 where memory
 * cannot be had. */
EXPORTED int64_t fd_beam(const beam_settings *s, const block_scores *scores, counted_text *text,
                int64_t *paths) {
    int64_t depth = lattice_depth(scores);
    double scale = scores->temperature > 0 ? 1 / scores->temperature : 1;
    double *tail = malloc((depth + 1) * sizeof *tail);
    search x = {s, scores, text, malloc(depth * s->beam * sizeof *x.states), scale};
    ending ended = {-INFINITY, 0, paths, paths + scores->slots};
    text->previous = malloc((text->length + 1) * sizeof *text->previous);
    if (tail && x.states && text->previous) {
        chain(text);
        eos_tail(scores, depth, scale, tail);
        run(&x, depth, tail, &ended);
        memmove(paths, ended.path, ended.length * sizeof *paths);
    }
    free(tail);
    free(x.states);
    free(text->previous);
    return ended.length;
}
