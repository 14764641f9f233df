/* What Python fills for the verifier's kernels; structs.py mirrors it. */
#pragma once

#include <stdint.h>

#define MAX_HEAD_DIM 256

/* One session's rows in a batch. Its cache's rows lie in blocks of a pool, `block` of them in each:
 * row r is row r % block of block blocks[r / block]. keys and values are the pool's, at layer 0 of
 * its block 0; layer_bytes lead to the next layer and block_bytes to the next block.
 *
 * The last `nodes` rows are a draft tree: node i follows node parents[i], or, where that is -1, the
 * row before the tree. Keys and values lie in the cache by row; positions go by depth, or are given.
 * The first `mutual` rows, none of them of the tree, see each other. */
typedef struct {
    char *keys, *values; /* a layer of a block is laid out as the kernel likes */
    int64_t layer_bytes, block_bytes, block, start, first, rows, nodes, mutual;
    const int32_t *blocks;
    const int32_t *parents;   /* [nodes], each before its children */
    const int32_t *positions; /* [rows], or NULL */
} segment;

/* A batch of attention.c. Keys of a block are [layers, kv_heads, head_dim, block], values
 * [.., block, head_dim]; numbers are fp32 where `wide`, else bf16. */
typedef struct {
    int64_t heads, kv_heads, head_dim, wide, count;
    float scale;
    const segment *segments;
} batch;

/* Weights W [out, in] in panels of bf16 pairs (README.md); bias [out] or NULL. */
typedef struct {
    const uint16_t *panels;
    const float *bias;
    int64_t in, out;
} linear;

/* gate_up's panels are 16 columns of the gate and the 16 that it gates; norms are fp32 [hidden]. */
typedef struct {
    const float *attention_norm, *mlp_norm;
    linear qkv, out, gate_up, down;
} layer;

/* A Llama-shaped model. */
typedef struct {
    int64_t hidden, inner, num_layers, heads, kv_heads, head_dim;
    float eps, scale;
    const uint16_t *embedding; /* bf16 [vocabulary, hidden] */
    const float *cos, *sin;    /* [positions, head_dim / 2] */
    const float *norm;
    const layer *layers;
    linear head;
} model;

/* What a forward pass returns of some rows besides logits: their bf16 states [num_rows, num_layers,
 * hidden] after some layers, which ascend and of which the last layer is none. */
typedef struct {
    const int32_t *rows;
    int64_t num_rows;
    const int64_t *layers;
    int64_t num_layers;
    uint16_t *states;
} hidden_states;

#define MAX_ORDERS 8  /* tokens of a history */
#define MAX_PLACES 64 /* of its last token in the text, the last ones */

/* A text, whose last `window` tokens are looked at, and the tree of its n-grams: at most `most` nodes,
 * `depth` deep, each at least min_node_prob likely, min_expected of them together. pseudocounts
 * [orders] are those of NgramParams. Nothing follows a stop token. */
typedef struct {
    const int32_t *text, *stops;
    const double *pseudocounts;
    int64_t length, num_stops, orders, window, most, depth;
    double min_expected, min_node_prob;
} ngram_text;
