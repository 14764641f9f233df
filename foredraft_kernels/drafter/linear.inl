/* Linear layers: bytes times bytes, summed exactly, scaled per row and per output channel. */
#include "common/layers.h"
#include "rows.h"

/* The largest magnitude; a NaN counts as the largest, so that it is not lost. */
INLINE float largest(const float *x, int64_t width) {
    ints most = all_ints(0);
    for (int64_t i = 0; i < width; i += LANES)
        most = larger_ints_of(most, load_ints(x + i) & all_ints(0x7FFFFFFF));
    union { int32_t bits; float value; } top = {largest_int(most)};
    return top.value;
}

/* Store as signed bytes. */
INLINE void store_bytes(signed_byte *to, ints x) {
#if LANES == 16
    _mm_storeu_si128((__m128i *)to, _mm512_cvtsepi32_epi8(x));
#else
    __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    const __m128i order = _mm_setr_epi8(0, 2, 1, 3, 4, 6, 5, 7, -1, -1, -1, -1, -1, -1, -1, -1);
    __m128i bytes = _mm_shuffle_epi8(_mm_packs_epi16(words, words), order);
    _mm_storeu_si128((__m128i *)to, _mm_cvtepi8_epi16(bytes));
#endif
}

/* Quantise x [rows, width], each row by itself; with `normalise`, x / rms(x). */
static void quantise(quantised *to, const float *x, int64_t rows, int64_t width, int normalise,
                     float eps) {
    to->rows = rows;
    to->width = width;
    for (int64_t i = 0; i < num_blocks(rows, MAX_WEIGHED); i++) {
        block b = block_at(rows, MAX_WEIGHED, i);
        for (int64_t r = 0; r < b.rows; r++) {
            const float *from = x + (b.first + r) * width;
            signed_byte *bytes = to->bytes + b.first * width + r * BYTES;
            float most = largest(from, width), scale = most / 127.0f;
            /* A row of zeros stays one; a NaN or an infinity passes through the scale. */
            floats inverse = all(most > 0 ? 127.0f / most : 0.0f);
            ints sum = all_ints(0);
            for (int64_t c = 0; c < width; c += LANES) {
                ints q = nearest_ints(load(from + c) * inverse);
                sum = plus(sum, q);
                store_bytes(bytes + c / BYTES * b.rows * BYTES + c % BYTES, q);
            }
            if (normalise) scale /= __builtin_sqrtf(mean_square(from, width) + eps);
            to->scales[b.first + r] = scale;
            to->offsets[b.first + r] = 128 * sum_of_ints(sum);
        }
    }
}

INLINE void finish(const int32_t *sums, const quantised *x, block b, const float *scales,
                   enum epilogue epilogue, float *out, int64_t stride) {
    for (int64_t r = 0; r < b.rows; r++, out += stride, sums += COLUMNS) {
        ints offset = all_ints(x->offsets[b.first + r]);
        floats row = all(x->scales[b.first + r]), exact[PIECES], scale[PIECES];
        for (int v = 0; v < PIECES; v++) {
            exact[v] = floats_of(minus(load_ints(sums + v * LANES), offset));
            scale[v] = row * load(scales + v * LANES);
        }
        for (int v = 0; v < PIECES; v++) {
            float *to = out + v * LANES;
            if (epilogue == STORE) store(to, exact[v] * scale[v]);
            if (epilogue == ADD) store(to, fused(exact[v], scale[v], load(to)));
            int value = v + PIECES / 2; /* of a gate */
            if (epilogue == GATE && value < PIECES)
                store(to, silu(exact[v] * scale[v]) * (exact[value] * scale[value]));
        }
    }
}

/* Write x W^T for output channels [from, w->out), from a multiple of 32, to out [rows, stride].
 *
 * Each tile of weights is read once for all rows. STORE writes channel n to column n, ADD adds it.
 * GATE expects 16 channels of the gate and 16 of the values in each tile, and writes 16 columns.
 */
static void apply(const linear *w, int64_t from, const quantised *x, enum epilogue epilogue,
                  float *out, int64_t stride) {
    _Alignas(64) int32_t sums[MAX_WEIGHED * COLUMNS];
    int64_t units = w->in / 4, count = num_blocks(x->rows, MAX_WEIGHED);
    int64_t most = largest_block(x->rows, MAX_WEIGHED);
    WEIGH_BEGIN(most);
    for (int64_t n = from; n < w->out; n += COLUMNS) {
        const int32_t *weights = w->panels + n * units;
        float *column = out + (epilogue == GATE ? n / 2 : n);
        for (int64_t i = 0; i < count; i++) {
            block b = block_at(x->rows, MAX_WEIGHED, i);
            WEIGH(int8, x->bytes + b.first * w->in, b.rows, most, weights, units / UNITS, AHEAD,
                  sums);
            float *to = column + b.first * stride;
            switch (epilogue) {
                case ADD: finish(sums, x, b, w->scales + n, ADD, to, stride); break;
                case GATE: finish(sums, x, b, w->scales + n, GATE, to, stride); break;
                default: finish(sums, x, b, w->scales + n, STORE, to, stride);
            }
        }
    }
    WEIGH_END();
}
