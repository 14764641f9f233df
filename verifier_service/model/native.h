/* What the verifier's C files share: vectors, one batch of sessions' rows, and the team of threads.
 *
 * Vectors are GCC's own, so that what is built on them runs on every CPU and on AVX-512 becomes its
 * instructions.
 */
#ifndef FOREDRAFT_VERIFIER_NATIVE_H
#define FOREDRAFT_VERIFIER_NATIVE_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define LANES 16

typedef float vec __attribute__((vector_size(4 * LANES)));
typedef float vec_at __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef uint32_t bits __attribute__((vector_size(4 * LANES)));
typedef int32_t ints __attribute__((vector_size(4 * LANES)));
typedef uint16_t half __attribute__((vector_size(2 * LANES)));
typedef uint16_t half_at __attribute__((vector_size(2 * LANES), aligned(2), may_alias));

#define INLINE static inline __attribute__((always_inline))

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

/* One session's rows in a batch. Caches are those of layer 0; layer_bytes leads to the next.
 *
 * The last `nodes` rows are a draft tree: node i follows node parents[i], or, where that is -1, the
 * row before the tree. Keys and values lie in the cache by row; positions go by depth. */
typedef struct {
    char *keys;   /* [layers, kv_heads, head_dim, capacity] */
    char *values; /* [layers, kv_heads, capacity, head_dim] */
    int64_t layer_bytes, capacity, start, first, rows, nodes;
    const int32_t *parents; /* [nodes], each before its children */
} segment;

typedef struct {
    int64_t heads, kv_heads, head_dim, wide, count;
    float scale;
    const float *cos, *sin; /* [positions, head_dim / 2], or NULL: q and k are rotated already */
    const segment *segments;
} batch;

/* A [heads, rows, head_dim] view: strides in elements, the last one is 1. */
typedef struct {
    const void *data;
    int64_t head, row;
} view;

/* What threads do together: `thread` of `threads` calls of the same work, at the same time. */
typedef void work(void *context, int64_t thread, int64_t threads);

void team_run(int64_t threads, work *work, void *context);
void team_wait(int64_t threads);

/* The part [from, to) of count things that falls to a thread. */
typedef struct {
    int64_t from, to;
} part;

static inline part part_of(int64_t count, int64_t thread, int64_t threads) {
    return (part){count * thread / threads, count * (thread + 1) / threads};
}

/* Memory of the calling thread, 64-byte aligned, kept until more is asked for; NULL if none is. */
void *reserve(size_t bytes);

int64_t attention_floats(const batch *b);
void attend_heads(const batch *b, int64_t layer, view q, view k, view v, void *out, part heads,
                  float *memory);

#endif
