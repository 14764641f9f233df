/* Linear layers in bf16 for few rows: weights are read once, in the order in which they lie.
 *
 * A number of the result is one fp32 lane that sums over pairs of inputs in ascending order,
 * whatever else is computed beside it: its bits do not depend on how many rows there are, on how
 * they are blocked, or on threads.
 */
#include <string.h>

#include "common/abi.h"
#include "common/blocks.h"
#include "common/team.h"
#include "rounding.h"
#include "structs.h"

/* Write sums as fp32 or as bf16; add them to fp32 out; or, of panels with 16 columns of a gate and
 * the 16 that it gates, write silu(gate) * up as lines. */
enum epilogue { FLOATS, HALVES, ADD, GATE };

/* Sums [rows, COLUMNS] of a block's lines with a panel, each in ascending order of the width. After
 * every LINE of the width, `skip` numbers of the panel are passed over; `ahead` bytes further on lies
 * what will be read next. With `more`, the sums go on from what they are. */
typedef void multiplier(const uint16_t *lines, const uint16_t *panel, int64_t width, int64_t skip,
                        int64_t ahead, float *sums, int more);

/* Weights lie in the order of reading, so what comes next is known beyond the end of a layer:
 * fetching this far ahead reads them at the speed of memory. */
#define AHEAD (16 << 10)

/* Which number of each pair. */
#define EVEN(pairs) as_floats(shifted_left(pairs, 16))
#define ODD(pairs) as_floats((pairs) & all_ints((int32_t)0xFFFF0000))

/* Add to the sums of some rows the products of a panel's row of pairs, `wide` vectors of it: of each
 * pair the second first, as the instruction for both does. Without it, one after the other: in no more
 * registers than there are. */
INLINE void add_products(floats s[MAX_ROWS][PIECES], const int32_t *a, const int32_t *b,
                         const int rows, const int wide) {
    ints w[PIECES];
    _Pragma("GCC unroll 4") for (int v = 0; v < wide; v++) w[v] = load_ints(b + v * LANES);
#if LANES == 16
    _Pragma("GCC unroll 14") for (int r = 0; r < rows; r++) {
        __m512bh x = (__m512bh)all_ints(a[r * LINE / 2]);
        _Pragma("GCC unroll 4") for (int v = 0; v < wide; v++)
            s[r][v] = _mm512_dpbf16_ps(s[r][v], (__m512bh)w[v], x);
    }
#else
    _Pragma("GCC unroll 14") for (int r = 0; r < rows; r++) {
        floats x = ODD(all_ints(a[r * LINE / 2]));
        _Pragma("GCC unroll 4") for (int v = 0; v < wide; v++) s[r][v] = fused(ODD(w[v]), x, s[r][v]);
    }
    /* Read again: there is no register to keep them in. */
    __asm__ volatile("" ::: "memory");
    _Pragma("GCC unroll 4") for (int v = 0; v < wide; v++) w[v] = load_ints(b + v * LANES);
    _Pragma("GCC unroll 14") for (int r = 0; r < rows; r++) {
        floats x = EVEN(all_ints(a[r * LINE / 2]));
        _Pragma("GCC unroll 4") for (int v = 0; v < wide; v++) s[r][v] = fused(EVEN(w[v]), x, s[r][v]);
    }
#endif
}

/* With the number of rows known to the compiler, the sums of `wide` vectors stay in registers. */
INLINE void multiply_lines(const int32_t *a, const int32_t *b, int64_t width, int64_t skip, int64_t ahead,
                     float *sums, int more, const int rows, const int wide) {
    floats s[MAX_ROWS][PIECES];
    _Pragma("GCC unroll 14") for (int r = 0; r < rows; r++)
        _Pragma("GCC unroll 4") for (int v = 0; v < wide; v++)
            s[r][v] = more ? load(sums + r * COLUMNS + v * LANES) : zeros();
    for (; width > 0; width -= LINE, a += rows * LINE / 2, b += skip / 2)
        for (int64_t u = 0; u < LINE / 2; u++, b += COLUMNS) {
            _mm_prefetch((const char *)b + ahead, _MM_HINT_T0);
            _mm_prefetch((const char *)b + ahead + 64, _MM_HINT_T0);
            add_products(s, a + u, b, rows, wide);
        }
    _Pragma("GCC unroll 14") for (int r = 0; r < rows; r++)
        _Pragma("GCC unroll 4") for (int v = 0; v < wide; v++)
            store(sums + r * COLUMNS + v * LANES, s[r][v]);
}

/* As many vectors at once as there are registers for the sums of. */
#define WIDE(rows) (LANES == 8 && (rows) <= 2 ? 4 : 2)
#define DEFINE(rows)                                                                              \
    static void multiply_##rows(const uint16_t *lines, const uint16_t *panel, int64_t width,       \
                                int64_t skip, int64_t ahead, float *sums, int more) {              \
        const int32_t *a = (const int32_t *)lines, *b = (const int32_t *)panel;                   \
        for (int v = 0; v < PIECES; v += WIDE(rows))                                     \
            multiply_lines(a, b + v * LANES, width, skip, ahead, sums + v * LANES, more,     \
                           rows, WIDE(rows));                                                     \
    }
DEFINE(1) DEFINE(2) DEFINE(3) DEFINE(4) DEFINE(5) DEFINE(6)
#if LANES == 16
DEFINE(7) DEFINE(8) DEFINE(9) DEFINE(10) DEFINE(11) DEFINE(12) DEFINE(13) DEFINE(14)
#endif

/* By the number of rows. */
static multiplier *const multipliers[MAX_ROWS + 1] = {
    0, multiply_1, multiply_2, multiply_3, multiply_4, multiply_5, multiply_6,
#if LANES == 16
    multiply_7, multiply_8, multiply_9, multiply_10, multiply_11, multiply_12, multiply_13,
    multiply_14,
#endif
};

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
            if (epilogue == HALVES) store_halves((uint16_t *)out + at + v * LANES, y[v]);
            else y[v] = rounded(y[v]);
        }
        if (epilogue == GATE) {
            uint16_t *line = (uint16_t *)out + b.first * stride + at_line(b.rows, r, n / 2);
            for (int v = 0; v < gated / LANES; v++) {
                floats silu = rounded(y[v] / (exp2_lanes(y[v] * all(-LOG2_E)) + all(1.0f)));
                store_halves(line + v * LANES, silu * y[v + gated / LANES]);
            }
        }
        if (epilogue != ADD && epilogue != FLOATS) continue;
        for (int v = 0; v < PIECES; v++) {
            float *to = (float *)out + at + v * LANES;
            store(to, epilogue == ADD ? rounded(load(to) + y[v]) : y[v]);
        }
    }
}

/* Compute the columns of some panels. stride is that of out's rows, of GATE their width. */
static void apply(const linear *w, const uint16_t *lines, int64_t rows, enum epilogue epilogue,
                  void *out, int64_t stride, part panels) {
    _Alignas(64) float sums[MAX_ROWS * COLUMNS];
    int64_t count = num_blocks(rows);
    for (int64_t n = panels.from * COLUMNS; n < panels.to * COLUMNS; n += COLUMNS) {
        for (int64_t i = 0; i < count; i++) {
            block b = block_at(rows, i);
            multipliers[b.rows](lines + b.first * w->in, w->panels + n * w->in, w->in, 0, AHEAD, sums,
                                0);
            switch (epilogue) {
                case FLOATS: finish(w, sums, b, n, FLOATS, out, stride); break;
                case HALVES: finish(w, sums, b, n, HALVES, out, stride); break;
                case ADD: finish(w, sums, b, n, ADD, out, stride); break;
                case GATE: finish(w, sums, b, n, GATE, out, stride); break;
            }
        }
    }
}

/* Lay rows [rows, width] out as the lines that `apply` reads. */
static void lines_of(const uint16_t *x, int64_t rows, int64_t width, uint16_t *lines) {
    for (int64_t i = 0; i < num_blocks(rows); i++) {
        block b = block_at(rows, i);
        for (int64_t r = 0; r < b.rows; r++)
            for (int64_t c = 0; c < width; c += LINE)
                memcpy(lines + b.first * width + at_line(b.rows, r, c),
                       x + (b.first + r) * width + c, 2 * LINE);
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
    apply(p->w, p->lines, p->rows, FLOATS, p->out, p->w->out, panels);
}

/* out [rows, w->out] = x [rows, w->in] W^T + bias, rounded to bf16. Returns 0, or 1 where memory ran
 * out. */
EXPORTED int FOR_ISA(fd_linear)(const linear *w, const uint16_t *x, int64_t rows, float *out,
                       int64_t threads) {
    uint16_t *lines = reserve(2 * rows * w->in);
    if (!lines) return 1;
    lines_of(x, rows, w->in, lines);
    whole_product p = {w, lines, rows, out};
    team_begin(threads);
    team_share(threads, w->out / COLUMNS, 1, product_part, &p);
    team_end(threads);
    return 0;
}
