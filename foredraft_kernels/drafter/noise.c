/* The noise of foredraft/noise/gumbel.py, bit for bit: its series for the logarithm, and each operation
 * rounded on its own, as without -mfma it is. */
#include "common/noise.h"
#include "searches.h"

#include <string.h>

#define LN_2 0.6931471805599453
#define MANTISSA ((1ll << 52) - 1)
#define ONE (1023ll << 52)

/* Natural logarithm of a positive normal number. */
static double logarithm(double x) {
    int64_t bits, reduced;
    double m;
    memcpy(&bits, &x, 8);
    reduced = (bits & MANTISSA) | ONE;
    memcpy(&m, &reduced, 8);
    int high = m >= 1.5;
    m -= m * (high * 0.5);
    double exponent = (double)((bits >> 52) - 1023 + high);
    double s = (m - 1.0) / (m + 1.0), s2 = s * s, series = s2 * (1.0 / 15.0) + 1.0 / 13.0;
    series = series * s2 + 1.0 / 11.0;
    series = series * s2 + 1.0 / 9.0;
    series = series * s2 + 1.0 / 7.0;
    series = series * s2 + 1.0 / 5.0;
    series = series * s2 + 1.0 / 3.0;
    series = series * s2 + 1.0;
    return exponent * LN_2 + series * s * 2.0;
}

static double of_key(uint64_t key, int64_t token) {
    double bits = (double)hash(key, (uint64_t)token);
    return -logarithm(-logarithm(bits * 0x1p-52 + 0x1p-53));
}

/* g of a seed, a position and a token. */
double gumbel(uint64_t seed, int64_t position, int64_t token) {
    return of_key(stream_key(seed, position), token);
}

/* Write g of each row's key and its tokens [rows, columns]. */
EXPORTED void fd_gumbel(const uint64_t *keys, int64_t rows, const int64_t *tokens, int64_t columns,
               double *noise) {
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < columns; c++) *noise++ = of_key(keys[r], *tokens++);
}
