/* The tiles for AVX-512; which of them a CPU can run, its VNNI and its bf16 decide. */
#if defined(__x86_64__)

#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512bf16,fma")
#define FOREDRAFT_AVX512
#include "tiles.inl"

#endif
