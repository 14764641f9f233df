/* core/draft_tree.py's best-first tree, with only those rows normalised that a node needs. */
#include "searches.h"

#include <math.h>
#include <stdlib.h>

/* A child that is not a node yet, the best of its siblings that are not; `row` is all of theirs. */
typedef struct {
    double mass, before; /* log mass of the child and of its parent */
    int64_t parent, slot, column, pushed;
    const double *row;
} child;

/* Write log P(c follows): (logits + noise) * sharpness [M], normalised. */
static void log_odds(const float *logits, const double *noise, int64_t M, double sharpness,
                     double *row) {
    double most = -INFINITY, sum = 0;
    for (int64_t c = 0; c < M; c++) {
        row[c] = (logits[c] + noise[c]) * sharpness;
        most = fmax(most, row[c]);
    }
    for (int64_t c = 0; c < M; c++) {
        row[c] -= most;
        sum += exp(row[c]);
    }
    sum = log(sum);
    for (int64_t c = 0; c < M; c++) row[c] -= sum;
}

/* Move on to the next column in the order of falling log odds, of equals the lower one first; -1
 * stands before the first. Return whether there is one. */
static int advance(child *x, int64_t M) {
    int64_t best = -1, last = x->column;
    for (int64_t c = 0; c < M; c++) {
        int left = last < 0 || x->row[c] < x->row[last] || (x->row[c] == x->row[last] && c > last);
        if (left && (best < 0 || x->row[c] > x->row[best])) best = c;
    }
    x->column = best;
    if (best >= 0) x->mass = x->before + x->row[best];
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

/* Write up to num_nodes nodes, best first, with their log mass; return how many, -1 where memory
 * cannot be had. */
int64_t fd_tree(const tree_scores *s, int64_t num_nodes, int64_t *tokens, int64_t *parents,
                double *mass) {
    int64_t M = s->width, nodes = 0, count = 0, pushed = 0;
    double *rows = malloc((num_nodes + 1) * M * sizeof *rows), *row = rows;
    child *open = malloc((num_nodes + 1) * sizeof *open), next = {0, 0, -1, 0, -1, pushed++, rows};
    if (!rows || !open) {
        nodes = -1;
    } else {
        log_odds(s->logits, s->noise, M, s->sharpness, row);
        advance(&next, M);
        open[count++] = next;
    }
    while (count && nodes < num_nodes) {
        child new = next = pop(open, count--);
        if (!(new.mass >= s->least)) break;
        int64_t token = s->tokens[new.slot * M + new.column], slot = new.slot + 1;
        tokens[nodes] = token;
        parents[nodes] = new.parent;
        mass[nodes] = new.mass;
        next.pushed = pushed;
        if (advance(&next, M)) open[count++] = next, pushed++;
        if (slot < s->depth && token != s->eos) {
            int64_t previous = s->parents > 1 ? new.column : 0;
            const float *logits = s->logits + (slot * s->parents + previous) * M;
            row += M;
            log_odds(logits, s->noise + slot * M, M, s->sharpness, row);
            open[count] = (child){0, new.mass, nodes, slot, -1, pushed++, row};
            advance(&open[count++], M);
        }
        nodes++;
    }
    free(rows);
    free(open);
    return nodes;
}
