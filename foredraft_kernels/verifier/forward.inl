/* One forward of a Llama-shaped model in bf16, from tokens to logits, rounded where transformers
 * rounds.
 *
 * Threads share each step. The residual stream is kept in fp32, every number of it
 * rounded to bf16.
 */
#include "segments.h"

#define SHORT 8 /* rows whose norms are done sooner than handed over */

/* A product with a layer's weights, as `apply` takes it. */
typedef struct {
    const linear *w;
    const uint16_t *lines;
    enum epilogue epilogue;
    void *out;
    int64_t stride;
} product;

/* One forward: tokens [rows], logits [num_wanted, m->head.out] of the wanted rows, which ascend; and
 * where it has come to. */
typedef struct {
    const model *m;
    const segment *segments;
    int64_t count;
    const int32_t *tokens, *wanted;
    int64_t rows, num_wanted, threads;
    float *logits;
    hidden_states states;
    int64_t num_kept; /* layers of states */
    int64_t layer;
    const float *norm;
    product product;
    float *x;                /* [rows, hidden]: the residual stream */
    uint16_t *lines, *gated; /* what the next product reads, as lines */
    uint16_t *qkv, *mixed;   /* [rows, heads, head_dim] */
    char *attention;         /* each thread's */
    int64_t attention_bytes;
} forward;

/* Lay what is needed for f->rows out from *at on. */
static void lay_out(forward *f, char **at) {
    const model *m = f->m;
    int64_t mixed = m->heads * m->head_dim;
    f->attention_bytes = attention_bytes(f->segments, f->count);
    f->x = take(at, 4 * f->rows * m->hidden);
    f->lines = take(at, 2 * f->rows * larger(m->hidden, mixed));
    f->gated = take(at, 2 * f->rows * m->inner);
    f->qkv = take(at, 2 * f->rows * m->layers->qkv.out);
    f->mixed = take(at, 2 * f->rows * mixed);
    f->attention = take(at, f->threads * f->attention_bytes);
}

static int divide(forward *f) {
    char *end = NULL, *at;
    lay_out(f, &end);
    if (!(at = reserve((size_t)end))) return 1;
    lay_out(f, &at);
    return 0;
}

static void embed(void *context, part rows, int64_t thread) {
    (void)thread;
    const forward *f = context;
    int64_t width = f->m->hidden;
    for (int64_t r = rows.from; r < rows.to; r++)
        for (int64_t i = 0; i < width; i += LANES)
            store(f->x + r * width + i, load_bf16(f->m->embedding + f->tokens[r] * width + i));
}

/* lines = x / rms(x) * weight, of some rows */
static void normalize(void *context, part own, int64_t thread) {
    (void)thread;
    const forward *f = context;
    int64_t width = f->m->hidden;
    for (int64_t i = 0; i < num_blocks(f->rows, MAX_WEIGHED); i++) {
        block b = block_at(f->rows, MAX_WEIGHED, i);
        for (int64_t r = 0; r < b.rows; r++) {
            if (b.first + r < own.from || b.first + r >= own.to) continue;
            const float *from = f->x + (b.first + r) * width;
            uint16_t *lines = f->lines + b.first * width;
            floats scale = all(1.0f / __builtin_sqrtf(mean_square(from, width) + f->m->eps));
            for (int64_t c = 0; c < width; c += LANES)
                store_in_line(lines, at_line(b.rows, r, c),
                              rounded(load(from + c) * scale) * load(f->norm + c));
        }
    }
}

static void multiply(void *context, part panels, int64_t thread) {
    (void)thread;
    const forward *f = context;
    const product *p = &f->product;
    apply(p->w, p->lines, f->rows, p->epilogue, p->out, p->stride, panels);
}

static void attend(void *context, part heads, int64_t thread) {
    const forward *f = context;
    attend_panels(f->m, f->layer, f->segments, f->count, f->qkv, f->mixed, heads,
                  f->attention + thread * f->attention_bytes);
}

/* Leave only the wanted rows: behind the last layer's attention no other row matters. */
static void drop_unwanted(forward *f) {
    int64_t width = f->m->hidden, mixed = f->m->heads * f->m->head_dim;
    for (int64_t i = 0; i < f->num_wanted; i++) {
        memmove(f->x + i * width, f->x + f->wanted[i] * width, 4 * width);
        memmove(f->mixed + i * mixed, f->mixed + f->wanted[i] * mixed, 2 * mixed);
    }
    f->rows = f->num_wanted;
}

/* Keep the states after the layer that was just computed, if they are asked for. */
static void keep_states(forward *f) {
    const hidden_states *t = &f->states;
    if (f->num_kept == t->num_layers || t->layers[f->num_kept] != f->layer) return;
    int64_t width = f->m->hidden;
    for (int64_t i = 0; i < t->num_rows; i++) {
        const float *from = f->x + t->rows[i] * width;
        uint16_t *to = t->states + (i * t->num_layers + f->num_kept) * width;
        for (int64_t c = 0; c < width; c += LANES) store_halves(to + c, load(from + c));
    }
    f->num_kept++;
}

static void norm(forward *f, const float *weight) {
    f->norm = weight;
    team_share(f->threads, f->rows, SHORT, normalize, f);
}

static void project(forward *f, const linear *w, const uint16_t *lines, enum epilogue epilogue,
                    void *out, int64_t stride) {
    f->product = (product){w, lines, epilogue, out, stride};
    team_share(f->threads, w->out / COLUMNS, 1, multiply, f);
}

static void run(forward *f) {
    const model *m = f->m;
    int64_t H = m->hidden, mixed = m->heads * m->head_dim;
    team_share(f->threads, f->rows, SHORT, embed, f);
    for (f->layer = 0; f->layer < m->num_layers; f->layer++) {
        const layer *l = &m->layers[f->layer];
        norm(f, l->attention_norm);
        project(f, &l->qkv, f->lines, STORE_BF16, f->qkv, l->qkv.out);
        team_share(f->threads, m->kv_heads, 1, attend, f);
        if (f->layer == m->num_layers - 1) drop_unwanted(f);
        lines_of(f->mixed, f->rows, mixed, f->lines);
        project(f, &l->out, f->lines, ADD, f->x, H);
        norm(f, l->mlp_norm);
        project(f, &l->gate_up, f->lines, GATE, f->gated, m->inner);
        project(f, &l->down, f->gated, ADD, f->x, H);
        keep_states(f);
    }
    norm(f, m->norm);
    project(f, &m->head, f->lines, STORE, f->logits, m->head.out);
}

/* Run the rows of `count` segments. Returns 0, or 1 where memory ran out. */
EXPORTED int FOR_ISA(fd_forward)(const model *m, const segment *segments, int64_t count,
                        const int32_t *tokens, int64_t rows, const int32_t *wanted,
                        int64_t num_wanted, float *logits, const hidden_states *states, int64_t threads) {
    forward f = {
        .m = m, .segments = segments, .count = count, .tokens = tokens, .wanted = wanted,
        .rows = rows, .num_wanted = num_wanted, .threads = threads, .logits = logits,
        .states = *states,
    };
    if (divide(&f)) return 1;
    team_begin(threads);
    run(&f);
    team_end(threads);
    return 0;
}
