/* How rows and columns are cut into blocks and panels, and where their numbers lie (README.md). */
#pragma once

#include <string.h>

#include "common/lanes.h"

#define COLUMNS 32               /* of a panel */
#define PIECES (COLUMNS / LANES) /* vectors in a panel's columns */
#define UNITS 16                 /* 32-bit units of a row next to each other: a line of a cache */
#define LINE (2 * UNITS)         /* bf16 numbers in a line */
#if LANES == 16
#define MAX_ROWS 14 /* 2 x 14 sums, 2 vectors of a panel and a unit of a row fill 32 registers */
#else
#define MAX_ROWS 6 /* 2 x 6 sums, 2 halves of a panel's vectors, of a unit, a product: 16 registers */
#endif

#if defined(FOREDRAFT_AMX)
#define MAX_WEIGHED 32 /* rows that a panel of weights is multiplied with at once */
#else
#define MAX_WEIGHED MAX_ROWS
#endif

/* The i-th of the fewest, evenly filled blocks of rows, `most` of them in each at most. */
typedef struct {
    int64_t first, rows;
} block;

static inline int64_t num_blocks(int64_t rows, int64_t most) { return (rows + most - 1) / most; }

static inline block block_at(int64_t rows, int64_t most, int64_t i) {
    int64_t count = num_blocks(rows, most), least = rows / count, more = rows % count;
    return (block){i * least + (i < more ? i : more), least + (i < more)};
}

/* The rows of the largest of these blocks: the first. */
static inline int64_t largest_block(int64_t rows, int64_t most) {
    return rows ? block_at(rows, most, 0).rows : 0;
}

/* Where a bf16 column of a block's row stands in lines, [width / LINE][rows][LINE]. */
static inline int64_t at_line(int64_t rows, int64_t row, int64_t column) {
    return (column / LINE * rows + row) * LINE + column % LINE;
}

/* Where, in panels [keys / COLUMNS][D / 2][COLUMNS][2] of bf16 keys of D numbers, key `row` has its
 * first pair; the next is PAIR_ROW further. */
#define PAIR_ROW (2 * COLUMNS)
static inline int64_t key_at(int64_t row, int64_t D) {
    return row / COLUMNS * COLUMNS * D + row % COLUMNS * 2;
}

static inline void write_key(uint16_t *keys, int64_t row, const uint16_t *key, int64_t D) {
    keys += key_at(row, D);
    for (int64_t i = 0; i < D / 2; i++) memcpy(keys + i * PAIR_ROW, key + 2 * i, 4);
}
