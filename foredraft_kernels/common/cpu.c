/* What this CPU can do. */
#include "common/functions.h"

#if defined(__x86_64__)
#define HAS(feature) (__builtin_cpu_supports(feature) != 0)
#else
#define HAS(feature) 0
#endif

static int has_avx512(void) {
    return HAS("avx512f") && HAS("avx512bw") && HAS("avx512dq") && HAS("avx512vl");
}

EXPORTED int fd_has_avx2(void) { return HAS("avx2") && HAS("fma"); }

/* AVX-512 with products of bf16. */
EXPORTED int fd_has_avx512_bf16(void) { return has_avx512() && HAS("avx512bf16"); }

/* AVX-512 with products of bytes (VNNI). */
EXPORTED int fd_has_avx512_int8(void) { return has_avx512() && HAS("avx512vnni"); }
