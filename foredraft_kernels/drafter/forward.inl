/* One pass of the drafter over many sessions' rows, from tokens to candidates and edge scores.
 *
 * Mask rows of all sessions come first, then their committed rows, so that what the last layer
 * still computes is a leading part of every array.
 */
#include "common/team.h"
#include "rows.h"

typedef struct {
    float *x, *wide, *mixed, *logits, *gates;
    quantised bytes;
    void *rest;
} memory;

/* Lay the memory of a pass out from *at on; `masks` of its rows are masks. */
static memory lay_out(const model *m, int64_t rows, int64_t masks, char **at) {
    memory s;
    s.x = take(at, 4 * rows * m->hidden);
    s.mixed = take(at, 4 * rows * m->hidden);
    s.wide = take(at, 4 * rows * larger(3 * m->hidden, m->inner));
    s.logits = take(at, 4 * masks * m->scored);
    s.gates = take(at, 4 * masks * m->rank);
    int64_t bytes = rows * larger(m->hidden, m->inner);
    s.bytes.bytes = take(at, bytes * sizeof(signed_byte));
    s.bytes.scales = take(at, 4 * rows);
    s.bytes.offsets = take(at, 4 * rows);
    s.rest = take(at, larger(attention_scratch(m), 12 * (m->scored + GROUPS)));
    return s;
}

static void embed(const model *m, const request *requests, int64_t count, const int64_t *tokens,
                  const float *features, float *masks, float *projected, float *committed) {
    int64_t width = 4 * m->hidden;
    for (const request *r = requests; r < requests + count; r++) {
        memcpy(masks, m->mask_slots, r->num_slots * width);
        if (m->mask_qkv) memcpy(projected, m->mask_qkv, 3 * r->num_slots * width);
        projected += 3 * r->num_slots * m->hidden;
        for (int64_t i = 0; i < r->tokens; i++, committed += m->hidden) {
            memcpy(committed, m->embedding + *tokens++ * m->hidden, width);
            if (!features) continue;
            for (int64_t d = 0; d < m->hidden; d += LANES, features += LANES)
                store(committed + d, load(committed + d) + load(features));
        }
        const float *anchor = committed - m->hidden;
        for (int64_t i = 0; i < r->num_slots; i++, masks += m->hidden)
            for (int64_t d = 0; !m->mask_qkv && d < m->hidden; d += LANES)
                store(masks + d, load(masks + d) + load(anchor + d));
    }
}

/* Run the layers; leave the final states of the mask rows, not normalised, in s->x. */
static void run_layers(const model *m, const request *requests, int64_t count, int64_t rows,
                       int64_t masks, uint32_t *keys, uint32_t *values, memory *s) {
    int64_t H = m->hidden, cache = m->slots * m->heads * m->capacity * m->head_dim / 2;
    for (int64_t i = 0; i < m->num_layers; i++) {
        const layer *layer = &m->layers[i];
        int last = i == m->num_layers - 1;
        /* In the first layer the projections of mask rows that have no anchor are known. */
        int64_t known = i || !m->mask_qkv ? 0 : masks;
        quantise(&s->bytes, s->x + known * H, rows - known, H, 1, m->eps);
        float *projected = s->wide + known * 3 * H;
        apply(&layer->qkv, last && !masks ? H : 0, &s->bytes, STORE, projected, 3 * H);
        int64_t mask = 0, committed = masks;
        for (const request *r = requests; r < requests + count; r++) {
            attend(m, r, s->wide, mask, committed, last, keys + i * cache, values + i * cache,
                   s->rest, s->mixed);
            mask += r->num_slots;
            committed += r->tokens;
        }
        if (last) rows = masks;
        quantise(&s->bytes, s->mixed, rows, H, 0, 0);
        apply(&layer->out, 0, &s->bytes, ADD, s->x, H);
        quantise(&s->bytes, s->x, rows, H, 1, m->eps);
        apply(&layer->gate_up, 0, &s->bytes, GATE, s->wide, m->inner);
        quantise(&s->bytes, s->wide, rows, m->inner, 0, 0);
        apply(&layer->down, 0, &s->bytes, ADD, s->x, H);
    }
}

INLINE int64_t row_of(const model *m, int64_t token) {
    return m->row_of ? m->row_of[token] : token;
}

/* Draft for `count` requests, `tokens` theirs in order; features [tokens, hidden] are added to the
 * tokens' embeddings unless they are NULL. Write best_tokens and log_q [masks, M] and
 * edge [masks, M, M]. keys and values are [layers, slots, heads] caches as attend lays them out.
 * Returns 0, or 1 where memory ran out. */
EXPORTED int FOR_ISA(fd_draft)(const model *m, const request *requests, int64_t count,
                               const int64_t *tokens, const float *features, uint32_t *keys,
                               uint32_t *values, int64_t *best_tokens, float *log_q, float *edge) {
    int64_t rows = 0, masks = 0, M = m->candidates, row = 0;
    for (const request *r = requests; r < requests + count; r++) {
        rows += r->tokens + r->num_slots;
        masks += r->num_slots;
    }
    char *end = NULL, *at;
    lay_out(m, rows, masks, &end);
    if (!(at = reserve((size_t)end))) return 1;
    memory s = lay_out(m, rows, masks, &at);
    embed(m, requests, count, tokens, features, s.x, s.wide, s.x + masks * m->hidden);
    run_layers(m, requests, count, rows, masks, keys, values, &s);
    quantise(&s.bytes, s.x, masks, m->hidden, 1, m->eps);
    apply(&m->head, 0, &s.bytes, STORE, s.logits, m->scored);
    apply(&m->edge_gate, 0, &s.bytes, STORE, s.gates, m->rank);
    for (const request *r = requests; r < requests + count; r++)
        for (int64_t i = 0; i < r->num_slots; i++, row++)
            best_candidates(m, r, i, s.logits + row * m->scored, s.rest, best_tokens + row * M,
                            log_q + row * M);
    row = 0;
    for (const request *r = requests; r < requests + count; r++) {
        tokens += r->tokens;
        for (int64_t i = 0; i < r->num_slots; i++, row++) {
            int64_t last = row_of(m, tokens[-1]);
            const int64_t *previous = i ? best_tokens + (row - 1) * M : &last;
            float *to = edge + row * M * M;
            edge_scores(m, s.gates + row * m->rank, previous, i ? M : 1, best_tokens + row * M, to);
            /* A block's first slot follows one token only. */
            for (int64_t p = 1; !i && p < M; p++) memcpy(to + p * M, to, 4 * M);
        }
    }
    /* Until here they are rows of the head. */
    for (int64_t i = 0; m->token_ids && i < masks * M; i++)
        best_tokens[i] = m->token_ids[best_tokens[i]];
    return 0;
}
