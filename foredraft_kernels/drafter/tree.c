/* core/draft_tree.py's best-first tree, with only those rows computed that a node needs. */
#include "common/functions.h"
#include "searches.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* What may come behind a node, or first: tokens and their log odds; the first `own` are the slot's
 * candidates. */
typedef struct {
    int64_t count, own;
    const int64_t *tokens;
    const double *odds;
} row;

/* A child that is not a node yet, the best of its siblings that are not. */
typedef struct {
    double mass, before; /* log mass of the child and of its parent */
    int64_t parent, slot, column, pushed;
    row siblings;
} child;

/* Write log P(c follows): (logits + noise) * confidence_exponent [M], normalised. */
static void log_odds(const float *logits, const double *noise, int64_t M, double confidence_exponent,
                     double *odds) {
    double most = -INFINITY, sum = 0;
    for (int64_t c = 0; c < M; c++) {
        odds[c] = (logits[c] + noise[c]) * confidence_exponent;
        most = fmax(most, odds[c]);
    }
    for (int64_t c = 0; c < M; c++) {
        odds[c] -= most;
        sum += exp(odds[c]);
    }
    sum = log(sum);
    for (int64_t c = 0; c < M; c++) odds[c] -= sum;
}

/* Write each candidate's share of the model's probability [M]. */
static void softmax(const float *logits, int64_t M, double *shares) {
    double most = -INFINITY, sum = 0;
    for (int64_t c = 0; c < M; c++) most = fmax(most, logits[c]);
    for (int64_t c = 0; c < M; c++) sum += shares[c] = exp(logits[c] - most);
    for (int64_t c = 0; c < M; c++) shares[c] /= sum;
}

/* Where a token stands among tokens [count]; count where it does not. */
static int64_t place_of(int64_t token, const int64_t *tokens, int64_t count) {
    for (int64_t i = 0; i < count; i++)
        if (tokens[i] == token) return i;
    return count;
}

/* core/draft_tree.py's mixed: tokens and log odds of what may come at a depth. `tokens` and `odds`
 * have room for the candidates and for all that followed; logits may be NULL. */
static row mixed(const tree_scores *s, int64_t slot, const float *logits, const followers *f,
                 int64_t *tokens, double *odds) {
    int64_t own = logits ? s->width : 0, count = own;
    double nameless = logits ? 0 : 1, most = -INFINITY, sum = 0;
    if (logits) {
        memcpy(tokens, s->tokens + slot * s->width, own * sizeof *tokens);
        softmax(logits, own, odds);
    }
    for (int64_t o = 0; o < f->orders; o++) {
        double a = s->pseudocounts[o], total = a + f->totals[o];
        for (int64_t i = 0; i < count; i++) odds[i] = a * odds[i] / total;
        nameless *= a / total;
        for (int64_t i = 0; i < f->count; i++) {
            if (!f->found[i].counts[o]) continue;
            int64_t at = place_of(f->found[i].token, tokens, count);
            if (at == count) tokens[count] = f->found[i].token, odds[count++] = 0;
            odds[at] += f->found[i].counts[o] / total;
        }
    }
    for (int64_t i = 0; i < count; i++) {
        double noise = 0;
        if (i < own) noise = s->noise[slot * s->width + i];
        else if (s->noisy) noise = gumbel(s->seed, s->position + slot, tokens[i]);
        odds[i] = odds[i] > 0 ? (log(odds[i]) + noise) * s->confidence_exponent : -INFINITY;
        most = fmax(most, odds[i]);
    }
    nameless = nameless > 0 ? log(nameless) * s->confidence_exponent : -INFINITY;
    most = fmax(most, nameless);
    for (int64_t i = 0; i < count; i++) sum += exp(odds[i] - most);
    sum = most + log(sum + exp(nameless - most));
    for (int64_t i = 0; i < count; i++) odds[i] -= sum;
    return (row){count, own, tokens, odds};
}

/* Move on to the next column in the order of falling log odds, of equals the lower one first; -1
 * stands before the first. Return whether there is one. */
static int advance(child *x) {
    const double *odds = x->siblings.odds;
    int64_t best = -1, last = x->column;
    for (int64_t c = 0; c < x->siblings.count; c++) {
        int left = last < 0 || odds[c] < odds[last] || (odds[c] == odds[last] && c > last);
        if (left && (best < 0 || odds[c] > odds[best])) best = c;
    }
    x->column = best;
    if (best >= 0) x->mass = x->before + odds[best];
    return best >= 0;
}

/* Take out the child of the most mass, of equals the one pushed first. */
static child pop(child *open, int64_t count) {
    int64_t best = 0;
    for (int64_t i = 1; i < count; i++)
        if (open[i].mass > open[best].mass ||
            (open[i].mass == open[best].mass && open[i].pushed < open[best].pushed))
            best = i;
    child found = open[best];
    open[best] = open[count - 1];
    return found;
}

/* Write the last tokens behind a node, latest first: its branch's, then the text's. */
static int64_t recent(const counted_text *t, const int64_t *tokens, const int64_t *parents,
                      int64_t node, int64_t *history) {
    int64_t n = 0, most = t->order - 1;
    for (; n < most && node >= 0; node = parents[node]) history[n++] = tokens[node];
    for (int64_t i = t->length; n < most && i > 0;) history[n++] = t->tokens[--i];
    return n;
}

/* A search under way: the nodes so far, and where rows, and what followed, are written. */
typedef struct {
    const tree_scores *s;
    int64_t *tokens, *parents;
    int64_t *row_tokens;
    double *row_odds;
    followers f;
} search;

/* Make what may come behind a node, none in the text's beginning, whose column is -1 if only the
 * text knew it. */
static row behind(search *x, int64_t node, int64_t column, int64_t slot) {
    const tree_scores *s = x->s;
    int known = slot < s->depth && (column >= 0 || s->parents == 1);
    int64_t M = s->width, at = slot * s->parents + (s->parents > 1 && column > 0 ? column : 0);
    const float *logits = known ? s->logits + at * M : 0;
    row made = {known ? M : 0, known ? M : 0, s->tokens + slot * M, x->row_odds};
    x->f.orders = 0;
    if (slot < s->text_depth) {
        int64_t history[MAX_ORDER];
        int64_t n = recent(s->text, x->tokens, x->parents, node, history);
        follow(s->text, history, n, &x->f);
    }
    if (x->f.orders) made = mixed(s, slot, logits, &x->f, x->row_tokens, x->row_odds);
    else if (known) log_odds(logits, s->noise + slot * M, M, s->confidence_exponent, x->row_odds);
    x->row_tokens += made.count;
    x->row_odds += made.count;
    return made;
}

static int64_t grow(search *x, child *open, int64_t num_nodes, int64_t eos, double *mass) {
    int64_t nodes = 0, count = 0, pushed = 0;
    child next = {0, 0, -1, 0, -1, pushed++, behind(x, -1, 0, 0)};
    if (advance(&next)) open[count++] = next;
    while (count && nodes < num_nodes) {
        child new = next = pop(open, count--);
        if (!(new.mass >= x->s->least)) break;
        int64_t token = new.siblings.tokens[new.column];
        x->tokens[nodes] = token;
        x->parents[nodes] = new.parent;
        mass[nodes] = new.mass;
        next.pushed = pushed;
        if (advance(&next)) open[count++] = next, pushed++;
        if (token != eos) {
            int64_t column = new.column < new.siblings.own ? new.column : -1, slot = new.slot + 1;
            row siblings = behind(x, nodes, column, slot);
            next = (child){0, new.mass, nodes, slot, -1, pushed, siblings};
            if (advance(&next)) open[count++] = next, pushed++;
        }
        nodes++;
    }
    return nodes;
}

/* Write up to num_nodes nodes, best first, with their log mass; return how many, -1 where memory
 * cannot be had. The text's chains are made here. */
EXPORTED int64_t fd_tree(const tree_scores *s, int64_t num_nodes, int64_t *tokens, int64_t *parents,
                double *mass) {
    int64_t rows = num_nodes + 1, most = s->width + s->text->length, nodes = -1;
    int64_t *row_tokens = malloc(rows * most * sizeof *row_tokens);
    double *row_odds = malloc(rows * most * sizeof *row_odds);
    child *open = malloc(rows * sizeof *open);
    search x = {s, tokens, parents, row_tokens, row_odds, {0}};
    x.f.found = malloc((s->text->length + 1) * sizeof *x.f.found);
    s->text->previous = malloc((s->text->length + 1) * sizeof *s->text->previous);
    if (row_tokens && row_odds && open && x.f.found && s->text->previous) {
        chain(s->text);
        nodes = grow(&x, open, num_nodes, s->eos, mass);
    }
    free(s->text->previous);
    free(x.f.found);
    free(open);
    free(row_odds);
    free(row_tokens);
    return nodes;
}
