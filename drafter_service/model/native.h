/* What the drafter's kernels share: the tile, the model, and numbers in bf16.
 *
 * Everything that is multiplied goes through one shape of work, a tile: up to MAX_ROWS rows of
 * operand a times COLUMNS columns of operand b, in 32-bit units that hold 4 bytes or 2 bf16 of the
 * summed dimension. Operand a is laid out as [units / UNITS][rows][UNITS], b as [units][COLUMNS],
 * the result as [rows][COLUMNS]. For AVX2 operand a's bytes take 16 bits, its units of them 64.
 */
#ifndef FOREDRAFT_DRAFTER_NATIVE_H
#define FOREDRAFT_DRAFTER_NATIVE_H

#include "lanes.h"

#include <math.h>
#include <string.h>

#define COLUMNS 32
#define PIECES (COLUMNS / LANES) /* vectors in a row of columns */
#define UNITS 16                 /* of one row next to each other: a line */
#define BYTES (4 * UNITS)        /* in such a line */
#define HALVES (2 * UNITS)
#if LANES == 16
#define MAX_ROWS 14 /* 2 x 14 sums, 2 vectors of b and 1 of a fill the 32 registers */
typedef int8_t signed_byte;
#else
#define MAX_ROWS 6 /* 2 x 6 sums, 2 vectors of b, 1 of a and a product fill the 16 registers */
/* AVX2 multiplies pairs of 16 bits exactly: in a unit, bytes 0 and 2, then 1 and 3. Its products of
 * bytes saturate. */
typedef int16_t signed_byte;
#endif
#define MAX_CANDIDATES 64
#define MAX_HEAD_DIM 128
#define MAX_EDGE_RANK 256

typedef void tile(const int32_t *a, const int32_t *b, int64_t units, void *out);

/* Weights of a linear layer as bytes w / scale + 128: [out / 32][in / 4][32][4], [out]. */
typedef struct {
    const int32_t *tiles;
    const float *scales;
    int64_t in, out;
} linear;

/* Rows as signed bytes in operand a's layout, block after block of rows; x is bytes * scale. */
typedef struct {
    signed_byte *bytes;
    float *scales;
    int32_t *offsets; /* 128 x the sum of a row's bytes: what the weights' + 128 adds */
    int64_t rows, width;
} quantised;

enum epilogue { STORE, ADD, GATE };

/* Weights of the norms are folded into the layers behind them. */
typedef struct {
    linear qkv, out, gate_up, down;
} layer;

/* packed.py checks the sizes and fills this; caches hold `slots` sessions of `capacity` tokens. */
typedef struct {
    int64_t vocab, hidden, heads, head_dim, inner, num_layers, rank;
    int64_t eos, mask, candidates, slots, capacity;
    const layer *layers;
    linear head, edge_gate;
    const float *embedding, *mask_slots;         /* [vocab, hidden], [slots, hidden] */
    const float *mask_qkv;                       /* [slots, 3 hidden], the first layer's */
    const float *cos, *sin;                      /* [positions, head_dim / 2] */
    const float *edge_bias;                      /* [rank] */
    const uint16_t *edge_previous, *edge_next;   /* bf16 [vocab, rank] */
    float eps;
} model;

/* One session's part of a pass: cache slot `slot` holds `start` tokens; `tokens` more follow, then
 * num_slots mask slots. */
typedef struct {
    int64_t slot, start, tokens, num_slots;
} request;

/* The i-th of the fewest, evenly filled blocks of rows. */
typedef struct {
    int64_t first, rows;
} block;

static inline int64_t num_blocks(int64_t rows) { return (rows + MAX_ROWS - 1) / MAX_ROWS; }

static inline block block_at(int64_t rows, int64_t i) {
    int64_t count = num_blocks(rows), least = rows / count, more = rows % count;
    return (block){i * least + (i < more ? i : more), least + (i < more)};
}

/* fp32 whose upper half is x rounded to bf16, halves away from zero. */
INLINE ints rounded_bf16(floats x) { return plus(as_ints(x), all_ints(0x8000)); }

/* 2 x LANES numbers as bf16, in order. */
INLINE ints pack_bf16(floats first, floats second) {
    return upper_halves(rounded_bf16(first), rounded_bf16(second));
}

#endif
