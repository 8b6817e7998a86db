/* Pseudo-random choices for dropout: each depends on its place and a key alone. */

#pragma once

#include "products.h"

typedef uint32_t drawn __attribute__((vector_size(4 * LANES)));
typedef int32_t chosen __attribute__((vector_size(4 * LANES)));

INLINE drawn mixed(drawn bits) {
    bits = (bits ^ bits >> 16) * 0x7feb352du;
    bits = (bits ^ bits >> 15) * 0x846ca68bu;
    return bits ^ bits >> 16;
}

/* The 32 bits of so many places from the first one on: the place and the key, mixed twice (C. Wellons' function). */
INLINE drawn draw(place first, uint64_t key) {
    drawn places;
    for (int lane = 0; lane < LANES; lane++) places[lane] = (uint32_t)(first + lane);
    return mixed(mixed(places ^ (uint32_t)key) + (uint32_t)(key >> 32));
}

/* The numbers at so many places whose draws are at least `limit`, and 0 for the others. */
INLINE vector left_over(place first, uint64_t key, uint64_t limit, vector values) {
    mask kept = __builtin_convertvector((chosen)(draw(first, key) >= (uint32_t)limit), mask);
    return (vector)((mask)values & kept);
}
