/* Linear layers with packed weights (linear_native.c), and how rows lie in memory for them.
 *
 * Rows are multiplied in blocks; in a block, lines of LINE numbers stand row beside row:
 * [width / LINE][rows of the block][LINE] in bf16, so that a row's line is at a constant distance.
 */
#ifndef FOREDRAFT_VERIFIER_LINEAR_H
#define FOREDRAFT_VERIFIER_LINEAR_H

#include "native.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,fma")))
#define AVX512_INLINE AVX512 static inline __attribute__((always_inline))

#define COLUMNS 32  /* in a panel of weights */
#define LINE 32     /* numbers of a row next to each other: a cache line */
#define MAX_ROWS 14 /* 2 x 14 sums, 2 vectors of weights and a number fill the 32 registers */

/* Weights W [out, in] as panels [out / COLUMNS][in / 2][COLUMNS][2]; bias [out] or NULL. */
typedef struct {
    const uint16_t *panels;
    const float *bias;
    int64_t in, out;
} linear;

/* Write sums as fp32 or as bf16; add them to fp32 out; or, of panels with 16 columns of a gate and
 * the 16 that it gates, write silu(gate) * up as lines. */
enum epilogue { FLOATS, HALVES, ADD, GATE };

/* The i-th of the fewest, evenly filled blocks of rows. */
typedef struct {
    int64_t first, rows;
} block;

static inline int64_t num_blocks(int64_t rows) { return (rows + MAX_ROWS - 1) / MAX_ROWS; }

static inline block block_at(int64_t rows, int64_t i) {
    int64_t count = num_blocks(rows), least = rows / count, more = rows % count;
    return (block){i * least + (i < more ? i : more), least + (i < more)};
}

/* Where a column of a block's row stands. */
static inline int64_t at_line(int64_t rows, int64_t row, int64_t column) {
    return (column / LINE * rows + row) * LINE + column % LINE;
}

/* Sums [rows, COLUMNS] of a block's lines with a panel, each in ascending order of the width. After
 * every LINE of the width, `skip` numbers of the panel are passed over; `ahead` bytes further on lies
 * what will be read next. With `more`, the sums go on from what they are. */
typedef void multiplier(const uint16_t *lines, const uint16_t *panel, int64_t width, int64_t skip,
                        int64_t ahead, float *sums, int more);

extern multiplier *const multipliers[MAX_ROWS + 1]; /* by the number of rows */

/* Rounded to bf16 as native.h's functions do, but for numbers below 1e-38, which become zero. */
AVX512_INLINE __m256i halves(__m512 x) { return (__m256i)_mm512_cvtneps_pbh(x); }
AVX512_INLINE __m512 rounded(__m512 x) {
    return (__m512)_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves(x)), 16);
}
AVX512_INLINE void store_halves(uint16_t *p, __m512 x) {
    _mm256_storeu_si256((__m256i *)p, halves(x));
}
AVX512_INLINE __m512 load_halves(const uint16_t *p) {
    __m256i x = _mm256_loadu_si256((const __m256i *)p);
    return (__m512)_mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16);
}

#define LOG2_E 1.44269504f

/* 2^x, relative error below 3e-6; 2^-127 for anything less; a NaN stays one. */
AVX512_INLINE __m512 exp2_lanes(__m512 x) {
    x = _mm512_max_ps(_mm512_set1_ps(-127.0f), x);
    __m512 n = _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m512 f = x - n;
    __m512 p = f * 1.33335581e-3f + 9.61812911e-3f;
    p = p * f + 5.55041087e-2f;
    p = p * f + 2.40226507e-1f;
    p = p * f + 6.93147181e-1f;
    p = p * f + 1.0f;
    return _mm512_scalef_ps(p, n);
}

void apply(const linear *w, const uint16_t *lines, int64_t rows, enum epilogue epilogue, void *out,
           int64_t stride, part panels);
void lines_of(const uint16_t *x, int64_t rows, int64_t width, uint16_t *lines);

#endif
#endif
