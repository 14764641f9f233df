/* The drafter's compiled forward for AMX with bytes. */
#include "common/amx.h"

#if HAS_AMX

#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,fma")
#define FOREDRAFT_AVX512
#define FOREDRAFT_AMX
#include "linear.inl"
#include "attention.inl"
#include "candidates.inl"
#include "forward.inl"

#endif
