/* The products with weights for AMX, whose registers, tiles, hold 16 lines of a cache: 16 rows of a
 * block, or half the columns of a panel's line. */
#include "common/amx.h"

#if HAS_AMX

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#pragma GCC target("amx-tile,amx-int8,amx-bf16")

#define ROW 64           /* bytes of a tile's row, or of a line's row */
#define TILE_ROWS 16
#define PANEL_LINE (TILE_ROWS * 2 * ROW) /* bytes of a panel for a line: 16 units of 32 columns */

/* Tiles: the sums of the upper rows of a block and of the lower ones with each half of a panel's
 * columns, those rows, and the panel's halves. They are names of registers, so the preprocessor must
 * know them. */
#define UPPER_LEFT 0
#define UPPER_RIGHT 1
#define LOWER_LEFT 2
#define LOWER_RIGHT 3
#define UPPER 4
#define LOWER 5
#define LEFT 6
#define RIGHT 7
#define NUM_TILES 8

/* How many rows are upper ones: as many as there are lower ones, or one more, where one tile does not
 * hold all. */
static int64_t upper_rows(int64_t most) { return most <= TILE_ROWS ? most : (most + 1) / 2; }

/* The rows that the calling thread's tiles are for, 0 for none: to set them up takes as long as some
 * products. */
static _Thread_local int64_t begun;

/* Tiles of the calling thread hold blocks of up to `most` rows until amx_end, or until the next begin. */
void amx_begin(int64_t most) {
    if (most == begun) return;
    begun = most;
    struct {
        uint8_t palette, start_row, reserved[14];
        uint16_t row_bytes[16];
        uint8_t rows[16];
    } tiles = {.palette = 1};
    uint8_t upper = (uint8_t)upper_rows(most), lower = (uint8_t)most - upper;
    const uint8_t rows[NUM_TILES] = {upper, upper, lower, lower, upper, lower, TILE_ROWS, TILE_ROWS};
    for (int i = 0; i < NUM_TILES; i++) {
        tiles.row_bytes[i] = rows[i] ? ROW : 0;
        tiles.rows[i] = rows[i];
    }
    __asm__ volatile("" ::"m"(tiles)); /* the intrinsic declares to read its first bytes alone */
    _tile_loadconfig(&tiles);
}

/* What a thread's tiles hold is saved at each switch of contexts, unless it is released. */
void amx_end(void) {
    begun = 0;
    _tile_release();
}

#define FETCH(next)                                                                                \
    for (int at = 0; at < PANEL_LINE; at += ROW) _mm_prefetch((next) + at, _MM_HINT_T0)

#define DEFINE(kind, add_products)                                                                 \
    void amx_weigh_##kind(const void *lines, int64_t rows, int64_t most, const void *panel,        \
                          int64_t count, int64_t ahead, void *sums) {                              \
        const char *upper = lines, *left = panel;                                                  \
        char *out = sums;                                                                          \
        _tile_zero(UPPER_LEFT);                                                                    \
        _tile_zero(UPPER_RIGHT);                                                                   \
        if (most <= TILE_ROWS) {                                                                   \
            for (; count > 0; count--, upper += rows * ROW, left += PANEL_LINE) {                  \
                FETCH(left + ahead);                                                               \
                _tile_loadd(UPPER, upper, ROW);                                                    \
                _tile_loadd(LEFT, left, 2 * ROW);                                                  \
                add_products(UPPER_LEFT, UPPER, LEFT);                                             \
                _tile_loadd(RIGHT, left + ROW, 2 * ROW);                                           \
                add_products(UPPER_RIGHT, UPPER, RIGHT);                                           \
            }                                                                                      \
        } else {                                                                                   \
            int64_t below = upper_rows(most) * ROW;                                                \
            _tile_zero(LOWER_LEFT);                                                                \
            _tile_zero(LOWER_RIGHT);                                                               \
            for (; count > 0; count--, upper += rows * ROW, left += PANEL_LINE) {                  \
                FETCH(left + ahead);                                                               \
                _tile_loadd(UPPER, upper, ROW);                                                    \
                _tile_loadd(LEFT, left, 2 * ROW);                                                  \
                add_products(UPPER_LEFT, UPPER, LEFT);                                             \
                _tile_loadd(LOWER, upper + below, ROW);                                            \
                add_products(LOWER_LEFT, LOWER, LEFT);                                             \
                _tile_loadd(RIGHT, left + ROW, 2 * ROW);                                           \
                add_products(UPPER_RIGHT, UPPER, RIGHT);                                           \
                add_products(LOWER_RIGHT, LOWER, RIGHT);                                           \
            }                                                                                      \
            _tile_stored(LOWER_LEFT, out + 2 * below, 2 * ROW);                                    \
            _tile_stored(LOWER_RIGHT, out + 2 * below + ROW, 2 * ROW);                             \
        }                                                                                          \
        _tile_stored(UPPER_LEFT, out, 2 * ROW);                                                    \
        _tile_stored(UPPER_RIGHT, out + ROW, 2 * ROW);                                             \
    }

DEFINE(int8, _tile_dpbsud)
DEFINE(bf16, _tile_dpbf16ps)

#endif
