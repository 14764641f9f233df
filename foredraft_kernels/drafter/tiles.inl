/* The only multiplications of matrices: tiles, one function for each number of rows.
 *
 * A unit of operand a is broadcast to all lanes; each unit of b is read once for all rows, in two
 * vectors at a time. With the number of rows known to the compiler, the sums stay in registers.
 */
#include "rows.h"

typedef void tile(const int32_t *a, const int32_t *b, int64_t units, void *out);

/* Weights lie in the order of reading, so what comes next is known beyond the end of a tile. Where
 * other work has emptied the caches, fetching this far ahead saves a quarter of a pass. */
#define AHEAD (16 << 10)
#define FETCH(b)                                                                                  \
    for (int64_t at = 0; at < 2 * LANES; at += 16)                                                \
        _mm_prefetch((const char *)((b) + at) + AHEAD, _MM_HINT_T0)
#define FETCH_NOTHING(b)

/* Add the products of a unit: sums[r] = dot(sums[r], b, a of row r). Bytes are summed exactly; of a
 * pair of bf16 the second is added first, as the instruction for both does. */
#if LANES == 16
#define COMPLETE(s)
#else
/* There are no registers to collect products in, or to keep b in between the halves of a unit. */
#define COMPLETE(s) __asm__ volatile("" : "+x"(s[0]), "+x"(s[1])::"memory")
#endif
#define EACH_ROW _Pragma("GCC unroll 14") for (int r = 0; r < rows; r++)
#define ADD(of_b, of_a, dot)                                                                      \
    {                                                                                             \
        ints b0 = of_b(load_ints(b)), b1 = of_b(load_ints(b + LANES));                            \
        EACH_ROW {                                                                                \
            ints x = of_a(a + r * each * UNITS);                                                  \
            sums[r][0] = dot(sums[r][0], b0, x);                                                  \
            sums[r][1] = dot(sums[r][1], b1, x);                                                  \
            COMPLETE(sums[r]);                                                                    \
        }                                                                                         \
    }
#define ADD_PRODUCTS(kind, target)                                                                \
    target INLINE void add_##kind(ints sums[MAX_ROWS][2], const int32_t *a, const int32_t *b,      \
                                  const int each, const int rows)

#define ODD(x) ((x) & all_ints((int32_t)0xFFFF0000))
#define EVEN(x) shifted_left(x, 16)
#define DOT_FLOATS(sum, b, a) as_ints(fused(as_floats(b), as_floats(a), as_floats(sum)))

#if LANES == 16
#define TARGET_BF16 __attribute__((target("avx512bf16")))
#define WHOLE(x) (x)
#define UNIT(a) all_ints(*(a))
#define DOT_BF16(sum, b, a) as_ints(_mm512_dpbf16_ps(as_floats(sum), (__m512bh)(b), (__m512bh)(a)))
#define DOT_WIDE(sum, b, a) DOT_FLOATS(DOT_FLOATS(sum, ODD(b), ODD(a)), EVEN(b), EVEN(a))
ADD_PRODUCTS(int8, ) ADD(WHOLE, UNIT, _mm512_dpbusd_epi32)
ADD_PRODUCTS(bf16, TARGET_BF16) ADD(WHOLE, UNIT, DOT_BF16)
ADD_PRODUCTS(wide, ) ADD(WHOLE, UNIT, DOT_WIDE) /* bf16 on a CPU without it */
#else
#define EVEN_BYTES(b) _mm256_and_si256(b, all_ints(0x00FF00FF))
#define ODD_BYTES(b) _mm256_srli_epi16(b, 8)
#define FIRST_PAIR(a) all_ints((a)[0])
#define SECOND_PAIR(a) all_ints((a)[1])
#define ODD_OF(a) ODD(all_ints(*(a)))
#define EVEN_OF(a) EVEN(all_ints(*(a)))
#define DOT_INT16(sum, b, a) plus(sum, _mm256_madd_epi16(b, a))
/* One half of a unit after the other. */
ADD_PRODUCTS(int8, ) {
    ADD(EVEN_BYTES, FIRST_PAIR, DOT_INT16)
    ADD(ODD_BYTES, SECOND_PAIR, DOT_INT16)
}
ADD_PRODUCTS(wide, ) {
    ADD(ODD, ODD_OF, DOT_FLOATS)
    ADD(EVEN, EVEN_OF, DOT_FLOATS)
}
#endif

/* `each` numbers of operand a make a unit. */
#define DEFINE_KIND(kind, target, each, fetch)                                                    \
    target INLINE void kind(const int32_t *a, const int32_t *b, int64_t units, int32_t *out,       \
                            const int rows) {                                                     \
        ints sums[MAX_ROWS][2];                                                                   \
        EACH_ROW sums[r][0] = sums[r][1] = all_ints(0);                                           \
        for (; units > 0; units -= UNITS, a += rows * each * UNITS) {                             \
            int64_t count = units < UNITS ? units : UNITS;                                        \
            for (int64_t u = 0; u < count; u++, b += COLUMNS) {                                   \
                fetch(b);                                                                         \
                add_##kind(sums, a + u * each, b, each, rows);                                    \
            }                                                                                     \
        }                                                                                         \
        EACH_ROW {                                                                                \
            store_ints(out + r * COLUMNS, sums[r][0]);                                            \
            store_ints(out + r * COLUMNS + LANES, sums[r][1]);                                    \
        }                                                                                         \
    }

#define DEFINE_ROWS(kind, target, rows)                                                           \
    target static void kind##_##rows(const int32_t *a, const int32_t *b, int64_t units,            \
                                     void *out) {                                                 \
        for (int64_t c = 0; c < COLUMNS; c += 2 * LANES)                                          \
            kind(a, b + c, units, (int32_t *)out + c, rows);                                      \
    }

#define UP_TO_6(kind, target)                                                                     \
    DEFINE_ROWS(kind, target, 1) DEFINE_ROWS(kind, target, 2) DEFINE_ROWS(kind, target, 3)         \
    DEFINE_ROWS(kind, target, 4) DEFINE_ROWS(kind, target, 5) DEFINE_ROWS(kind, target, 6)
#define ALL_TO_6(kind) 0, kind##_1, kind##_2, kind##_3, kind##_4, kind##_5, kind##_6
#if LANES == 16
#define EVERY_ROWS(kind, target)                                                                  \
    UP_TO_6(kind, target)                                                                         \
    DEFINE_ROWS(kind, target, 7) DEFINE_ROWS(kind, target, 8) DEFINE_ROWS(kind, target, 9)         \
    DEFINE_ROWS(kind, target, 10) DEFINE_ROWS(kind, target, 11) DEFINE_ROWS(kind, target, 12)      \
    DEFINE_ROWS(kind, target, 13) DEFINE_ROWS(kind, target, 14)
#define ALL(kind)                                                                                 \
    {ALL_TO_6(kind), kind##_7, kind##_8, kind##_9, kind##_10, kind##_11, kind##_12, kind##_13,     \
     kind##_14}
#else
#define EVERY_ROWS(kind, target) UP_TO_6(kind, target)
#define ALL(kind) {ALL_TO_6(kind)}
#endif

#define DEFINE(kind, target, each, fetch)                                                         \
    DEFINE_KIND(kind, target, each, fetch)                                                        \
    EVERY_ROWS(kind, target)                                                                      \
    static tile *const kind##_tiles[MAX_ROWS + 1] = ALL(kind);

/* Indexed by the number of rows. Signed bytes a x unsigned bytes b -> int32; bf16 -> fp32. */
DEFINE(int8, , (int)sizeof(signed_byte), FETCH)
DEFINE(wide, , 1, FETCH_NOTHING)
#if LANES == 16
DEFINE(bf16, TARGET_BF16, 1, FETCH_NOTHING)
static tile *const *bf16_products(void) {
    return __builtin_cpu_supports("avx512bf16") ? bf16_tiles : wide_tiles;
}
#else
static tile *const *bf16_products(void) { return wide_tiles; }
#endif
