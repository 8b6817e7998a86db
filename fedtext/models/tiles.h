/* Products of numbers in bfloat16 in the tile registers of processors of Intel (AMX): of 32 rows and columns of sums, and
   32 numbers of the inner width, at a time.

   Of each 32 numbers the processor adds up the products at even places and those at odd ones apart, and then adds both to
   the sum so far.

   Legend: M rows, K the inner width, N columns. */

#pragma once

#include "products.h"

#if PAIRS && defined(__AMX_TILE__) && defined(__AMX_BF16__) && defined(__linux__) && !defined(NO_TILES) /* for tests */
#define TILES 1
#include <sys/syscall.h>
#include <unistd.h>

#define SIDE 16              /* rows of a register, and elements of each, of two numbers */
#define TILE (SIDE * SIDE)   /* elements of a register */
#define NEAR ((place)262144) /* elements of a block of the right factor, which stays in the caches */

/* Whether the system lets this process use the registers, which it has to be asked. */
static int tiled(void) {
    static int known = -1;
    const long ask = 0x1023, tiles = 18; /* ARCH_REQ_XCOMP_PERM and XFEATURE_XTILEDATA of Linux */
    if (known < 0) known = !syscall(SYS_arch_prctl, ask, tiles);
    return known;
}

static place fewer(place one, place other) { return one < other ? one : other; }

/* What the registers hold: sums in 0 to 3, two for the first 16 of so many rows and two for the others, the left factor in
   4 and 5, and the right one in 6 and 7. Those that are not used have a row or a column. */
static void shape_tiles(place rows, place columns) {
    struct {
        uint8_t palette, first, unused[14];
        uint16_t bytes[16];
        uint8_t rows[16];
    } shape __attribute__((aligned(64))) = {.palette = 1};
    for (int i = 0; i < 2; i++) {
        place high = fewer(rows - i * SIDE, SIDE), wide = fewer(columns - i * SIDE, SIDE);
        shape.rows[2 * i] = shape.rows[2 * i + 1] = shape.rows[4 + i] = (uint8_t)(high < 1 ? 1 : high);
        shape.bytes[i] = shape.bytes[2 + i] = shape.bytes[6 + i] = (uint16_t)((wide < 1 ? 1 : wide) * sizeof(real));
        shape.bytes[4 + i] = SIDE * sizeof(real), shape.rows[6 + i] = SIDE;
    }
    __asm__ volatile("" : : "r"(&shape) : "memory"); /* gcc takes the instruction to read fewer bytes */
    _tile_loadconfig(&shape);
}

/* Write sums, whose rows are `pitch` elements apart: start plus the product of so many registers of either factor. `lower`
   and `more`: whether there are more than 16 rows, and columns. A null start is zeros. */
INLINE void sum_tiles(const int lower, const int more, place steps, const real *left, const real *right, const real *start,
                      place begin, real *sums, place pitch) {
    const place size = sizeof(real), row = SIDE * sizeof(real), wide = (1 + more) * row;
    const real *below = left + steps * TILE;
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    if (start) {
        _tile_loadd(0, start, begin * size);
        if (more) _tile_loadd(1, start + SIDE, begin * size);
        if (lower) _tile_loadd(2, start + SIDE * begin, begin * size);
        if (lower && more) _tile_loadd(3, start + SIDE * begin + SIDE, begin * size);
    }
    for (place k = 0; k < steps; k++, left += TILE, below += TILE, right += (1 + more) * TILE) {
        _tile_loadd(6, right, wide);
        _tile_loadd(4, left, row);
        _tile_dpbf16ps(0, 4, 6);
        if (more) _tile_loadd(7, right + SIDE, wide);
        if (more) _tile_dpbf16ps(1, 4, 7);
        if (lower) _tile_loadd(5, below, row);
        if (lower) _tile_dpbf16ps(2, 5, 6);
        if (lower && more) _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, sums, pitch * size);
    if (more) _tile_stored(1, sums + SIDE, pitch * size);
    if (lower) _tile_stored(2, sums + SIDE * pitch, pitch * size);
    if (lower && more) _tile_stored(3, sums + SIDE * pitch + SIDE, pitch * size);
}

/* Round rows of K numbers to registers: 16 rows of 32 numbers, then those of the next 32, in so many steps. */
static void round_tiles(place rows, place depth, place steps, const real *from, real *to) {
    for (place row = 0; row < rows; row++, from += depth)
        for (place step = 0; step < steps; step++) {
            place k = 2 * SIDE * step;
            vector first = load(from + k, depth - k), second = {0};
            if (k + SIDE < depth) second = load(from + k + SIDE, depth - k - SIDE);
            __m512i both = (__m512i)_mm512_cvtne2ps_pbh((__m512)second, (__m512)first);
            place at = (row / SIDE * steps + step) * TILE + row % SIDE * SIDE;
            memcpy(to + at, &both, sizeof both);
        }
}

/* Copy rows of so many elements, of columns of the right factor, to panels of two registers for each 32 numbers. */
static void pack_tiles(place elements, place columns, const real *from, real *panels) {
    for (place first = 0; first < columns; first += 2 * SIDE, from += 2 * SIDE * elements, panels += 2 * SIDE * elements)
        pack(panels, from, elements, 1, 0, fewer(columns - first, 2 * SIDE), 1, elements);
}

/* `product_of_halves` (halves.h). Rows are rounded when they are first needed. */
static void product_in_tiles(const real *start, place begin, place rows, place depth, place columns, const real *left,
                             const real *panels, real *memory, real *sums) {
    place steps = (depth + 2 * SIDE - 1) / (2 * SIDE), elements = SIDE * steps, shaped = 0;
    place block = elements ? NEAR / elements / (2 * SIDE) * 2 * SIDE : columns; /* its columns */
    block = block ? block : 2 * SIDE;
    for (place first = 0, end; first < columns; first = end) {
        end = fewer(first + block, columns);
        for (place row = 0; row < rows; row += 2 * SIDE) {
            place high = fewer(rows - row, 2 * SIDE);
            real *of = memory + row * elements;
            if (!first) round_tiles(high, depth, steps, left + row * depth, of);
            __asm__ volatile("" : : : "memory"); /* gcc does not know that registers are loaded from memory */
            for (place column = first; column < end; column += 2 * SIDE) {
                place wide = fewer(end - column, 2 * SIDE), shape = 4 * SIDE * high + wide;
                if (shape != shaped) shape_tiles(high, wide), shaped = shape;
                const real *panel = panels + column * elements, *from = start ? start + row * begin + column : 0;
                real *to = sums + row * columns + column;
#define CASE(lower, more)                                                   \
    case 2 * lower + more:                                                  \
        sum_tiles(lower, more, steps, of, panel, from, begin, to, columns); \
        break;
                switch (2 * (high > SIDE) + (wide > SIDE)) { CASE(0, 0) CASE(0, 1) CASE(1, 0) CASE(1, 1) }
#undef CASE
            }
        }
    }
    _tile_release();
}
#else
#define TILES 0
#define SIDE 1

static int tiled(void) { return 0; }
#endif
