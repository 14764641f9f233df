/* What the drafter's C files share: the tile, the model, and the vector helpers.
 *
 * Everything that is multiplied goes through one shape of work, a tile: up to MAX_ROWS rows of
 * operand a times COLUMNS columns of operand b, in 32-bit units that hold 4 bytes or 2 bf16 of the
 * summed dimension. Operand a is laid out as [units / UNITS][rows][UNITS], b as [units][COLUMNS],
 * the result as [rows][COLUMNS].
 */
#ifndef FOREDRAFT_DRAFTER_NATIVE_H
#define FOREDRAFT_DRAFTER_NATIVE_H

#include <immintrin.h>
#include <stdint.h>

#define TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")))
#define INLINE TARGET static inline __attribute__((always_inline))

#define LANES 16
#define COLUMNS 32
#define UNITS 16            /* of one row next to each other: a cache line */
#define BYTES (4 * UNITS)   /* in such a line */
#define HALVES (2 * UNITS)
#define MAX_ROWS 14         /* 2 x 14 sums, 2 columns of b and 1 of a fill the 32 registers */
#define MAX_CANDIDATES 64
#define MAX_HEAD_DIM 128
#define MAX_EDGE_RANK 256

typedef void tile(const int32_t *a, const int32_t *b, int64_t units, void *out);

/* Indexed by the number of rows. Signed bytes a x unsigned bytes b -> int32; bf16 -> fp32. */
extern tile *const int8_tiles[MAX_ROWS + 1];
tile *const *bf16_tiles(void);

/* Weights of a linear layer as bytes w / scale + 128: [out / 32][in / 4][32][4], [out]. */
typedef struct {
    const int32_t *tiles;
    const float *scales;
    int64_t in, out;
} linear;

/* Rows as signed bytes in operand a's layout, block after block of rows; x is bytes * scale. */
typedef struct {
    int8_t *bytes;
    float *scales;
    int32_t *offsets; /* 128 x the sum of a row's bytes: what the weights' + 128 adds */
    int64_t rows, width;
} quantised;

enum epilogue { STORE, ADD, GATE };

/* Weights of the norms are folded into the layers behind them. */
typedef struct {
    linear qkv, out, gate_up, down;
} layer;

/* packed.py checks the sizes and fills this; caches hold `slots` sessions of `capacity` tokens. */
typedef struct {
    int64_t vocab, hidden, heads, head_dim, inner, num_layers, rank;
    int64_t eos, mask, candidates, slots, capacity;
    const layer *layers;
    linear head, edge_gate;
    const float *embedding, *mask_slots;         /* [vocab, hidden], [slots, hidden] */
    const float *mask_qkv;                       /* [slots, 3 hidden], the first layer's */
    const float *cos, *sin;                      /* [positions, head_dim / 2] */
    const float *edge_bias;                      /* [rank] */
    const uint16_t *edge_previous, *edge_next;   /* bf16 [vocab, rank] */
    float eps;
} model;

/* One session's part of a pass: cache slot `slot` holds `start` tokens; `tokens` more follow, then
 * num_slots mask slots. */
typedef struct {
    int64_t slot, start, tokens, num_slots;
} request;

/* The i-th of the fewest, evenly filled blocks of rows. */
typedef struct {
    int64_t first, rows;
} block;

static inline int64_t num_blocks(int64_t rows) { return (rows + MAX_ROWS - 1) / MAX_ROWS; }

static inline block block_at(int64_t rows, int64_t i) {
    int64_t count = num_blocks(rows), least = rows / count, more = rows % count;
    return (block){i * least + (i < more ? i : more), least + (i < more)};
}

void quantise(quantised *to, const float *x, int64_t rows, int64_t width, int normalise, float eps);
void apply(const linear *w, int64_t from, const quantised *x, enum epilogue epilogue, float *out,
           int64_t stride);
int64_t attention_scratch(const model *m);
void attend(const model *m, const request *r, const float *qkv, int64_t masks, int64_t committed,
            int last, uint32_t *keys, uint32_t *values, void *scratch, float *out);
void best_candidates(const model *m, float *logits, void *scratch, int64_t *tokens, float *log_q);
void edge_scores(const model *m, const float *gate, const int64_t *previous, int64_t num_previous,
                 const int64_t *following, float *out);

#define LOG2_E 1.44269504f

/* 2^x, relative error below 3e-6; 2^-127 for anything less; a NaN stays one. */
INLINE __m512 exp2_lanes(__m512 x) {
    x = _mm512_max_ps(_mm512_set1_ps(-127.0f), x);
    __m512 n = _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m512 f = _mm512_sub_ps(x, n);
    __m512 p = _mm512_set1_ps(1.33335581e-3f);
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(9.61812911e-3f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(5.55041087e-2f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(2.40226507e-1f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(6.93147181e-1f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(1.0f));
    return _mm512_scalef_ps(p, n);
}

/* fp32 whose upper half is x rounded to bf16, halves away from zero. */
INLINE __m512i rounded_bf16(__m512 x) {
    return _mm512_add_epi32(_mm512_castps_si512(x), _mm512_set1_epi32(0x8000));
}

/* 32 numbers as bf16, in order. */
INLINE __m512i pack_bf16(__m512 first, __m512 second) {
    const __m512i uppers = _mm512_set_epi16(63, 61, 59, 57, 55, 53, 51, 49, 47, 45, 43, 41, 39, 37,
                                            35, 33, 31, 29, 27, 25, 23, 21, 19, 17, 15, 13, 11, 9,
                                            7, 5, 3, 1);
    return _mm512_permutex2var_epi16(rounded_bf16(first), uppers, rounded_bf16(second));
}

INLINE __m512 load_bf16(const uint16_t *p) {
    __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}

#endif
