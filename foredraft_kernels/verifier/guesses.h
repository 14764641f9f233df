/* The likeliest tokens of one row, for whoever drafts by what a target will draw. */
#pragma once

#include <stdint.h>

typedef struct {
    double score;
    int64_t token;
} guess;

/* Write the `count` tokens with the greatest score, best first, then -1: a logit or, above
 * temperature 0, that over the temperature with the key's noise. best is room for `count`. */
void likeliest_tokens(const float *logits, int64_t vocabulary, uint64_t key, double temperature,
                      double head, guess *best, int64_t count, int64_t *tokens);
