/* foredraft/ngram/index.py and core/context_ngram.py: the n-grams of a text, and how probable a slot's
 * candidates are by them. */
#include "searches.h"

#include <string.h>

void chain(counted_text *t) {
    memset(t->heads, -1, sizeof t->heads);
    for (int64_t i = 0; i < t->length; i++) {
        int32_t *head = &t->heads[t->tokens[i] % BUCKETS];
        t->previous[i] = *head;
        *head = (int32_t)i;
    }
}

/* Make p_o of p_{o-1}, in place, by the counts of order o. */
static void interpolate(double *p, const int64_t *counts, int64_t total, int64_t n, double a) {
    for (int64_t c = 0; c < n; c++) p[c] = (counts[c] + a * p[c]) / (total + a);
}

/* Write how probable the candidates are by themselves. */
void unigram(const counted_text *t, const choices *at, double *p) {
    int64_t counts[MAX_WIDTH] = {0};
    for (int64_t c = 0; c < at->count; c++) {
        p[c] = t->floor;
        for (int64_t i = t->heads[at->tokens[c] % BUCKETS]; i >= t->first; i = t->previous[i])
            counts[c] += t->tokens[i] == at->tokens[c];
    }
    interpolate(p, counts, t->length - t->first, at->count, t->pseudocount);
}

/* Where history's first token stood, from *at of its chain on, with a token after it that is counted:
 * return how many tokens of history, which is latest first, stood there, and the place in *at; 0
 * after the last. */
static int64_t next_match(const counted_text *t, const int64_t *history, int64_t known, int64_t *at) {
    for (int64_t i = *at; i >= 0 && i + 1 >= t->first; i = t->previous[i]) {
        if (t->tokens[i] != history[0] || i + 1 == t->length) continue;
        int64_t same = 1;
        while (same < known && same <= i && t->tokens[i - same] == history[same]) same++;
        *at = i;
        return same;
    }
    return 0;
}

/* Interpolate p with what followed the last 1, 2, ... tokens of history, which is latest first. */
void interpolate_followers(const counted_text *t, const int64_t *history, int64_t known,
                           const choices *at, double *p) {
    int64_t counts[MAX_ORDER][MAX_WIDTH], totals[MAX_ORDER] = {0};
    if (!known) return;
    for (int64_t o = 0; o < known; o++) memset(counts[o], 0, at->count * sizeof counts[o][0]);
    int64_t same, i = t->heads[history[0] % BUCKETS];
    for (; (same = next_match(t, history, known, &i)); i = t->previous[i]) {
        for (int64_t o = 0; o < same; o++) totals[o]++;
        for (int64_t c = 0; c < at->count; c++)
            for (int64_t o = 0; at->tokens[c] == t->tokens[i + 1] && o < same; o++) counts[o][c]++;
    }
    for (int64_t o = 0; o < known && totals[o]; o++)
        interpolate(p, counts[o], totals[o], at->count, t->pseudocount);
}

static follower *entry(followers *f, int64_t token) {
    for (int64_t i = 0; i < f->count; i++)
        if (f->found[i].token == token) return f->found + i;
    follower *made = f->found + f->count++;
    *made = (follower){token, {0}};
    return made;
}

/* Count what followed the last 1, 2, ... tokens of history, which is latest first; found has room
 * for a token of each place in the text. */
void follow(const counted_text *t, const int64_t *history, int64_t known, followers *f) {
    f->orders = f->count = 0;
    memset(f->totals, 0, sizeof f->totals);
    if (!known) return;
    int64_t same, i = t->heads[history[0] % BUCKETS];
    for (; (same = next_match(t, history, known, &i)); i = t->previous[i]) {
        follower *at = entry(f, t->tokens[i + 1]);
        for (int64_t o = 0; o < same; o++) at->counts[o]++, f->totals[o]++;
        if (same > f->orders) f->orders = same;
    }
}
