/* The draw of one row of logits, and its likeliest tokens: for verification and for drafts. */
#pragma once

#include <stdint.h>

/* Return the row's token, -1 where it holds a NaN, +inf or nothing but -inf: its largest logit or,
 * above temperature 0, what the key's noise makes of it, with its lead over the next, infinite
 * without noise. */
int64_t drawn_token(const float *logits, int64_t vocabulary, uint64_t key, double temperature,
                    double head, double *lead);

typedef struct {
    double score;
    int64_t token;
} guess;

/* Write the `count` tokens with the greatest score, best first, then -1: a logit or, above
 * temperature 0, that over the temperature with the key's noise. best is room for `count`. */
void likeliest_tokens(const float *logits, int64_t vocabulary, uint64_t key, double temperature,
                      double head, guess *best, int64_t count, int64_t *tokens);
