/* From logits to candidates, and the edge scores between neighbouring slots' candidates. */
#include "common/noise.h"
#include "rows.h"

#define GROUPS MAX_CANDIDATES
/* A token whose log q / T is so far below the best one's gets no noise: it would seldom win. */
#define WITHIN 10.0f

/* A number that at least `count` logits reach, and not many more: the count-th largest of the
 * greatest of 64 groups of them. */
INLINE float threshold(const float *tops, int64_t count) {
    float least = INFINITY;
    for (int i = 0; i < GROUPS; i++) {
        int above = 0;
        for (int g = 0; g < GROUPS; g += LANES)
            above += __builtin_popcount(compared(load(tops + g), all(tops[i]), _CMP_GT_OQ));
        if (above < count && tops[i] < least) least = tops[i];
    }
    return least;
}

/* How many of n numbers come before one of them: the greater ones, and equal ones before it. They
 * are readable up to a multiple of LANES and hold there what is less than any. */
INLINE int64_t rank_of(const float *numbers, int64_t n, int64_t i) {
    floats mine = all(numbers[i]);
    int64_t rank = 0;
    for (int64_t j = 0; j < n; j += LANES) {
        floats others = load(numbers + j);
        int64_t before = i - j < 0 ? 0 : i - j > LANES ? LANES : i - j;
        uint32_t equal = compared(others, mine, _CMP_EQ_OQ) & ((1u << before) - 1);
        rank += __builtin_popcount(compared(others, mine, _CMP_GT_OQ) | equal);
    }
    return rank;
}

/* Write the M best of n found logits, best first, ties by token. */
INLINE void sort_best(const float *found, const int32_t *ids, int64_t n, int64_t M, float shift,
                      int64_t *tokens, float *log_q) {
    for (int64_t i = 0; i < n; i++) {
        int64_t rank = rank_of(found, n, i);
        if (rank < M) {
            tokens[rank] = ids[i];
            log_q[rank] = found[i] - shift;
        }
    }
}

/* Write log q / T + g of found logits, but for a constant. u is a float here: which tokens are
 * candidates is not what target and drafter share. */
static void add_noise(const model *m, const request *r, int64_t slot, float most, const float *found,
                 const int32_t *ids, int64_t n, float *out) {
    uint64_t place = (uint64_t)(r->start + r->tokens + slot);
    uint64_t key = mix(mix(r->seed + GOLDEN) ^ (place * GOLDEN));
    floats scale = all(1.0f / (float)r->temperature);
    const int32_t *token_ids = m->token_ids;
    for (int64_t i = 0; i < n; i += LANES) {
        int32_t named[LANES], bits[LANES];
        for (int j = 0; j < LANES; j++) named[j] = token_ids ? token_ids[ids[i + j]] : ids[i + j];
        for (int j = 0; j < LANES; j++)
            bits[j] = (int32_t)(~mix(key + ((uint64_t)named[j] + 1) * GOLDEN) >> 33);
        /* 1 - u, exact where it is small; -log(u) is no less. */
        floats rest = (floats_of(load_ints(bits)) + all(0.5f)) * all(0x1p-31f);
        floats minus_log = larger_of(zeros() - log_lanes(all(1.0f) - rest), rest);
        store(out + i, (load(found + i) - all(most)) * scale - log_lanes(minus_log));
    }
}

/* Of n found logits keep EOS's and those with the greatest log q / T + g, M in all, in their order;
 * return M. found and ids have room for n + GROUPS; noisy for as many is scratch memory. */
static int64_t keep_drawn(const model *m, const request *r, int64_t slot, float most,
                          float eos_logit, float *found, int32_t *ids, int64_t n, float *noisy) {
    int64_t M = m->candidates, few = 0, kept = 0;
    float tops[GROUPS];
    int64_t eos = 0;
    while (eos < n && ids[eos] != m->eos) eos++;
    if (eos == n) {
        ids[n] = (int32_t)m->eos;
        found[n++] = eos_logit;
    }
    for (int64_t i = n; i < n + LANES; i++) ids[i] = 0;
    add_noise(m, r, slot, most, found, ids, n, noisy);
    noisy[eos] = INFINITY;
    for (int64_t i = n; i < n + GROUPS; i++) noisy[i] = -INFINITY;
    for (int g = 0; g < GROUPS; g++) tops[g] = -INFINITY;
    for (int64_t i = 0; i < n; i += GROUPS)
        for (int g = 0; g < GROUPS; g += LANES)
            store(tops + g, larger_of(load(tops + g), load(noisy + i + g)));
    float bar = threshold(tops, M);
    for (int64_t i = 0; i < n; i++) {
        if (noisy[i] < bar) continue;
        ids[few] = ids[i];
        found[few] = found[i];
        noisy[few++] = noisy[i];
    }
    store(noisy + few, all(-INFINITY));
    for (int64_t i = 0; i < few; i++) {
        if (rank_of(noisy, few, i) >= M) continue;
        ids[kept] = ids[i];
        found[kept++] = found[i];
    }
    return kept;
}

/* Write the candidates of a request's slot, as rows of the head, the mask token never among them, EOS
 * always, and their log q.
 *
 * logits [scored] are changed; scratch has room for scored + GROUPS floats twice, and as many int32.
 * Where the logits are not finite, neither is log_q, and the tokens are any.
 */
static void best_candidates(const model *m, const request *r, int64_t slot, float *logits,
                            void *scratch, int64_t *tokens, float *log_q) {
    int64_t V = m->scored, M = m->candidates, n = 0;
    float *found = scratch, *noisy = found + V + GROUPS;
    int32_t *ids = (int32_t *)(noisy + V + GROUPS);
    if (m->mask >= 0) logits[m->mask] = -INFINITY;
    floats tops[GROUPS / LANES], sum[VECTORS] = {zeros()};
    for (int g = 0; g < GROUPS / LANES; g++) tops[g] = all(-INFINITY);
    for (int64_t v = 0; v < V; v += GROUPS)
        for (int g = 0; g < GROUPS / LANES; g++)
            tops[g] = larger_of(tops[g], load(logits + v + g * LANES));
    floats top = tops[0];
    for (int g = 1; g < GROUPS / LANES; g++) top = larger_of(top, tops[g]);
    float most = largest_of(top), bar = threshold((const float *)tops, M);
    float within = most - WITHIN * (float)r->temperature;
    if (r->temperature > 0 && within < bar) bar = within;
    for (int64_t v = 0; v < V; v += LANES) {
        floats x = load(logits + v);
        sum[v / LANES % VECTORS] += exp2_lanes(fused(x, all(LOG2_E), all(-most * LOG2_E)));
        uint32_t hits = compared(x, all(bar), _CMP_GE_OQ);
        for (; hits; hits &= hits - 1, n++) {
            ids[n] = (int32_t)(v + __builtin_ctz(hits));
            found[n] = logits[ids[n]];
        }
    }
    float log_sum = most + logf(sum_of_sixteen(sum));
    if (!isfinite(log_sum)) {
        for (int64_t i = 0; i < M; i++) {
            tokens[i] = m->eos;
            log_q[i] = NAN;
        }
        return;
    }
    if (r->temperature > 0)
        n = keep_drawn(m, r, slot, most, logits[m->eos], found, ids, n, noisy);
    store(found + n, all(-INFINITY));
    sort_best(found, ids, n, M, log_sum, tokens, log_q);
    for (int64_t i = 0; i < M; i++)
        if (tokens[i] == m->eos) return;
    tokens[M - 1] = m->eos;
    log_q[M - 1] = logits[m->eos] - log_sum;
}

/* (gate + bias) * previous for two vectors of dimensions, in bf16. */
INLINE ints gated_pair(const float *gate, const float *bias, const uint16_t *previous) {
    floats first = load(gate) + load(bias), second = load(gate + LANES) + load(bias + LANES);
    return pack_bf16(first * load_bf16(previous), second * load_bf16(previous + LANES));
}

/* Write one slot's edge scores [num_previous, M]: what each of `following` [M] gets for coming
 * after each of `previous`, all of them rows of the head. gate [rank] is the slot's, without its bias. */
static void edge_scores(const model *m, const float *gate, const int64_t *previous,
                        int64_t num_previous, const int64_t *following, float *out) {
    int64_t M = m->candidates, rank = m->rank, units = rank / 2;
    _Alignas(64) uint32_t next[MAX_EDGE_RANK / 2 * COLUMNS];
    _Alignas(64) uint16_t before[MAX_CANDIDATES * MAX_EDGE_RANK];
    _Alignas(64) float scores[MAX_ROWS * COLUMNS];
    multiplier *const *multiply = bf16_products();
    for (int64_t i = 0; i < num_blocks(num_previous, MAX_ROWS); i++) {
        block b = block_at(num_previous, MAX_ROWS, i);
        for (int64_t r = 0; r < b.rows; r++) {
            const uint16_t *from = m->edge_previous + previous[b.first + r] * rank;
            uint16_t *to = before + b.first * rank;
            for (int64_t d = 0; d < rank; d += 2 * LANES)
                store_ints(to + at_line(b.rows, r, d),
                           gated_pair(gate + d, m->edge_bias + d, from + d));
        }
    }
    for (int64_t c = 0; c < M; c += COLUMNS) {
        int64_t width = M - c < COLUMNS ? M - c : COLUMNS;
        for (int64_t i = 0; i < width; i++) {
            const uint16_t *from = m->edge_next + following[c + i] * rank;
            for (int64_t u = 0; u < units; u++) memcpy(next + u * COLUMNS + i, from + 2 * u, 4);
        }
        for (int64_t i = 0; i < num_blocks(num_previous, MAX_ROWS); i++) {
            block b = block_at(num_previous, MAX_ROWS, i);
            const uint16_t *rows = before + b.first * rank;
            multiply[b.rows](rows, next, units, 0, 0, scores, 0);
            for (int64_t r = 0; r < b.rows; r++)
                memcpy(out + (b.first + r) * M + c, scores + r * COLUMNS, 4 * width);
        }
    }
}
