/* The drafter's compiled forward for AVX2. */
#if defined(__x86_64__)

#pragma GCC target("avx2,fma")
#define FOREDRAFT_AVX2
#include "linear.inl"
#include "attention.inl"
#include "candidates.inl"
#include "forward.inl"

#endif
