/* core/lattice.py's prune, slot by slot. */
#include "searches.h"

#include <math.h>

/* Write the order of a slot's candidates and their scores in it: log q, above temperature 0 with
 * the target's noise and temperature. */
static void rank(const block_scores *s, int64_t slot, int64_t *order, double *scores) {
    const float *log_q = s->log_q + slot * s->width;
    const double *noise = s->noise + slot * s->width;
    for (int64_t c = 0; c < s->width; c++) {
        double score = log_q[c];
        int64_t i = c;
        if (s->temperature > 0) {
            score = score / s->temperature + noise[c];
            for (; i > 0 && score > scores[i - 1]; i--) {
                scores[i] = scores[i - 1];
                order[i] = order[i - 1];
            }
        }
        scores[i] = score;
        order[i] = c;
    }
}

/* Keep a slot's best candidates: the fewest whose mass reaches tau (Eq. 6), all of them for a tau of
 * 1, at most `most`, and EOS. */
void prune_slot(const block_scores *s, int64_t slot, double tau, int64_t most, choices *kept) {
    int64_t order[MAX_WIDTH];
    double scores[MAX_WIDTH], sum = 1, reached = 0;
    rank(s, slot, order, scores);
    if (s->temperature > 0) {
        double top = scores[0];
        sum = 0;
        for (int64_t i = 0; i < s->width; i++) sum += exp(scores[i] - top);
        for (int64_t i = 0; i < s->width; i++) scores[i] -= top;
    }
    kept->count = 0;
    for (int64_t i = 0; i < s->width; i++) {
        int64_t at = slot * s->width + order[i];
        double mass = exp(scores[i]) / sum;
        reached += mass;
        if (i && (i >= most || (tau < 1 && reached - mass >= tau)) && s->tokens[at] != s->eos) continue;
        int64_t n = kept->count++;
        kept->tokens[n] = s->tokens[at];
        kept->columns[n] = order[i];
        kept->log_q[n] = s->log_q[at];
        kept->noise[n] = s->noise[at];
    }
}

/* Return how many slots there are up to the first whose best candidate is EOS, inclusive. */
int64_t lattice_depth(const block_scores *s) {
    int64_t order[MAX_WIDTH];
    double scores[MAX_WIDTH];
    for (int64_t slot = 0; slot < s->slots; slot++) {
        rank(s, slot, order, scores);
        if (s->tokens[slot * s->width + order[0]] == s->eos) return slot + 1;
    }
    return s->slots;
}
