/* argmax_v [z(v) + g(key, v)] over one vocabulary row: see core/sampling.py, whose pruning this
 * repeats, and foredraft/noise.py, whose hash this is. Logarithms are the C library's, so a winner is
 * final only with a margin that exceeds any difference between logarithms; the caller looks.
 */
#include <math.h>
#include <stdint.h>

#define GOLDEN 0x9E3779B97F4A7C15u
#define TWO_52 4503599627370496.0

static inline uint64_t hash(uint64_t key, uint64_t token) {
    uint64_t x = key + (token + 1) * GOLDEN;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return (x ^ (x >> 31)) >> 12;
}

static inline double gumbel(uint64_t h) { return -log(-log((h + 0.5) / TWO_52)); }

typedef struct {
    double best, second;
    int64_t token;
} winner;

static inline void enter(winner *w, double score, int64_t token) {
    if (score > w->best) {
        w->second = w->best;
        w->best = score;
        w->token = token;
    } else if (score > w->second) {
        w->second = score;
    }
}

/* Return the winning token of z [vocabulary], whose maximum is 0, and its lead over the next. Only
 * tokens with z >= -head, or with a hash that could make up for it, get noise. */
int64_t fd_draw(const double *z, int64_t vocabulary, uint64_t key, double head, double *lead) {
    winner w = {-INFINITY, -INFINITY, -1};
    for (int64_t v = 0; v < vocabulary; v++)
        if (z[v] >= -head) enter(&w, z[v] + gumbel(hash(key, v)), v);
    double u = exp(-exp(-(w.best + head - 1e-6)));
    double least = floor(u * TWO_52) - 2;
    uint64_t bound = least > 0 ? (uint64_t)least : 0;
    for (int64_t v = 0; v < vocabulary; v++) {
        uint64_t h = hash(key, v);
        if (h >= bound && z[v] < -head) enter(&w, z[v] + gumbel(h), v);
    }
    *lead = w.best - w.second;
    return w.token;
}
