/* The tiles for AVX2. */
#if defined(__x86_64__)

#pragma GCC target("avx2,fma")
#define FOREDRAFT_AVX2
#include "tiles.inl"

#endif
