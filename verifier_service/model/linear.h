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

void apply(const linear *w, const uint16_t *lines, int64_t rows, enum epilogue epilogue, void *out,
           int64_t stride, int64_t thread, int64_t threads);
void lines_of(const uint16_t *x, int64_t rows, int64_t width, uint16_t *lines);

#endif
#endif
