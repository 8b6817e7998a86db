/* Products of matrices in tiles that stay in registers, of factors that stay in the caches.

   Each element of a product is summed in ascending order, whatever tile it falls into: it does not depend on the other
   rows and columns. */

#pragma once

#include "panels.h"

#define ROWS 6                               /* of a tile of sums, which stays in registers */
#define DEPTH 256                            /* rows of a block of the right factor, which stays in the caches */
#define BLOCK ((place)(2048 / sizeof(real))) /* its columns */
#define HIGH (384 / sizeof(real))            /* rows of a block of the left factor that is copied */
#define FAR 512 /* elements: rows of the right factor, or columns of the left one, that are as far apart are copied */
#define LOW 24  /* rows of the left factor: for fewer the right one is not copied */

/* sum + left * right, rounded once where the processor can: left to the compiler, some tiles would round twice. */
INLINE vector fused(real left, vector right, vector sum) {
#if defined(__AVX512F__) && REAL_BITS == 32
    return (vector)_mm512_fmadd_ps(_mm512_set1_ps(left), (__m512)right, (__m512)sum);
#elif defined(__AVX512F__)
    return (vector)_mm512_fmadd_pd(_mm512_set1_pd(left), (__m512d)right, (__m512d)sum);
#elif defined(__FMA__) && REAL_BITS == 32
    return (vector)_mm256_fmadd_ps(_mm256_set1_ps(left), (__m256)right, (__m256)sum);
#elif defined(__FMA__)
    return (vector)_mm256_fmadd_pd(_mm256_set1_pd(left), (__m256d)right, (__m256d)sum);
#elif defined(__aarch64__) && REAL_BITS == 32
    return (vector)vfmaq_n_f32((float32x4_t)sum, (float32x4_t)right, left);
#elif defined(__aarch64__)
    return (vector)vfmaq_n_f64((float64x2_t)sum, (float64x2_t)right, left);
#else
    return sum + left * right;
#endif
}

#if defined(__AVX512BF16__) && REAL_BITS == 32
#define PAIRS 1 /* there are instructions for pairs of numbers in bfloat16 (halves.h) */
#else
#define PAIRS 0
#endif

/* The same for pairs, whose first number is in the upper bits: the processor adds their products in this order. */
INLINE vector term(const int pairs, real left, vector right, vector sum) {
#if PAIRS
    if (pairs) return (vector)_mm512_dpbf16_ps((__m512)sum, (__m512bh)_mm512_set1_ps(left), (__m512bh)right);
#else
    (void)pairs;
#endif
    return fused(left, right, sum);
}

/* sums[row][column] = start[row][column] + left[row][k] * panel[k][column], for k in ascending order, in the columns of a
   panel: so many `vectors`, the last of which has `last` columns. Rows of the panel are `down` elements apart, those of
   sums `pitch`, and those of start `begin`. */
INLINE void tile(const int pairs, const int rows, const int vectors, place depth, const real *left, place stride, place next,
                 const real *panel, place down, const real *start, place begin, real *sums, place pitch, place last) {
    vector tile[ROWS][WIDTH], weights[WIDTH];
    UNROLL for (int row = 0; row < rows; row++)
        UNROLL for (int v = 0; v < vectors; v++)
            tile[row][v] = load(start + row * begin + v * LANES, v + 1 < vectors ? LANES : last);
    for (place k = 0; k < depth; k++) {
        UNROLL for (int v = 0; v < vectors; v++) weights[v] = load(panel + k * down + v * LANES, LANES);
        UNROLL for (int row = 0; row < rows; row++)
            UNROLL for (int v = 0; v < vectors; v++)
                tile[row][v] = term(pairs, left[row * stride + k * next], weights[v], tile[row][v]);
    }
    UNROLL for (int row = 0; row < rows; row++)
        UNROLL for (int v = 0; v < vectors; v++)
            store(sums + row * pitch + v * LANES, tile[row][v], v + 1 < vectors ? LANES : last);
}

/* Write `columns` columns of start, whose rows are `begin` elements apart, plus a product: left[row * stride + k * next],
   M x K, times a matrix. That is in `panels`, or with `down` in rows that are so many elements apart, of whole vectors. A
   null start, with 0 as `begin`, is zeros. */
INLINE void multiply_any(const int pairs, const real *start, place begin, place rows, place depth, const real *left,
                         place stride, place next, const real *panels, place down, real *sums, place columns,
                         place pitch) {
    static const real zeros[PANEL];
    place tiles = (rows + ROWS - 1) / ROWS; /* of nearly equal size */
    for (place first = 0, vectors; first < columns; first += PANEL) {
        place count = columns - first < PANEL ? columns - first : PANEL;
        vectors = whole_vectors(count) / LANES;
        for (place row = 0, end, done = 1; row < rows; row = end, done++) {
            end = rows * done / tiles;
            const real *from = start ? start + row * begin + first : zeros;
#define CASE(rows, vectors)                                                                                          \
    case rows * 8 + vectors:                                                                                         \
        tile(pairs, rows, vectors, depth, left + row * stride, stride, next, panels,                                \
             down ? down : vectors * LANES, from, begin, sums + row * pitch + first, pitch,                          \
             count - (vectors - 1) * LANES);                                                                         \
        break;
#if WIDTH == 4
#define CASES(rows) CASE(rows, 1) CASE(rows, 2) CASE(rows, 3) CASE(rows, 4)
#else
#define CASES(rows) CASE(rows, 1) CASE(rows, 2)
#endif
            switch ((end - row) * 8 + vectors) { CASES(1) CASES(2) CASES(3) CASES(4) CASES(5) CASES(6) }
#undef CASE
#undef CASES
        }
        panels += down ? PANEL : depth * vectors * LANES;
    }
}

static void multiply_from(const real *start, place begin, place rows, place depth, const real *left, place stride,
                          place next, const real *panels, place down, real *sums, place columns, place pitch) {
    multiply_any(0, start, begin, rows, depth, left, stride, next, panels, down, sums, columns, pitch);
}

/* Add a product with the matrix in `panels` to sums. */
static void multiply(place rows, place depth, const real *left, place stride, place next, const real *panels,
                     real *sums, place columns, place pitch) {
    multiply_from(sums, pitch, rows, depth, left, stride, next, panels, 0, sums, columns, pitch);
}

/* The elements of memory that `add_product` needs for a product of this many columns. */
static place product_memory(place columns) { return DEPTH * ((columns < BLOCK ? columns : BLOCK) + LANES); }

/* `multiply_from` for a left factor whose columns are far apart, so that each of its numbers would be on another page. */
static void multiply_far(const real *start, place begin, place rows, place depth, const real *left, place next,
                         const real *panels, place down, real *sums, place columns, place pitch) {
    real copied[HIGH * DEPTH];
    for (place row = 0, high; row < rows; row += high) {
        high = rows - row < (place)HIGH ? rows - row : (place)HIGH;
        for (place k = 0; k < depth; k++) memcpy(copied + k * high, left + row + k * next, (size_t)high * sizeof(real));
        multiply_from(start ? start + row * begin : 0, begin, high, depth, copied, 1, high, panels, down,
                      sums + row * pitch, columns, pitch);
    }
}

/* sums_MN = start_MN + left_MK right_KN, of any strides; the rows of sums are `pitch` elements apart, those of start
   `begin`. A right factor whose rows are whole vectors is read where it is, unless many rows would read it in places that
   are far apart; else it is copied, a block at a time. */
static void write_product(const real *start, place begin, place rows, place depth, place columns, const real *left,
                          place stride, place next, const real *right, place down, place across, real *memory,
                          real *sums, place pitch) {
    place there = across == 1 && down && columns % LANES == 0 && (down < FAR || rows < LOW);
    for (place first = 0, wide; first < columns; first += wide) {
        wide = there || columns - first < BLOCK ? columns - first : BLOCK;
        const real *from = start ? start + first : 0;
        place apart = begin;
        for (place k = 0, step; k < depth; k += step, from = sums + first, apart = pitch) {
            step = depth - k < DEPTH ? depth - k : DEPTH;
            const real *block = right + k * down + first * across, *of = left + k * next;
            if (!there) pack(memory, block, step, 1, 0, wide, down, across), block = memory;
            if (stride == 1 && next >= FAR && wide > PANEL)
                multiply_far(from, apart, rows, step, of, next, block, there ? down : 0, sums + first, wide, pitch);
            else
                multiply_from(from, apart, rows, step, of, stride, next, block, there ? down : 0, sums + first, wide, pitch);
        }
    }
}

static void add_product(place rows, place depth, place columns, const real *left, place stride, place next,
                        const real *right, place down, place across, real *memory, real *sums, place pitch) {
    write_product(sums, pitch, rows, depth, columns, left, stride, next, right, down, across, memory, sums, pitch);
}
