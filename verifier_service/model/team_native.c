/* A few threads that share one forward: they wait for each other between its steps by spinning, as a
 * step takes microseconds, and sleep between forwards.
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "native.h"

#define MAX_HELPERS 255
#define SPINS 2000 /* before a waiting thread lets others have its core */

#if defined(__x86_64__)
#define RELAX() __builtin_ia32_pause()
#else
#define RELAX() ((void)0)
#endif

static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER; /* one team at a time */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* over what follows */
static pthread_cond_t begun = PTHREAD_COND_INITIALIZER;
static int64_t helpers, team;
static uint64_t runs;
static work *current;
static void *current_context;

static atomic_int_fast64_t waiting;
static atomic_uint_fast64_t meetings;

/* Return once all threads of the team have called this. */
void team_wait(int64_t threads) {
    if (threads == 1) return;
    uint64_t meeting = atomic_load(&meetings);
    if (atomic_fetch_add(&waiting, 1) == threads - 1) {
        atomic_store(&waiting, 0);
        atomic_store(&meetings, meeting + 1);
        return;
    }
    for (int64_t spins = 0; atomic_load(&meetings) == meeting; spins++) {
        if (spins < SPINS) RELAX();
        else sched_yield();
    }
}

static void *help(void *thread) {
    int64_t self = (int64_t)(intptr_t)thread;
    uint64_t seen = 0;
    for (;;) {
        pthread_mutex_lock(&lock);
        while (runs == seen || self >= team) {
            seen = runs;
            pthread_cond_wait(&begun, &lock);
        }
        seen = runs;
        work *task = current;
        void *context = current_context;
        int64_t threads = team;
        pthread_mutex_unlock(&lock);
        task(context, self, threads);
        team_wait(threads);
    }
    return NULL;
}

/* Call work(context, thread, n) for all threads < n and return when all have; n is `threads`, or
 * fewer where the system gives no more. */
void team_run(int64_t threads, work *task, void *context) {
    if (threads <= 1) {
        task(context, 0, 1);
        return;
    }
    pthread_mutex_lock(&turn);
    pthread_mutex_lock(&lock);
    while (helpers < threads - 1 && helpers < MAX_HELPERS) {
        pthread_t made;
        if (pthread_create(&made, NULL, help, (void *)(intptr_t)(helpers + 1))) break;
        pthread_detach(made);
        helpers++;
    }
    team = threads - 1 <= helpers ? threads : helpers + 1;
    int64_t present = team;
    current = task;
    current_context = context;
    runs++;
    pthread_cond_broadcast(&begun);
    pthread_mutex_unlock(&lock);
    task(context, 0, present);
    team_wait(present);
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
