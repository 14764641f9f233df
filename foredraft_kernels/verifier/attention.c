/* Attention over per-session KV caches, row by row in a fixed order of arithmetic.
 *
 * A row's result depends on nothing but the row: no loop bound, tile or summation order looks at
 * how many rows or sessions share the call. Tiles are always full; what lies beyond a row's own
 * position is masked, or enters as an exact zero. Plain C with GCC's vector types: built for the
 * baseline, AVX2 and AVX-512, chosen when it is called; no -ffast-math.
 */
#include <string.h>

#include "common/functions.h"
#include "common/team.h"
#include "segments.h"
#include "vectors.h"

#define TILE 64    /* keys per tile; a block holds whole tiles */
#define QUERIES 32 /* queries that share one conversion of a tile */
#define BLOCK 4    /* queries that share a register tile */

/* A [heads, rows, head_dim] view: strides in elements, the last one is 1. */
typedef struct {
    const void *data;
    int64_t head, row;
} view;

/* Scores of n queries (n is 1 or BLOCK) with one tile of keys [D, TILE], summed over d in order. */
INLINE void score_tile(float *scores, int64_t row, const float *q, const float *tile, int64_t D,
                       int n) {
    vec acc[BLOCK][TILE / LANES];
    for (int i = 0; i < n; i++)
        for (int c = 0; c < TILE / LANES; c++) acc[i][c] = splat(0);
    for (int64_t d = 0; d < D; d++) {
        vec k[TILE / LANES];
        for (int c = 0; c < TILE / LANES; c++) k[c] = load(tile + d * TILE + c * LANES);
        for (int i = 0; i < n; i++) {
            vec x = splat(q[i * D + d]);
            for (int c = 0; c < TILE / LANES; c++) acc[i][c] += x * k[c];
        }
    }
    for (int i = 0; i < n; i++)
        for (int c = 0; c < TILE / LANES; c++) store(scores + i * row + c * LANES, acc[i][c]);
}

/* out[n, w vectors] += weights[n, keys] x tile[keys, D], summed over keys in order. */
INLINE void mix_tile(float *out, const float *weights, int64_t row, const float *tile, int64_t keys,
                     int64_t D, int n, int w) {
    vec acc[BLOCK][4];
    for (int i = 0; i < n; i++)
        for (int c = 0; c < w; c++) acc[i][c] = load(out + i * D + c * LANES);
    for (int64_t j = 0; j < keys; j++) {
        vec v[4];
        for (int c = 0; c < w; c++) v[c] = load(tile + j * D + c * LANES);
        for (int i = 0; i < n; i++) {
            vec x = splat(weights[i * row + j]);
            for (int c = 0; c < w; c++) acc[i][c] += x * v[c];
        }
    }
    for (int i = 0; i < n; i++)
        for (int c = 0; c < w; c++) store(out + i * D + c * LANES, acc[i][c]);
}

INLINE void mix_rows(float *out, const float *weights, int64_t row, const float *tile, int64_t keys,
                     int64_t D, int n) {
    int64_t d = 0;
    for (; d + 4 * LANES <= D; d += 4 * LANES)
        mix_tile(out + d, weights, row, tile + d, keys, D, n, 4);
    for (; d < D; d += LANES) mix_tile(out + d, weights, row, tile + d, keys, D, n, 1);
}

/* Turn scores[0..limit) into e^(s - max) and return 1 / sum; [limit, padded) becomes zero. */
INLINE float softmax(float *scores, int64_t limit, int64_t padded) {
    int64_t end = (limit + LANES - 1) / LANES * LANES;
    for (int64_t j = limit; j < end; j++) scores[j] = -__builtin_inff();
    vec top = splat(-__builtin_inff());
    for (int64_t j = 0; j < end; j += LANES) {
        vec s = load(scores + j);
        top = pick(s > top, s, top);
    }
    float most = top[0];
    for (int i = 1; i < LANES; i++) most = top[i] > most ? top[i] : most;
    for (int64_t j = 0; j < end; j += LANES) store(scores + j, exp_vec(load(scores + j) - most));
    for (int64_t j = limit; j < padded; j++) scores[j] = 0;
    vec sum = splat(0);
    for (int64_t j = 0; j < end; j += LANES) sum += load(scores + j);
    return 1.0f / sum_lanes(sum);
}

/* out[D] += weights[depth] x the values of a branch of a segment's tree, summed in path order; `at`
 * is where the head begins in a block. */
INLINE void mix_branch(float *out, const float *weights, const segment *s, int64_t at,
                       const int32_t *branch, int64_t depth, int64_t D, int wide) {
    for (int64_t j = 0; j < depth; j++) {
        int64_t row = tree_start(s) + branch[j];
        const char *values = block_at_row(s, s->values, row, at);
        for (int64_t d = 0; d < D; d += LANES)
            store(out + d, load(out + d) + splat(weights[j]) *
                                               load_any(values, row % s->block * D + d, wide));
    }
}

/* Queries [from, from + n) of one KV head of one segment; query i is row i / group, head i % group.
 *
 * A key's score is the same number in whichever column it is computed. So a tree's rows are scored
 * as if they were a path, and each then picks its branch's scores in path order: from there on its
 * sums are those of that path. at_head is where the head begins in a block. */
INLINE void attend_queries(const batch *b, const segment *s, int64_t at_head, view q,
                           int64_t kv_head, int64_t from, int64_t n, char *out, float *memory,
                           int wide) {
    int64_t D = b->head_dim, group = b->heads / b->kv_heads;
    int64_t last = keys_end(s, (from + n - 1) / group), root = tree_start(s);
    int64_t shared = last < root ? last : root;
    int64_t padded = (last + TILE - 1) / TILE * TILE;
    float *queries = memory, *mixed = queries + QUERIES * D, *tile = mixed + QUERIES * D;
    float *scores = tile + TILE * D;
    int32_t *branch = (int32_t *)(scores + QUERIES * padded);
    int64_t limit[QUERIES];
    for (int64_t i = 0; i < n; i++) {
        int64_t row = (from + i) / group, head = kv_head * group + (from + i) % group;
        limit[i] = keys_seen(s, row);
        int64_t at = head * q.head + (s->first + row) * q.row;
        for (int64_t d = 0; d < D; d += LANES)
            store(queries + i * D + d, load_any(q.data, at + d, wide) * b->scale);
    }
    for (int64_t t = 0; t < last; t += TILE) {
        const char *keys = block_at_row(s, s->keys, t, at_head);
        for (int64_t d = 0; d < D; d++)
            for (int c = 0; c < TILE; c += LANES)
                store(tile + d * TILE + c, load_any(keys, d * s->block + t % s->block + c, wide));
        for (int64_t i = 0; i < n;) {
            int block = n - i >= BLOCK ? BLOCK : 1;
            if (keys_end(s, (from + i + block - 1) / group) > t) {
                float *to = scores + i * padded + t;
                if (block == BLOCK) score_tile(to, padded, queries + i * D, tile, D, BLOCK);
                else score_tile(to, padded, queries + i * D, tile, D, 1);
            }
            i += block;
        }
    }
    float scale[QUERIES];
    for (int64_t i = 0; i < n; i++) {
        float *own = scores + i * padded;
        int64_t depth = limit[i] - root;
        if (depth > 0) branch_of(s, (from + i) / group, depth, branch);
        /* A node stands at or behind its place on its branch: copying forward loses nothing. */
        for (int64_t j = 0; j < depth; j++) own[root + j] = own[root + branch[j]];
        scale[i] = softmax(own, limit[i], padded);
    }
    memset(mixed, 0, n * D * sizeof(float));
    for (int64_t t = 0; t < shared; t += TILE) {
        int64_t stored = shared - t < TILE ? shared - t : TILE;
        const char *values = block_at_row(s, s->values, t, at_head);
        for (int64_t j = 0; j < stored * D; j += LANES)
            store(tile + j, load_any(values, t % s->block * D + j, wide));
        for (int64_t i = 0; i < n;) {
            int block = n - i >= BLOCK ? BLOCK : 1;
            int64_t reach = limit[i + block - 1] - t;
            if (reach > stored) reach = stored;
            if (reach > 0) {
                const float *weights = scores + i * padded + t;
                if (block == BLOCK) mix_rows(mixed + i * D, weights, padded, tile, reach, D, BLOCK);
                else mix_rows(mixed + i * D, weights, padded, tile, reach, D, 1);
            }
            i += block;
        }
    }
    for (int64_t i = 0; i < n; i++) {
        int64_t depth = limit[i] - root;
        if (depth <= 0) continue;
        branch_of(s, (from + i) / group, depth, branch);
        mix_branch(mixed + i * D, scores + i * padded + root, s, at_head, branch, depth, D, wide);
    }
    for (int64_t i = 0; i < n; i++) {
        int64_t row = s->first + (from + i) / group, head = kv_head * group + (from + i) % group;
        for (int64_t d = 0; d < D; d += LANES)
            store_any(out, (row * b->heads + head) * D + d, load(mixed + i * D + d) * scale[i], wide);
    }
}

INLINE void write_kv(const batch *b, const segment *s, int64_t at_head, view k, view v,
                     int64_t kv_head, int wide) {
    int64_t D = b->head_dim, size = wide ? 4 : 2;
    for (int64_t row = 0; row < s->rows; row++) {
        int64_t stored = (s->start + row) % s->block, at = s->first + row;
        char *keys = block_at_row(s, s->keys, s->start + row, at_head);
        char *values = block_at_row(s, s->values, s->start + row, at_head);
        const char *key = (const char *)k.data + (kv_head * k.head + at * k.row) * size;
        for (int64_t d = 0; d < D; d++)
            memcpy(keys + (d * s->block + stored) * size, key + d * size, size);
        for (int64_t d = 0; d < D; d += LANES)
            store_any(values, stored * D + d,
                      load_any(v.data, kv_head * v.head + at * v.row + d, wide), wide);
    }
}

INLINE int attend(const batch *b, int64_t layer, view q, view k, view v, char *out, int wide) {
    int64_t D = b->head_dim, group = b->heads / b->kv_heads, size = wide ? 4 : 2;
    int64_t keys = longest(b->segments, b->count);
    float *memory = reserve(4 * (2 * QUERIES * D + TILE * D + (QUERIES + 1) * keys));
    if (!memory) return 1;
    for (int64_t i = 0; i < b->count; i++) {
        const segment *s = &b->segments[i];
        for (int64_t h = 0; h < b->kv_heads; h++) {
            int64_t at = layer * s->layer_bytes + h * s->block * D * size;
            write_kv(b, s, at, k, v, h, wide);
            for (int64_t from = 0; from < s->rows * group; from += QUERIES) {
                int64_t n = s->rows * group - from;
                attend_queries(b, s, at, q, h, from, n < QUERIES ? n : QUERIES, out, memory,
                               wide);
            }
        }
    }
    return 0;
}

/* Once per instruction set. */
#define VARIANT(name, attribute)                                                                  \
    attribute static int attend_##name(const batch *b, int64_t layer, view q, view k, view v,      \
                                       char *out) {                                               \
        return b->wide ? attend(b, layer, q, k, v, out, 1) : attend(b, layer, q, k, v, out, 0);    \
    }

VARIANT(base, )
#if defined(__x86_64__)
VARIANT(avx2, __attribute__((target("avx2,fma"))))
VARIANT(avx512, __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,fma"))))
#endif

/* Write k and v into the caches, then out [rows, heads, head_dim] = causal attention of q, a draft
 * tree's rows along their branches. Returns 0, or 1 where memory ran out. */
EXPORTED int fd_attend(const batch *b, int64_t layer, const void *q, int64_t q_head, int64_t q_row,
              const void *k, int64_t k_head, int64_t k_row, const void *v, int64_t v_head,
              int64_t v_row, void *out) {
    view vq = {q, q_head, q_row}, vk = {k, k_head, k_row}, vv = {v, v_head, v_row};
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq"))
        return attend_avx512(b, layer, vq, vk, vv, out);
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return attend_avx2(b, layer, vq, vk, vv, out);
#endif
    return attend_base(b, layer, vq, vk, vv, out);
}

/* Move row start + rows[i] of keys and values, in `layers` layers of `heads` heads, to start + i; rows
 * ascend. s says where the cache lies; elements have `size` bytes. */
EXPORTED void fd_keep(const segment *s, int64_t layers, int64_t heads, int64_t D, int64_t start,
             const int32_t *rows, int64_t count, int64_t size) {
    for (int64_t head = 0; head < layers * heads; head++) {
        int64_t at = head / heads * s->layer_bytes + head % heads * s->block * D * size;
        for (int64_t i = 0; i < count; i++) {
            int64_t to = start + i, from = start + rows[i];
            if (from == to) continue;
            char *keys_to = block_at_row(s, s->keys, to, at) + to % s->block * size;
            const char *keys_from = block_at_row(s, s->keys, from, at) + from % s->block * size;
            for (int64_t d = 0; d < D * s->block * size; d += s->block * size)
                memcpy(keys_to + d, keys_from + d, size);
            memcpy(block_at_row(s, s->values, to, at) + to % s->block * D * size,
                   block_at_row(s, s->values, from, at) + from % s->block * D * size, D * size);
        }
    }
}
