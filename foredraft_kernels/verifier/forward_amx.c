/* The compiled forward for AMX with bf16. */
#include "common/amx.h"

#if HAS_AMX

#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,fma")
#define FOREDRAFT_AVX512
#define FOREDRAFT_AMX
#include "linear.inl"
#include "panel_attention.inl"
#include "forward.inl"

#endif
