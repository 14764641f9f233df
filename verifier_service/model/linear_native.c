/* Linear layers in bf16 for few rows: weights are read once, in the order in which they lie.
 *
 * A number of the result is one fp32 lane that sums over pairs of inputs in ascending order,
 * whatever else is computed beside it: its bits do not depend on how many rows there are, on how
 * they are blocked, or on threads.
 */
#include "linear.h"

#if defined(__x86_64__)

/* Weights lie in the order of reading, so what comes next is known beyond the end of a layer:
 * fetching this far ahead reads them at the speed of memory. */
#define AHEAD (16 << 10)

/* With the number of rows known to the compiler, the sums stay in registers. */
AVX512_INLINE void multiply(const int32_t *a, const int32_t *b, int64_t width, int64_t skip,
                            int64_t ahead, float *sums, int more, const int rows) {
    __m512 s[MAX_ROWS][2];
    __mmask16 kept = more ? 0xFFFF : 0;
    _Pragma("GCC unroll 14") for (int r = 0; r < rows; r++) {
        s[r][0] = _mm512_maskz_load_ps(kept, sums + r * COLUMNS);
        s[r][1] = _mm512_maskz_load_ps(kept, sums + r * COLUMNS + LANES);
    }
    for (; width > 0; width -= LINE, a += rows * LINE / 2, b += skip / 2)
        for (int64_t u = 0; u < LINE / 2; u++, b += COLUMNS) {
            _mm_prefetch((const char *)b + ahead, _MM_HINT_T0);
            _mm_prefetch((const char *)b + ahead + 64, _MM_HINT_T0);
            __m512bh b0 = (__m512bh)_mm512_load_si512(b);
            __m512bh b1 = (__m512bh)_mm512_load_si512(b + LANES);
            _Pragma("GCC unroll 14") for (int r = 0; r < rows; r++) {
                __m512bh x = (__m512bh)_mm512_set1_epi32(a[r * LINE / 2 + u]);
                s[r][0] = _mm512_dpbf16_ps(s[r][0], b0, x);
                s[r][1] = _mm512_dpbf16_ps(s[r][1], b1, x);
            }
        }
    _Pragma("GCC unroll 14") for (int r = 0; r < rows; r++) {
        _mm512_store_ps(sums + r * COLUMNS, s[r][0]);
        _mm512_store_ps(sums + r * COLUMNS + LANES, s[r][1]);
    }
}

#define DEFINE(rows)                                                                              \
    AVX512 static void multiply_##rows(const uint16_t *lines, const uint16_t *panel,               \
                                       int64_t width, int64_t skip, int64_t ahead, float *sums,    \
                                       int more) {                                                \
        const int32_t *a = (const int32_t *)lines, *b = (const int32_t *)panel;                   \
        multiply(a, b, width, skip, ahead, sums, more, rows);                                     \
    }
DEFINE(1) DEFINE(2) DEFINE(3) DEFINE(4) DEFINE(5) DEFINE(6) DEFINE(7)
DEFINE(8) DEFINE(9) DEFINE(10) DEFINE(11) DEFINE(12) DEFINE(13) DEFINE(14)

multiplier *const multipliers[MAX_ROWS + 1] = {
    0,          multiply_1, multiply_2,  multiply_3,  multiply_4,  multiply_5,  multiply_6, multiply_7,
    multiply_8, multiply_9, multiply_10, multiply_11, multiply_12, multiply_13, multiply_14};

/* What becomes of the sums of a block's rows in columns [n, n + COLUMNS), in fp32 rounded to bf16. */
AVX512_INLINE void finish(const linear *w, const float *sums, block b, int64_t n,
                          enum epilogue epilogue, void *out, int64_t stride) {
    __m512 bias0 = _mm512_setzero_ps(), bias1 = bias0;
    if (w->bias) {
        bias0 = _mm512_load_ps(w->bias + n);
        bias1 = _mm512_load_ps(w->bias + n + LANES);
    }
    for (int64_t r = 0; r < b.rows; r++, sums += COLUMNS) {
        __m512 y0 = _mm512_load_ps(sums) + bias0, y1 = _mm512_load_ps(sums + LANES) + bias1;
        int64_t at = (b.first + r) * stride + n;
        if (epilogue == HALVES) {
            store_halves((uint16_t *)out + at, y0);
            store_halves((uint16_t *)out + at + LANES, y1);
            continue;
        }
        y0 = rounded(y0);
        y1 = rounded(y1);
        if (epilogue == GATE) {
            __m512 silu = rounded(y0 / (exp2_lanes(y0 * -LOG2_E) + 1.0f));
            uint16_t *lines = (uint16_t *)out + b.first * stride;
            store_halves(lines + at_line(b.rows, r, n / 2), silu * y1);
            continue;
        }
        float *to = (float *)out + at;
        if (epilogue == ADD) {
            y0 = rounded(_mm512_loadu_ps(to) + y0);
            y1 = rounded(_mm512_loadu_ps(to + LANES) + y1);
        }
        _mm512_storeu_ps(to, y0);
        _mm512_storeu_ps(to + LANES, y1);
    }
}

/* Compute the columns of some panels. stride is that of out's rows, of GATE their width. */
AVX512 void apply(const linear *w, const uint16_t *lines, int64_t rows, enum epilogue epilogue,
                  void *out, int64_t stride, part panels) {
    _Alignas(64) float sums[MAX_ROWS * COLUMNS];
    int64_t count = num_blocks(rows);
    for (int64_t n = panels.from * COLUMNS; n < panels.to * COLUMNS; n += COLUMNS) {
        for (int64_t i = 0; i < count; i++) {
            block b = block_at(rows, i);
            multipliers[b.rows](lines + b.first * w->in, w->panels + n * w->in, w->in, 0, AHEAD, sums,
                                0);
            switch (epilogue) {
                case FLOATS: finish(w, sums, b, n, FLOATS, out, stride); break;
                case HALVES: finish(w, sums, b, n, HALVES, out, stride); break;
                case ADD: finish(w, sums, b, n, ADD, out, stride); break;
                case GATE: finish(w, sums, b, n, GATE, out, stride); break;
            }
        }
    }
}

/* Lay rows [rows, width] out as the lines that `apply` reads. */
void lines_of(const uint16_t *x, int64_t rows, int64_t width, uint16_t *lines) {
    for (int64_t i = 0; i < num_blocks(rows); i++) {
        block b = block_at(rows, i);
        for (int64_t r = 0; r < b.rows; r++)
            for (int64_t c = 0; c < width; c += LINE)
                memcpy(lines + b.first * width + at_line(b.rows, r, c),
                       x + (b.first + r) * width + c, 2 * LINE);
    }
}

typedef struct {
    const linear *w;
    const uint16_t *lines;
    int64_t rows;
    float *out;
} product;

static void product_part(void *context, part panels, int64_t thread) {
    (void)thread;
    const product *p = context;
    apply(p->w, p->lines, p->rows, FLOATS, p->out, p->w->out, panels);
}

/* out [rows, w->out] = x [rows, w->in] W^T + bias, rounded to bf16. Returns 0, or 1 where memory ran
 * out. */
int fd_linear(const linear *w, const uint16_t *x, int64_t rows, float *out, int64_t threads) {
    uint16_t *lines = reserve(2 * rows * w->in);
    if (!lines) return 1;
    lines_of(x, rows, w->in, lines);
    product p = {w, lines, rows, out};
    team_begin(threads);
    team_share(threads, w->out / COLUMNS, 1, product_part, &p);
    team_end(threads);
    return 0;
}

#endif
