/* How the numbers of a row stand in a line of bf16.
 *
 * A line has two halves of 16 numbers, each summed by itself with the odd number of a pair first. AMX
 * sums the first numbers of all units, then the second ones: a unit is of it a number of each half.
 * memory.py orders the weights alike.
 */
#pragma once

#include <string.h>

#include "common/blocks.h"
#include "rounding.h"

/* Store LANES numbers of a row, the first of which stands at `at` of its lines (at_line). */
INLINE void store_in_line(uint16_t *lines, int64_t at, floats x) {
#if defined(FOREDRAFT_AMX)
    const int swap = 0xB1; /* neighbours */
    ints wide = _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(x));
    wide = _mm512_shuffle_epi32(wide, swap);
    uint16_t *line = lines + at / LINE * LINE;
    if (at % LINE == 0) _mm512_mask_storeu_epi16(line, 0x55555555, wide);
    else _mm512_mask_storeu_epi16(line, 0xAAAAAAAA, shifted_left(wide, 16));
#else
    store_halves(lines + at, x);
#endif
}

/* Store a line of bf16. */
INLINE void copy_line(uint16_t *line, const uint16_t *from) {
#if defined(FOREDRAFT_AMX)
    const __m512i order = _mm512_set_epi16(30, 14, 31, 15, 28, 12, 29, 13, 26, 10, 27, 11, 24, 8, 25,
                                           9, 22, 6, 23, 7, 20, 4, 21, 5, 18, 2, 19, 3, 16, 0, 17, 1);
    store_ints(line, _mm512_permutexvar_epi16(order, load_ints(from)));
#else
    memcpy(line, from, 2 * LINE);
#endif
}
