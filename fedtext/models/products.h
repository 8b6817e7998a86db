/* Vectors of the widest registers, and products of matrices in tiles that stay in them.

   Each element of a product is summed in ascending order, whatever tile it falls into: it does not depend on the other
   rows and columns. */

#pragma once

#include <string.h>
#if defined(__AVX512F__) || defined(__FMA__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#include "../runtime/numbers.h"

#if defined(__AVX512F__)
#define BYTES 64 /* of a vector */
#elif defined(__AVX__)
#define BYTES 32
#else
#define BYTES 16
#endif
#if defined(__AVX512F__) || defined(__aarch64__) /* 32 vectors fit into registers, else 16 */
#define WIDTH 4                                  /* vectors of a panel of weights */
#else
#define WIDTH 2
#endif
#define ROWS 6    /* of a tile of sums, which stays in registers */
#define DEPTH 256 /* rows of the panels of a product, which stay in the caches */
#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 16")

#define LANES ((place)(BYTES / sizeof(real))) /* numbers in a vector */
#define PANEL (WIDTH * LANES)
typedef real vector __attribute__((vector_size(BYTES)));
typedef real_bits mask __attribute__((vector_size(BYTES)));

/* Vectors at any address; at the end of a row only the `count` numbers that are there. */
static __attribute__((noinline)) vector load_part(const real *from, place count) {
    vector value = {0};
    for (place i = 0; i < count; i++) value[i] = from[i];
    return value;
}

static __attribute__((noinline)) void store_part(real *to, vector value, place count) {
    for (place i = 0; i < count; i++) to[i] = value[i];
}

INLINE vector load(const real *from, place count) {
    vector value;
    if (count < LANES) return load_part(from, count);
    memcpy(&value, from, BYTES);
    return value;
}

INLINE void store(real *to, vector value, place count) {
    if (count < LANES) store_part(to, value, count);
    else memcpy(to, &value, BYTES);
}

INLINE void add(real *to, vector value, place count) { store(to, load(to, count) + value, count); }

static place whole_vectors(place width) { return (width + LANES - 1) / LANES * LANES; }

/* Copy the right side of a product into panels of PANEL columns (the last may be narrower) and all `depth` rows:
   element (k, column) is from[k * down + column * across] of each part in turn, padded to whole vectors with zeros. */
static void pack(real *panels, const real *from, place depth, place parts, place part, place width, place down,
                 place across) {
    place padded = whole_vectors(width), columns = parts * padded;
    for (place first = 0, wide; first < columns; first += PANEL, panels += depth * wide) {
        wide = columns - first < PANEL ? columns - first : PANEL;
        for (place v = 0; v < wide; v += LANES) { /* of one part */
            place unit = (first + v) % padded, there = width - unit < LANES ? width - unit : LANES;
            const real *source = from + (first + v) / padded * part + unit * across;
            real *to = panels + v;
            if (across == 1 && there == LANES) {
                for (place k = 0; k < depth; k++) memcpy(to + k * wide, source + k * down, BYTES);
                continue;
            }
            for (place block = 0, end; block < depth; block = end) { /* its cache lines are all written before the next */
                end = depth - block < LANES ? depth : block + LANES;
                for (place column = 0; column < LANES; column++)
                    for (place k = block; k < end; k++)
                        to[k * wide + column] = column < there ? source[column * across + k * down] : 0;
            }
        }
    }
}

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
static place product_memory(place columns) { return DEPTH * (columns + LANES); }

/* sums_MN = start_MN + left_MK right_KN, of any strides; the rows of sums are `pitch` elements apart, those of start
   `begin`. A right factor whose rows are whole vectors is read where it is. */
static void write_product(const real *start, place begin, place rows, place depth, place columns, const real *left,
                          place stride, place next, const real *right, place down, place across, real *memory,
                          real *sums, place pitch) {
    place there = across == 1 && down && columns % LANES == 0;
    for (place k = 0, step; k < depth; k += step) {
        step = depth - k < DEPTH ? depth - k : DEPTH;
        if (!there) pack(memory, right + k * down, step, 1, 0, columns, down, across);
        multiply_from(start, begin, rows, step, left + k * next, stride, next, there ? right + k * down : memory,
                      there ? down : 0, sums, columns, pitch);
        start = sums, begin = pitch;
    }
}

static void add_product(place rows, place depth, place columns, const real *left, place stride, place next,
                        const real *right, place down, place across, real *memory, real *sums, place pitch) {
    write_product(sums, pitch, rows, depth, columns, left, stride, next, right, down, across, memory, sums, pitch);
}
