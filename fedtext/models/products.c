/* Products of matrices (engine native; models/native_products.py). */

#include "packed.h"

void product(const real *start, place begin, place rows, place depth, place columns, const real *left, place stride,
             place next, const real *right, place down, place across, real *memory, real *sums) {
    write_product(start, begin, rows, depth, columns, left, stride, next, right, down, across, memory, sums, columns);
}
