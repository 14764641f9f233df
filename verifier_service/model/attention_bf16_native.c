/* Attention of the compiled forward: two products with the cache in the place of weights.
 *
 * Keys lie as linear.h's panels of 32 keys over head_dim. So do values, as panels of 32 dimensions
 * over the keys, but cut into pieces of 32 keys that stand side by side: both are read front to
 * back, and what is read next is known. One kernel multiplies everything, and a number's sum again
 * runs in a fixed order. Where a row does not look, its weight is zero, which leaves a sum as it is,
 * as long as values are finite.
 *
 * In a pair of keys' values, and of their weights, the even key stands second, as the instruction
 * adds the second product of a pair first: sums run over keys one by one, ascending. So a draft
 * tree's row, its weights scattered over the cache, adds its branch in the order in which a path's
 * row adds that path.
 */
#include "forward.h"

#if defined(__x86_64__)

#define PAIR_ROW (2 * COLUMNS) /* numbers in a panel's row of pairs */

/* Where key `row` has its first pair of numbers; the next pair is PAIR_ROW further. */
static int64_t key_at(int64_t row, int64_t D) {
    return row / COLUMNS * COLUMNS * D + row % COLUMNS * 2;
}

/* Where the pair of values that holds row `row` begins, for dimension d. */
static int64_t value_at(int64_t row, int64_t d, int64_t D) {
    int64_t piece = row / COLUMNS * D + d / COLUMNS * COLUMNS;
    return piece * COLUMNS + row % COLUMNS / 2 * PAIR_ROW + d % COLUMNS * 2;
}

/* Where key `row` has its weight. */
static int64_t weight_at(int64_t rows, int64_t query, int64_t row) {
    return at_line(rows, query, row ^ 1);
}

/* out[0..D) = a head's row, rotated to its position with every product and sum rounded as
 * transformers' bf16 rotary embedding rounds them. */
AVX512_INLINE void rotate(uint16_t *out, const uint16_t *from, const model *m, int64_t position,
                          int64_t D) {
    for (int64_t i = 0; i < D / 2; i += LANES) {
        __m512 c = _mm512_loadu_ps(m->cos + position * D / 2 + i);
        __m512 s = _mm512_loadu_ps(m->sin + position * D / 2 + i);
        __m512 x = load_halves(from + i), y = load_halves(from + D / 2 + i);
        store_halves(out + i, rounded(x * c) - rounded(y * s));
        store_halves(out + D / 2 + i, rounded(y * c) + rounded(x * s));
    }
}

AVX512_INLINE void write_key(uint16_t *keys, int64_t row, const uint16_t *key, int64_t D) {
    keys += key_at(row, D);
    for (int64_t i = 0; i < D / 2; i++) memcpy(keys + i * PAIR_ROW, key + 2 * i, 4);
}

/* An even row's values clear the odd row's beside them, which is yet to come. */
AVX512_INLINE void write_values(uint16_t *values, int64_t row, const uint16_t *from, int64_t D) {
    for (int64_t d = 0; d < D; d += LANES) {
        uint16_t *at = values + value_at(row, d, D);
        __m512i wide = (__m512i)load_halves(from + d);
        if (row % 2)
            wide = _mm512_mask_blend_epi16(0xAAAAAAAA, _mm512_srli_epi32(wide, 16),
                                           _mm512_load_si512(at));
        _mm512_store_si512(at, wide);
    }
}

/* What stands behind the last row, up to the end of its panel, is multiplied by zero: it must be a
 * number. */
AVX512_INLINE void clear_values(uint16_t *values, int64_t from, int64_t D) {
    int64_t end = (from + COLUMNS - 1) / COLUMNS * COLUMNS;
    for (int64_t row = (from + 1) / 2 * 2; row < end; row += 2)
        for (int64_t d = 0; d < D; d += COLUMNS)
            memset(values + value_at(row, d, D), 0, 2 * PAIR_ROW);
}

/* A mask of the first lanes, as many as there are. */
AVX512_INLINE __mmask16 seen(int64_t count) {
    return count >= LANES ? 0xFFFF : count > 0 ? (1u << count) - 1 : 0;
}

/* Turn scores[0..limit) of a row into bf16 weights 2^((s - max) * scale) and return 1 / their sum.
 * Both lie in lines; the weights end in zeros up to `padded`. */
AVX512_INLINE float softmax(float *scores, uint16_t *weights, int64_t rows, int64_t row,
                            int64_t limit, int64_t padded, float scale) {
    const __m512 nothing = _mm512_set1_ps(-__builtin_inff());
    __m512 top = nothing;
    for (int64_t j = 0; j < limit; j += LANES)
        top = _mm512_max_ps(_mm512_mask_loadu_ps(nothing, seen(limit - j),
                                                 scores + at_line(rows, row, j)), top);
    __m512 most = _mm512_set1_ps(_mm512_reduce_max_ps(top)), sum = _mm512_setzero_ps();
    for (int64_t j = 0; j < padded; j += LANES) {
        __m512 e = exp2_lanes((_mm512_load_ps(scores + at_line(rows, row, j)) - most) * scale);
        e = _mm512_maskz_mov_ps(seen(limit - j), e);
        __m256i weight = halves(e);
        sum += (__m512)_mm512_slli_epi32(_mm512_cvtepu16_epi32(weight), 16);
        /* The even key stands second. */
        weight = _mm256_or_si256(_mm256_slli_epi32(weight, 16), _mm256_srli_epi32(weight, 16));
        _mm256_store_si256((__m256i *)(weights + at_line(rows, row, j)), weight);
    }
    return 1.0f / _mm512_reduce_add_ps(sum);
}

typedef struct {
    uint16_t *queries, *weights; /* lines of a block of queries, and of their weights */
    float *scores;               /* lines */
    int32_t *branch;
} memory;

/* Queries [from, from + n) of one KV head of one segment; query i is row i / group, head i % group. */
AVX512_INLINE void attend_block(const model *m, const segment *s, const uint16_t *keys,
                                const uint16_t *values, const void *next, const uint16_t *qkv,
                                int64_t stride, int64_t kv_head, int64_t from, int64_t n,
                                uint16_t *out, memory memory) {
    int64_t D = m->head_dim, group = m->heads / m->kv_heads, root = tree_start(s);
    int64_t last = s->start + (from + n - 1) / group + 1;
    int64_t padded = (last + COLUMNS - 1) / COLUMNS * COLUMNS;
    int64_t limit[MAX_ROWS];
    float scale[MAX_ROWS];
    _Alignas(64) uint16_t rotated[MAX_HEAD_DIM];
    _Alignas(64) float sums[MAX_ROWS * COLUMNS];
    for (int64_t i = 0; i < n; i++) {
        int64_t row = (from + i) / group, head = kv_head * group + (from + i) % group;
        limit[i] = position_of(s, row) + 1;
        rotate(rotated, qkv + (s->first + row) * stride + head * D, m, limit[i] - 1, D);
        for (int64_t d = 0; d < D; d += LINE)
            memcpy(memory.queries + at_line(n, i, d), rotated + d, 2 * LINE);
    }
    multiplier *multiply = multipliers[n];
    for (int64_t t = 0; t < padded; t += COLUMNS)
        multiply(memory.queries, keys + t * D, D, 0, 2 * (values - keys), memory.scores + t * n);
    for (int64_t i = 0; i < n; i++) {
        int64_t depth = limit[i] - root;
        if (depth > 0) branch_of(s, (from + i) / group, depth, memory.branch);
        /* A node stands at or behind its place on its branch: copying forward loses nothing. */
        for (int64_t j = 0; j < depth; j++)
            memory.scores[at_line(n, i, root + j)] =
                memory.scores[at_line(n, i, root + memory.branch[j])];
        scale[i] = softmax(memory.scores, memory.weights, n, i, limit[i], padded, LOG2_E * m->scale);
        /* And back, from the last one. */
        for (int64_t j = depth - 1; j >= 0; j--) {
            uint16_t *place = memory.weights + weight_at(n, i, root + j), weight = *place;
            *place = 0;
            memory.weights[weight_at(n, i, root + memory.branch[j])] = weight;
        }
    }
    for (int64_t d = 0; d < D; d += COLUMNS) {
        multiply(memory.weights, values + d * COLUMNS, padded, (D - COLUMNS) * COLUMNS,
                 (const char *)next - (const char *)values, sums);
        for (int64_t i = 0; i < n; i++) {
            int64_t row = s->first + (from + i) / group, head = kv_head * group + (from + i) % group;
            uint16_t *to = out + (row * m->heads + head) * D + d;
            store_halves(to, _mm512_load_ps(sums + i * COLUMNS) * scale[i]);
            store_halves(to + LANES, _mm512_load_ps(sums + i * COLUMNS + LANES) * scale[i]);
        }
    }
}

static int64_t longest(const segment *segments, int64_t count) {
    int64_t most = 0;
    for (const segment *s = segments; s < segments + count; s++)
        most = s->capacity > most ? s->capacity : most;
    return most;
}

/* Bytes of 64-byte aligned memory that a thread's attend_heads needs. */
int64_t attention_bytes(const segment *segments, int64_t count) {
    int64_t keys = longest(segments, count);
    return 2 * MAX_ROWS * MAX_HEAD_DIM + (4 + 2) * MAX_ROWS * keys + (4 * keys + 63) / 64 * 64;
}

static int64_t head_at(const model *m, const segment *s, int64_t layer, int64_t head) {
    return layer * s->layer_bytes + 2 * head * s->capacity * m->head_dim;
}

/* Write k and v of some KV heads into the caches, then out [rows, heads, head_dim] = causal attention
 * of q, a draft tree's rows along their branches. qkv is [rows, heads + 2 kv_heads, head_dim]. */
AVX512 void attend_panels(const model *m, int64_t layer, const segment *segments, int64_t count,
                          const uint16_t *qkv, uint16_t *out, part heads, char *bytes) {
    int64_t D = m->head_dim, group = m->heads / m->kv_heads, keys_most = longest(segments, count);
    int64_t stride = (m->heads + 2 * m->kv_heads) * D;
    memory memory;
    memory.queries = (uint16_t *)bytes;
    memory.scores = (float *)(bytes + 2 * MAX_ROWS * MAX_HEAD_DIM);
    memory.weights = (uint16_t *)(memory.scores + MAX_ROWS * keys_most);
    memory.branch = (int32_t *)(memory.weights + MAX_ROWS * keys_most);
    uint16_t key[MAX_HEAD_DIM];
    const segment *end = segments + count;
    for (int64_t h = heads.from; h < heads.to; h++) {
        for (const segment *s = segments; s < end; s++) {
            int64_t at = head_at(m, s, layer, h);
            uint16_t *keys = (uint16_t *)(s->keys + at), *values = (uint16_t *)(s->values + at);
            const void *next = m->layers[layer].out.panels;
            if (s + 1 < end) next = s[1].keys + head_at(m, s + 1, layer, h);
            else if (h + 1 < heads.to) next = segments->keys + head_at(m, segments, layer, h + 1);
            for (int64_t row = 0; row < s->rows; row++) {
                const uint16_t *k = qkv + (s->first + row) * stride + (m->heads + h) * D;
                rotate(key, k, m, position_of(s, row), D);
                write_key(keys, s->start + row, key, D);
                write_values(values, s->start + row, k + m->kv_heads * D, D);
            }
            clear_values(values, s->start + s->rows, D);
            int64_t queries = s->rows * group;
            for (int64_t i = 0; i < num_blocks(queries); i++) {
                block b = block_at(queries, i);
                attend_block(m, s, keys, values, next, qkv, stride, h, b.first, b.rows, out,
                             memory);
            }
        }
    }
}

/* Move row start + rows[i] of keys and values of `heads` heads to start + i; rows ascend. */
void fd_keep_panels(uint16_t *keys, uint16_t *values, int64_t heads, int64_t D, int64_t capacity,
                    int64_t start, const int32_t *rows, int64_t count) {
    for (int64_t h = 0; h < heads; h++, keys += capacity * D, values += capacity * D)
        for (int64_t i = 0; i < count; i++) {
            int64_t to = start + i, from = start + rows[i];
            if (from == to) continue;
            for (int64_t d = 0; d < D; d += 2)
                memcpy(keys + key_at(to, D) + d / 2 * PAIR_ROW,
                       keys + key_at(from, D) + d / 2 * PAIR_ROW, 4);
            for (int64_t d = 0; d < D; d++)
                values[value_at(to, d, D) + !(to % 2)] = values[value_at(from, d, D) + !(from % 2)];
        }
}

#endif
