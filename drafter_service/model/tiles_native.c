/* The only multiplications of matrices: tiles, one function for each number of rows.
 *
 * A unit of operand a is broadcast to all lanes; each unit of b is read once for all rows. With the
 * number of rows known to the compiler, the sums stay in registers.
 */
#include "native.h"

/* Weights lie in the order of reading, so what comes next is known beyond the end of a tile. Where
 * other work has emptied the caches, fetching this far ahead saves a quarter of a pass. */
#define AHEAD (16 << 10)
#define FETCH(b)                                                                                  \
    _mm_prefetch((const char *)(b) + AHEAD, _MM_HINT_T0);                                         \
    _mm_prefetch((const char *)(b) + AHEAD + 64, _MM_HINT_T0)
#define FETCH_NOTHING(b)

#define TARGET_BF16 \
    __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512bf16")))

#define DOT_INT8(sum, b, a) _mm512_dpbusd_epi32(sum, b, a)
#define DOT_BF16(sum, b, a) (__m512i)_mm512_dpbf16_ps((__m512)(sum), (__m512bh)(b), (__m512bh)(a))
/* The same on a CPU without bf16: a unit's lower half, then its upper half. */
#define LOWER(x) ((__m512)_mm512_slli_epi32(x, 16))
#define UPPER(x) ((__m512)_mm512_and_si512(x, _mm512_set1_epi32((int)0xFFFF0000)))
#define DOT_WIDE(sum, b, a) \
    (__m512i)_mm512_fmadd_ps(LOWER(b), LOWER(a), _mm512_fmadd_ps(UPPER(b), UPPER(a), (__m512)(sum)))

#define DEFINE_KIND(kind, target, dot, fetch)                                                     \
    target static inline __attribute__((always_inline)) void kind(                                 \
        const int32_t *a, const int32_t *b, int64_t units, __m512i *out, const int rows) {         \
        __m512i sums[MAX_ROWS][2];                                                                \
        _Pragma("GCC unroll 14") for (int r = 0; r < rows; r++)                                    \
            sums[r][0] = sums[r][1] = _mm512_setzero_si512();                                     \
        for (; units > 0; units -= UNITS, a += rows * UNITS) {                                    \
            int64_t count = units < UNITS ? units : UNITS;                                        \
            for (int64_t u = 0; u < count; u++, b += COLUMNS) {                                   \
                fetch(b);                                                                         \
                __m512i b0 = _mm512_load_si512(b), b1 = _mm512_load_si512(b + LANES);             \
                _Pragma("GCC unroll 14") for (int r = 0; r < rows; r++) {                          \
                    __m512i x = _mm512_set1_epi32(a[r * UNITS + u]);                              \
                    sums[r][0] = dot(sums[r][0], b0, x);                                          \
                    sums[r][1] = dot(sums[r][1], b1, x);                                          \
                }                                                                                 \
            }                                                                                     \
        }                                                                                         \
        _Pragma("GCC unroll 14") for (int r = 0; r < rows; r++) {                                  \
            _mm512_store_si512(out + 2 * r, sums[r][0]);                                          \
            _mm512_store_si512(out + 2 * r + 1, sums[r][1]);                                      \
        }                                                                                         \
    }

#define DEFINE_ROWS(kind, target, rows)                                                           \
    target static void kind##_##rows(const int32_t *a, const int32_t *b, int64_t units,            \
                                     void *out) {                                                 \
        kind(a, b, units, out, rows);                                                             \
    }

#define DEFINE(kind, target, dot, fetch)                                                          \
    DEFINE_KIND(kind, target, dot, fetch)                                                         \
    DEFINE_ROWS(kind, target, 1) DEFINE_ROWS(kind, target, 2) DEFINE_ROWS(kind, target, 3)         \
    DEFINE_ROWS(kind, target, 4) DEFINE_ROWS(kind, target, 5) DEFINE_ROWS(kind, target, 6)         \
    DEFINE_ROWS(kind, target, 7) DEFINE_ROWS(kind, target, 8) DEFINE_ROWS(kind, target, 9)         \
    DEFINE_ROWS(kind, target, 10) DEFINE_ROWS(kind, target, 11) DEFINE_ROWS(kind, target, 12)      \
    DEFINE_ROWS(kind, target, 13) DEFINE_ROWS(kind, target, 14)

#define ALL(kind)                                                                                 \
    {0, kind##_1, kind##_2, kind##_3, kind##_4, kind##_5, kind##_6, kind##_7, kind##_8, kind##_9,  \
     kind##_10, kind##_11, kind##_12, kind##_13, kind##_14}

DEFINE(int8, TARGET, DOT_INT8, FETCH)
DEFINE(bf16, TARGET_BF16, DOT_BF16, FETCH_NOTHING)
DEFINE(wide, TARGET, DOT_WIDE, FETCH_NOTHING)

tile *const int8_tiles[MAX_ROWS + 1] = ALL(int8);
static tile *const with_bf16[MAX_ROWS + 1] = ALL(bf16);
static tile *const without_bf16[MAX_ROWS + 1] = ALL(wide);

tile *const *bf16_tiles(void) {
    return __builtin_cpu_supports("avx512bf16") ? with_bf16 : without_bf16;
}
