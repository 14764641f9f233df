/* The drafter's compiled forward for AVX-512 with VNNI. */
#if defined(__x86_64__)

#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,fma")
#define FOREDRAFT_AVX512
#include "linear.inl"
#include "attention.inl"
#include "candidates.inl"
#include "forward.inl"

#endif
