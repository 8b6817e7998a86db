/* The server's passes over whole models: adding up updates, and a step (server/native_sums.py).

   Each operation is rounded as numpy rounds it: none is joined with another one into one that rounds once
   (runtime/compiled.py compiles it so). */

#include <math.h>
#include <string.h>

#include "../runtime/numbers.h"

static const double ROUNDER = 1.5 * (1 << 14), FINEST = 0x1p-38; /* weighted_sum.py */

static inline __attribute__((always_inline)) int32_t add_all(place count, const float *delta, double share,
                                                             const int inward, double *sums) {
    int32_t most = 0; /* bits of the largest absolute value; those of NaN are larger still */
    for (place i = 0; i < count; i++) {
        int32_t bits;
        memcpy(&bits, &delta[i], sizeof bits);
        bits &= 0x7fffffff;
        most = bits > most ? bits : most;
        double part = delta[i] * share;
        if (inward) part = trunc(part * (1 / FINEST)) * FINEST;
        else part = part + ROUNDER - ROUNDER;
        sums[i] += part;
    }
    return most;
}

/* Add share * delta to sums: each of `count` parts of `width` numbers to the row of the sums that `rows` names, or if
   they are null one after the other. Returns the largest absolute value of delta, NaN if there is one. */
double add_parts(place count, place width, const int32_t *rows, const float *delta, double share, place inward,
                 double *sums) {
    int32_t most = 0;
    for (place part = 0; part < count; part++, delta += width) {
        double *to = sums + (rows ? rows[part] : part) * width;
        int32_t found = inward ? add_all(width, delta, share, 1, to) : add_all(width, delta, share, 0, to);
        most = found > most ? found : most;
    }
    float largest;
    memcpy(&largest, &most, sizeof largest);
    return largest;
}

/* moved = parameters + rate * change. */
void move(place count, const float *parameters, const double *change, double rate, float *moved) {
    for (place i = 0; i < count; i++) moved[i] = (float)(change[i] * rate + parameters[i]);
}
