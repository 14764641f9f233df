/* One session's attention over its cached prefix and its block, a head at a time, in bf16 with fp32
 * sums.
 *
 * Keys and values are kept as operand b of their tiles, in bf16 pairs: keys
 * [capacity / 32][head_dim / 2][32 keys][2 dims], values [head_dim / 32][capacity / 2][32 dims]
 * [2 keys]. What lies behind the last written key is never defined: its scores are dropped, and the
 * partner of the last value is zeroed as that is written.
 */
#include "native.h"

#include <string.h>

INLINE int64_t chunks_of(int64_t keys) { return (keys + COLUMNS - 1) / COLUMNS; }

/* Queries, scores, weights and mixed values of one block of rows. */
typedef struct {
    uint16_t *queries;
    float *scores;     /* [chunks][rows][32 keys] */
    uint16_t *weights; /* the same, as operand a */
    float *mixed;
} memory;

int64_t attention_scratch(const model *m) {
    return MAX_ROWS * (m->head_dim * 2 + m->capacity * 6 + COLUMNS * 4);
}

INLINE memory divide(const model *m, char *scratch) {
    memory s;
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
        __m512 a = _mm512_loadu_ps(x + i), b = _mm512_loadu_ps(x + half + i);
        __m512 c = _mm512_mul_ps(_mm512_loadu_ps(cos + i), _mm512_set1_ps(scale));
        __m512 s = _mm512_mul_ps(_mm512_loadu_ps(sin + i), _mm512_set1_ps(scale));
        __m512 first = _mm512_fmsub_ps(a, c, _mm512_mul_ps(b, s));
        __m512 second = _mm512_fmadd_ps(b, c, _mm512_mul_ps(a, s));
        __m512i both = pack_bf16(first, second);
        _mm256_storeu_si256((__m256i *)(to + i), _mm512_castsi512_si256(both));
        _mm256_storeu_si256((__m256i *)(to + half + i), _mm512_extracti64x4_epi64(both, 1));
    }
}

INLINE void write_key(const model *m, const float *k, int64_t position, uint32_t *keys) {
    int64_t pairs = m->head_dim / 2;
    uint32_t rotated[MAX_HEAD_DIM / 2];
    rotate((uint16_t *)rotated, k, m, position, 1.0f);
    uint32_t *to = keys + position / COLUMNS * COLUMNS * pairs + position % COLUMNS;
    for (int64_t d = 0; d < pairs; d++) to[d * COLUMNS] = rotated[d];
}

INLINE void write_value(const model *m, const float *v, int64_t position, uint32_t *values) {
    for (int64_t d = 0; d < m->head_dim; d += LANES) {
        uint32_t *to = values + d / COLUMNS * (m->capacity / 2) * COLUMNS +
                       position / 2 * COLUMNS + d % COLUMNS;
        __m512i x = rounded_bf16(_mm512_loadu_ps(v + d));
        if (position % 2)
            x = _mm512_mask_mov_epi16(_mm512_load_si512(to), 0xAAAAAAAA, x);
        else
            x = _mm512_srli_epi32(x, 16);
        _mm512_store_si512(to, x);
    }
}

/* Turn a row's scores, one row of each chunk, into weights 2^(s - max) for the first `limit` keys
 * and zero for the others; return 1 / the sum of the weights. */
INLINE float softmax(const float *scores, uint16_t *weights, int64_t step, int64_t limit,
                     int64_t chunks) {
    int64_t full = limit / COLUMNS;
    uint32_t rest = (1u << limit % COLUMNS) - 1;
    __m512 most0 = _mm512_set1_ps(-__builtin_inff()), most1 = most0;
    for (int64_t c = 0; c < full; c++) {
        most0 = _mm512_max_ps(most0, _mm512_load_ps(scores + c * step));
        most1 = _mm512_max_ps(most1, _mm512_load_ps(scores + c * step + LANES));
    }
    if (rest) {
        const float *s = scores + full * step;
        most0 = _mm512_mask_max_ps(most0, rest & 0xFFFF, most0, _mm512_load_ps(s));
        most1 = _mm512_mask_max_ps(most1, rest >> 16, most1, _mm512_load_ps(s + LANES));
    }
    __m512 top = _mm512_set1_ps(_mm512_reduce_max_ps(_mm512_max_ps(most0, most1)));
    __m512 sum = _mm512_setzero_ps();
    for (int64_t c = 0; c < chunks; c++) {
        uint32_t seen = c < full ? ~0u : c == full ? rest : 0;
        __m512 w0 = exp2_lanes(_mm512_sub_ps(_mm512_load_ps(scores + c * step), top));
        __m512 w1 = exp2_lanes(_mm512_sub_ps(_mm512_load_ps(scores + c * step + LANES), top));
        w0 = _mm512_maskz_mov_ps(seen & 0xFFFF, w0);
        w1 = _mm512_maskz_mov_ps(seen >> 16, w1);
        sum = _mm512_add_ps(sum, _mm512_add_ps(w0, w1));
        _mm512_store_si512(weights + c * step, pack_bf16(w0, w1));
    }
    return 1.0f / _mm512_reduce_add_ps(sum);
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
                        const uint32_t *keys, const uint32_t *values, const memory *memory,
                        float *out) {
    tile *multiply = bf16_tiles()[b.rows];
    int64_t D = m->head_dim, step = b.rows * COLUMNS, limit[MAX_ROWS], last = 0;
    float inverse[MAX_ROWS], scale = LOG2_E / __builtin_sqrtf((float)D);
    for (int64_t r = 0; r < b.rows; r++) {
        int64_t position = position_at(s, b.first + r);
        int is_mask = b.first + r < s->num_masks;
        limit[r] = is_mask ? s->start + s->new_tokens + s->num_masks : position + 1;
        last = limit[r] > last ? limit[r] : last;
        uint16_t query[MAX_HEAD_DIM];
        rotate(query, qkv + row_at(s, b.first + r) * 3 * m->hidden, m, position, scale);
        for (int64_t d = 0; d < D; d += HALVES)
            memcpy(memory->queries + d * b.rows + r * HALVES, query + d, 2 * HALVES);
    }
    int64_t chunks = chunks_of(last);
    for (int64_t c = 0; c < chunks; c++)
        multiply((const int32_t *)memory->queries, (const int32_t *)keys + c * COLUMNS * D / 2,
                 D / 2, memory->scores + c * step);
    for (int64_t r = 0; r < b.rows; r++)
        inverse[r] = softmax(memory->scores + r * COLUMNS, memory->weights + r * COLUMNS, step,
                             limit[r], chunks);
    for (int64_t d = 0; d < D; d += COLUMNS) {
        multiply((const int32_t *)memory->weights, (const int32_t *)values + d * m->capacity / 2,
                 (last + 1) / 2, memory->mixed);
        for (int64_t r = 0; r < b.rows; r++) {
            const float *from = memory->mixed + r * COLUMNS;
            float *to = out + row_at(s, b.first + r) * m->hidden + d;
            __m512 by = _mm512_set1_ps(inverse[r]);
            _mm512_storeu_ps(to, _mm512_mul_ps(_mm512_load_ps(from), by));
            _mm512_storeu_ps(to + LANES, _mm512_mul_ps(_mm512_load_ps(from + LANES), by));
        }
    }
}

/* Write a session's keys and values of one layer, then mix values for its rows.
 *
 * qkv [rows, 3 hidden] and out [rows, hidden] are the pass's; `masks` and `committed` are the
 * session's first rows in them. Mask rows see everything, committed rows the tokens up to
 * themselves; in the last layer those mix nothing. keys and values are this layer's caches.
 */
TARGET void attend(const model *m, const request *r, const float *qkv, int64_t masks,
                   int64_t committed, int last, uint32_t *keys, uint32_t *values, void *scratch,
                   float *out) {
    rows_of s = {masks, r->num_slots, committed, r->start, r->tokens};
    int64_t rows = r->num_slots + (last ? 0 : r->tokens), size = m->capacity * m->head_dim / 2;
    memory memory = divide(m, scratch);
    for (int64_t h = 0; h < m->heads; h++) {
        int64_t at = (r->slot * m->heads + h) * size;
        const float *head = qkv + h * m->head_dim;
        /* In the order of positions: an even one's value zeroes the one behind it. */
        for (int64_t i = 0; i < r->tokens + r->num_slots; i++) {
            int64_t row = i < r->tokens ? committed + i : masks + i - r->tokens;
            const float *k = head + row * 3 * m->hidden + m->hidden;
            write_key(m, k, r->start + i, keys + at);
            write_value(m, k + m->hidden, r->start + i, values + at);
        }
        for (int64_t i = 0; i < num_blocks(rows); i++)
            attend_head(m, &s, block_at(rows, i), head, keys + at, values + at, &memory,
                        out + h * m->head_dim);
    }
}
