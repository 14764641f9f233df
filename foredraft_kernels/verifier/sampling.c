/* argmax_v [z(v) + g(key, v)] over vocabulary rows: see rules/sampling.py, whose pruning this
 * repeats, and foredraft/noise/gumbel.py, whose hash this is. Logarithms are the C library's, so a winner is
 * final only with a margin that exceeds any difference between logarithms; the caller looks.
 */
#include <math.h>
#include <stdint.h>

#include "common/noise.h"
#include "sampling.h"

#define TWO_52 4503599627370496.0
#define WIDE 64  /* numbers that are compared side by side */
#define CHUNK 64 /* tokens that are looked at together: few chunks hold one that can win */

INLINE double gumbel(uint64_t h) { return -log(-log((h + 0.5) / TWO_52)); }

/* What gumbel(h) is below, without a logarithm: -log(1 - u), with 1 - u rounded down to a power of 2. */
INLINE double gumbel_bound(uint64_t h) {
    const double log_2 = 0.6931471805599453;
    uint64_t twice = (((uint64_t)1 << HASH_BITS) - h) * 2 - 1; /* (1 - u) 2^53 */
    return log_2 * (HASH_BITS + 1 - (63 - __builtin_clzll(twice)));
}

/* A bit for each of n <= CHUNK numbers that is at least `least`. */
#define DEFINE_BITS(name, number)                                                                  \
    INLINE uint64_t name(const number *x, int64_t n, number least) {                               \
        uint64_t bits = 0;                                                                         \
        if (n == CHUNK)                                                                            \
            for (int64_t i = 0; i < CHUNK; i++) bits |= (uint64_t)(x[i] >= least) << i;            \
        else                                                                                       \
            for (int64_t i = 0; i < n; i++) bits |= (uint64_t)(x[i] >= least) << i;                \
        return bits;                                                                               \
    }
DEFINE_BITS(floats_from, float)
DEFINE_BITS(doubles_from, double)
DEFINE_BITS(hashes_from, uint64_t)

/* Take the lowest of the bits that are set. */
INLINE int64_t next_of(uint64_t *bits) {
    int64_t i = __builtin_ctzll(*bits);
    *bits &= *bits - 1;
    return i;
}

typedef struct {
    double best, second;
    int64_t token;
} winner;

INLINE void enter(winner *w, double score, int64_t token) {
    if (score > w->best) {
        w->second = w->best;
        w->best = score;
        w->token = token;
    } else if (score > w->second) {
        w->second = score;
    }
}

/* Enter a token with its noise, unless that cannot matter. */
INLINE void try(winner *w, double z, uint64_t h, int64_t token) {
    if (z + gumbel_bound(h) > w->second) enter(w, z + gumbel(h), token);
}

/* What a row's tokens have before the noise: z, or (logits - most) / temperature. Few of the latter
 * are ever looked at. */
typedef struct {
    const double *z;
    const float *logits;
    double most, temperature;
} row;

INLINE double at(row x, int64_t v) {
    return x.z ? x.z[v] : (x.logits[v] - x.most) / x.temperature;
}

/* Those of n tokens that may have -head or more: bar is a logit a little below. */
INLINE uint64_t at_head(row x, int64_t v, int64_t n, double head, float bar) {
    return x.z ? doubles_from(x.z + v, n, -head) : floats_from(x.logits + v, n, bar);
}

INLINE int64_t draw(row x, int64_t vocabulary, uint64_t key, double head, double *lead) {
    winner w = {-INFINITY, -INFINITY, -1};
    double below = head * x.temperature;
    float bar = (float)(x.most - below - 1e-6 * (fabs(x.most) + below));
    for (int64_t v = 0; v < vocabulary; v += CHUNK) {
        int64_t n = vocabulary - v < CHUNK ? vocabulary - v : CHUNK;
        for (uint64_t bits = at_head(x, v, n, head, bar); bits;) {
            int64_t token = v + next_of(&bits);
            if (at(x, token) >= -head) try(&w, at(x, token), hash(key, token), token);
        }
    }
    double u = exp(-exp(-(w.best + head - 1e-6)));
    double least = floor(u * TWO_52) - 2;
    uint64_t bound = least > 0 ? (uint64_t)least : 0;
    for (int64_t v = 0; v < vocabulary; v += CHUNK) {
        int64_t n = vocabulary - v < CHUNK ? vocabulary - v : CHUNK;
        uint64_t h[CHUNK];
        hashes(key, v, CHUNK, h);
        for (uint64_t bits = hashes_from(h, n, bound); bits;) {
            int64_t i = next_of(&bits);
            if (at(x, v + i) < -head) try(&w, at(x, v + i), h[i], v + i);
        }
    }
    *lead = w.best - w.second;
    return w.token;
}

/* The first of a row's largest logits, -1 where the row holds a NaN, +inf or nothing but -inf. */
INLINE int64_t largest(const float *logits, int64_t vocabulary) {
    float best = -INFINITY, each[WIDE];
    int nans[WIDE] = {0}, bad = 0;
    int64_t whole = vocabulary / WIDE * WIDE, first = 0;
    for (int64_t i = 0; i < WIDE; i++) each[i] = -INFINITY;
    for (int64_t v = 0; v < whole; v += WIDE)
        for (int64_t i = 0; i < WIDE; i++) {
            float x = logits[v + i];
            nans[i] |= x != x;
            each[i] = x > each[i] ? x : each[i];
        }
    for (int64_t i = 0; i < WIDE; i++) {
        bad |= nans[i];
        best = each[i] > best ? each[i] : best;
    }
    for (int64_t v = whole; v < vocabulary; v++) {
        bad |= logits[v] != logits[v];
        best = logits[v] > best ? logits[v] : best;
    }
    if (bad || isinf(best)) return -1;
    for (int any = 0; first < whole; first += WIDE) {
        for (int64_t i = 0; i < WIDE; i++) any |= logits[first + i] == best;
        if (any) break;
    }
    while (logits[first] != best) first++;
    return first;
}

/* The token of one row that nothing but a temperature changes, -1 where the row cannot be used. */
INLINE int64_t choose(const float *logits, int64_t vocabulary, uint64_t key, double temperature,
                      double head, double *lead) {
    int64_t token = largest(logits, vocabulary);
    *lead = INFINITY;
    if (token < 0 || temperature == 0) return token;
    row x = {.logits = logits, .most = logits[token], .temperature = temperature};
    return draw(x, vocabulary, key, head, lead);
}

#if defined(__x86_64__)
/* With vectors of 64-bit products; hashes and comparisons are exact, so nothing else changes. */
#define AVX512 __attribute__((target("avx512f,avx512dq")))
AVX512 static int64_t draw_avx512(const double *z, int64_t vocabulary, uint64_t key, double head,
                                  double *lead) {
    return draw((row){.z = z}, vocabulary, key, head, lead);
}
AVX512 static int64_t choose_avx512(const float *logits, int64_t vocabulary, uint64_t key,
                                    double temperature, double head, double *lead) {
    return choose(logits, vocabulary, key, temperature, head, lead);
}
#endif

static int has_avx512(void) {
#if defined(__x86_64__)
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq");
#else
    return 0;
#endif
}

/* Return the winning token of z [vocabulary], whose maximum is 0, and its lead over the next. Only
 * tokens with z >= -head, or with a hash that could make up for it, get noise. */
EXPORTED int64_t fd_draw(const double *z, int64_t vocabulary, uint64_t key, double head, double *lead) {
#if defined(__x86_64__)
    if (has_avx512()) return draw_avx512(z, vocabulary, key, head, lead);
#endif
    return draw((row){.z = z}, vocabulary, key, head, lead);
}

int64_t drawn_token(const float *logits, int64_t vocabulary, uint64_t key, double temperature,
                    double head, double *lead) {
#if defined(__x86_64__)
    if (has_avx512()) return choose_avx512(logits, vocabulary, key, temperature, head, lead);
#endif
    return choose(logits, vocabulary, key, temperature, head, lead);
}

/* Tokens of rows of logits, `stride` apart, that nothing but a temperature changes, with their
 * leads; -1 for a row that cannot be used. A negative temperature leaves a row out. */
EXPORTED void fd_choose(const float *logits, int64_t rows, int64_t stride, int64_t vocabulary,
               const uint64_t *keys, const double *temperatures, double head, int64_t *tokens,
               double *leads) {
    for (int64_t r = 0; r < rows; r++, logits += stride)
        if (temperatures[r] >= 0)
            tokens[r] = drawn_token(logits, vocabulary, keys[r], temperatures[r], head, leads + r);
}

/* Put a token among the best ones, which are in order, in place of the last. */
INLINE void put(guess *best, int64_t count, double score, int64_t token) {
    int64_t at = count - 1;
    if (!(score > best[at].score)) return;
    for (; at > 0 && best[at - 1].score < score; at--) best[at] = best[at - 1];
    best[at].score = score;
    best[at].token = token;
}

/* The same with its noise, unless that cannot matter. */
INLINE void put_noisy(guess *best, int64_t count, double z, uint64_t h, int64_t token) {
    if (z + gumbel_bound(h) > best[count - 1].score) put(best, count, z + gumbel(h), token);
}

/* As in `draw`, only tokens that could be among the likeliest get noise. */
INLINE void guess_row(const float *logits, int64_t vocabulary, uint64_t key, double temperature,
                      double head, guess *best, int64_t count, int64_t *tokens) {
    for (int64_t i = 0; i < count; i++) best[i] = (guess){-INFINITY, -1};
    int64_t top = largest(logits, vocabulary);
    double most = top < 0 ? 0 : logits[top], least = most - head * temperature;
    for (int64_t v = 0; top >= 0 && v < vocabulary; v += CHUNK) {
        int64_t n = vocabulary - v < CHUNK ? vocabulary - v : CHUNK;
        float bar = temperature > 0 ? (float)least : (float)best[count - 1].score;
        for (uint64_t bits = floats_from(logits + v, n, bar); bits;) {
            int64_t token = v + next_of(&bits);
            if (temperature > 0)
                put_noisy(best, count, (logits[token] - most) / temperature, hash(key, token), token);
            else put(best, count, logits[token], token);
        }
    }
    double last = best[count - 1].score;
    double u = isinf(last) ? 0 : exp(-exp(-(last + head)));
    uint64_t bound = (uint64_t)(u * TWO_52);
    for (int64_t v = 0; top >= 0 && temperature > 0 && v < vocabulary; v += CHUNK) {
        int64_t n = vocabulary - v < CHUNK ? vocabulary - v : CHUNK;
        uint64_t h[CHUNK];
        hashes(key, v, CHUNK, h);
        for (uint64_t bits = hashes_from(h, n, bound); bits;) {
            int64_t i = next_of(&bits);
            if (logits[v + i] < (float)least)
                put_noisy(best, count, (logits[v + i] - most) / temperature, h[i], v + i);
        }
    }
    for (int64_t i = 0; i < count; i++) tokens[i] = best[i].token;
}

#if defined(__x86_64__)
AVX512 static void guess_row_avx512(const float *logits, int64_t vocabulary, uint64_t key,
                                    double temperature, double head, guess *best, int64_t count,
                                    int64_t *tokens) {
    guess_row(logits, vocabulary, key, temperature, head, best, count, tokens);
}
#endif

void likeliest_tokens(const float *logits, int64_t vocabulary, uint64_t key, double temperature,
                      double head, guess *best, int64_t count, int64_t *tokens) {
#if defined(__x86_64__)
    if (has_avx512()) {
        guess_row_avx512(logits, vocabulary, key, temperature, head, best, count, tokens);
        return;
    }
#endif
    guess_row(logits, vocabulary, key, temperature, head, best, count, tokens);
}

/* Write each row's `count` likeliest tokens [rows, count], -1 after the last that can be drawn.
 * best is room for [count] of them. */
EXPORTED void fd_guess(const float *logits, int64_t rows, int64_t stride, int64_t vocabulary,
                       const uint64_t *keys, const double *temperatures, double head, void *best,
                       int64_t count, int64_t *tokens) {
    for (int64_t r = 0; r < rows; r++, logits += stride, tokens += count)
        likeliest_tokens(logits, vocabulary, keys[r], temperatures[r], head, best, count, tokens);
}
