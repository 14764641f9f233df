/* A few threads that share the steps of one forward.
 *
 * A step is cut into pieces, and whoever is free takes the next one: a helper whose core is busy with
 * something else takes fewer, and the caller waits for a piece that was begun, never for a helper.
 * Helpers look for the next step by spinning, as one takes microseconds, and sleep between forwards.
 * Where there is just a core for each thread, each keeps to its own, the caller too, from then on: on
 * the caller's core a helper would only take its time, and a forward is too short for the system to
 * find that out. All callers of a process share the helpers, and the cores of the first of them.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "common/team.h"

#define MAX_HELPERS 255
#define SPINS 2000 /* before a waiting thread lets others have its core */
#define PIECES 2   /* of a step, for each thread */

#if defined(__x86_64__)
#define RELAX() __builtin_ia32_pause()
#else
#define RELAX() ((void)0)
#endif

static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER; /* one team at a time */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* over helpers and the sleep of them */
static pthread_cond_t begun = PTHREAD_COND_INITIALIZER;
static int64_t helpers;
static atomic_int_fast64_t team; /* threads of the forward under way; 0 between two */

/* The step under way, in one number so that a piece is taken of no other: the step's number, how many
 * pieces it has, and the next one. What the step does is written before, and again only when all of
 * its pieces are done. */
static _Alignas(64) atomic_uint_fast64_t step;
static _Alignas(64) atomic_int_fast64_t undone;
static _Alignas(64) work *current;
static void *current_context;
static int64_t current_count;

static uint64_t pieces_of(uint64_t state) { return state >> 16 & 0xFFFF; }
static uint64_t next_of(uint64_t state) { return state & 0xFFFF; }

/* Do one piece of the step under way; return 0 if there is none left. */
static int do_piece(int64_t thread) {
    uint64_t state = atomic_load(&step);
    do {
        if (next_of(state) >= pieces_of(state)) return 0;
    } while (!atomic_compare_exchange_weak(&step, &state, state + 1));
    current(current_context,
            part_of(current_count, (int64_t)next_of(state), (int64_t)pieces_of(state)), thread);
    atomic_fetch_sub(&undone, 1);
    return 1;
}

#if defined(__linux__)
static cpu_set_t allowed; /* the cores of the first caller */
static _Thread_local int placed;

static void find_cores(void) {
    pthread_getaffinity_np(pthread_self(), sizeof allowed, &allowed);
}

/* Keep the calling thread to the core that is number `thread` of those allowed, if there are just as
 * many as threads. */
static void keep_to_own_core(int64_t thread, int64_t threads) {
    if (placed || CPU_COUNT(&allowed) != threads) return;
    placed = 1;
    for (int core = 0; core < CPU_SETSIZE; core++) {
        if (!CPU_ISSET(core, &allowed) || thread-- > 0) continue;
        cpu_set_t own;
        CPU_ZERO(&own);
        CPU_SET(core, &own);
        pthread_setaffinity_np(pthread_self(), sizeof own, &own);
        return;
    }
}
#else
/* Other systems place threads themselves. */
static void find_cores(void) {}
static void keep_to_own_core(int64_t thread, int64_t threads) {
    (void)thread;
    (void)threads;
}
#endif

static void *help(void *thread) {
    int64_t self = (int64_t)(intptr_t)thread;
    for (;;) {
        pthread_mutex_lock(&lock);
        while (self >= atomic_load(&team)) pthread_cond_wait(&begun, &lock);
        pthread_mutex_unlock(&lock);
        keep_to_own_core(self, atomic_load(&team));
        for (int64_t spins = 0; self < atomic_load(&team); spins++) {
            if (do_piece(self)) spins = 0;
            else if (spins < SPINS) RELAX();
            else sched_yield();
        }
    }
    return NULL;
}

void team_begin(int64_t threads) {
    if (threads <= 1) return;
    pthread_mutex_lock(&turn);
    pthread_mutex_lock(&lock);
    if (!helpers) find_cores();
    while (helpers < threads - 1 && helpers < MAX_HELPERS) {
        pthread_t made;
        if (pthread_create(&made, NULL, help, (void *)(intptr_t)(helpers + 1))) break;
        pthread_detach(made);
        helpers++;
    }
    keep_to_own_core(0, threads);
    atomic_store(&team, threads);
    pthread_cond_broadcast(&begun);
    pthread_mutex_unlock(&lock);
}

void team_share(int64_t threads, int64_t count, int64_t least, work *task, void *context) {
    int64_t most = count / least, pieces = threads * PIECES;
    /* Of one size, if that is to be had: whoever begins a larger one last is waited for. */
    while (pieces < most && pieces < 4 * threads * PIECES && count % pieces) pieces++;
    if (pieces > most) pieces = most;
    if (threads <= 1 || pieces <= 1) {
        task(context, (part){0, count}, 0);
        return;
    }
    current = task;
    current_context = context;
    current_count = count;
    atomic_store(&undone, pieces);
    atomic_store(&step, ((atomic_load(&step) >> 32) + 1) << 32 | (uint64_t)pieces << 16);
    while (do_piece(0)) {}
    for (int64_t spins = 0; atomic_load(&undone) > 0; spins++) {
        if (spins < SPINS) RELAX();
        else sched_yield();
    }
}

void team_end(int64_t threads) {
    if (threads <= 1) return;
    atomic_store(&team, 0);
    pthread_mutex_unlock(&turn);
}

static _Thread_local void *memory;
static _Thread_local size_t memory_bytes;

void *reserve(size_t bytes) {
    if (bytes > memory_bytes) {
        free(memory);
        memory = NULL;
        memory_bytes = 0;
        if (posix_memalign(&memory, 64, bytes)) return memory = NULL;
        memory_bytes = bytes;
    }
    return memory;
}
