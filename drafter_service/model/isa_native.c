/* The instruction sets that the drafter's compiled forward can be run with. */

#if defined(__x86_64__)

int fd_draft_runs_avx512(void) {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512vnni");
}

int fd_draft_runs_avx2(void) {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

#else

int fd_draft_runs_avx512(void) { return 0; }
int fd_draft_runs_avx2(void) { return 0; }

#endif
