/* core/prune.py's choice among a draft graph's nodes, with only those slots drawn that it needs:
 * above temperature 0 a row's noise takes longer than all the rest.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/functions.h"
#include "common/noise.h"
#include "structs.h"
#include "verifier/sampling.h"

/* A prefix's last slot and token, and the anchor's log p of all its tokens. */
typedef struct {
    enum { UNKNOWN, IMPOSSIBLE, MADE } made;
    int64_t length, slot, token;
    double log_p;
} draft;

/* A node, at least `cost` while not all of its prefixes are known. */
typedef struct {
    double cost;
    int64_t known;
    enum { OPEN, APART, KEPT, GONE } is;
} node;

/* What a step draws in the slots looked at so far, which are in order of confidence. */
typedef struct {
    int64_t drawn, *order;
    int64_t *tokens; /* [slots, count] */
    double *confidence; /* [slots] */
} step;

typedef struct {
    const draft_graph *graph;
    const draft_settings *how;
    const int64_t *state;
    const float *logits;
    const double *normalisers, *peaks;
    int64_t start, masked, count; /* tokens of a slot that are ranked */
    int64_t *surest_first;        /* [masked] */
    draft *drafts;                /* [num_prefixes] */
    node *nodes;                  /* [num_nodes] */
    step *steps;                  /* [num_steps] */
    guess *best;                  /* [count] */
    uint8_t *taken;               /* [slots] */
} search;

static double log_p(const search *x, int64_t slot, int64_t token) {
    return x->logits[slot * x->how->vocabulary + token] - x->normalisers[slot];
}

/* Draw the surest of a step's slots that are not drawn. */
static void draw_next(search *x, step *s, int64_t after) {
    const draft_settings *how = x->how;
    int64_t at = s->drawn, slot = x->surest_first[s->drawn++], *tokens = s->tokens + slot * x->count;
    int64_t filled = how->slots - x->masked + after;
    uint64_t key = stream_key(substream(how->seed, DENOISE, filled), x->start + slot);
    likeliest_tokens(x->logits + slot * how->vocabulary, how->vocabulary, key, how->temperature,
                     how->head, x->best, x->count, tokens);
    double confidence = tokens[0] < 0 ? -INFINITY : log_p(x, slot, tokens[0]);
    s->confidence[slot] = confidence;
    for (; at > 0; at--) {
        int64_t before = s->order[at - 1];
        double other = s->confidence[before];
        if (other > confidence || (other == confidence && before < slot)) break;
        s->order[at] = before;
    }
    s->order[at] = slot;
}

/* Return the slot with a rank (Eq. 10) among those that are not taken, -1 where there are fewer. No
 * slot is surer of what it draws than of its likeliest token, so that slots are drawn only until none
 * of the others can come before. */
static int64_t ranked_slot(search *x, step *s, int64_t after, int64_t position) {
    for (;;) {
        int64_t slot = -1, left = position;
        for (int64_t i = 0; i < s->drawn && left; i++)
            if (!x->taken[s->order[i]] && --left == 0) slot = s->order[i];
        if (s->drawn == x->masked) return slot;
        if (slot >= 0 && s->confidence[slot] > x->peaks[x->surest_first[s->drawn]]) return slot;
        draw_next(x, s, after);
    }
}

/* Return the draft of a prefix, whose shorter one is made (Eq. 9). */
static const draft *extended(search *x, int64_t prefix) {
    const draft_graph *g = x->graph;
    draft *new = x->drafts + prefix;
    if (new->made != UNKNOWN) return new;
    new->made = IMPOSSIBLE;
    int64_t shorter = g->shorter[prefix], at = g->steps[prefix], after = g->after[at];
    step *s = x->steps + (x->how->temperature > 0 ? at : 0);
    memset(x->taken, 0, x->how->slots);
    for (int64_t i = shorter; i >= 0; i = g->shorter[i])
        x->taken[x->drafts[i].slot] = x->drafts[i].length <= after;
    int64_t slot = ranked_slot(x, s, after, g->positions[prefix]), rank = g->ranks[prefix] - 1;
    if (slot < 0 || rank >= x->count) return new;
    for (int64_t i = shorter; i >= 0; i = g->shorter[i])
        if (x->drafts[i].slot == slot) return new;
    int64_t token = s->tokens[slot * x->count + rank];
    if (token < 0) return new;
    const draft *before = shorter < 0 ? NULL : x->drafts + shorter;
    *new = (draft){MADE, before ? before->length + 1 : 1, slot, token,
                   (before ? before->log_p : 0) + log_p(x, slot, token)};
    return new;
}

/* Return the open node of the least cost, -1 where there is none. */
static int64_t cheapest(const search *x) {
    int64_t best = -1;
    for (int64_t n = 0; n < x->graph->num_nodes; n++)
        if (x->nodes[n].is == OPEN && (best < 0 || x->nodes[n].cost < x->nodes[best].cost)) best = n;
    return best;
}

/* core/graph.py's leads_to, from the anchor or from a node that was kept. */
static int is_reached(const search *x, int64_t later) {
    const draft_graph *g = x->graph;
    int64_t per_step = x->how->per_step, length = g->lengths[later];
    if (!per_step || length == per_step) return 1;
    for (int64_t n = 0; n < g->num_nodes; n++)
        if (x->nodes[n].is == KEPT && g->within[n * g->num_nodes + later] &&
            length - g->lengths[n] == per_step)
            return 1;
    return 0;
}

/* Write a prefix's state. */
static void fill(const search *x, int64_t prefix, int64_t *state) {
    memcpy(state, x->state, x->how->slots * sizeof *state);
    for (int64_t i = prefix; i >= 0; i = x->graph->shorter[i])
        state[x->drafts[i].slot] = x->drafts[i].token;
}

static int64_t choose(search *x, int full, int64_t *states, double *costs) {
    const draft_graph *g = x->graph;
    int64_t slots = x->how->slots, kept = 0, best;
    while (kept < x->how->budget && (best = cheapest(x)) >= 0) {
        node *n = x->nodes + best;
        int64_t length = g->lengths[best];
        if (n->cost > x->how->most_cost) break; /* so are all others */
        if (n->known < length) {
            const draft *next = extended(x, g->paths[best * g->longest + n->known++]);
            if (next->made == MADE) n->cost = -(g->log_frequencies[best] + next->log_p) / 2;
            else n->is = GONE;
            continue;
        }
        if (!is_reached(x, best)) {
            n->is = APART;
            continue;
        }
        n->is = GONE;
        if (length == x->masked && !full) continue;
        n->is = KEPT;
        for (int64_t i = 0; i < g->num_nodes; i++)
            if (x->nodes[i].is == APART) x->nodes[i].is = OPEN;
        int64_t *state = states + kept * slots, at = 0;
        fill(x, g->paths[best * g->longest + length - 1], state);
        while (at < kept && memcmp(states + at * slots, state, slots * sizeof *state)) at++;
        if (at < kept) continue;
        costs[kept++] = n->cost;
    }
    return kept;
}

/* Sort the masked slots by the log p of their likeliest tokens, of equals the first one first. */
static void find_masked(search *x) {
    for (int64_t slot = 0; slot < x->how->slots; slot++) {
        if (x->state[slot] >= 0) continue;
        int64_t at = x->masked++;
        for (; at > 0 && x->peaks[x->surest_first[at - 1]] < x->peaks[slot]; at--)
            x->surest_first[at] = x->surest_first[at - 1];
        x->surest_first[at] = slot;
    }
}

/* Write at most `budget` states [budget, slots], the best first, with -log of their scores; return
 * how many, -1 where memory cannot be had. The anchor has `state` [slots], -1 where it is masked, the
 * logits [slots, vocabulary] of the state before, the logarithms of their sums and the greatest log p
 * [slots]; `start` is its first position, `full` whether full states are of use. */
EXPORTED int64_t fd_drafts(const draft_graph *graph, const draft_settings *how, const int64_t *state,
                           const float *logits, const double *normalisers, const double *peaks,
                           int64_t start, int64_t full, int64_t *states, double *costs) {
    search x = {graph, how, state, logits, normalisers, peaks, start};
    int64_t slots = how->slots, steps = graph->num_steps, kept = -1;
    x.count = graph->deepest < how->vocabulary ? graph->deepest : how->vocabulary;
    x.surest_first = malloc(slots * sizeof *x.surest_first);
    x.drafts = calloc(graph->num_prefixes + 1, sizeof *x.drafts);
    x.nodes = calloc(graph->num_nodes + 1, sizeof *x.nodes);
    x.steps = calloc(steps + 1, sizeof *x.steps);
    x.best = malloc((x.count + 1) * sizeof *x.best);
    x.taken = malloc(slots);
    int64_t *numbers = malloc((steps + 1) * slots * (1 + x.count) * sizeof *numbers);
    double *confidence = malloc((steps + 1) * slots * sizeof *confidence);
    if (x.surest_first && x.drafts && x.nodes && x.steps && x.best && x.taken && numbers &&
        confidence) {
        for (int64_t i = 0; i < steps; i++) {
            x.steps[i].order = numbers + i * slots * (1 + x.count);
            x.steps[i].tokens = x.steps[i].order + slots;
            x.steps[i].confidence = confidence + i * slots;
        }
        for (int64_t i = 0; i < graph->num_nodes; i++) x.nodes[i].cost = -graph->log_frequencies[i] / 2;
        find_masked(&x);
        kept = choose(&x, full != 0, states, costs);
    }
    free(confidence);
    free(numbers);
    free(x.taken);
    free(x.best);
    free(x.steps);
    free(x.nodes);
    free(x.drafts);
    free(x.surest_first);
    return kept;
}
