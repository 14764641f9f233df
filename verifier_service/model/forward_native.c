/* One forward of a Llama-shaped model in bf16, from tokens to logits, rounded where transformers
 * rounds.
 *
 * Threads share each step and meet after it. The residual stream is kept in fp32, every number of it
 * rounded to bf16.
 */
#include "forward.h"

int fd_forward_runs_here(void) {
#if defined(__x86_64__)
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512bf16");
#else
    return 0;
#endif
}

#if defined(__x86_64__)

/* One forward: tokens [rows], logits [num_wanted, m->head.out] of the wanted rows, which ascend. */
typedef struct {
    const model *m;
    const segment *segments;
    int64_t count;
    const int32_t *tokens, *wanted;
    int64_t rows, num_wanted;
    float *logits;
    float *x;                /* [rows, hidden]: the residual stream */
    uint16_t *lines, *gated; /* what the next product reads, in linear.h's layout */
    uint16_t *qkv, *mixed;   /* [rows, heads, head_dim] */
    char *attention;         /* each thread's */
} forward;

static int64_t aligned(int64_t bytes) { return (bytes + 63) / 64 * 64; }
static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

static int divide(forward *f, int64_t threads) {
    const model *m = f->m;
    int64_t mixed = m->heads * m->head_dim, qkv = m->layers->qkv.out;
    int64_t x = aligned(4 * f->rows * m->hidden);
    int64_t lines = aligned(2 * f->rows * larger(m->hidden, mixed));
    int64_t gated = aligned(2 * f->rows * m->inner);
    int64_t attention = attention_bytes(f->segments, f->count);
    char *at = reserve(x + lines + gated + aligned(2 * f->rows * qkv) +
                       aligned(2 * f->rows * mixed) + threads * attention);
    if (!at) return 1;
    f->x = (float *)at, at += x;
    f->lines = (uint16_t *)at, at += lines;
    f->gated = (uint16_t *)at, at += gated;
    f->qkv = (uint16_t *)at, at += aligned(2 * f->rows * qkv);
    f->mixed = (uint16_t *)at, at += aligned(2 * f->rows * mixed);
    f->attention = at;
    return 0;
}

AVX512 static void embed(const forward *f, part rows) {
    int64_t width = f->m->hidden;
    for (int64_t r = rows.from; r < rows.to; r++)
        for (int64_t i = 0; i < width; i += LANES)
            _mm512_storeu_ps(f->x + r * width + i,
                             load_halves(f->m->embedding + f->tokens[r] * width + i));
}

/* lines = x / rms(x) * weight */
AVX512 static void norm(const float *x, const float *weight, uint16_t *lines, int64_t rows,
                        int64_t width, float eps, int64_t thread, int64_t threads) {
    part own = part_of(rows, thread, threads);
    for (int64_t i = 0; i < num_blocks(rows); i++) {
        block b = block_at(rows, i);
        for (int64_t r = 0; r < b.rows; r++) {
            if (b.first + r < own.from || b.first + r >= own.to) continue;
            const float *from = x + (b.first + r) * width;
            uint16_t *to = lines + b.first * width;
            __m512 squares = _mm512_setzero_ps();
            for (int64_t c = 0; c < width; c += LANES) {
                __m512 v = _mm512_loadu_ps(from + c);
                squares = _mm512_fmadd_ps(v, v, squares);
            }
            float mean = _mm512_reduce_add_ps(squares) / (float)width;
            float scale = 1.0f / __builtin_sqrtf(mean + eps);
            for (int64_t c = 0; c < width; c += LANES)
                store_halves(to + at_line(b.rows, r, c),
                             rounded(_mm512_loadu_ps(from + c) * scale) *
                                 _mm512_load_ps(weight + c));
        }
    }
}

/* Leave only the wanted rows: behind the last layer's attention no other row matters. */
static void drop_unwanted(forward *f) {
    int64_t width = f->m->hidden, mixed = f->m->heads * f->m->head_dim;
    for (int64_t i = 0; i < f->num_wanted; i++) {
        memmove(f->x + i * width, f->x + f->wanted[i] * width, 4 * width);
        memmove(f->mixed + i * mixed, f->mixed + f->wanted[i] * mixed, 2 * mixed);
    }
}

static void run(void *context, int64_t thread, int64_t threads) {
    forward *f = context;
    const model *m = f->m;
    int64_t rows = f->rows, H = m->hidden, mixed = m->heads * m->head_dim, qkv = m->layers->qkv.out;
    int64_t memory = attention_bytes(f->segments, f->count);
    embed(f, part_of(rows, thread, threads));
    team_wait(threads);
    for (int64_t i = 0; i < m->num_layers; i++) {
        const layer *l = &m->layers[i];
        norm(f->x, l->attention_norm, f->lines, rows, H, m->eps, thread, threads);
        team_wait(threads);
        apply(&l->qkv, f->lines, rows, HALVES, f->qkv, qkv, thread, threads);
        team_wait(threads);
        attend_panels(m, i, f->segments, f->count, f->qkv, f->mixed,
                      part_of(m->kv_heads, thread, threads), f->attention + thread * memory);
        team_wait(threads);
        if (i == m->num_layers - 1) rows = f->num_wanted;
        if (thread == 0) {
            if (i == m->num_layers - 1) drop_unwanted(f);
            lines_of(f->mixed, rows, mixed, f->lines);
        }
        team_wait(threads);
        apply(&l->out, f->lines, rows, ADD, f->x, H, thread, threads);
        team_wait(threads);
        norm(f->x, l->mlp_norm, f->lines, rows, H, m->eps, thread, threads);
        team_wait(threads);
        apply(&l->gate_up, f->lines, rows, GATE, f->gated, m->inner, thread, threads);
        team_wait(threads);
        apply(&l->down, f->gated, rows, ADD, f->x, H, thread, threads);
        team_wait(threads);
    }
    norm(f->x, m->norm, f->lines, rows, H, m->eps, thread, threads);
    team_wait(threads);
    apply(&m->head, f->lines, rows, FLOATS, f->logits, m->head.out, thread, threads);
}

/* Run the rows of `count` segments. Returns 0, or 1 where memory ran out. */
int fd_forward(const model *m, const segment *segments, int64_t count, const int32_t *tokens,
               int64_t rows, const int32_t *wanted, int64_t num_wanted, float *logits,
               int64_t threads) {
    forward f = {
        .m = m, .segments = segments, .count = count, .tokens = tokens, .wanted = wanted,
        .rows = rows, .num_wanted = num_wanted, .logits = logits,
    };
    if (divide(&f, threads)) return 1;
    team_run(threads, run, &f);
    return 0;
}

#endif
