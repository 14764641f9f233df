/* Vectors of fp32 lanes, of the instruction set that a file is compiled for.
 *
 * Kernels are written once, in these. A file that defines FOREDRAFT_AVX512 or FOREDRAFT_AVX2, and with
 * the first also FOREDRAFT_AMX, then includes this and the kernels, compiles them for that set. What
 * several lanes add up to is added in one order in both, so that their results have the same bits
 * (but for numbers below 1e-38), and machines of both kinds may serve one session.
 */
#pragma once

#include <immintrin.h>
#include <stdint.h>

#include "common/functions.h"

#define LOG2_E 1.44269504f

#if defined(FOREDRAFT_AVX512)

#define FOR_LANES(name) name##_avx512
#define INTRINSIC(name) _mm512_##name
#define LANES 16
typedef __m512 floats;
typedef __m512i ints;
typedef __mmask16 picked; /* some of the lanes */

#elif defined(FOREDRAFT_AVX2)

#define FOR_LANES(name) name##_avx2
#define INTRINSIC(name) _mm256_##name
#define LANES 8
typedef __m256 floats;
typedef __m256i ints;
typedef __m256 picked; /* all bits of some lanes */

#endif

/* AMX multiplies weights; all else is computed in AVX-512's lanes. */
#if defined(FOREDRAFT_AMX)
#define FOR_ISA(name) name##_amx
#else
#define FOR_ISA(name) FOR_LANES(name)
#endif

#define VECTORS (16 / LANES) /* in sixteen lanes */

INLINE floats load(const float *p) { return INTRINSIC(loadu_ps)(p); }
INLINE void store(float *p, floats x) { INTRINSIC(storeu_ps)(p, x); }
INLINE floats all(float x) { return INTRINSIC(set1_ps)(x); }
INLINE floats zeros(void) { return all(0.0f); }
INLINE floats fused(floats a, floats b, floats c) { return INTRINSIC(fmadd_ps)(a, b, c); }
INLINE floats larger_of(floats a, floats b) { return INTRINSIC(max_ps)(a, b); } /* b if one is NaN */
INLINE ints all_ints(int32_t x) { return INTRINSIC(set1_epi32)(x); }
INLINE ints shifted_left(ints x, const int bits) { return INTRINSIC(slli_epi32)(x, bits); }
INLINE ints shifted_right(ints x, const int bits) { return INTRINSIC(srli_epi32)(x, bits); }
INLINE ints larger_ints_of(ints a, ints b) { return INTRINSIC(max_epi32)(a, b); }
INLINE ints plus(ints a, ints b) { return INTRINSIC(add_epi32)(a, b); }
INLINE ints minus(ints a, ints b) { return INTRINSIC(sub_epi32)(a, b); }
INLINE ints nearest_ints(floats x) { return INTRINSIC(cvtps_epi32)(x); }
INLINE floats floats_of(ints x) { return INTRINSIC(cvtepi32_ps)(x); }
INLINE floats as_floats(ints x) { return (floats)x; }
INLINE ints as_ints(floats x) { return (ints)x; }

/* Natural logarithm of a positive normal number, absolute error below 3e-7; finite for 0. */
INLINE floats log_lanes(floats x) {
    /* The mantissa is brought to [sqrt(1/2), sqrt(2)), so that the series is short. */
    const int32_t one = 0x3F800000, least = 0x3F3504F3;
    ints bits = plus(as_ints(x), all_ints(one - least));
    ints exponent = minus(shifted_right(bits, 23), all_ints(127));
    floats m = as_floats(plus(bits & all_ints(0x007FFFFF), all_ints(least)));
    floats s = (m - all(1.0f)) / (m + all(1.0f)), z = s * s;
    floats series = fused(z, all(1.0f / 7), all(1.0f / 5));
    series = fused(fused(series, z, all(1.0f / 3)), z, all(1.0f));
    return fused(floats_of(exponent), all(0.693147181f), all(2.0f) * s * series);
}

/* 2^f for f of [-0.5, 0.5], relative error below 3e-6. */
INLINE floats exp2_fraction(floats f) {
    floats p = fused(f, all(1.33335581e-3f), all(9.61812911e-3f));
    p = fused(p, f, all(5.55041087e-2f));
    p = fused(p, f, all(2.40226507e-1f));
    p = fused(p, f, all(6.93147181e-1f));
    return fused(p, f, all(1.0f));
}

#if LANES == 16

/* A bit for each lane of a that compares so (_CMP_GT_OQ) to b's. */
INLINE uint32_t compared(floats a, floats b, const int so) {
    return _mm512_cmp_ps_mask(a, b, so);
}
INLINE picked first_lanes(int64_t count) {
    return count >= LANES ? 0xFFFF : count > 0 ? (1u << count) - 1 : 0;
}
INLINE floats choose(picked lanes, floats yes, floats no) {
    return _mm512_mask_blend_ps(lanes, no, yes);
}
INLINE ints load_ints(const void *p) { return _mm512_loadu_si512(p); }
INLINE void store_ints(void *p, ints x) { _mm512_storeu_si512(p, x); }
/* The lower halves of one's lanes beside the upper halves of the other's. */
INLINE ints halves_of(ints lower, ints upper) {
    return _mm512_mask_blend_epi16(0xAAAAAAAA, lower, upper);
}
INLINE ints widened(const uint16_t *p) {
    return _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p));
}
/* The upper halves of one's lanes, then of the other's. */
INLINE ints upper_halves(ints first, ints second) {
    const __m512i uppers = _mm512_set_epi16(63, 61, 59, 57, 55, 53, 51, 49, 47, 45, 43, 41, 39, 37,
                                            35, 33, 31, 29, 27, 25, 23, 21, 19, 17, 15, 13, 11, 9,
                                            7, 5, 3, 1);
    return _mm512_permutex2var_epi16(first, uppers, second);
}
INLINE void store_split(void *first, void *second, ints x) {
    _mm256_storeu_si256((__m256i *)first, _mm512_castsi512_si256(x));
    _mm256_storeu_si256((__m256i *)second, _mm512_extracti64x4_epi64(x, 1));
}

/* 2^x, relative error below 3e-6; 2^-127 or less for anything less; a NaN stays one. */
INLINE floats exp2_lanes(floats x) {
    x = _mm512_max_ps(_mm512_set1_ps(-127.0f), x);
    floats n = _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    return _mm512_scalef_ps(exp2_fraction(x - n), n);
}

#else

/* A bit for each lane of a that compares so (_CMP_GT_OQ) to b's. */
INLINE uint32_t compared(floats a, floats b, const int so) {
    return (uint32_t)_mm256_movemask_ps(_mm256_cmp_ps(a, b, so));
}
INLINE picked first_lanes(int64_t count) {
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    int32_t end = count > LANES ? LANES : count < 0 ? 0 : (int32_t)count;
    return _mm256_castsi256_ps(_mm256_cmpgt_epi32(_mm256_set1_epi32(end), lane));
}
INLINE floats choose(picked lanes, floats yes, floats no) {
    return _mm256_blendv_ps(no, yes, lanes);
}
INLINE ints load_ints(const void *p) { return _mm256_loadu_si256((const __m256i *)p); }
INLINE void store_ints(void *p, ints x) { _mm256_storeu_si256((__m256i *)p, x); }
/* The lower halves of one's lanes beside the upper halves of the other's. */
INLINE ints halves_of(ints lower, ints upper) { return _mm256_blend_epi16(lower, upper, 0xAA); }
INLINE ints widened(const uint16_t *p) {
    return _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p));
}
/* The upper halves of one's lanes, then of the other's. */
INLINE ints upper_halves(ints first, ints second) {
    ints quarters = _mm256_packus_epi32(shifted_right(first, 16), shifted_right(second, 16));
    return _mm256_permute4x64_epi64(quarters, 0xD8);
}
INLINE void store_split(void *first, void *second, ints x) {
    _mm_storeu_si128((__m128i *)first, _mm256_castsi256_si128(x));
    _mm_storeu_si128((__m128i *)second, _mm256_extracti128_si256(x, 1));
}

/* 2^x, relative error below 3e-6; 0 for anything below 2^-127; a NaN stays one. */
INLINE floats exp2_lanes(floats x) {
    x = _mm256_max_ps(_mm256_set1_ps(-127.0f), x);
    x = _mm256_min_ps(_mm256_set1_ps(128.0f), x);
    floats n = _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    ints exponent = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
    return exp2_fraction(x - n) * _mm256_castsi256_ps(_mm256_slli_epi32(exponent, 23));
}

#endif

INLINE floats load_bf16(const uint16_t *p) { return as_floats(shifted_left(widened(p), 16)); }

/* Sixteen partial sums, or maxima, that are always folded alike. */
INLINE __m256 folded_sum(const floats *v) {
#if LANES == 16
    return _mm512_extractf32x8_ps(v[0], 0) + _mm512_extractf32x8_ps(v[0], 1);
#else
    return v[0] + v[1];
#endif
}

INLINE float sum_of_sixteen(const floats *v) {
    __m256 eight = folded_sum(v);
    __m128 x = _mm256_castps256_ps128(eight) + _mm256_extractf128_ps(eight, 1);
    x = x + _mm_shuffle_ps(x, x, _MM_SHUFFLE(1, 0, 3, 2));
    x = x + _mm_shuffle_ps(x, x, _MM_SHUFFLE(2, 3, 0, 1));
    return _mm_cvtss_f32(x);
}

INLINE float largest_of(floats v) {
#if LANES == 16
    __m256 eight = _mm256_max_ps(_mm512_extractf32x8_ps(v, 0), _mm512_extractf32x8_ps(v, 1));
#else
    __m256 eight = v;
#endif
    __m128 x = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    x = _mm_max_ps(x, _mm_shuffle_ps(x, x, _MM_SHUFFLE(1, 0, 3, 2)));
    x = _mm_max_ps(x, _mm_shuffle_ps(x, x, _MM_SHUFFLE(2, 3, 0, 1)));
    return _mm_cvtss_f32(x);
}

INLINE int32_t sum_of_ints(ints v) {
    int32_t each[LANES], sum = 0;
    store_ints(each, v);
    for (int i = 0; i < LANES; i++) sum += each[i];
    return sum;
}

INLINE int32_t largest_int(ints v) {
    int32_t each[LANES], most = INT32_MIN;
    store_ints(each, v);
    for (int i = 0; i < LANES; i++) most = each[i] > most ? each[i] : most;
    return most;
}
