/* What both forwards compute alike, and how they divide their scratch memory. */
#pragma once

#include "common/lanes.h"

/* What becomes of a linear layer's sums: they are stored in fp32 or bf16, or added to the output; or,
 * of panels with 16 columns of a gate and the 16 that it gates, silu(gate) * up is stored. */
enum epilogue { STORE, STORE_BF16, ADD, GATE };

/* g / (1 + e^-g) */
INLINE floats silu(floats g) { return g / (exp2_lanes(g * all(-LOG2_E)) + all(1.0f)); }

INLINE float mean_square(const float *x, int64_t width) {
    floats sum[VECTORS] = {zeros()};
    for (int64_t i = 0; i < width; i += 16)
        for (int v = 0; v < VECTORS; v++) {
            floats each = load(x + i + v * LANES);
            sum[v] = fused(each, each, sum[v]);
        }
    return sum_of_sixteen(sum) / (float)width;
}

static inline int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

/* Return `bytes` of what is left at *at, whose next piece again begins on a line of the cache. */
static inline void *take(char **at, int64_t bytes) {
    char *here = *at;
    *at += (bytes + 63) / 64 * 64;
    return here;
}
