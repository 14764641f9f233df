/* A few threads that share the steps of one forward, and scratch memory. */
#pragma once

#include <stddef.h>
#include <stdint.h>

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
