/* The compiled forward for AVX-512 with bf16. */
#if defined(__x86_64__)

#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,fma")
#define FOREDRAFT_AVX512
#include "linear.inl"
#include "panel_attention.inl"
#include "forward.inl"

#endif
