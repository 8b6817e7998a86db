/* The steps of a GRU or LSTM layer over all texts of a batch, forward and backward (engine native).

   models/native.py calls these functions, and has the same sums in torch's operations as models/steps.py. This file
   includes itself twice: for float and for double.

   A row is one text at one step of one lane (a direction of a client). Rows are ordered by step, lane and text
   (models/packing.py); in the arrays from which weight gradients are computed by lane, step and text. Each element of a
   product is summed in ascending order, whatever tile it falls into: results do not depend on the other texts and
   lanes.

   Legend: T steps, L lanes, B texts of a step, H hidden units, G gates (3H or 4H), S rows of a lane, P = L x S rows,
   N projected inputs. */

#ifndef REAL

#include <math.h>
#include <stdint.h>
#include <string.h>

#if defined(__AVX512F__)
#define BYTES 64 /* of a vector */
#elif defined(__AVX__)
#define BYTES 32
#else
#define BYTES 16
#endif
#if defined(__AVX512F__) || defined(__aarch64__) /* 32 vectors fit into registers, else 16 */
#define WIDTH 4 /* vectors of a panel of weights */
#else
#define WIDTH 2
#endif
#define ROWS 6    /* of a tile of sums, which stays in registers */
#define DEPTH 256 /* rows of the panels of a product, which stay in the caches */
#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 16")

typedef int64_t place;

#define REAL float
#define BITS int32_t
#define NAME(name) name##_float
#define MANTISSA 23
#define LARGEST 87.0f
#define DEGREE 7
#include "native.c"
#undef REAL
#undef BITS
#undef NAME
#undef MANTISSA
#undef LARGEST
#undef DEGREE

#define REAL double
#define BITS int64_t
#define NAME(name) name##_double
#define MANTISSA 52
#define LARGEST 708.0
#define DEGREE 13
#include "native.c"

#else

#define LANES ((place)(BYTES / sizeof(REAL))) /* numbers in a vector */
#define PANEL (WIDTH * LANES)
typedef REAL NAME(vector) __attribute__((vector_size(BYTES)));
typedef BITS NAME(bits) __attribute__((vector_size(BYTES)));
#define VECTOR NAME(vector)
#define MASK NAME(bits)

/* Vectors at any address; at the end of a row only the `count` numbers that are there. */
static __attribute__((noinline)) VECTOR NAME(load_part)(const REAL *from, place count) {
    VECTOR value = {0};
    for (place i = 0; i < count; i++) value[i] = from[i];
    return value;
}

static __attribute__((noinline)) void NAME(store_part)(REAL *to, VECTOR value, place count) {
    for (place i = 0; i < count; i++) to[i] = value[i];
}

INLINE VECTOR NAME(load)(const REAL *from, place count) {
    VECTOR value;
    if (count < LANES) return NAME(load_part)(from, count);
    memcpy(&value, from, BYTES);
    return value;
}

INLINE void NAME(store)(REAL *to, VECTOR value, place count) {
    if (count < LANES) NAME(store_part)(to, value, count);
    else memcpy(to, &value, BYTES);
}

INLINE void NAME(add)(REAL *to, VECTOR value, place count) {
    NAME(store)(to, NAME(load)(to, count) + value, count);
}

INLINE VECTOR NAME(least)(VECTOR value, REAL bound) {
    MASK beyond = value > bound;
    return (VECTOR)(((MASK)(bound - (VECTOR){0}) & beyond) | ((MASK)value & ~beyond));
}

/* exp(x) by 2^k exp(r), |r| <= ln(2) / 2, and Taylor's polynomial of exp(r). NaN remains NaN. */
INLINE VECTOR NAME(exponential)(VECTOR x) {
    static const double factorial[] = {1, 1, 2, 6, 24, 120, 720, 5040, 40320, 362880, 3628800, 39916800, 479001600,
                                       6227020800.};
    const REAL round = (REAL)1.5 * ((place)1 << MANTISSA); /* adding it rounds to an integer, in the last bits */
    const REAL ln2_high = MANTISSA == 23 ? (REAL)0.693359375 : (REAL)6.93147180369123816490e-01;
    const REAL ln2_low = MANTISSA == 23 ? (REAL)-2.12194440e-4 : (REAL)1.90821492927058770002e-10;
    x = -NAME(least)(-NAME(least)(x, LARGEST), LARGEST);
    VECTOR shifted = x * (REAL)1.44269504088896340736 + round;
    VECTOR k = shifted - round;
    VECTOR r = x - k * ln2_high - k * ln2_low;
    VECTOR sum = (REAL)(1 / factorial[DEGREE]) + (VECTOR){0};
    UNROLL for (int i = DEGREE - 1; i >= 0; i--) sum = sum * r + (REAL)(1 / factorial[i]);
    return (VECTOR)((MASK)sum + ((MASK)shifted << MANTISSA));
}

INLINE VECTOR NAME(sigmoid)(VECTOR x) { return 1 / (1 + NAME(exponential)(-x)); }

INLINE VECTOR NAME(tanh)(VECTOR x) { return 1 - 2 / (1 + NAME(exponential)(2 * x)); }

static place NAME(padded)(place width) { return (width + LANES - 1) / LANES * LANES; }

/* Copy the right side of a product into panels of PANEL columns (the last may be narrower) and all `depth` rows: element
   (k, column) is from[k * down + column * across] of each part in turn, padded to whole vectors with zeros. */
static void NAME(pack)(REAL *panels, const REAL *from, place depth, place parts, place part, place width, place down,
                       place across) {
    place padded = NAME(padded)(width), columns = parts * padded;
    for (place first = 0, wide; first < columns; first += PANEL, panels += depth * wide) {
        wide = columns - first < PANEL ? columns - first : PANEL;
        for (place column = 0; column < wide; column++) {
            place unit = (first + column) % padded, there = unit < width;
            const REAL *source = from + (first + column) / padded * part + unit * across;
            for (place k = 0; k < depth; k++) panels[k * wide + column] = there ? source[k * down] : 0;
        }
    }
}

/* sums[row][column] += left[row][k] * panel[k][column], for k in ascending order, in the columns of a panel: so many
   `vectors`, the last of which has `last` columns. */
INLINE void NAME(tile)(const int rows, const int vectors, place depth, const REAL *left, place stride, place next,
                       const REAL *panel, REAL *sums, place columns, place last) {
    VECTOR tile[ROWS][WIDTH], weights[WIDTH];
    UNROLL for (int row = 0; row < rows; row++)
        UNROLL for (int v = 0; v < vectors; v++)
            tile[row][v] = NAME(load)(sums + row * columns + v * LANES, v + 1 < vectors ? LANES : last);
    for (place k = 0; k < depth; k++) {
        UNROLL for (int v = 0; v < vectors; v++) weights[v] = NAME(load)(panel + (k * vectors + v) * LANES, LANES);
        UNROLL for (int row = 0; row < rows; row++)
            UNROLL for (int v = 0; v < vectors; v++) tile[row][v] += left[row * stride + k * next] * weights[v];
    }
    UNROLL for (int row = 0; row < rows; row++)
        UNROLL for (int v = 0; v < vectors; v++)
            NAME(store)(sums + row * columns + v * LANES, tile[row][v], v + 1 < vectors ? LANES : last);
}

/* Add a product to `columns` columns of `sums`: left[row * stride + k * next], M x K, times the matrix in `panels`. */
static void NAME(multiply)(place rows, place depth, const REAL *left, place stride, place next, const REAL *panels,
                           REAL *sums, place columns) {
    place tiles = (rows + ROWS - 1) / ROWS; /* of nearly equal size */
    for (place first = 0, vectors; first < columns; first += PANEL, panels += depth * vectors * LANES) {
        place count = columns - first < PANEL ? columns - first : PANEL;
        vectors = NAME(padded)(count) / LANES;
        for (place row = 0, end, done = 1; row < rows; row = end, done++) {
            end = rows * done / tiles;
#define CASE(rows, vectors)                                                                                      \
    case rows * 8 + vectors:                                                                                     \
        NAME(tile)(rows, vectors, depth, left + row * stride, stride, next, panels, sums + row * columns + first, \
                   columns, count - (vectors - 1) * LANES);                                                                            \
        break;
#if WIDTH == 4
#define CASES(rows) CASE(rows, 1) CASE(rows, 2) CASE(rows, 3) CASE(rows, 4)
#else
#define CASES(rows) CASE(rows, 1) CASE(rows, 2)
#endif
            switch ((end - row) * 8 + vectors) { CASES(1) CASES(2) CASES(3) CASES(4) CASES(5) CASES(6) }
#undef CASE
#undef CASES
        }
    }
}

/* sums_MN += left_MK times right_KN, of any strides; memory: DEPTH x (N + LANES). */
void NAME(product)(place rows, place depth, place columns, const REAL *left, place stride, place next,
                   const REAL *right, place down, place across, REAL *memory, REAL *sums) {
    for (place k = 0, step; k < depth; k += step) {
        step = depth - k < DEPTH ? depth - k : DEPTH;
        NAME(pack)(memory, right + k * down, step, 1, 0, columns, down, across);
        NAME(multiply)(rows, step, left + k * next, stride, next, memory, sums, columns);
    }
}

/* One text's gates from its sums, which are those of the parts side by side; `before` is null at the first step. */
static void NAME(gru_text)(place width, const REAL *sums, const REAL *input, const REAL *before, REAL *gates,
                           REAL *hidden) {
    place padded = NAME(padded)(width);
    for (place u = 0; u < width; u += LANES) {
        VECTOR r = NAME(sigmoid)(NAME(load)(sums + u, LANES)), z = NAME(sigmoid)(NAME(load)(sums + padded + u, LANES));
        VECTOR recurrent = NAME(load)(sums + 2 * padded + u, LANES), state = {0};
        VECTOR n = NAME(tanh)(NAME(load)(input + 2 * width + u, width - u) + r * recurrent);
        if (before) state = NAME(load)(before + u, width - u);
        NAME(store)(gates + u, r, width - u);
        NAME(store)(gates + width + u, z, width - u);
        NAME(store)(gates + 2 * width + u, recurrent, width - u);
        NAME(store)(gates + 3 * width + u, n, width - u);
        NAME(store)(hidden + u, n + z * (state - n), width - u);
    }
}

static void NAME(lstm_text)(place width, const REAL *sums, const REAL *before, REAL *gates, REAL *cell, REAL *squashed,
                            REAL *hidden) {
    place padded = NAME(padded)(width);
    for (place u = 0; u < width; u += LANES) {
        VECTOR i = NAME(sigmoid)(NAME(load)(sums + u, LANES)), f = NAME(sigmoid)(NAME(load)(sums + padded + u, LANES));
        VECTOR o = NAME(sigmoid)(NAME(load)(sums + 2 * padded + u, LANES));
        VECTOR g = NAME(tanh)(NAME(load)(sums + 3 * padded + u, LANES)), c = i * g;
        if (before) c += f * NAME(load)(before + u, width - u);
        VECTOR tanh_c = NAME(tanh)(c);
        NAME(store)(gates + u, i, width - u);
        NAME(store)(gates + width + u, f, width - u);
        NAME(store)(gates + 2 * width + u, o, width - u);
        NAME(store)(gates + 3 * width + u, g, width - u);
        NAME(store)(cell + u, c, width - u);
        NAME(store)(squashed + u, tanh_c, width - u);
        NAME(store)(hidden + u, o * tanh_c, width - u);
    }
}

/* One text's gradients. `sums` is the gradient of its state by way of the next step's gates, `kept` that without a
   product (of a GRU's state, of an LSTM's cell): both zero after the last step. */
static void NAME(gru_text_back)(place width, const REAL *sums, const REAL *grad, const REAL *gates, const REAL *before,
                                REAL *kept, REAL *grad_input, REAL *grad_gates) {
    for (place u = 0; u < width; u += LANES) {
        place left = width - u;
        VECTOR r = NAME(load)(gates + u, left), z = NAME(load)(gates + width + u, left), state = {0};
        VECTOR recurrent = NAME(load)(gates + 2 * width + u, left), n = NAME(load)(gates + 3 * width + u, left);
        if (before) state = NAME(load)(before + u, left);
        VECTOR dh = NAME(load)(grad + u, left) + NAME(load)(kept + u, left) + NAME(load)(sums + u, LANES);
        VECTOR dn = dh * (1 - n * n) * (1 - z), dr = dn * recurrent * r * (1 - r);
        VECTOR dz = dh * (state - n) * z * (1 - z);
        NAME(store)(kept + u, dh * z, left);
        NAME(store)(grad_gates + u, dr, left);
        NAME(store)(grad_gates + width + u, dz, left);
        NAME(store)(grad_gates + 2 * width + u, dn * r, left);
        NAME(add)(grad_input + u, dr, left);
        NAME(add)(grad_input + width + u, dz, left);
        NAME(add)(grad_input + 2 * width + u, dn, left);
    }
}

static void NAME(lstm_text_back)(place width, const REAL *sums, const REAL *grad, const REAL *gates, const REAL *before,
                                 const REAL *squashed, REAL *kept, REAL *grad_input, REAL *grad_gates) {
    for (place u = 0; u < width; u += LANES) {
        place left = width - u;
        VECTOR i = NAME(load)(gates + u, left), f = NAME(load)(gates + width + u, left), cell = {0};
        VECTOR o = NAME(load)(gates + 2 * width + u, left), g = NAME(load)(gates + 3 * width + u, left);
        VECTOR tanh_c = NAME(load)(squashed + u, left);
        if (before) cell = NAME(load)(before + u, left);
        VECTOR dh = NAME(load)(grad + u, left) + NAME(load)(sums + u, LANES);
        VECTOR dc = NAME(load)(kept + u, left) + dh * o * (1 - tanh_c * tanh_c);
        VECTOR grads[4] = {dc * g * i * (1 - i), dc * cell * f * (1 - f), dh * tanh_c * o * (1 - o),
                           dc * i * (1 - g * g)};
        NAME(store)(kept + u, dc * f, left);
        UNROLL for (int gate = 0; gate < 4; gate++) {
            NAME(store)(grad_gates + gate * width + u, grads[gate], left);
            NAME(add)(grad_input + gate * width + u, grads[gate], left);
        }
    }
}

/* The number of elements of `memory` in the functions below: the weights of a lane in panels, the sums of a step, and
   what the backward pass keeps from step to step. */
place NAME(memory)(place parts, place width, place texts) {
    place states = NAME(padded)(width), columns = parts * states, depth = parts * width;
    place forward = columns * (width + texts), backward = states * (depth + texts) + width * texts;
    return forward > backward ? forward : backward;
}

/* Compute the states of a layer: of a GRU with 3 parts (r, z, n), of an LSTM with 4 (i, f, o, g).

   starts: T + 1 numbers, the texts of all earlier steps; source: for each row the row of inputs_NG that it takes;
   weight_LGH; memory: see above; bias_LH: that of a GRU's recurrent n. Outputs: gates_P4H (of a GRU r, z, the recurrent part of n, and n),
   hidden_PH, and of an LSTM the cells and their tanh, both P x H. */
void NAME(forward)(place parts, place steps, const place *starts, place lanes, place width, const place *source,
                   const REAL *weight, REAL *memory, const REAL *inputs, const REAL *bias, REAL *gates, REAL *hidden,
                   REAL *cell, REAL *squashed) {
    place padded = NAME(padded)(width), columns = parts * padded;
    REAL *panels = memory, *sums = memory + columns * width;
    memset(sums, 0, starts[1] * columns * sizeof(REAL));
    for (place lane = 0; lane < lanes; lane++) {
        NAME(pack)(panels, weight + lane * parts * width * width, width, parts, width * width, width, 1, width);
        for (place step = 0, before = 0; step < steps; step++) {
            place size = starts[step + 1] - starts[step], first = lanes * starts[step] + lane * size;
            for (place text = 0; text < size; text++)
                for (place part = 0; part < parts; part++) {
                    const REAL *from = inputs + source[first + text] * parts * width + part * width;
                    if (parts == 3 && part == 2) from = bias + lane * width; /* the input of n is not a recurrent part */
                    memcpy(sums + text * columns + part * padded, from, width * sizeof(REAL));
                }
            if (step) NAME(multiply)(size, width, hidden + before * width, width, 1, panels, sums, columns);
            for (place text = 0, row = first; text < size; text++, row++) {
                REAL *sum = sums + text * columns, *to = gates + row * 4 * width;
                place back = (before + text) * width;
                if (parts == 3)
                    NAME(gru_text)(width, sum, inputs + source[row] * 3 * width, step ? hidden + back : 0, to,
                                   hidden + row * width);
                else
                    NAME(lstm_text)(width, sum, step ? cell + back : 0, to, cell + row * width, squashed + row * width,
                                    hidden + row * width);
            }
            before = first;
        }
    }
}

/* Compute the gradients of a layer from those of its states, grad_PH. Outputs: grad_inputs_NG, to which is added;
   grad_gates_LSG, the gradients of the recurrent products; before_LSH, the states one step earlier. */
void NAME(backward)(place parts, place steps, const place *starts, place lanes, place width, const place *source,
                    const REAL *weight, REAL *memory, const REAL *grad, const REAL *gates, const REAL *hidden,
                    const REAL *cell, const REAL *squashed, REAL *grad_inputs, REAL *grad_gates, REAL *before_S) {
    place columns = NAME(padded)(width), depth = parts * width, texts = starts[1];
    REAL *panels = memory, *sums = panels + columns * depth, *kept = sums + columns * texts;
    for (place lane = 0; lane < lanes; lane++) {
        place later = 0, in_lane = lane * starts[steps];
        memset(kept, 0, texts * width * sizeof(REAL));
        NAME(pack)(panels, weight + lane * depth * width, depth, 1, 0, width, width, 1);
        for (place step = steps - 1; step >= 0; step--) {
            place size = starts[step + 1] - starts[step], first = lanes * starts[step] + lane * size;
            place earlier = step ? starts[step] - starts[step - 1] : 0;
            place before = step ? lanes * starts[step - 1] + lane * earlier : 0;
            memset(sums, 0, size * columns * sizeof(REAL));
            NAME(multiply)(later, depth, grad_gates + (in_lane + starts[step + 1]) * depth, depth, 1, panels, sums,
                           columns);
            for (place text = 0, row = first; text < size; text++, row++) {
                place at = in_lane + starts[step] + text, back = (before + text) * width;
                REAL *grad_input = grad_inputs + source[row] * depth;
                if (step) memcpy(before_S + at * width, hidden + back, width * sizeof(REAL));
                else memset(before_S + at * width, 0, width * sizeof(REAL));
                if (parts == 3)
                    NAME(gru_text_back)(width, sums + text * columns, grad + row * width, gates + row * 4 * width,
                                        step ? hidden + back : 0, kept + text * width, grad_input,
                                        grad_gates + at * depth);
                else
                    NAME(lstm_text_back)(width, sums + text * columns, grad + row * width, gates + row * 4 * width,
                                         step ? cell + back : 0, squashed + row * width, kept + text * width,
                                         grad_input, grad_gates + at * depth);
            }
            later = size;
        }
    }
}
#endif
