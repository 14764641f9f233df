/* What the verifier's C files share: a session's rows in a batch, the team of threads, scratch. */
#ifndef FOREDRAFT_VERIFIER_NATIVE_H
#define FOREDRAFT_VERIFIER_NATIVE_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

/* One session's rows in a batch. Its cache's rows lie in blocks of a pool, `block` of them in each:
 * row r is row r % block of block blocks[r / block]. keys and values are the pool's, at layer 0 of
 * its block 0; layer_bytes lead to the next layer and block_bytes to the next block.
 *
 * The last `nodes` rows are a draft tree: node i follows node parents[i], or, where that is -1, the
 * row before the tree. Keys and values lie in the cache by row; positions go by depth. */
typedef struct {
    char *keys, *values; /* a layer of a block is laid out as the kernel likes */
    int64_t layer_bytes, block_bytes, block, start, first, rows, nodes;
    const int32_t *blocks;
    const int32_t *parents; /* [nodes], each before its children */
} segment;

/* Where in `pool` (keys or values) the block with a row begins, `at` bytes into the block. */
INLINE char *block_at_row(const segment *s, char *pool, int64_t row, int64_t at) {
    return pool + s->blocks[row / s->block] * s->block_bytes + at;
}

/* The number of rows of the caches' whole blocks that the longest segment reaches into. */
INLINE int64_t longest(const segment *segments, int64_t count) {
    int64_t most = 0;
    for (const segment *s = segments; s < segments + count; s++) {
        int64_t rows = (s->start + s->rows + s->block - 1) / s->block * s->block;
        most = rows > most ? rows : most;
    }
    return most;
}

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

/* Things [from, to) of some. */
typedef struct {
    int64_t from, to;
} part;

static inline part part_of(int64_t count, int64_t piece, int64_t pieces) {
    return (part){count * piece / pieces, count * (piece + 1) / pieces};
}

/* A piece of a step, done by thread `thread` of a team; pieces may run at the same time. */
typedef void work(void *context, part own, int64_t thread);

/* Between begin and end, share a step of `count` things among at most `threads` threads, which
 * number from 0, the caller, on; return when all is done. Less than `least` things are no piece of
 * their own. Fewer threads help where the system gives no more, or is busy. */
void team_begin(int64_t threads);
void team_share(int64_t threads, int64_t count, int64_t least, work *task, void *context);
void team_end(int64_t threads);

/* Memory of the calling thread, 64-byte aligned, kept until more is asked for; NULL if none is. */
void *reserve(size_t bytes);

#endif
