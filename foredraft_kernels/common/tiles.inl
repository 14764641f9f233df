/* Tiles, one function for each number of rows and kind of numbers.
 *
 * A unit of a row is broadcast to all lanes; each unit of the panel is read once for all rows, two
 * vectors at a time. With the number of rows known to the compiler, the sums stay in registers.
 * A number of the result is one lane, which sums in one order whatever else is computed beside
 * it: its bits do not depend on how many rows there are, on how they are blocked, or on threads.
 */
#include "common/tiles.h"

enum kind { INT8, BF16, WIDE };

/* What is read behind this is not read before. */
#define IN_ORDER() __asm__ volatile("" ::: "memory")
#define EACH(i, count) _Pragma("GCC unroll 14") for (int i = 0; i < (count); i++)

/* Which bf16 of each pair, as fp32. */
INLINE ints odd(ints pairs) { return pairs & all_ints((int32_t)0xFFFF0000); }
INLINE ints even(ints pairs) { return shifted_left(pairs, 16); }

INLINE ints plus_product(ints sum, ints a, ints b) {
    return as_ints(fused(as_floats(a), as_floats(b), as_floats(sum)));
}

/* A unit is multiplied in STEPS. Bytes are summed exactly; of a pair of bf16 the second is added
 * first, as the instruction for both does. */
#if LANES == 16
#define STEPS 1
INLINE ints of_panel(const enum kind kind, ints units, int step) { return units; }
INLINE ints of_row(const enum kind kind, const int32_t *unit, int step) { return all_ints(*unit); }
INLINE ints add_products(const enum kind kind, ints sum, ints panel, ints row) {
    if (kind == INT8) return _mm512_dpbusd_epi32(sum, panel, row);
    if (kind == BF16)
        return as_ints(_mm512_dpbf16_ps(as_floats(sum), (__m512bh)panel, (__m512bh)row));
    return plus_product(plus_product(sum, odd(panel), odd(row)), even(panel), even(row));
}
#define COMPLETE(sum)
#define FORGET_PANEL()
#else
#define STEPS 2
INLINE ints of_panel(const enum kind kind, ints units, int step) {
    if (kind == INT8)
        return step ? _mm256_srli_epi16(units, 8) : _mm256_and_si256(units, all_ints(0x00FF00FF));
    return step ? even(units) : odd(units);
}
INLINE ints of_row(const enum kind kind, const int32_t *unit, int step) {
    if (kind == INT8) return all_ints(unit[step]);
    return step ? even(all_ints(*unit)) : odd(all_ints(*unit));
}
INLINE ints add_products(const enum kind kind, ints sum, ints panel, ints row) {
    if (kind == INT8) return plus(sum, _mm256_madd_epi16(panel, row));
    return plus_product(sum, panel, row);
}
/* There are no registers to collect products of bytes in, or to keep the panel in for a step more. */
#define COMPLETE(sum) __asm__ volatile("" : "+x"(sum)::"memory")
#define FORGET_PANEL() IN_ORDER()
#endif

/* int32 of a row in a unit. */
#define EACH_UNIT(kind) ((kind) == INT8 ? (int)sizeof(signed_byte) : 1)

/* Add the products of a line's unit u to s, of `wide` vectors of a panel's columns. */
INLINE void add_unit(const enum kind kind, ints (*s)[PIECES], const int32_t *line,
                     const int32_t *panel, int64_t u, int64_t ahead, const int rows,
                     const int wide) {
    const int32_t *unit = panel + u * COLUMNS;
    for (int at = 0; at < wide * LANES; at += 16)
        _mm_prefetch((const char *)(unit + at) + ahead, _MM_HINT_T0);
    for (int step = 0; step < STEPS; step++) {
        ints p[PIECES];
        EACH(v, wide) p[v] = of_panel(kind, load_ints(unit + v * LANES), step);
        EACH(r, rows) {
            ints x = of_row(kind, line + (r * UNITS + u) * EACH_UNIT(kind), step);
            EACH(v, wide) s[r][v] = add_products(kind, s[r][v], p[v], x);
            if (kind == INT8) EACH(v, wide) COMPLETE(s[r][v]);
        }
        FORGET_PANEL();
    }
}

INLINE void multiply(const enum kind kind, const int32_t *lines, const int32_t *panel,
                     int64_t units, int64_t skip, int64_t ahead, int32_t *sums, int more,
                     const int rows, const int wide) {
    ints s[MAX_ROWS][PIECES];
    EACH(r, rows) EACH(v, wide)
        s[r][v] = more ? load_ints(sums + r * COLUMNS + v * LANES) : all_ints(0);
    for (; units > 0; units -= UNITS, lines += rows * UNITS, panel += (UNITS + skip) * COLUMNS)
        for (int64_t u = 0; u < (units < UNITS ? units : UNITS); u++)
            add_unit(kind, s, lines, panel, u, ahead, rows, wide);
    EACH(r, rows) EACH(v, wide) store_ints(sums + r * COLUMNS + v * LANES, s[r][v]);
}

/* Bytes: summed exactly, in any order. */
INLINE void weigh_bytes(const int32_t *lines, const int32_t *panel, int64_t count, int64_t ahead, int32_t *sums,
                        const int rows, const int wide) {
    ints s[MAX_ROWS][PIECES];
    EACH(r, rows) EACH(v, wide) s[r][v] = all_ints(0);
    for (; count > 0; count--, lines += rows * EACH_UNIT(INT8) * UNITS, panel += UNITS * COLUMNS)
        for (int64_t u = 0; u < UNITS; u++)
            add_unit(INT8, s, lines, panel, u, ahead, rows, wide);
    EACH(r, rows) EACH(v, wide) store_ints(sums + r * COLUMNS + v * LANES, s[r][v]);
}

/* The sums of a line's half, from zero. */
INLINE void half_sums(const enum kind kind, ints (*s)[PIECES], const int32_t *line,
                      const int32_t *panel, const int half, int64_t ahead, const int rows,
                      const int wide) {
    EACH(r, rows) EACH(v, wide) s[r][v] = all_ints(0);
    /* In a loop the compiler would copy every sum for every unit; without one, fetch all units first. */
    EACH(u, UNITS / 2) {
        add_unit(kind, s, line, panel, half * (UNITS / 2) + u, ahead, rows, wide);
        IN_ORDER();
    }
}

/* bf16: a line's halves are summed each from zero, and what they add up to is added to the sum, the
 * order of AMX. */
INLINE void weigh_halves(const enum kind kind, const int32_t *lines, const int32_t *panel,
                         int64_t count, int64_t ahead, int32_t *sums, const int rows, const int wide) {
    ints s[MAX_ROWS][PIECES];
    _Alignas(64) float firsts[MAX_ROWS * COLUMNS], totals[MAX_ROWS * COLUMNS];
    EACH(r, rows) EACH(v, wide) store(totals + r * COLUMNS + v * LANES, zeros());
    for (; count > 0; count--, lines += rows * UNITS, panel += UNITS * COLUMNS) {
        half_sums(kind, s, lines, panel, 0, ahead, rows, wide);
        EACH(r, rows) EACH(v, wide) store(firsts + r * COLUMNS + v * LANES, as_floats(s[r][v]));
        half_sums(kind, s, lines, panel, 1, ahead, rows, wide);
        EACH(r, rows) EACH(v, wide) {
            int at = r * COLUMNS + v * LANES;
            store(totals + at, load(totals + at) + (load(firsts + at) + as_floats(s[r][v])));
        }
    }
    EACH(r, rows) EACH(v, wide)
        store((float *)sums + r * COLUMNS + v * LANES, load(totals + r * COLUMNS + v * LANES));
}

INLINE void weigh(const enum kind kind, const int32_t *lines, const int32_t *panel, int64_t count,
                  int64_t ahead, int32_t *sums, const int rows, const int wide) {
    if (kind == INT8) weigh_bytes(lines, panel, count, ahead, sums, rows, wide);
    else weigh_halves(kind, lines, panel, count, ahead, sums, rows, wide);
}

/* As many vectors at once as there are registers for the sums of. */
#define WIDTH(rows) (LANES == 8 && (rows) <= 2 ? 4 : 2)
#define DEFINE(kind, rows)                                                                         \
    static void kind##_##rows(const void *lines, const void *panel, int64_t units, int64_t skip,    \
                              int64_t ahead, void *sums, int more) {                                \
        for (int v = 0; v < PIECES; v += WIDTH(rows))                                              \
            multiply(kind, lines, (const int32_t *)panel + v * LANES, units, skip, ahead,           \
                     (int32_t *)sums + v * LANES, more, rows, WIDTH(rows));                         \
    }
#define DEFINE_WEIGHER(kind, rows)                                                                 \
    static void weigh_##kind##_##rows(const void *lines, const void *panel, int64_t count,          \
                                      int64_t ahead, void *sums) {                                  \
        for (int v = 0; v < PIECES; v += WIDTH(rows))                                              \
            weigh(kind, lines, (const int32_t *)panel + v * LANES, count, ahead,                    \
                  (int32_t *)sums + v * LANES, rows, WIDTH(rows));                                  \
    }
#if LANES == 16
#define EACH_COUNT(of, kind)                                                                       \
    of(kind, 1) of(kind, 2) of(kind, 3) of(kind, 4) of(kind, 5) of(kind, 6) of(kind, 7) of(kind, 8) \
    of(kind, 9) of(kind, 10) of(kind, 11) of(kind, 12) of(kind, 13) of(kind, 14)
#else
#define EACH_COUNT(of, kind)                                                                       \
    of(kind, 1) of(kind, 2) of(kind, 3) of(kind, 4) of(kind, 5) of(kind, 6)
#endif
#define NAME(kind, rows) kind##_##rows,
#define NAME_WEIGHER(kind, rows) weigh_##kind##_##rows,

#if LANES == 16
#define OF_BF16 BF16
EACH_COUNT(DEFINE, WIDE)
multiplier *const FOR_LANES(wide_tiles)[] = {0, EACH_COUNT(NAME, WIDE)};
#else
#define OF_BF16 WIDE
#endif
EACH_COUNT(DEFINE, OF_BF16)
EACH_COUNT(DEFINE_WEIGHER, INT8)
EACH_COUNT(DEFINE_WEIGHER, OF_BF16)
multiplier *const FOR_LANES(bf16_tiles)[] = {0, EACH_COUNT(NAME, OF_BF16)};
weigher *const FOR_LANES(int8_weights)[] = {0, EACH_COUNT(NAME_WEIGHER, INT8)};
weigher *const FOR_LANES(bf16_weights)[] = {0, EACH_COUNT(NAME_WEIGHER, OF_BF16)};
