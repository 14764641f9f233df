/* What Python fills for the drafter's forward; structs.py mirrors it. */
#pragma once

#include <stdint.h>

#define MAX_CANDIDATES 64
#define MAX_HEAD_DIM 128
#define MAX_EDGE_RANK 256

/* Weights of a linear layer as bytes w / scale + 128, in panels (README.md); scales [out]. */
typedef struct {
    const int32_t *panels;
    const float *scales;
    int64_t in, out;
} linear;

/* Weights of the norms are folded into the layers after them. */
typedef struct {
    linear qkv, out, gate_up, down;
} layer;

/* Python checks the sizes; caches hold `slots` sessions of `capacity` tokens. The head has a row for
 * each of `scored` tokens; row_of is `scored` for a token without one. mask is -1 where the mask
 * token has none. */
typedef struct {
    int64_t scored, hidden, heads, head_dim, inner, num_layers, rank;
    int64_t eos, mask, candidates, slots, capacity; /* eos and mask are rows of the head */
    const layer *layers;
    linear head, edge_gate;
    const int32_t *token_ids, *row_of;         /* [scored], [vocab]; NULL: row i is token i's */
    const float *embedding, *mask_slots;       /* [vocab, hidden], [slots, hidden] */
    const float *mask_qkv;                     /* [slots, 3 hidden], the first layer's; NULL:
                                                * slots are anchored at the last token's row */
    const float *cos, *sin;                    /* [positions, head_dim / 2] */
    const float *edge_bias;                    /* [rank] */
    const uint16_t *edge_previous, *edge_next; /* bf16 [scored (+ 1), rank], [scored, rank] */
    float eps;
} model;

/* One session's part of a pass: cache slot `slot` holds `start` tokens; `tokens` more follow, then
 * num_slots mask slots. Above temperature 0 a seed's noise chooses their candidates. */
typedef struct {
    int64_t slot, start, tokens, num_slots;
    double temperature;
    uint64_t seed;
} request;
