/* One session's attention over its cached prefix and its block, a head at a time, in bf16 with fp32
 * sums.
 *
 * Keys and values are kept as operand b of their tiles, in bf16 pairs: keys
 * [capacity / 32][head_dim / 2][32 keys][2 dims], values [head_dim / 32][capacity / 2][32 dims]
 * [2 keys]. What lies behind the last written key is never defined: its scores are dropped, and the
 * partner of the last value is zeroed as that is written.
 */
#include "rows.h"

INLINE int64_t chunks_of(int64_t keys) { return (keys + COLUMNS - 1) / COLUMNS; }

/* Queries, scores, weights and mixed values of one block of rows. */
typedef struct {
    uint16_t *queries;
    float *scores;     /* [chunks][rows][32 keys] */
    uint16_t *weights; /* the same, as operand a */
    float *mixed;
} attention_memory;

static int64_t attention_scratch(const model *m) {
    return MAX_ROWS * (m->head_dim * 2 + m->capacity * 6 + COLUMNS * 4);
}

INLINE attention_memory divide_attention(const model *m, char *scratch) {
    attention_memory s;
    s.scores = (float *)scratch;
    s.mixed = s.scores + MAX_ROWS * m->capacity;
    s.weights = (uint16_t *)(s.mixed + MAX_ROWS * COLUMNS);
    s.queries = s.weights + MAX_ROWS * m->capacity;
    return s;
}

/* to[0..head_dim) = x rotated to its position, times scale, in the rotate-half layout. */
INLINE void rotate(uint16_t *to, const float *x, const model *m, int64_t position, float scale) {
    int64_t half = m->head_dim / 2;
    const float *cos = m->cos + position * half, *sin = m->sin + position * half;
    for (int64_t i = 0; i < half; i += LANES) {
        floats a = load(x + i), b = load(x + half + i);
        floats c = load(cos + i) * all(scale), s = load(sin + i) * all(scale);
        store_split(to + i, to + half + i, pack_bf16(fused(a, c, -(b * s)), fused(b, c, a * s)));
    }
}

INLINE void write_value(const model *m, const float *v, int64_t position, uint32_t *values) {
    for (int64_t d = 0; d < m->head_dim; d += LANES) {
        uint32_t *to = values + d / COLUMNS * (m->capacity / 2) * COLUMNS +
                       position / 2 * COLUMNS + d % COLUMNS;
        ints x = rounded_bf16(load(v + d));
        store_ints(to, position % 2 ? halves_of(load_ints(to), x) : shifted_right(x, 16));
    }
}

/* Turn a row's scores, one row of each chunk, into weights 2^(s - max) for the first `limit` keys
 * and zero for the others; return 1 / the sum of the weights. */
INLINE float softmax(const float *scores, uint16_t *weights, int64_t step, int64_t limit,
                     int64_t chunks) {
    const floats nothing = all(-INFINITY);
    int64_t full = limit / COLUMNS, rest = limit % COLUMNS;
    floats most[PIECES], sum[VECTORS] = {zeros()};
    for (int v = 0; v < PIECES; v++) most[v] = nothing;
    for (int64_t c = 0; c < full; c++)
        for (int v = 0; v < PIECES; v++)
            most[v] = larger_of(most[v], load(scores + c * step + v * LANES));
    for (int v = 0; rest && v < PIECES; v++) {
        floats s = load(scores + full * step + v * LANES);
        most[v] = larger_of(most[v], choose(first_lanes(rest - v * LANES), s, nothing));
    }
    for (int v = 1; v < PIECES; v++) most[0] = larger_of(most[0], most[v]);
    floats top = all(largest_of(most[0]));
    for (int64_t c = 0; c < chunks; c++) {
        int64_t seen = c < full ? COLUMNS : c == full ? rest : 0;
        floats w[PIECES];
        for (int v = 0; v < PIECES; v++) {
            w[v] = exp2_lanes(load(scores + c * step + v * LANES) - top);
            w[v] = choose(first_lanes(seen - v * LANES), w[v], zeros());
        }
        for (int v = 0; v < VECTORS; v++) sum[v] += w[v] + w[v + VECTORS];
        for (int v = 0; v < PIECES; v += 2)
            store_ints(weights + c * step + v * LANES, pack_bf16(w[v], w[v + 1]));
    }
    return 1.0f / sum_of_sixteen(sum);
}

/* A session's rows are its mask rows, then its committed rows, wherever those are in the pass. */
typedef struct {
    int64_t masks, num_masks, committed, start, new_tokens;
} rows_of;

INLINE int64_t row_at(const rows_of *s, int64_t i) {
    return i < s->num_masks ? s->masks + i : s->committed + i - s->num_masks;
}
INLINE int64_t position_at(const rows_of *s, int64_t i) {
    return s->start + (i < s->num_masks ? s->new_tokens + i : i - s->num_masks);
}

INLINE void attend_head(const model *m, const rows_of *s, block b, const float *qkv,
                        const uint32_t *keys, const uint32_t *values,
                        const attention_memory *memory, float *out) {
    multiplier *multiply = bf16_products()[b.rows];
    int64_t D = m->head_dim, step = b.rows * COLUMNS, limit[MAX_ROWS], last = 0;
    float inverse[MAX_ROWS], scale = LOG2_E / __builtin_sqrtf((float)D);
    for (int64_t r = 0; r < b.rows; r++) {
        int64_t position = position_at(s, b.first + r);
        int is_mask = b.first + r < s->num_masks;
        limit[r] = is_mask ? s->start + s->new_tokens + s->num_masks : position + 1;
        last = limit[r] > last ? limit[r] : last;
        uint16_t query[MAX_HEAD_DIM];
        rotate(query, qkv + row_at(s, b.first + r) * 3 * m->hidden, m, position, scale);
        for (int64_t d = 0; d < D; d += LINE)
            memcpy(memory->queries + at_line(b.rows, r, d), query + d, 2 * LINE);
    }
    int64_t chunks = chunks_of(last);
    for (int64_t c = 0; c < chunks; c++)
        multiply(memory->queries, keys + c * COLUMNS * D / 2, D / 2, 0, 0, memory->scores + c * step,
                 0);
    for (int64_t r = 0; r < b.rows; r++)
        inverse[r] = softmax(memory->scores + r * COLUMNS, memory->weights + r * COLUMNS, step,
                             limit[r], chunks);
    for (int64_t d = 0; d < D; d += COLUMNS) {
        multiply(memory->weights, values + d * m->capacity / 2, (last + 1) / 2, 0, 0, memory->mixed,
                 0);
        for (int64_t r = 0; r < b.rows; r++) {
            const float *from = memory->mixed + r * COLUMNS;
            float *to = out + row_at(s, b.first + r) * m->hidden + d;
            for (int c = 0; c < COLUMNS; c += LANES)
                store(to + c, load(from + c) * all(inverse[r]));
        }
    }
}

/* Write a session's keys and values of one layer, then mix values for its rows.
 *
 * qkv [rows, 3 hidden] and out [rows, hidden] are the pass's; `masks` and `committed` are the
 * session's first rows in them. Mask rows see everything, committed rows the tokens up to
 * themselves; in the last layer those mix nothing. keys and values are this layer's caches.
 */
static void attend(const model *m, const request *r, const float *qkv, int64_t masks,
                   int64_t committed, int last, uint32_t *keys, uint32_t *values, void *scratch,
                   float *out) {
    rows_of s = {masks, r->num_slots, committed, r->start, r->tokens};
    int64_t rows = r->num_slots + (last ? 0 : r->tokens), size = m->capacity * m->head_dim / 2;
    attention_memory memory = divide_attention(m, scratch);
    for (int64_t h = 0; h < m->heads; h++) {
        int64_t at = (r->slot * m->heads + h) * size;
        const float *head = qkv + h * m->head_dim;
        /* In the order of positions: an even one's value zeroes the one behind it. */
        for (int64_t i = 0; i < r->tokens + r->num_slots; i++) {
            int64_t row = i < r->tokens ? committed + i : masks + i - r->tokens;
            uint16_t key[MAX_HEAD_DIM];
            const float *k = head + row * 3 * m->hidden + m->hidden;
            rotate(key, k, m, r->start + i, 1.0f);
            write_key((uint16_t *)(keys + at), r->start + i, key, m->head_dim);
            write_value(m, k + m->hidden, r->start + i, values + at);
        }
        for (int64_t i = 0; i < num_blocks(rows, MAX_ROWS); i++)
            attend_head(m, &s, block_at(rows, MAX_ROWS, i), head, keys + at, values + at, &memory,
                        out + h * m->head_dim);
    }
}
