/* From logits to candidates, and the edge scores between neighbouring slots' candidates. */
#include "native.h"

#include <math.h>
#include <string.h>

#define GROUPS 4 /* x LANES = MAX_CANDIDATES */

INLINE __m512 nothing(void) { return _mm512_set1_ps(-INFINITY); }

/* A number that at least `count` logits reach, and not many more: the count-th largest of the
 * greatest of 64 groups of them. */
INLINE float threshold(const float *tops, int64_t count) {
    float least = INFINITY;
    for (int i = 0; i < GROUPS * LANES; i++) {
        int above = 0;
        for (int g = 0; g < GROUPS * LANES; g += LANES)
            above += __builtin_popcount(_mm512_cmp_ps_mask(
                _mm512_load_ps(tops + g), _mm512_set1_ps(tops[i]), _CMP_GT_OQ));
        if (above < count && tops[i] < least) least = tops[i];
    }
    return least;
}

/* Write the M best of n found logits, best first, ties by token; found is readable up to a multiple
 * of 16 and holds -inf there. */
INLINE void sort_best(const float *found, const int32_t *ids, int64_t n, int64_t M, float shift,
                      int64_t *tokens, float *log_q) {
    for (int64_t i = 0; i < n; i++) {
        __m512 mine = _mm512_set1_ps(found[i]);
        int64_t rank = 0;
        for (int64_t j = 0; j < n; j += LANES) {
            __m512 others = _mm512_load_ps(found + j);
            int64_t before = i - j < 0 ? 0 : i - j > LANES ? LANES : i - j;
            __mmask16 equal = _mm512_cmp_ps_mask(others, mine, _CMP_EQ_OQ);
            __mmask16 ahead = _mm512_cmp_ps_mask(others, mine, _CMP_GT_OQ);
            rank += __builtin_popcount(ahead | (equal & ((1u << before) - 1)));
        }
        if (rank < M) {
            tokens[rank] = ids[i];
            log_q[rank] = found[i] - shift;
        }
    }
}

/* Write a slot's candidates, the mask token never among them, EOS always, and their log q.
 *
 * logits [vocab] are changed; scratch has room for vocab + 16 floats and as many int32. Where the
 * logits are not finite, neither is log_q, and the tokens are any.
 */
TARGET void best_candidates(const model *m, float *logits, void *scratch, int64_t *tokens,
                            float *log_q) {
    int64_t V = m->vocab, M = m->candidates, n = 0;
    float *found = scratch;
    int32_t *ids = (int32_t *)(found + V + LANES);
    logits[m->mask] = -INFINITY;
    __m512 tops[GROUPS] = {nothing(), nothing(), nothing(), nothing()};
    for (int64_t v = 0; v < V; v += GROUPS * LANES)
        for (int g = 0; g < GROUPS; g++)
            tops[g] = _mm512_max_ps(tops[g], _mm512_load_ps(logits + v + g * LANES));
    __m512 top = _mm512_max_ps(_mm512_max_ps(tops[0], tops[1]), _mm512_max_ps(tops[2], tops[3]));
    float most = _mm512_reduce_max_ps(top), bar = threshold((const float *)tops, M);
    __m512 sum = _mm512_setzero_ps(), unit = _mm512_set1_ps(LOG2_E);
    __m512 shift = _mm512_set1_ps(most * LOG2_E);
    for (int64_t v = 0; v < V; v += LANES) {
        __m512 x = _mm512_load_ps(logits + v);
        sum = _mm512_add_ps(sum, exp2_lanes(_mm512_fmsub_ps(x, unit, shift)));
        uint32_t hits = _mm512_cmp_ps_mask(x, _mm512_set1_ps(bar), _CMP_GE_OQ);
        for (; hits; hits &= hits - 1, n++) {
            ids[n] = (int32_t)(v + __builtin_ctz(hits));
            found[n] = logits[ids[n]];
        }
    }
    float log_sum = most + logf(_mm512_reduce_add_ps(sum));
    if (!isfinite(log_sum)) {
        for (int64_t i = 0; i < M; i++) {
            tokens[i] = m->eos;
            log_q[i] = NAN;
        }
        return;
    }
    _mm512_storeu_ps(found + n, nothing());
    sort_best(found, ids, n, M, log_sum, tokens, log_q);
    for (int64_t i = 0; i < M; i++)
        if (tokens[i] == m->eos) return;
    tokens[M - 1] = m->eos;
    log_q[M - 1] = logits[m->eos] - log_sum;
}

/* (gate + bias) * previous for 32 dimensions, in bf16. */
INLINE __m512i gated_line(const float *gate, const float *bias, const uint16_t *previous) {
    __m512 g0 = _mm512_add_ps(_mm512_loadu_ps(gate), _mm512_loadu_ps(bias));
    __m512 g1 = _mm512_add_ps(_mm512_loadu_ps(gate + LANES), _mm512_loadu_ps(bias + LANES));
    return pack_bf16(_mm512_mul_ps(g0, load_bf16(previous)),
                     _mm512_mul_ps(g1, load_bf16(previous + LANES)));
}

/* Write one slot's edge scores [num_previous, M]: what each of `following` [M] gets for coming
 * after each of `previous`. gate [rank] is the slot's, without its bias. */
TARGET void edge_scores(const model *m, const float *gate, const int64_t *previous,
                        int64_t num_previous, const int64_t *following, float *out) {
    int64_t M = m->candidates, rank = m->rank, units = rank / 2;
    _Alignas(64) uint32_t next[MAX_EDGE_RANK / 2 * COLUMNS];
    _Alignas(64) uint16_t before[MAX_CANDIDATES * MAX_EDGE_RANK];
    _Alignas(64) float scores[MAX_ROWS * COLUMNS];
    tile *const *multiply = bf16_tiles();
    for (int64_t i = 0; i < num_blocks(num_previous); i++) {
        block b = block_at(num_previous, i);
        for (int64_t r = 0; r < b.rows; r++) {
            const uint16_t *from = m->edge_previous + previous[b.first + r] * rank;
            uint16_t *to = before + b.first * rank + r * HALVES;
            for (int64_t d = 0; d < rank; d += HALVES) {
                __m512i line = gated_line(gate + d, m->edge_bias + d, from + d);
                _mm512_store_si512(to + d * b.rows, line);
            }
        }
    }
    for (int64_t c = 0; c < M; c += COLUMNS) {
        int64_t width = M - c < COLUMNS ? M - c : COLUMNS;
        for (int64_t i = 0; i < width; i++) {
            const uint16_t *from = m->edge_next + following[c + i] * rank;
            for (int64_t u = 0; u < units; u++) memcpy(next + u * COLUMNS + i, from + 2 * u, 4);
        }
        for (int64_t i = 0; i < num_blocks(num_previous); i++) {
            block b = block_at(num_previous, i);
            const uint16_t *rows = before + b.first * rank;
            multiply[b.rows]((const int32_t *)rows, (const int32_t *)next, units, scores);
            for (int64_t r = 0; r < b.rows; r++)
                memcpy(out + (b.first + r) * M + c, scores + r * COLUMNS, 4 * width);
        }
    }
}
