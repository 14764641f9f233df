/* The only multiplications of matrices: a block of rows with a panel of 32 columns (README.md). */
#pragma once

#include "common/blocks.h"

/* Panels of weights lie in the order of reading, so what comes next is known beyond the end of one:
 * fetching this far ahead reads them at the speed of memory. */
#define AHEAD (16 << 10) /* bytes */

/* A unit of a row: 2 bf16, or 4 bytes, of which AVX2 multiplies pairs of 16 bits: in a unit, bytes 0
 * and 2, then 1 and 3. Its own products of bytes saturate. */
#if LANES == 16
typedef int8_t signed_byte;
#else
typedef int16_t signed_byte;
#endif

/* Write sums [rows, COLUMNS], fp32 or int32, of lines [units / UNITS][rows][UNITS] with a panel
 * [units][COLUMNS], each in ascending order of the units. After every UNITS, `skip` units of all
 * columns are passed over in the panel; `ahead` bytes further on lies what will be read next. With
 * `more`, the sums go on from what they are. */
typedef void multiplier(const void *lines, const void *panel, int64_t units, int64_t skip,
                        int64_t ahead, void *sums, int more);

/* By the number of rows, up to MAX_ROWS: signed bytes of lines with unsigned ones of panels; bf16;
 * and, with the same bits, bf16 for a CPU with AVX-512 but no bf16. */
extern multiplier *const FOR_ISA(int8_tiles)[], *const FOR_ISA(bf16_tiles)[],
    *const FOR_ISA(wide_tiles)[];

INLINE multiplier *const *bf16_products(void) {
#if LANES == 16
    if (!__builtin_cpu_supports("avx512bf16")) return FOR_ISA(wide_tiles);
#endif
    return FOR_ISA(bf16_tiles);
}
