/* Vectors of 16 fp32 lanes in GCC's own types: for any CPU, of any instruction set. */
#pragma once

#include "common/functions.h"

#include <stdint.h>

#define LANES 16

typedef float vec __attribute__((vector_size(4 * LANES)));
typedef float vec_at __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef uint32_t bits __attribute__((vector_size(4 * LANES)));
typedef int32_t ints __attribute__((vector_size(4 * LANES)));
typedef uint16_t half __attribute__((vector_size(2 * LANES)));
typedef uint16_t half_at __attribute__((vector_size(2 * LANES), aligned(2), may_alias));

INLINE vec load(const float *p) { return *(const vec_at *)p; }
INLINE void store(float *p, vec x) { *(vec_at *)p = x; }
INLINE vec splat(float x) { return (vec){0} + x; }
INLINE vec pick(ints mask, vec a, vec b) {
    return (vec)((mask & (ints)a) | (~mask & (ints)b));
}

INLINE vec load_bf16(const uint16_t *p) {
    return (vec)(__builtin_convertvector(*(const half_at *)p, bits) << 16);
}

/* Round to bf16, nearest even; a NaN stays one. The result is kept in the upper half. */
INLINE vec round_bf16(vec x) {
    bits b = (bits)x;
    bits rounded = (b + 0x7FFF + ((b >> 16) & 1)) & 0xFFFF0000u;
    ints nan = x != x;
    return (vec)((rounded & ~(bits)nan) | ((b | 0x00400000u) & 0xFFFF0000u & (bits)nan));
}

/* x is rounded already. */
INLINE void store_upper(uint16_t *p, vec x) {
    *(half_at *)p = __builtin_convertvector((bits)x >> 16, half);
}
INLINE void store_bf16(uint16_t *p, vec x) { store_upper(p, round_bf16(x)); }

INLINE float sum_lanes(vec x) {
    float s = 0;
    for (int i = 0; i < LANES; i++) s += x[i];
    return s;
}

/* e^x for x <= 88, relative error about 2e-7; below -87 it stays at e^-87; a NaN stays one. */
INLINE vec exp_vec(vec x) {
    x = pick(x < -87.0f, splat(-87.0f), x);
    x = pick(x > 88.0f, splat(88.0f), x);
    vec n = x * 1.44269504f;
    n = (n + 12582912.0f) - 12582912.0f; /* nearest integer */
    vec r = x - n * 0.693359375f;
    r = r - n * -2.12194440e-4f;
    vec p = r * 1.9875691500e-4f + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    return p * (vec)((__builtin_convertvector(n, ints) + 127) << 23);
}

/* Elements are bf16 or fp32; `wide` is a constant wherever this is inlined. */
INLINE vec load_any(const void *p, int64_t i, int wide) {
    return wide ? load((const float *)p + i) : load_bf16((const uint16_t *)p + i);
}
INLINE void store_any(void *p, int64_t i, vec x, int wide) {
    if (wide) store((float *)p + i, x);
    else store_bf16((uint16_t *)p + i, x);
}
