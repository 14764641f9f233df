/* The largest number of each row of logits, and the sum of all exponentials of what they are below
 * it: see denoiser_service/core/draws.py, of whose sums these are within a bound.
 */
#include <math.h>
#include <stdint.h>

#include "vectors.h"

#define RUN 64 /* vectors that are summed in single precision */

INLINE void mass(const float *logits, int64_t vocabulary, double *highest, double *sum) {
    int64_t whole = vocabulary / LANES * LANES;
    float last[LANES], top = -INFINITY;
    vec most = splat(-INFINITY);
    for (int64_t i = 0; i < LANES; i++)
        last[i] = whole + i < vocabulary ? logits[whole + i] : -INFINITY;
    for (int64_t v = 0; v < whole; v += LANES) {
        vec x = load(logits + v);
        most = pick(x > most, x, most);
    }
    vec x = load(last);
    most = pick(x > most, x, most);
    for (int i = 0; i < LANES; i++) top = most[i] > top ? most[i] : top;
    *highest = top;
    *sum = 0;
    if (isinf(top)) return;
    vec offset = splat(top);
    for (int64_t v = 0; v < whole; v += RUN * LANES) {
        int64_t end = v + RUN * LANES < whole ? v + RUN * LANES : whole;
        vec part = splat(0);
        for (int64_t at = v; at < end; at += LANES) part = part + exp_vec(load(logits + at) - offset);
        *sum += sum_lanes(part);
    }
    *sum += sum_lanes(exp_vec(x - offset));
}

#if defined(__x86_64__)
__attribute__((target("avx512f,avx512dq"))) static void mass_avx512(const float *logits,
                                                                    int64_t vocabulary,
                                                                    double *highest, double *sum) {
    mass(logits, vocabulary, highest, sum);
}
#endif

/* Write the largest number and the sum of rows of logits, `stride` apart: [rows] each. The sum is
 * NaN where a row has one; it says nothing where the largest is infinite. */
EXPORTED void fd_masses(const float *logits, int64_t rows, int64_t stride, int64_t vocabulary,
                        double *highest, double *sums) {
    for (int64_t r = 0; r < rows; r++, logits += stride) {
#if defined(__x86_64__)
        if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq")) {
            mass_avx512(logits, vocabulary, highest + r, sums + r);
            continue;
        }
#endif
        mass(logits, vocabulary, highest + r, sums + r);
    }
}
