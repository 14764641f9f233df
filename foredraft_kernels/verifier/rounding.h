/* Rounding where transformers rounds: to bf16, halves to even. */
#pragma once

#include "common/lanes.h"

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
