/* exp of vectors. */

#pragma once

#include "products.h"

#if REAL_BITS == 32
#define MANTISSA 23
#define LARGEST 87.0f
#define DEGREE 7
#else
#define MANTISSA 52
#define LARGEST 708.0
#define DEGREE 13
#endif

INLINE vector least(vector value, real bound) {
    mask beyond = value > bound;
    return (vector)(((mask)(bound - (vector){0}) & beyond) | ((mask)value & ~beyond));
}

/* exp(x) by 2^k exp(r), |r| <= ln(2) / 2, and Taylor's polynomial of exp(r). NaN remains NaN: its bits are x's, since
   the sum of bits would carry those of a payload into sign and exponent. */
INLINE vector exponential(vector x) {
    static const double factorial[] = {1,    1,     2,      6,       24,       120,       720,
                                       5040, 40320, 362880, 3628800, 39916800, 479001600, 6227020800.};
    const real round = (real)1.5 * ((place)1 << MANTISSA); /* adding it rounds to an integer, in the last bits */
    const real ln2_high = MANTISSA == 23 ? (real)0.693359375 : (real)6.93147180369123816490e-01;
    const real ln2_low = MANTISSA == 23 ? (real)-2.12194440e-4 : (real)1.90821492927058770002e-10;
    const mask number = x == x;
    const vector given = x;
    x = -least(-least(x, LARGEST), LARGEST);
    vector shifted = x * (real)1.44269504088896340736 + round;
    vector k = shifted - round;
    vector r = x - k * ln2_high - k * ln2_low;
    vector sum = (real)(1 / factorial[DEGREE]) + (vector){0};
    UNROLL for (int i = DEGREE - 1; i >= 0; i--) sum = sum * r + (real)(1 / factorial[i]);
    return (vector)((((mask)sum + ((mask)shifted << MANTISSA)) & number) | ((mask)given & ~number));
}
