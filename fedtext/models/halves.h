/* Products of matrices whose numbers are rounded to bfloat16, with sums of 32 bits (engine native).

   Sums are in ascending order, except on processors with tile registers (tiles.h). Among those without, the bits of a
   product do not depend on the processor, unless numbers are below 1e-38: a processor that multiplies pairs of such
   numbers rounds after either product, as others do.

   Legend: M rows, K the inner width, N columns. */

#pragma once

#include "packed.h"
#include "tiles.h"

/* Whether products are summed in tile registers, in an order of their own. */
place has_tiles(void) { return tiled(); }

/* The numbers in an element of a factor, which are next to each other in the inner width. Without tile registers
   processors of Intel take four times as long for two as for one, others half as long. ALWAYS_PAIRS is for tests. */
static place paired(void) {
#if PAIRS && defined(ALWAYS_PAIRS)
    return 2;
#elif PAIRS
    return __builtin_cpu_is("intel") && !tiled() ? 1 : 2;
#else
    return 1;
#endif
}

/* The elements of K numbers of a factor, the last of which may be zeros. */
place halves_of(place depth) {
    place multiple = tiled() ? SIDE : 1, numbers = paired() * multiple;
    return (depth + numbers - 1) / numbers * multiple;
}

/* The elements of memory that `product_of_halves` needs. */
static place halves_memory(place rows, place depth) { return whole_vectors(rows) * halves_of(depth); }

static void multiply_halves(const real *start, place begin, place rows, place depth, const real *left, place stride,
                            const real *panels, real *sums, place columns, place pitch) {
    if (paired() == 2) multiply_any(1, start, begin, rows, depth, left, stride, 1, panels, 0, sums, columns, pitch);
    else multiply_from(start, begin, rows, depth, left, stride, 1, panels, 0, sums, columns, pitch);
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
        for (place k = 0; k < halves_of(depth) * paired(); k += paired(), to++) {
            uint32_t bits = k < depth ? half_bits(from[k * next]) : 0;
            float single;
            if (paired() == 2 && k + 1 < depth) bits |= half_bits(from[(k + 1) * next]) >> 16;
            if (tiled()) bits = bits << 16 | bits >> 16;
            memcpy(&single, &bits, sizeof bits);
            if (REAL_BITS == 32) memcpy(to, &bits, sizeof bits);
            else *to = single;
        }
}

/* Rows of K numbers that are next to each other. */
static void round_rows(place rows, place depth, const real *from, real *to) {
#if PAIRS
    for (place row = 0; row < rows; row++, from += depth, to += halves_of(depth))
        for (place k = 0; k < depth; k += LANES) {
            __m256i halves = (__m256i)_mm512_cvtneps_pbh((__m512)load(from + k, depth - k));
            if (paired() == 2) {
                place count = depth - k < LANES ? halves_of(depth - k) : LANES / 2;
                _mm256_mask_storeu_epi32(to + k / 2, (__mmask8)((1u << count) - 1), _mm256_rol_epi32(halves, 16));
            } else
                store(to + k, (vector)_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16), depth - k);
        }
#else
    round_halves(rows, depth, from, depth, 1, to);
#endif
}

/* The right factor of a product. memory: N x K. */
void pack_halves(place depth, place columns, const real *right, place down, place across, real *memory, real *panels) {
    round_halves(columns, depth, right, across, down, memory);
#if TILES
    if (tiled()) {
        pack_tiles(halves_of(depth), columns, memory, panels);
        return;
    }
#endif
    pack_factor(halves_of(depth), columns, memory, 1, halves_of(depth), panels);
}

/* sums_MN = start + left_MK times a packed factor; the rows of start are `begin` elements apart. */
static void product_of_halves(const real *start, place begin, place rows, place depth, place columns, const real *left,
                              const real *panels, real *memory, real *sums) {
    place elements = halves_of(depth);
#if TILES
    if (tiled()) {
        product_in_tiles(start, begin, rows, depth, columns, left, panels, memory, sums);
        return;
    }
#endif
    round_rows(rows, depth, left, memory);
    for (place k = 0, step; k < elements; k += step, panels += packed_size(step, columns)) {
        step = elements - k < DEPTH ? elements - k : DEPTH;
        multiply_halves(start, begin, rows, step, memory + k, elements, panels, sums, columns, columns);
        start = sums, begin = columns;
    }
}
