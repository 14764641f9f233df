/* What this CPU can do. */
#define _GNU_SOURCE
#include "common/amx.h"
#include "common/functions.h"

#if HAS_AMX
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#if defined(__x86_64__)
#define HAS(feature) (__builtin_cpu_supports(feature) != 0)
#else
#define HAS(feature) 0
#endif

static int has_avx512(void) {
    return HAS("avx512f") && HAS("avx512bw") && HAS("avx512dq") && HAS("avx512vl");
}

/* AMX's tiles, which Linux gives to a process that asks. */
static int has_amx(unsigned products) {
#if HAS_AMX
    const unsigned tiles = 1u << 24;
    const long request_permission = 0x1023, tile_data = 18;
    unsigned a, b, c, d;
    if (!has_avx512() || !__get_cpuid_count(7, 0, &a, &b, &c, &d)) return 0;
    if (~d & (tiles | products)) return 0;
    return syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
#else
    (void)products;
    return 0;
#endif
}

EXPORTED int fd_has_avx2(void) { return HAS("avx2") && HAS("fma"); }

/* AVX-512 with products of bf16. */
EXPORTED int fd_has_avx512_bf16(void) { return has_avx512() && HAS("avx512bf16"); }

/* AVX-512 with products of bytes (VNNI). */
EXPORTED int fd_has_avx512_int8(void) { return has_avx512() && HAS("avx512vnni"); }

EXPORTED int fd_has_amx_bf16(void) { return fd_has_avx512_bf16() && has_amx(1u << 22); }

EXPORTED int fd_has_amx_int8(void) { return fd_has_avx512_int8() && has_amx(1u << 25); }
