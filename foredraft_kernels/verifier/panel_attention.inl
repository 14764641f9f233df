/* Attention of the compiled forward: two products with the cache in the place of weights.
 *
 * In a layer of a block, keys lie as panels of 32 keys over head_dim. So do values, as panels of 32 dimensions
 * over the keys, but cut into pieces of 32 keys that stand side by side: both are read front to
 * back, and what is read next is known. One kernel multiplies everything, and a number's sum again
 * runs in a fixed order. Where a row does not look, its weight is zero, which leaves a sum as it is,
 * as long as values are finite.
 * A block holds whole panels; a product goes on from block to block.
 *
 * In a pair of keys' values, and of their weights, the even key stands second, as the instruction
 * adds the second product of a pair first: sums run over keys one by one, ascending. So a draft
 * tree's row, its weights scattered over the cache, adds its branch in the order in which a path's
 * row adds that path.
 */
#include "segments.h"

/* Where the pair of values that holds row `row` begins, for dimension d. */
static int64_t value_at(int64_t row, int64_t d, int64_t D) {
    int64_t piece = row / COLUMNS * D + d / COLUMNS * COLUMNS;
    return piece * COLUMNS + row % COLUMNS / 2 * PAIR_ROW + d % COLUMNS * 2;
}

/* Where key `row` has its weight. */
static int64_t weight_at(int64_t rows, int64_t query, int64_t row) {
    return at_line(rows, query, row ^ 1);
}

/* Store as bf16, in each pair the even one second. */
INLINE void store_swapped(uint16_t *p, floats x) {
    store_halves(p, x);
    for (int i = 0; i < LANES / 8; i++) {
        __m128i *at = (__m128i *)p + i, pairs = _mm_loadu_si128(at);
        _mm_storeu_si128(at, _mm_or_si128(_mm_slli_epi32(pairs, 16), _mm_srli_epi32(pairs, 16)));
    }
}

/* out[0..D) = a head's row, rotated to its position with every product and sum rounded as
 * transformers' bf16 rotary embedding rounds them. */
INLINE void rotate(uint16_t *out, const uint16_t *from, const model *m, int64_t position,
                          int64_t D) {
    for (int64_t i = 0; i < D / 2; i += LANES) {
        floats c = load(m->cos + position * D / 2 + i), s = load(m->sin + position * D / 2 + i);
        floats x = load_bf16(from + i), y = load_bf16(from + D / 2 + i);
        store_halves(out + i, rounded(x * c) - rounded(y * s));
        store_halves(out + D / 2 + i, rounded(y * c) + rounded(x * s));
    }
}

/* An even row's values clear the odd row's beside them, which is yet to come. */
INLINE void write_values(uint16_t *values, int64_t row, const uint16_t *from, int64_t D) {
    for (int64_t d = 0; d < D; d += LANES) {
        uint16_t *at = values + value_at(row, d, D);
        ints wide = shifted_left(widened(from + d), 16);
        if (row % 2) wide = halves_of(widened(from + d), load_ints(at));
        store_ints(at, wide);
    }
}

/* What stands behind the last row, up to the end of its panel, is multiplied by zero: it must be a
 * number. */
INLINE void clear_values(uint16_t *values, int64_t from, int64_t D) {
    int64_t end = (from + COLUMNS - 1) / COLUMNS * COLUMNS;
    for (int64_t row = (from + 1) / 2 * 2; row < end; row += 2)
        for (int64_t d = 0; d < D; d += COLUMNS)
            memset(values + value_at(row, d, D), 0, 2 * PAIR_ROW);
}

/* Turn scores[0..limit) of a row into bf16 weights 2^((s - max) * scale) and return 1 / their sum.
 * Both lie in lines; the weights end in zeros up to `padded`. */
INLINE float softmax(float *scores, uint16_t *weights, int64_t rows, int64_t row, int64_t limit,
                     int64_t padded, float scale) {
    const floats nothing = all(-__builtin_inff());
    floats top = nothing;
    for (int64_t j = 0; j < limit; j += LANES) {
        floats s = load(scores + at_line(rows, row, j));
        top = larger_of(choose(first_lanes(limit - j), s, nothing), top);
    }
    floats most = all(largest_of(top)), sum[VECTORS] = {zeros()};
    for (int64_t j = 0; j < padded; j += LANES) {
        floats e = exp2_lanes((load(scores + at_line(rows, row, j)) - most) * all(scale));
        e = rounded(choose(first_lanes(limit - j), e, zeros()));
        sum[j / LANES % VECTORS] += e;
        store_swapped(weights + at_line(rows, row, j), e);
    }
    return 1.0f / sum_of_sixteen(sum);
}

typedef struct {
    uint16_t *queries, *weights; /* lines of a block of queries, and of their weights */
    float *scores;               /* lines */
    int32_t *branch;
} memory;

/* A head of a layer of a segment's cache: `at` bytes into each block; and the one read after it. */
typedef struct {
    const segment *s;
    int64_t at;
    const segment *next;
    int64_t next_at;
} place;

static const uint16_t *keys_of(place p, int64_t row) {
    return (const uint16_t *)block_at_row(p.s, p.s->keys, row, p.at);
}
static const uint16_t *values_of(place p, int64_t row) {
    return (const uint16_t *)block_at_row(p.s, p.s->values, row, p.at);
}

/* What will be read after the values of the block with a row: keys, or `last` where there are none. */
static const void *after_values(place p, int64_t row, const void *last) {
    if (!p.next) return last;
    return block_at_row(p.next, p.next->keys, row < p.next->start ? row : 0, p.next_at);
}

/* Queries [from, from + n) of one KV head of one segment; query i is row i / group, head i % group. */
INLINE void attend_block(const model *m, place p, const void *last_read, const uint16_t *qkv,
                                int64_t stride, int64_t kv_head, int64_t from, int64_t n,
                                int64_t most, uint16_t *out, memory memory) {
    const segment *s = p.s;
    int64_t D = m->head_dim, group = m->heads / m->kv_heads, root = tree_start(s);
    int64_t last = keys_end(s, (from + n - 1) / group);
    int64_t padded = (last + COLUMNS - 1) / COLUMNS * COLUMNS;
    int64_t limit[MAX_ROWS];
    float scale[MAX_ROWS];
    _Alignas(64) uint16_t rotated[MAX_HEAD_DIM];
    _Alignas(64) float sums[MAX_ROWS * COLUMNS];
    for (int64_t i = 0; i < n; i++) {
        int64_t row = (from + i) / group, head = kv_head * group + (from + i) % group;
        limit[i] = keys_seen(s, row);
        rotate(rotated, qkv + (s->first + row) * stride + head * D, m, position_of(s, row), D);
        for (int64_t d = 0; d < D; d += LINE)
            copy_line(memory.queries + at_line(n, i, d), rotated + d);
    }
    multiplier *multiply = bf16_products()[n];
    for (int64_t t = 0; t < padded; t += s->block) {
        const uint16_t *keys = keys_of(p, t);
        for (int64_t j = 0; j < s->block && t + j < padded; j += COLUMNS)
            WEIGH(bf16, memory.queries, n, most, keys + j * D, D / LINE, s->values - s->keys,
                  memory.scores + (t + j) * n);
    }
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
        for (int64_t t = 0; t < padded; t += s->block) {
            const uint16_t *values = values_of(p, t);
            int64_t keys = padded - t < s->block ? padded - t : s->block;
            int64_t ahead = (const char *)after_values(p, t, last_read) - (const char *)values;
            multiply(memory.weights + t * n, values + d * COLUMNS, keys / 2, (D - COLUMNS) / 2, ahead,
                     sums, t > 0);
        }
        for (int64_t i = 0; i < n; i++) {
            int64_t row = s->first + (from + i) / group, head = kv_head * group + (from + i) % group;
            uint16_t *to = out + (row * m->heads + head) * D + d;
            for (int64_t c = 0; c < COLUMNS; c += LANES)
                store_halves(to + c, load(sums + i * COLUMNS + c) * all(scale[i]));
        }
    }
}

/* Bytes of 64-byte aligned memory that a thread's attend_heads needs. */
static int64_t attention_bytes(const segment *segments, int64_t count) {
    int64_t keys = longest(segments, count);
    return 2 * MAX_ROWS * MAX_HEAD_DIM + (4 + 2) * MAX_ROWS * keys + (4 * keys + 63) / 64 * 64;
}

static int64_t head_at(const model *m, const segment *s, int64_t layer, int64_t head) {
    return layer * s->layer_bytes + 2 * head * s->block * m->head_dim;
}

/* Write k and v of some KV heads into the caches, then out [rows, heads, head_dim] = causal attention
 * of q, a draft tree's rows along their branches. qkv is [rows, heads + 2 kv_heads, head_dim]. */
static void attend_panels(const model *m, int64_t layer, const segment *segments, int64_t count,
                          const uint16_t *qkv, uint16_t *out, part heads, char *bytes) {
    int64_t D = m->head_dim, group = m->heads / m->kv_heads, keys_most = longest(segments, count);
    int64_t stride = (m->heads + 2 * m->kv_heads) * D;
    memory memory;
    memory.queries = (uint16_t *)bytes;
    memory.scores = (float *)(bytes + 2 * MAX_ROWS * MAX_HEAD_DIM);
    memory.weights = (uint16_t *)(memory.scores + MAX_ROWS * keys_most);
    memory.branch = (int32_t *)(memory.weights + MAX_ROWS * keys_most);
    uint16_t key[MAX_HEAD_DIM], in_lines[MAX_HEAD_DIM];
    const segment *end = segments + count;
    for (int64_t h = heads.from; h < heads.to; h++) {
        for (const segment *s = segments; s < end; s++) {
            place p = {s, head_at(m, s, layer, h), NULL, 0};
            if (s + 1 < end) p.next = s + 1;
            else if (h + 1 < heads.to) p.next = segments;
            if (p.next) p.next_at = head_at(m, p.next, layer, s + 1 < end ? h : h + 1);
            for (int64_t row = 0; row < s->rows; row++) {
                const uint16_t *k = qkv + (s->first + row) * stride + (m->heads + h) * D;
                int64_t stored = s->start + row;
                rotate(key, k, m, position_of(s, row), D);
                for (int64_t d = 0; d < D; d += LINE) copy_line(in_lines + d, key + d);
                write_key((uint16_t *)keys_of(p, stored), stored % s->block, in_lines, D);
                write_values((uint16_t *)values_of(p, stored), stored % s->block,
                             k + m->kv_heads * D, D);
            }
            int64_t stored = s->start + s->rows - 1;
            clear_values((uint16_t *)values_of(p, stored), stored % s->block + 1, D);
            int64_t queries = s->rows * group, most = largest_block(queries, MAX_ROWS);
            WEIGH_BEGIN(most);
            for (int64_t i = 0; i < num_blocks(queries, MAX_ROWS); i++) {
                block b = block_at(queries, MAX_ROWS, i);
                attend_block(m, p, m->layers[layer].out.panels, qkv, stride, h, b.first, b.rows,
                             most, out, memory);
            }
        }
    }
    WEIGH_END();
}

/* Move row start + rows[i] of keys and values, in `layers` layers of `heads` heads, to start + i; rows
 * ascend. s says where the cache lies. */
EXPORTED void FOR_ISA(fd_keep_panels)(const segment *s, int64_t layers, int64_t heads, int64_t D,
                             int64_t start, const int32_t *rows, int64_t count) {
    for (int64_t head = 0; head < layers * heads; head++) {
        place p = {s, head / heads * s->layer_bytes + 2 * (head % heads) * s->block * D, NULL, 0};
        for (int64_t i = 0; i < count; i++) {
            int64_t to = start + i, from = start + rows[i];
            if (from == to) continue;
            uint16_t *keys_to = (uint16_t *)keys_of(p, to), *values_to = (uint16_t *)values_of(p, to);
            const uint16_t *keys_from = keys_of(p, from), *values_from = values_of(p, from);
            int64_t new = to % s->block, old = from % s->block;
            for (int64_t d = 0; d < D; d += 2)
                memcpy(keys_to + key_at(new, D) + d / 2 * PAIR_ROW,
                       keys_from + key_at(old, D) + d / 2 * PAIR_ROW, 4);
            for (int64_t d = 0; d < D; d++)
                values_to[value_at(new, d, D) + !(new % 2)] =
                    values_from[value_at(old, d, D) + !(old % 2)];
        }
    }
}
