/* The 52 random bits of foredraft/noise/, which every process computes alike. */
#pragma once

#include <stdint.h>

#include "common/functions.h"

#define GOLDEN 0x9E3779B97F4A7C15u
#define MIX_1 0xBF58476D1CE4E5B9u
#define HASH_BITS 52
#define DENOISE 4 /* a purpose of `substream` */

/* foredraft/noise/streams.py's finaliser. */
INLINE uint64_t mix(uint64_t x) {
    x = (x ^ (x >> 30)) * MIX_1;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

INLINE uint64_t hash(uint64_t key, uint64_t token) {
    return mix(key + (token + 1) * GOLDEN) >> (64 - HASH_BITS);
}

/* The hashes of `count` tokens from one on; with a constant count, their multiples of GOLDEN are. */
INLINE void hashes(uint64_t key, uint64_t token, int64_t count, uint64_t *h) {
    uint64_t first = key + (token + 1) * GOLDEN;
    for (int64_t i = 0; i < count; i++)
        h[i] = mix(first + (uint64_t)i * GOLDEN) >> (64 - HASH_BITS);
}

/* foredraft/noise/streams.py's key of a position's noise. */
INLINE uint64_t stream_key(uint64_t seed, int64_t position) {
    return mix(mix(seed + GOLDEN) ^ ((uint64_t)position * GOLDEN));
}

/* foredraft/noise/streams.py's seed for another purpose. */
INLINE uint64_t substream(uint64_t seed, uint64_t purpose, int64_t prefix_len) {
    return mix(mix(seed ^ (purpose * MIX_1)) + (uint64_t)(prefix_len + 1) * GOLDEN);
}
