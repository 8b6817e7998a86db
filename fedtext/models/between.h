/* What a block of a transformer computes between its products, forward and backward (engine native).

   Legend: S tokens, D width. */

#pragma once

#include <math.h>

#include "draws.h"
#include "exponential.h"
#include "sums.h"

enum { EXACT, TANH }; /* kinds of GELU */

INLINE vector positive_or(vector test, vector yes, vector no) {
    mask positive = test > 0;
    return (vector)(((mask)yes & positive) | ((mask)no & ~positive));
}

/* The normal distribution's function and density at x. In 32 bits the former is, on either side, exp(-x^2 / 2) times a
   polynomial of 1 / (1 + 0.4 |x|), which was fitted: |x| times its error is at most 1.2e-9. */
INLINE void normal_distribution(vector x, vector *below, vector *density) {
    const real scale = (real)0.39894228040143267794;
#if REAL_BITS == 32
    static const float factors[] = {0.158857099f, 0.166039004f,  0.113943949f, 0.0946225171f,
                                    0.097843932f, -0.243663238f, 0.139996214f, -0.0276394805f};
    vector size = positive_or(x, x, -x), near = 1 / (1 + (real)0.4 * size), sum = factors[7] + (vector){0};
    vector falling = exponential((real)-0.5 * x * x);
    UNROLL for (int i = 6; i >= 0; i--) sum = sum * near + factors[i];
    vector tail = falling * (sum * near);
    *below = positive_or(x, 1 - tail, tail);
    *density = falling * scale;
#else
    for (int lane = 0; lane < LANES; lane++) {
        (*below)[lane] = 0.5 * erfc(-x[lane] * 0.70710678118654752440);
        (*density)[lane] = exp(-0.5 * x[lane] * x[lane]) * scale;
    }
#endif
}

/* What x is multiplied by (Hendrycks & Gimpel 2016), exact or by its approximation, and that factor's derivative. */
INLINE vector gelu_factor(int kind, vector x, vector *slope) {
    if (kind == EXACT) {
        vector below;
        normal_distribution(x, &below, slope);
        return below;
    }
    const real scale = (real)1.59576912160573071176, cube = (real)0.044715; /* the former is 2 sqrt(2 / pi) */
    vector square = x * x, falling = exponential(-scale * (x * (1 + cube * square))), factor = 1 / (1 + falling);
    *slope = falling * factor * factor * (scale * (1 + 3 * cube * square)); /* 1 - factor would lose digits */
    return factor;
}

/* GELU of `values`, which are replaced by its derivative at them. */
void gelu(place kind, place count, real *values, real *outputs) {
    vector slope;
    for (place i = 0; i < count; i += LANES) {
        vector x = load(values + i, count - i), factor = gelu_factor((int)kind, x, &slope);
        store(outputs + i, x * factor, count - i);
        store(values + i, factor + x * slope, count - i);
    }
}

/* LayerNorm (Ba et al. 2016): outputs_SD, and what its gradient needs, the normalized numbers_SD and the factor of each
   row. */
void normalize(place rows, place width, const real *inputs, const real *weight, const real *bias, double least_variance,
               real *normal, real *factors, real *outputs) {
    for (place row = 0; row < rows; row++, inputs += width, normal += width, outputs += width) {
        real part[SUMS] = {0}, mean;
        place i = 0;
        for (; i + SUMS <= width; i += SUMS)
            for (int lane = 0; lane < SUMS; lane++) part[lane] += inputs[i + lane];
        for (int lane = 0; i < width; i++, lane++) part[lane] += inputs[i];
        mean = sum_of(part) / width;
        for (i = 0; i < width; i++) normal[i] = inputs[i] - mean;
        factors[row] = (real)(1 / sqrt((double)total(normal, normal, width) / width + least_variance));
        for (i = 0; i < width; i++) {
            normal[i] *= factors[row];
            outputs[i] = normal[i] * weight[i] + bias[i];
        }
    }
}

/* Replace the gradients of outputs by those of inputs. */
void normalize_back(place rows, place width, const real *normal, const real *factors, const real *weight, real *grads) {
    for (place row = 0; row < rows; row++, normal += width, grads += width) {
        real along = total(grads, weight, width) / width, across;
        for (place i = 0; i < width; i++) grads[i] *= weight[i];
        across = total(grads, normal, width) / width;
        for (place i = 0; i < width; i++) grads[i] = factors[row] * (grads[i] - along - normal[i] * across);
    }
}

/* outputs = start + share * values where dropout leaves them, and elsewhere start, which may be null: 0. */
void add_dropped(place count, uint64_t key, uint64_t limit, double share, const real *values, const real *start,
                 real *outputs) {
    for (place i = 0; i < count; i += LANES) {
        vector value = left_over(i, key, limit, load(values + i, count - i));
        vector from = start ? load(start + i, count - i) : (vector){0};
        store(outputs + i, fused((real)share, value, from), count - i);
    }
}
