/* What Python fills for drafts of a denoiser; structs.py mirrors it. */
#pragma once

#include <stdint.h>

/* A draft graph (denoiser_service/core/graph.py): candidates of prefixes of formulas, a prefix after
 * its shorter one, which is -1 for the first candidate; a step is what fills a candidate. */
typedef struct {
    int64_t num_nodes, num_prefixes, num_steps, longest, deepest;
    const int64_t *shorter, *positions, *ranks, *steps; /* [num_prefixes] */
    const int64_t *after;                               /* [num_steps], tokens that came before */
    const int64_t *paths, *lengths; /* prefixes [num_nodes, longest], how many [num_nodes] */
    const double *log_frequencies;  /* [num_nodes] */
    const uint8_t *within; /* [num_nodes, num_nodes], whether the later formula holds the earlier */
} draft_graph;

/* How a session denoises. Temperature 0 ranks without noise; per_step is 0 for dynamic unmasking. At
 * most `budget` states are drafted, none that costs more than `most_cost`. */
typedef struct {
    double temperature, head, most_cost;
    uint64_t seed;
    int64_t slots, vocabulary, per_step, budget;
} draft_settings;
