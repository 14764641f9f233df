/* The only multiplications of matrices: a block of rows with a panel of 32 columns (README.md). */
#pragma once

#include "common/blocks.h"

/* Panels of weights lie in the order of reading, so what comes next is known beyond the end of one:
 * fetching this far ahead, in bytes, reads them at the speed of memory. Further, what AMX's larger
 * blocks still read is driven out. */
#if defined(FOREDRAFT_AMX)
#define AHEAD (8 << 10)
#else
#define AHEAD (16 << 10)
#endif

/* A unit of a row: 2 bf16, or 4 bytes, of which AVX2 multiplies pairs of 16 bits: in a unit, bytes 0
 * and 2, then 1 and 3. Its own products of bytes saturate. */
#if LANES == 16
typedef int8_t signed_byte;
#else
typedef int16_t signed_byte;
#endif

/* Write sums [rows, COLUMNS], fp32, of lines [units / UNITS][rows][UNITS] of bf16 with a panel
 * [units][COLUMNS], each in ascending order of the units. After every UNITS, `skip` units of all
 * columns are passed over in the panel; `ahead` bytes further on lies what will be read next. With
 * `more`, the sums go on from what they are. */
typedef void multiplier(const void *lines, const void *panel, int64_t units, int64_t skip,
                        int64_t ahead, void *sums, int more);

/* The same for a panel of weights or of keys, `count` whole lines without gaps: bf16, or signed bytes of
 * lines with unsigned ones of the panel, to int32. The sums of bf16 are those of README.md's halves. */
typedef void weigher(const void *lines, const void *panel, int64_t count, int64_t ahead, void *sums);

/* By the number of rows, up to MAX_ROWS; the wide ones, with the same bits, for a CPU with AVX-512 but
 * no bf16. */
extern multiplier *const FOR_LANES(bf16_tiles)[], *const FOR_LANES(wide_tiles)[];
extern weigher *const FOR_LANES(int8_weights)[], *const FOR_LANES(bf16_weights)[];

INLINE multiplier *const *bf16_products(void) {
#if LANES == 16
    if (!__builtin_cpu_supports("avx512bf16")) return FOR_LANES(wide_tiles);
#endif
    return FOR_LANES(bf16_tiles);
}

/* Multiply blocks of rows with panels of weights, between `begin` and `end`; `most` are the rows of
 * the largest block. AMX may read a row more than a block has, and writes sums of `most` rows. */
#if defined(FOREDRAFT_AMX)

typedef void amx_weigher(const void *lines, int64_t rows, int64_t most, const void *panel,
                         int64_t count, int64_t ahead, void *sums);
amx_weigher amx_weigh_int8, amx_weigh_bf16;
void amx_begin(int64_t most);
void amx_end(void);

#define WEIGH_BEGIN(most) amx_begin(most)
#define WEIGH_END() amx_end()
#define WEIGH(kind, lines, rows, most, panel, count, ahead, sums)                                  \
    amx_weigh_##kind(lines, rows, most, panel, count, ahead, sums)

#else

#define WEIGH_BEGIN(most) (void)(most)
#define WEIGH_END()
#define WEIGH(kind, lines, rows, most, panel, count, ahead, sums)                                  \
    FOR_LANES(kind##_weights)[rows](lines, panel, count, ahead, sums)

#endif
