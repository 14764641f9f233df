/* A Llama-shaped model with packed weights, and attention over caches of panels. */
#ifndef FOREDRAFT_VERIFIER_FORWARD_H
#define FOREDRAFT_VERIFIER_FORWARD_H

#include "linear.h"

#define MAX_HEAD_DIM 256

/* gate_up's panels are 16 columns of the gate and the 16 that it gates; norms are fp32 [hidden]. */
typedef struct {
    const float *attention_norm, *mlp_norm;
    linear qkv, out, gate_up, down;
} layer;

typedef struct {
    int64_t hidden, inner, num_layers, heads, kv_heads, head_dim;
    float eps, scale;
    const uint16_t *embedding; /* bf16 [vocabulary, hidden] */
    const float *cos, *sin;    /* [positions, head_dim / 2] */
    const float *norm;
    const layer *layers;
    linear head;
} model;

#endif
