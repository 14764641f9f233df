/* Tiles, one function for each number of rows and kind of numbers.
 *
 * A unit of a row is broadcast to all lanes; each unit of the panel is read once for all rows, two
 * vectors at a time. With the number of rows known to the compiler, the sums stay in registers.
 * A number of the result is one lane, which sums in ascending order whatever else is computed beside
 * it: its bits do not depend on how many rows there are, on how they are blocked, or on threads.
 */
#include "common/tiles.h"

enum kind { INT8, BF16, WIDE };

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
#define FORGET_PANEL() __asm__ volatile("" ::: "memory")
#endif

/* `wide` vectors of a panel's columns. */
INLINE void multiply(const enum kind kind, const int32_t *lines, const int32_t *panel,
                     int64_t units, int64_t skip, int64_t ahead, int32_t *sums, int more,
                     const int rows, const int wide) {
    const int each = kind == INT8 ? (int)sizeof(signed_byte) : 1; /* int32 of a row in a unit */
    ints s[MAX_ROWS][PIECES];
    EACH(r, rows) EACH(v, wide)
        s[r][v] = more ? load_ints(sums + r * COLUMNS + v * LANES) : all_ints(0);
    for (; units > 0; units -= UNITS, lines += rows * each * UNITS, panel += skip * COLUMNS) {
        int64_t count = units < UNITS ? units : UNITS;
        for (int64_t u = 0; u < count; u++, panel += COLUMNS) {
            for (int at = 0; at < wide * LANES; at += 16)
                _mm_prefetch((const char *)(panel + at) + ahead, _MM_HINT_T0);
            for (int step = 0; step < STEPS; step++) {
                ints p[PIECES];
                EACH(v, wide) p[v] = of_panel(kind, load_ints(panel + v * LANES), step);
                EACH(r, rows) {
                    ints x = of_row(kind, lines + (r * UNITS + u) * each, step);
                    EACH(v, wide) s[r][v] = add_products(kind, s[r][v], p[v], x);
                    if (kind == INT8) EACH(v, wide) COMPLETE(s[r][v]);
                }
                FORGET_PANEL();
            }
        }
    }
    EACH(r, rows) EACH(v, wide) store_ints(sums + r * COLUMNS + v * LANES, s[r][v]);
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
#if LANES == 16
#define EACH_COUNT(of, kind)                                                                       \
    of(kind, 1) of(kind, 2) of(kind, 3) of(kind, 4) of(kind, 5) of(kind, 6) of(kind, 7) of(kind, 8) \
    of(kind, 9) of(kind, 10) of(kind, 11) of(kind, 12) of(kind, 13) of(kind, 14)
#else
#define EACH_COUNT(of, kind)                                                                       \
    of(kind, 1) of(kind, 2) of(kind, 3) of(kind, 4) of(kind, 5) of(kind, 6)
#endif
#define NAME(kind, rows) kind##_##rows,

EACH_COUNT(DEFINE, INT8)
EACH_COUNT(DEFINE, WIDE)
multiplier *const FOR_ISA(int8_tiles)[] = {0, EACH_COUNT(NAME, INT8)};
#if LANES == 16
EACH_COUNT(DEFINE, BF16)
multiplier *const FOR_ISA(bf16_tiles)[] = {0, EACH_COUNT(NAME, BF16)};
multiplier *const FOR_ISA(wide_tiles)[] = {0, EACH_COUNT(NAME, WIDE)};
#else
multiplier *const FOR_ISA(bf16_tiles)[] = {0, EACH_COUNT(NAME, WIDE)};
#endif
