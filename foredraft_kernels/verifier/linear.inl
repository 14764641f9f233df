/* Linear layers in bf16 for few rows: weights are read once, in the order in which they lie. */
#include <string.h>

#include "common/layers.h"
#include "common/team.h"
#include "common/tiles.h"
#include "lines.h"
#include "structs.h"

/* What becomes of the sums of a block's rows in columns [n, n + COLUMNS), in fp32 rounded to bf16. */
INLINE void finish(const linear *w, const float *sums, block b, int64_t n, enum epilogue epilogue,
                   void *out, int64_t stride) {
    const int gated = COLUMNS / 2; /* where the columns of the gate end */
    floats bias[PIECES];
    for (int v = 0; v < PIECES; v++)
        bias[v] = w->bias ? load(w->bias + n + v * LANES) : zeros();
    for (int64_t r = 0; r < b.rows; r++, sums += COLUMNS) {
        int64_t at = (b.first + r) * stride + n;
        floats y[PIECES];
        for (int v = 0; v < PIECES; v++) {
            y[v] = load(sums + v * LANES) + bias[v];
            if (epilogue == STORE_BF16) store_halves((uint16_t *)out + at + v * LANES, y[v]);
            else y[v] = rounded(y[v]);
        }
        if (epilogue == GATE) {
            uint16_t *lines = (uint16_t *)out + b.first * stride;
            for (int v = 0; v < gated / LANES; v++) {
                floats gate = rounded(silu(y[v]));
                store_in_line(lines, at_line(b.rows, r, n / 2 + v * LANES),
                              gate * y[v + gated / LANES]);
            }
        }
        if (epilogue != ADD && epilogue != STORE) continue;
        for (int v = 0; v < PIECES; v++) {
            float *to = (float *)out + at + v * LANES;
            store(to, epilogue == ADD ? rounded(load(to) + y[v]) : y[v]);
        }
    }
}

/* Compute the columns of some panels. stride is that of out's rows, of GATE their width. */
static void apply(const linear *w, const uint16_t *lines, int64_t rows, enum epilogue epilogue,
                  void *out, int64_t stride, part panels) {
    _Alignas(64) float sums[MAX_WEIGHED * COLUMNS];
    int64_t count = num_blocks(rows, MAX_WEIGHED), most = largest_block(rows, MAX_WEIGHED);
    WEIGH_BEGIN(most);
    for (int64_t n = panels.from * COLUMNS; n < panels.to * COLUMNS; n += COLUMNS) {
        for (int64_t i = 0; i < count; i++) {
            block b = block_at(rows, MAX_WEIGHED, i);
            WEIGH(bf16, lines + b.first * w->in, b.rows, most, w->panels + n * w->in, w->in / LINE,
                  AHEAD, sums);
            switch (epilogue) {
                case STORE: finish(w, sums, b, n, STORE, out, stride); break;
                case STORE_BF16: finish(w, sums, b, n, STORE_BF16, out, stride); break;
                case ADD: finish(w, sums, b, n, ADD, out, stride); break;
                case GATE: finish(w, sums, b, n, GATE, out, stride); break;
            }
        }
    }
    WEIGH_END();
}

/* Lay rows [rows, width] out as the lines that `apply` reads. */
static void lines_of(const uint16_t *x, int64_t rows, int64_t width, uint16_t *lines) {
    for (int64_t i = 0; i < num_blocks(rows, MAX_WEIGHED); i++) {
        block b = block_at(rows, MAX_WEIGHED, i);
        for (int64_t r = 0; r < b.rows; r++)
            for (int64_t c = 0; c < width; c += LINE)
                copy_line(lines + b.first * width + at_line(b.rows, r, c),
                          x + (b.first + r) * width + c);
    }
}

typedef struct {
    const linear *w;
    const uint16_t *lines;
    int64_t rows;
    float *out;
} whole_product;

static void product_part(void *context, part panels, int64_t thread) {
    (void)thread;
    const whole_product *p = context;
    apply(p->w, p->lines, p->rows, STORE, p->out, p->w->out, panels);
}

/* out [rows, w->out] = x [rows, w->in] W^T + bias, rounded to bf16. Returns 0, or 1 where memory ran
 * out. */
EXPORTED int FOR_ISA(fd_linear)(const linear *w, const uint16_t *x, int64_t rows, float *out,
                       int64_t threads) {
    uint16_t *lines = reserve(2 * (rows * w->in + LINE)); /* a row that AMX may read */
    if (!lines) return 1;
    lines_of(x, rows, w->in, lines);
    whole_product p = {w, lines, rows, out};
    team_begin(threads);
    team_share(threads, w->out / COLUMNS, 1, product_part, &p);
    team_end(threads);
    return 0;
}
