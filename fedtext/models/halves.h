/* Products of matrices whose numbers are rounded to bfloat16, with sums of 32 bits (engine native).

   The bits of a product do not depend on the processor, unless numbers are below 1e-38: a processor that multiplies pairs
   of such numbers rounds after either product, as others do.

   Legend: M rows, K the inner width, N columns. */

#pragma once

#include "packed.h"

/* The elements of K numbers of a factor. */
place halves_of(place depth) { return (depth + PAIRED - 1) / PAIRED; }

static void multiply_halves(const real *start, place begin, place rows, place depth, const real *left, place stride,
                            const real *panels, real *sums, place columns, place pitch) {
    multiply_any(1, start, begin, rows, depth, left, stride, 1, panels, 0, sums, columns, pitch);
}

/* The bits of a number that is rounded to the nearest bfloat16, of two equally near ones to the even one. */
INLINE uint32_t half_bits(real number) {
    float single = (float)number;
    uint32_t bits;
    memcpy(&bits, &single, sizeof bits);
    uint32_t nan = (bits & 0x7fffffffu) > 0x7f800000u, up = 0x7fffu + (bits >> 16 & 1);
    return (nan ? bits | 0x400000u : bits + up) & 0xffff0000u;
}

/* A factor's elements: from[row * stride + k * next] of so many rows and K numbers. */
static void round_halves(place rows, place depth, const real *from, place stride, place next, real *to) {
    for (place row = 0; row < rows; row++, from += stride)
        for (place k = 0; k < depth; k += PAIRED, to++) {
            uint32_t bits = half_bits(from[k * next]);
            float single;
            if (PAIRED == 2 && k + 1 < depth) bits |= half_bits(from[(k + 1) * next]) >> 16;
            if (PAIRED == 2) memcpy(to, &bits, sizeof bits);
            else memcpy(&single, &bits, sizeof bits), *to = single;
        }
}

/* Rows of K numbers that are next to each other. */
static void round_rows(place rows, place depth, const real *from, real *to) {
#if PAIRED == 2
    for (place row = 0; row < rows; row++, from += depth, to += halves_of(depth))
        for (place k = 0; k < depth; k += LANES) {
            __m256i halves = (__m256i)_mm512_cvtneps_pbh((__m512)load(from + k, depth - k));
            place count = depth - k < LANES ? halves_of(depth - k) : LANES / 2;
            _mm256_mask_storeu_epi32(to + k / 2, (__mmask8)((1u << count) - 1), _mm256_rol_epi32(halves, 16));
        }
#else
    round_halves(rows, depth, from, depth, 1, to);
#endif
}

/* The right factor of a product. memory: N x K. */
void pack_halves(place depth, place columns, const real *right, place down, place across, real *memory, real *panels) {
    round_halves(columns, depth, right, across, down, memory);
    pack_factor(halves_of(depth), columns, memory, 1, halves_of(depth), panels);
}

/* sums_MN = start + left_MK times a packed factor; the rows of start are `begin` elements apart. memory: M x K. */
static void product_of_halves(const real *start, place begin, place rows, place depth, place columns, const real *left,
                              const real *panels, real *memory, real *sums) {
    place elements = halves_of(depth);
    round_rows(rows, depth, left, memory);
    for (place k = 0, step; k < elements; k += step, panels += packed_size(step, columns)) {
        step = elements - k < DEPTH ? elements - k : DEPTH;
        multiply_halves(start, begin, rows, step, memory + k, elements, panels, sums, columns, columns);
        start = sums, begin = columns;
    }
}
