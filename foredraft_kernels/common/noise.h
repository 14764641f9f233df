/* The 52 random bits of foredraft/noise.py, which every process computes alike. */
#pragma once

#include <stdint.h>

#include "common/functions.h"

#define GOLDEN 0x9E3779B97F4A7C15u
#define HASH_BITS 52

/* foredraft/streams.py's finaliser. */
INLINE uint64_t mix(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

INLINE uint64_t hash(uint64_t key, uint64_t token) {
    return mix(key + (token + 1) * GOLDEN) >> (64 - HASH_BITS);
}
