/* The drafter's rows: signed bytes, and numbers rounded to bf16 with halves away from zero. */
#pragma once

#include <math.h>
#include <string.h>

#include "common/tiles.h"
#include "structs.h"

#define BYTES (4 * UNITS) /* of a row next to each other */

/* Rows as signed bytes, block after block, [width / BYTES][rows][BYTES] in each; x is bytes * scale. */
typedef struct {
    signed_byte *bytes;
    float *scales;
    int32_t *offsets; /* 128 x the sum of a row's bytes: what the weights' + 128 adds */
    int64_t rows, width;
} quantised;

/* fp32 whose upper half is x rounded to bf16, halves away from zero. */
INLINE ints rounded_bf16(floats x) { return plus(as_ints(x), all_ints(0x8000)); }

/* 2 x LANES numbers as bf16, in order. */
INLINE ints pack_bf16(floats first, floats second) {
    return upper_halves(rounded_bf16(first), rounded_bf16(second));
}
