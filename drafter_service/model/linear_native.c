/* Linear layers: bytes times bytes, summed exactly, scaled per row and per output channel. */
#include "native.h"

/* The largest magnitude; a NaN counts as the largest, so that it is not lost. */
INLINE float largest(const float *x, int64_t width) {
    __m512i most = _mm512_setzero_si512();
    for (int64_t i = 0; i < width; i += LANES)
        most = _mm512_max_epi32(most, _mm512_and_si512(_mm512_loadu_si512(x + i),
                                                       _mm512_set1_epi32(0x7FFFFFFF)));
    union { int32_t bits; float value; } top = {_mm512_reduce_max_epi32(most)};
    return top.value;
}

INLINE float mean_square(const float *x, int64_t width) {
    __m512 sum = _mm512_setzero_ps();
    for (int64_t i = 0; i < width; i += LANES) {
        __m512 v = _mm512_loadu_ps(x + i);
        sum = _mm512_fmadd_ps(v, v, sum);
    }
    return _mm512_reduce_add_ps(sum) / (float)width;
}

/* Quantise x [rows, width], each row by itself; with `normalise`, x / rms(x). */
TARGET void quantise(quantised *to, const float *x, int64_t rows, int64_t width, int normalise,
                     float eps) {
    to->rows = rows;
    to->width = width;
    for (int64_t i = 0; i < num_blocks(rows); i++) {
        block b = block_at(rows, i);
        for (int64_t r = 0; r < b.rows; r++) {
            const float *from = x + (b.first + r) * width;
            int8_t *bytes = to->bytes + b.first * width + r * BYTES;
            float most = largest(from, width), scale = most / 127.0f;
            /* A row of zeros stays one; a NaN or an infinity passes through the scale. */
            __m512 inverse = _mm512_set1_ps(most > 0 ? 127.0f / most : 0.0f);
            __m512i sum = _mm512_setzero_si512();
            for (int64_t c = 0; c < width; c += LANES) {
                __m512i q = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(from + c), inverse));
                sum = _mm512_add_epi32(sum, q);
                int64_t at = c / BYTES * b.rows * BYTES + c % BYTES;
                _mm_store_si128((__m128i *)(bytes + at), _mm512_cvtsepi32_epi8(q));
            }
            if (normalise) scale /= __builtin_sqrtf(mean_square(from, width) + eps);
            to->scales[b.first + r] = scale;
            to->offsets[b.first + r] = 128 * _mm512_reduce_add_epi32(sum);
        }
    }
}

/* g / (1 + e^-g) * u */
INLINE __m512 gated(__m512 g, __m512 u) {
    __m512 e = exp2_lanes(_mm512_mul_ps(g, _mm512_set1_ps(-LOG2_E)));
    return _mm512_mul_ps(_mm512_div_ps(g, _mm512_add_ps(e, _mm512_set1_ps(1.0f))), u);
}

INLINE void finish(const int32_t *sums, const quantised *x, block b, const float *scales,
                   enum epilogue epilogue, float *out, int64_t stride) {
    __m512 s0 = _mm512_loadu_ps(scales), s1 = _mm512_loadu_ps(scales + LANES);
    for (int64_t r = 0; r < b.rows; r++, out += stride) {
        __m512i offset = _mm512_set1_epi32(x->offsets[b.first + r]);
        __m512 row = _mm512_set1_ps(x->scales[b.first + r]);
        const int32_t *from = sums + r * COLUMNS;
        __m512 v0 = _mm512_cvtepi32_ps(_mm512_sub_epi32(_mm512_load_si512(from), offset));
        __m512 v1 = _mm512_cvtepi32_ps(_mm512_sub_epi32(_mm512_load_si512(from + LANES), offset));
        v0 = _mm512_mul_ps(v0, _mm512_mul_ps(row, s0));
        v1 = _mm512_mul_ps(v1, _mm512_mul_ps(row, s1));
        if (epilogue == GATE) {
            _mm512_storeu_ps(out, gated(v0, v1));
            continue;
        }
        if (epilogue == ADD) {
            v0 = _mm512_add_ps(v0, _mm512_loadu_ps(out));
            v1 = _mm512_add_ps(v1, _mm512_loadu_ps(out + LANES));
        }
        _mm512_storeu_ps(out, v0);
        _mm512_storeu_ps(out + LANES, v1);
    }
}

/* Write x W^T for output channels [from, w->out), from a multiple of 32, to out [rows, stride].
 *
 * Each tile of weights is read once for all rows. STORE writes channel n to column n, ADD adds it.
 * GATE expects 16 channels of the gate and 16 of the values in each tile, and writes 16 columns.
 */
TARGET void apply(const linear *w, int64_t from, const quantised *x, enum epilogue epilogue,
                  float *out, int64_t stride) {
    _Alignas(64) int32_t sums[MAX_ROWS * COLUMNS];
    int64_t units = w->in / 4, count = num_blocks(x->rows);
    for (int64_t n = from; n < w->out; n += COLUMNS) {
        const int32_t *weights = w->tiles + n * units;
        float *column = out + (epilogue == GATE ? n / 2 : n);
        for (int64_t i = 0; i < count; i++) {
            block b = block_at(x->rows, i);
            int8_tiles[b.rows]((const int32_t *)(x->bytes + b.first * w->in), weights, units, sums);
            float *to = column + b.first * stride;
            switch (epilogue) {
                case STORE: finish(sums, x, b, w->scales + n, STORE, to, stride); break;
                case ADD: finish(sums, x, b, w->scales + n, ADD, to, stride); break;
                case GATE: finish(sums, x, b, w->scales + n, GATE, to, stride); break;
            }
        }
    }
}
