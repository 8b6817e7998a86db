/* Products whose right factor is packed once, in the order in which they read it. */

#pragma once

#include "products.h"

/* The elements of memory of a packed right factor. */
place packed_size(place depth, place columns) { return depth * whole_vectors(columns); }

void pack_factor(place depth, place columns, const real *right, place down, place across, real *panels) {
    for (place k = 0, step; k < depth; k += step, panels += packed_size(step, columns)) {
        step = depth - k < DEPTH ? depth - k : DEPTH;
        pack(panels, right + k * down, step, 1, 0, columns, down, across);
    }
}

/* `product` with a packed right factor. */
void packed_product(const real *start, place begin, place rows, place depth, place columns, const real *left,
                    place stride, place next, const real *panels, real *sums) {
    for (place k = 0, step; k < depth; k += step, panels += packed_size(step, columns)) {
        step = depth - k < DEPTH ? depth - k : DEPTH;
        multiply_from(start, begin, rows, step, left + k * next, stride, next, panels, 0, sums, columns, columns);
        start = sums, begin = columns;
    }
}
