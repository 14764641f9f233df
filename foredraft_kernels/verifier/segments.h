/* Where a session's rows lie in its cache, and where in the text they stand. */
#pragma once

#include "common/functions.h"
#include "structs.h"

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

/* The number of keys up to a row on its path: a node's path is that of its depth. */
INLINE int64_t path_of(const segment *s, int64_t row) {
    int64_t node = s->start + row - tree_start(s);
    if (node < 0) return s->start + row + 1;
    int64_t keys = tree_start(s) + 1;
    while ((node = s->parents[node]) >= 0) keys++;
    return keys;
}

/* The number of keys that a row sees. */
INLINE int64_t keys_seen(const segment *s, int64_t row) {
    return row < s->mutual ? s->start + s->mutual : path_of(s, row);
}

/* The end of the keys of which rows up to `last` see any. */
INLINE int64_t keys_end(const segment *s, int64_t last) {
    return s->start + (last < s->mutual ? s->mutual : last + 1);
}

/* The position of a row in the text. */
INLINE int64_t position_of(const segment *s, int64_t row) {
    return s->positions ? s->positions[row] : path_of(s, row) - 1;
}

/* branch[0..depth) = the nodes down to the one of a row in the tree. */
INLINE void branch_of(const segment *s, int64_t row, int64_t depth, int32_t *branch) {
    int64_t node = s->start + row - tree_start(s);
    for (; depth > 0; node = s->parents[node]) branch[--depth] = (int32_t)node;
}
