/* What the searches over a pass's candidates share; structs.py mirrors what Python fills. */
#pragma once

#include <stdint.h>

#define MAX_WIDTH 64 /* candidates of a slot */
#define MAX_ORDER 8
#define BUCKETS 4096 /* of tokens in a text */

/* core/lattice.py's BlockScores, [slots, width], and the target's noise. edge is [slots, width,
 * width], NULL if there are none. */
typedef struct {
    int64_t slots, width, eos;
    double temperature;
    const int64_t *tokens;
    const float *log_q, *edge;
    const double *noise;
} block_scores;

/* Eq. 6's tau and M_max, the beam, Eq. 7's lambda, and the proxy's parts, which sum to 1. */
typedef struct {
    double tau;
    int64_t max_candidates, beam;
    double weight, edge, context;
} beam_settings;

/* What a pruned lattice keeps of one slot, best first. */
typedef struct {
    int64_t count, tokens[MAX_WIDTH], columns[MAX_WIDTH];
    double log_q[MAX_WIDTH], noise[MAX_WIDTH];
} choices;

int64_t lattice_depth(const block_scores *s);
void prune_slot(const block_scores *s, int64_t slot, double tau, int64_t most, choices *kept);

/* A text, of which n-grams that end in [first, length) are counted. `previous` [length] chains the
 * places of each token, latest first, from heads[token % BUCKETS]; a chain may hold other tokens of
 * that bucket besides. */
typedef struct {
    int64_t length, first, order;
    double pseudocount, floor;
    const int32_t *tokens;
    int32_t *previous, heads[BUCKETS];
} counted_text;

void chain(counted_text *t);
void unigram(const counted_text *t, const choices *at, double *p);
void interpolate_followers(const counted_text *t, const int64_t *history, int64_t known,
                           const choices *at, double *p);

/* A token, and how often it followed the last 1, 2, ... tokens of a history. */
typedef struct {
    int64_t token, counts[MAX_ORDER];
} follower;

/* What followed a history, with its last place first: `count` tokens, and of each of the `orders`
 * lengths that anything followed how often that was. */
typedef struct {
    int64_t orders, count, totals[MAX_ORDER];
    follower *found;
} followers;

void follow(const counted_text *t, const int64_t *history, int64_t known, followers *f);

/* core/draft_tree.py's TreeScores and TreeParams: tokens and noise [slots, width], logits [slots,
 * parents, width], pseudocounts of each order of the text; depth of the model's slots, eos and the
 * least log mass of a node. The noise of other tokens is made of seed and position where noisy. */
typedef struct {
    int64_t depth, text_depth, width, parents, eos, noisy, position;
    uint64_t seed;
    double confidence_exponent, least;
    const int64_t *tokens;
    const float *logits;
    const double *noise, *pseudocounts;
    counted_text *text;
} tree_scores;

double gumbel(uint64_t seed, int64_t position, int64_t token);
