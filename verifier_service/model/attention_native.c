/* Attention over per-session KV caches, row by row in a fixed order of arithmetic.
 *
 * A row's result depends on nothing but the row: no loop bound, tile or summation order looks at
 * how many rows or sessions share the call. Tiles are always full; what lies beyond a row's own
 * position is masked, or enters as an exact zero. Built for the baseline, AVX2 and AVX-512, chosen
 * when it is called; no -ffast-math.
 */
#include "native.h"

#define TILE 64         /* keys per tile; caches are padded to a multiple of it */
#define QUERIES 32      /* queries that share one conversion of a tile */
#define BLOCK 4         /* queries that share a register tile */

/* Elements are bf16 or fp32; `wide` is a constant wherever this is inlined. */
INLINE vec load_any(const void *p, int64_t i, int wide) {
    return wide ? load((const float *)p + i) : load_bf16((const uint16_t *)p + i);
}
INLINE void store_any(void *p, int64_t i, vec x, int wide) {
    if (wide) store((float *)p + i, x);
    else store_bf16((uint16_t *)p + i, x);
}
INLINE vec round_any(vec x, int wide) { return wide ? x : round_bf16(x); }

/* The cache row of node 0; all keys before it are seen by every row of the tree. */
INLINE int64_t tree_start(const segment *s) { return s->start + s->rows - s->nodes; }

/* The position of a row: a node's is that of its depth. */
INLINE int64_t position_of(const segment *s, int64_t row) {
    int64_t node = s->start + row - tree_start(s);
    if (node < 0) return s->start + row;
    int64_t position = tree_start(s);
    while ((node = s->parents[node]) >= 0) position++;
    return position;
}

/* branch[0..depth) = the nodes down to the one of a row in the tree. */
INLINE void branch_of(const segment *s, int64_t row, int64_t depth, int32_t *branch) {
    int64_t node = s->start + row - tree_start(s);
    for (; depth > 0; node = s->parents[node]) branch[--depth] = (int32_t)node;
}

/* to[0..D) = the head's row, rotated to its position with every product and sum rounded as
 * transformers' bf16 rotary embedding rounds them. */
INLINE void rotate(float *to, const void *from, int64_t at, const batch *b, int64_t position,
                   int wide) {
    int64_t half_dim = b->head_dim / 2;
    if (!b->cos) {
        for (int64_t i = 0; i < b->head_dim; i += LANES) store(to + i, load_any(from, at + i, wide));
        return;
    }
    for (int64_t i = 0; i < half_dim; i += LANES) {
        vec c = load(b->cos + position * half_dim + i), s = load(b->sin + position * half_dim + i);
        vec x = load_any(from, at + i, wide), y = load_any(from, at + half_dim + i, wide);
        vec xc = round_any(x * c, wide), ys = round_any(y * s, wide);
        vec yc = round_any(y * c, wide), xs = round_any(x * s, wide);
        store(to + i, round_any(xc - ys, wide));
        store(to + half_dim + i, round_any(yc + xs, wide));
    }
}

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

/* out[D] += weights[depth] x the rows of a branch among values[nodes, D], summed in path order. */
INLINE void mix_branch(float *out, const float *weights, const void *values, const int32_t *branch,
                       int64_t depth, int64_t D, int wide) {
    for (int64_t d = 0; d < D; d += LANES) {
        vec acc = load(out + d);
        for (int64_t j = 0; j < depth; j++)
            acc += splat(weights[j]) * load_any(values, branch[j] * D + d, wide);
        store(out + d, acc);
    }
}

/* Queries [from, from + n) of one KV head of one segment; query i is row i / group, head i % group.
 *
 * A key's score is the same number in whichever column it is computed. So a tree's rows are scored
 * as if they were a path, and each then picks its branch's scores in path order: from there on its
 * sums are those of that path. */
INLINE void attend_queries(const batch *b, const segment *s, const char *keys, const char *values,
                           view q, int64_t kv_head, int64_t from, int64_t n, char *out,
                           float *memory, int wide) {
    int64_t D = b->head_dim, group = b->heads / b->kv_heads;
    int64_t last = s->start + (from + n - 1) / group + 1, root = tree_start(s);
    int64_t shared = last < root ? last : root;
    int64_t padded = (last + TILE - 1) / TILE * TILE;
    float *queries = memory, *mixed = queries + QUERIES * D, *tile = mixed + QUERIES * D;
    float *scores = tile + TILE * D;
    int32_t *branch = (int32_t *)(scores + QUERIES * padded);
    int64_t limit[QUERIES];
    for (int64_t i = 0; i < n; i++) {
        int64_t row = (from + i) / group, head = kv_head * group + (from + i) % group;
        limit[i] = position_of(s, row) + 1;
        float *to = queries + i * D;
        rotate(to, q.data, head * q.head + (s->first + row) * q.row, b, limit[i] - 1, wide);
        for (int64_t d = 0; d < D; d += LANES) store(to + d, load(to + d) * b->scale);
    }
    for (int64_t t = 0; t < last; t += TILE) {
        for (int64_t d = 0; d < D; d++)
            for (int c = 0; c < TILE; c += LANES)
                store(tile + d * TILE + c, load_any(keys, d * s->capacity + t + c, wide));
        for (int64_t i = 0; i < n;) {
            int block = n - i >= BLOCK ? BLOCK : 1;
            if (s->start + (from + i + block - 1) / group >= t) {
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
        for (int64_t j = 0; j < stored * D; j += LANES)
            store(tile + j, load_any(values, t * D + j, wide));
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
        int64_t size = wide ? 4 : 2;
        branch_of(s, (from + i) / group, depth, branch);
        mix_branch(mixed + i * D, scores + i * padded + root, values + root * D * size, branch,
                   depth, D, wide);
    }
    for (int64_t i = 0; i < n; i++) {
        int64_t row = s->first + (from + i) / group, head = kv_head * group + (from + i) % group;
        for (int64_t d = 0; d < D; d += LANES)
            store_any(out, (row * b->heads + head) * D + d, load(mixed + i * D + d) * scale[i], wide);
    }
}

INLINE void write_kv(const batch *b, const segment *s, char *keys, char *values, view k, view v,
                     int64_t kv_head, float *memory, int wide) {
    int64_t D = b->head_dim;
    for (int64_t row = 0; row < s->rows; row++) {
        int64_t stored = s->start + row, at = s->first + row;
        rotate(memory, k.data, kv_head * k.head + at * k.row, b, position_of(s, row), wide);
        for (int64_t d = 0; d < D; d++) {
            if (wide) {
                ((float *)keys)[d * s->capacity + stored] = memory[d];
            } else {
                uint32_t x;
                memcpy(&x, memory + d, 4);
                ((uint16_t *)keys)[d * s->capacity + stored] = x >> 16;
            }
        }
        for (int64_t d = 0; d < D; d += LANES)
            store_any(values, stored * D + d,
                      load_any(v.data, kv_head * v.head + at * v.row + d, wide), wide);
    }
}

int64_t attention_floats(const batch *b) {
    int64_t longest = 0;
    for (int64_t i = 0; i < b->count; i++)
        if (b->segments[i].capacity > longest) longest = b->segments[i].capacity;
    return 2 * QUERIES * b->head_dim + TILE * b->head_dim + (QUERIES + 1) * longest;
}

INLINE void attend(const batch *b, int64_t layer, view q, view k, view v, char *out, part heads,
                   float *memory, int wide) {
    int64_t D = b->head_dim, group = b->heads / b->kv_heads, size = wide ? 4 : 2;
    for (int64_t h = heads.from; h < heads.to; h++) {
        for (const segment *s = b->segments; s < b->segments + b->count; s++) {
            int64_t at = layer * s->layer_bytes + h * s->capacity * D * size;
            char *keys = s->keys + at, *values = s->values + at;
            write_kv(b, s, keys, values, k, v, h, memory, wide);
            for (int64_t from = 0; from < s->rows * group; from += QUERIES) {
                int64_t n = s->rows * group - from;
                attend_queries(b, s, keys, values, q, h, from, n < QUERIES ? n : QUERIES, out,
                               memory, wide);
            }
        }
    }
}

/* Once per instruction set. */
#define VARIANT(name, attribute)                                                                  \
    attribute static void attend_##name(const batch *b, int64_t layer, view q, view k, view v,     \
                                        char *out, part heads, float *memory) {                    \
        if (b->wide) attend(b, layer, q, k, v, out, heads, memory, 1);                            \
        else attend(b, layer, q, k, v, out, heads, memory, 0);                                    \
    }

VARIANT(base, )
#if defined(__x86_64__)
VARIANT(avx2, __attribute__((target("avx2,fma"))))
VARIANT(avx512, __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,fma"))))
#endif

/* Write k and v of some KV heads into the caches, then out [rows, heads, head_dim] = causal attention
 * of q, a draft tree's rows along their branches; memory holds attention_floats. */
void attend_heads(const batch *b, int64_t layer, view q, view k, view v, void *out, part heads,
                  float *memory) {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq"))
        return attend_avx512(b, layer, q, k, v, out, heads, memory);
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return attend_avx2(b, layer, q, k, v, out, heads, memory);
#endif
    attend_base(b, layer, q, k, v, out, heads, memory);
}

/* Attend with all heads. Returns 0, or 1 where memory ran out. */
int fd_attend(const batch *b, int64_t layer, const void *q, int64_t q_head, int64_t q_row,
              const void *k, int64_t k_head, int64_t k_row, const void *v, int64_t v_head,
              int64_t v_row, void *out) {
    view vq = {q, q_head, q_row}, vk = {k, k_head, k_row}, vv = {v, v_head, v_row};
    float *memory = reserve(4 * attention_floats(b));
    if (!memory) return 1;
    attend_heads(b, layer, vq, vk, vv, out, (part){0, b->kv_heads}, memory);
    return 0;
}

INLINE void keep(char *keys, char *values, int64_t heads, int64_t D, int64_t capacity,
                 int64_t start, const int32_t *rows, int64_t count, int wide) {
    int64_t size = wide ? 4 : 2, first = 0;
    /* From the first row that is not in place on, none is. */
    while (first < count && rows[first] == first) first++;
    for (int64_t line = 0; line < heads * D; line++) {
        char *at = keys + (line * capacity + start) * size;
        for (int64_t i = first; i < count; i++) memcpy(at + i * size, at + rows[i] * size, size);
    }
    for (int64_t h = 0; h < heads; h++) {
        char *at = values + (h * capacity + start) * D * size;
        for (int64_t i = first; i < count; i++)
            memcpy(at + i * D * size, at + rows[i] * D * size, D * size);
    }
}

/* Move row start + rows[i] of keys [heads, D, capacity] and values [heads, capacity, D] to start + i;
 * rows ascend. The heads are those of all layers. */
void fd_keep(char *keys, char *values, int64_t heads, int64_t D, int64_t capacity, int64_t start,
             const int32_t *rows, int64_t count, int64_t wide) {
    if (wide) keep(keys, values, heads, D, capacity, start, rows, count, 1);
    else keep(keys, values, heads, D, capacity, start, rows, count, 0);
}
