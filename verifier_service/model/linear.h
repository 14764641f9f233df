/* Linear layers with packed weights (linear.inl), and how rows lie in memory for them.
 *
 * Rows are multiplied in blocks; in a block, lines of LINE numbers stand row beside row:
 * [width / LINE][rows of the block][LINE] in bf16, so that a row's line is at a constant distance.
 */
#ifndef FOREDRAFT_VERIFIER_LINEAR_H
#define FOREDRAFT_VERIFIER_LINEAR_H

#include "lanes.h"
#include "native.h"

#define COLUMNS 32  /* in a panel of weights */
#define LINE 32     /* numbers of a row next to each other: a cache line */
#if LANES == 16
#define MAX_ROWS 14 /* 2 x 14 sums, 2 vectors of weights and a number fill the 32 registers */
#else
#define MAX_ROWS 6 /* 2 x 6 sums, the halves of a vector of weights, and of a number: 16 registers */
#endif

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

/* Rounded to bf16, to even. */
INLINE floats rounded(floats x) {
#if LANES == 16
    ints wide = _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(x));
    return as_floats(shifted_left(wide, 16));
#else
    ints bits = as_ints(x), even = _mm256_and_si256(shifted_right(bits, 16), all_ints(1));
    bits = _mm256_add_epi32(bits, _mm256_add_epi32(even, all_ints(0x7FFF)));
    floats nan = _mm256_cmp_ps(x, x, _CMP_UNORD_Q);
    bits = _mm256_and_si256(bits, all_ints((int32_t)0xFFFF0000));
    return choose(nan, all(__builtin_nanf("")), as_floats(bits));
#endif
}

INLINE void store_halves(uint16_t *p, floats x) {
#if LANES == 16
    _mm256_storeu_si256((__m256i *)p, (__m256i)_mm512_cvtneps_pbh(x));
#else
    ints high = shifted_right(as_ints(rounded(x)), 16);
    ints pairs = _mm256_permute4x64_epi64(_mm256_packus_epi32(high, high), 0x08);
    _mm_storeu_si128((__m128i *)p, _mm256_castsi256_si128(pairs));
#endif
}

#endif
