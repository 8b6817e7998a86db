/* Sums of the numbers of a row. */

#pragma once

#include "products.h"

#define SUMS 16 /* partial sums of a row: as many for any width of vectors, so that results do not depend on it */

/* The sum of `part`, which is changed. */
INLINE real sum_of(real *part) {
    for (int half = SUMS / 2; half; half /= 2)
        for (int lane = 0; lane < half; lane++) part[lane] += part[lane + half];
    return part[0];
}

/* The sum of products. */
static real total(const real *values, const real *factors, place count) {
    real part[SUMS] = {0};
    place i = 0;
    for (; i + SUMS <= count; i += SUMS)
        for (int lane = 0; lane < SUMS; lane++) part[lane] += values[i + lane] * factors[i + lane];
    for (int lane = 0; i < count; i++, lane++) part[lane] += values[i] * factors[i];
    return sum_of(part);
}
