/* What a denoising step draws: core/draws.py's tokens, and of its sums of exponentials those within a
 * bound.
 */
#include <math.h>
#include <stdint.h>

#include "common/noise.h"
#include "verifier/sampling.h"
#include "verifier/vectors.h"

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

/* Write the largest of a row and the sum of all exponentials of what they are below it. The sum is
 * NaN where the row has one; it says nothing where the largest is infinite. */
static void row_mass(const float *logits, int64_t vocabulary, double *highest, double *sum) {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq")) {
        mass_avx512(logits, vocabulary, highest, sum);
        return;
    }
#endif
    mass(logits, vocabulary, highest, sum);
}

/* Draw the `count` slots of logits [slots, vocabulary] that are named, in a step from `filled` filled
 * slots on, the block's first position being `start`. Write each one's token, the log p of that and
 * its lead [count]; and at each slot the logarithm of its sum and the greatest log p. Return 1 where
 * logits are not finite where they are highest. */
EXPORTED int fd_step(const float *logits, const int64_t *slots, int64_t count, int64_t vocabulary,
                     double temperature, uint64_t seed, int64_t filled, int64_t start, double head,
                     int64_t *tokens, double *confidence, double *leads, double *normalisers,
                     double *peaks) {
    uint64_t noise = substream(seed, DENOISE, filled);
    for (int64_t i = 0; i < count; i++) {
        int64_t slot = slots[i];
        const float *row = logits + slot * vocabulary;
        double highest, sum;
        row_mass(row, vocabulary, &highest, &sum);
        tokens[i] = drawn_token(row, vocabulary, stream_key(noise, start + slot), temperature, head,
                                leads + i);
        if (tokens[i] < 0 || !isfinite(sum)) return 1;
        normalisers[slot] = highest + log(sum);
        peaks[slot] = highest - normalisers[slot];
        confidence[i] = row[tokens[i]] - normalisers[slot];
    }
    return 0;
}
