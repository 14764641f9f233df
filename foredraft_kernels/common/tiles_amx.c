/* The tiles of weights for AMX, whose registers hold 16 lines of a cache: a block's rows, or half the
 * columns of a panel's line. */
#include "common/amx.h"

#if HAS_AMX

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#pragma GCC target("amx-tile,amx-int8,amx-bf16")

#define AHEAD (16 << 10) /* as in tiles.h */
#define ROW 64           /* bytes of a tile's row */
#define TILE_ROWS 16

/* Tiles: sums of half a panel's columns each, the rows of a block, the panel's halves. They are names of
 * registers, so the preprocessor must know them. */
#define SUMS 0
#define MORE_SUMS 1
#define ROWS 2
#define PANEL 3
#define MORE_PANEL 4
#define NUM_TILES 5

/* Tiles of the calling thread hold blocks of `rows` rows until amx_end. */
void amx_begin(int64_t rows) {
    struct {
        uint8_t palette, start_row, reserved[14];
        uint16_t row_bytes[16];
        uint8_t rows[16];
    } tiles = {.palette = 1};
    for (int i = 0; i < NUM_TILES; i++) {
        tiles.row_bytes[i] = ROW;
        tiles.rows[i] = i < PANEL ? (uint8_t)rows : TILE_ROWS;
    }
    __asm__ volatile("" ::"m"(tiles)); /* the intrinsic declares to read its first bytes alone */
    _tile_loadconfig(&tiles);
}

/* What a thread's tiles hold is saved at each switch of contexts, unless it is released. */
void amx_end(void) { _tile_release(); }

#define DEFINE(kind, add_products)                                                                 \
    void amx_weigh_##kind(const void *lines, int64_t rows, const void *panel, int64_t count,        \
                          void *sums) {                                                            \
        const char *line = lines, *halves = panel;                                                 \
        _tile_zero(SUMS);                                                                          \
        _tile_zero(MORE_SUMS);                                                                     \
        for (; count > 0; count--, line += rows * ROW, halves += TILE_ROWS * 2 * ROW) {            \
            for (int at = 0; at < TILE_ROWS * 2 * ROW; at += ROW)                                  \
                _mm_prefetch(halves + AHEAD + at, _MM_HINT_T0);                                    \
            _tile_loadd(ROWS, line, ROW);                                                          \
            _tile_loadd(PANEL, halves, 2 * ROW);                                                   \
            add_products(SUMS, ROWS, PANEL);                                                       \
            _tile_loadd(MORE_PANEL, halves + ROW, 2 * ROW);                                        \
            add_products(MORE_SUMS, ROWS, MORE_PANEL);                                             \
        }                                                                                          \
        _tile_stored(SUMS, sums, 2 * ROW);                                                         \
        _tile_stored(MORE_SUMS, (char *)sums + ROW, 2 * ROW);                                      \
    }

DEFINE(int8, _tile_dpbsud)
DEFINE(bf16, _tile_dpbf16ps)

#endif
