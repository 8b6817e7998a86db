/* The steps of a GRU or LSTM layer over all texts of a batch, forward and backward (engine native).

   models/native.py calls these functions, and has the same sums in torch's operations as models/steps.py.

   A row is one text at one step of one lane (a direction of a client). Rows are ordered by step, lane and text
   (models/packing.py); in the arrays from which weight gradients are computed by lane, step and text. Each element of
   a product is summed in ascending order, whatever tile it falls into: results do not depend on the other texts and
   lanes.

   Legend: T steps, L lanes, B texts of a step, H hidden units, G gates (3H or 4H), S rows of a lane, P = L x S rows,
   N projected inputs. */

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

/* exp(x) by 2^k exp(r), |r| <= ln(2) / 2, and Taylor's polynomial of exp(r). NaN remains NaN. */
INLINE vector exponential(vector x) {
    static const double factorial[] = {1,    1,     2,      6,       24,       120,       720,
                                       5040, 40320, 362880, 3628800, 39916800, 479001600, 6227020800.};
    const real round = (real)1.5 * ((place)1 << MANTISSA); /* adding it rounds to an integer, in the last bits */
    const real ln2_high = MANTISSA == 23 ? (real)0.693359375 : (real)6.93147180369123816490e-01;
    const real ln2_low = MANTISSA == 23 ? (real)-2.12194440e-4 : (real)1.90821492927058770002e-10;
    x = -least(-least(x, LARGEST), LARGEST);
    vector shifted = x * (real)1.44269504088896340736 + round;
    vector k = shifted - round;
    vector r = x - k * ln2_high - k * ln2_low;
    vector sum = (real)(1 / factorial[DEGREE]) + (vector){0};
    UNROLL for (int i = DEGREE - 1; i >= 0; i--) sum = sum * r + (real)(1 / factorial[i]);
    return (vector)((mask)sum + ((mask)shifted << MANTISSA));
}

INLINE vector sigmoid(vector x) { return 1 / (1 + exponential(-x)); }

INLINE vector vector_tanh(vector x) { return 1 - 2 / (1 + exponential(2 * x)); }

/* sums_MN += left_MK times right_KN, of any strides; memory: DEPTH x (N + LANES). */
void product(place rows, place depth, place columns, const real *left, place stride, place next, const real *right,
             place down, place across, real *memory, real *sums) {
    for (place k = 0, step; k < depth; k += step) {
        step = depth - k < DEPTH ? depth - k : DEPTH;
        pack(memory, right + k * down, step, 1, 0, columns, down, across);
        multiply(rows, step, left + k * next, stride, next, memory, sums, columns);
    }
}

/* One text's gates from its sums, which are those of the parts side by side; `before` is null at the first step. */
static void gru_text(place width, const real *sums, const real *input, const real *before, real *gates,
                     real *hidden) {
    place padded = whole_vectors(width);
    for (place u = 0; u < width; u += LANES) {
        vector r = sigmoid(load(sums + u, LANES)), z = sigmoid(load(sums + padded + u, LANES));
        vector recurrent = load(sums + 2 * padded + u, LANES), state = {0};
        vector n = vector_tanh(load(input + 2 * width + u, width - u) + r * recurrent);
        if (before) state = load(before + u, width - u);
        store(gates + u, r, width - u);
        store(gates + width + u, z, width - u);
        store(gates + 2 * width + u, recurrent, width - u);
        store(gates + 3 * width + u, n, width - u);
        store(hidden + u, n + z * (state - n), width - u);
    }
}

static void lstm_text(place width, const real *sums, const real *before, real *gates, real *cell, real *squashed,
                      real *hidden) {
    place padded = whole_vectors(width);
    for (place u = 0; u < width; u += LANES) {
        vector i = sigmoid(load(sums + u, LANES)), f = sigmoid(load(sums + padded + u, LANES));
        vector o = sigmoid(load(sums + 2 * padded + u, LANES));
        vector g = vector_tanh(load(sums + 3 * padded + u, LANES)), c = i * g;
        if (before) c += f * load(before + u, width - u);
        vector tanh_c = vector_tanh(c);
        store(gates + u, i, width - u);
        store(gates + width + u, f, width - u);
        store(gates + 2 * width + u, o, width - u);
        store(gates + 3 * width + u, g, width - u);
        store(cell + u, c, width - u);
        store(squashed + u, tanh_c, width - u);
        store(hidden + u, o * tanh_c, width - u);
    }
}

/* One text's gradients. `sums` is the gradient of its state by way of the next step's gates, `kept` that without a
   product (of a GRU's state, of an LSTM's cell): both zero after the last step. */
static void gru_text_back(place width, const real *sums, const real *grad, const real *gates, const real *before,
                          real *kept, real *grad_input, real *grad_gates) {
    for (place u = 0; u < width; u += LANES) {
        place left = width - u;
        vector r = load(gates + u, left), z = load(gates + width + u, left), state = {0};
        vector recurrent = load(gates + 2 * width + u, left), n = load(gates + 3 * width + u, left);
        if (before) state = load(before + u, left);
        vector dh = load(grad + u, left) + load(kept + u, left) + load(sums + u, LANES);
        vector dn = dh * (1 - n * n) * (1 - z), dr = dn * recurrent * r * (1 - r);
        vector dz = dh * (state - n) * z * (1 - z);
        store(kept + u, dh * z, left);
        store(grad_gates + u, dr, left);
        store(grad_gates + width + u, dz, left);
        store(grad_gates + 2 * width + u, dn * r, left);
        add(grad_input + u, dr, left);
        add(grad_input + width + u, dz, left);
        add(grad_input + 2 * width + u, dn, left);
    }
}

static void lstm_text_back(place width, const real *sums, const real *grad, const real *gates, const real *before,
                           const real *squashed, real *kept, real *grad_input, real *grad_gates) {
    for (place u = 0; u < width; u += LANES) {
        place left = width - u;
        vector i = load(gates + u, left), f = load(gates + width + u, left), cell = {0};
        vector o = load(gates + 2 * width + u, left), g = load(gates + 3 * width + u, left);
        vector tanh_c = load(squashed + u, left);
        if (before) cell = load(before + u, left);
        vector dh = load(grad + u, left) + load(sums + u, LANES);
        vector dc = load(kept + u, left) + dh * o * (1 - tanh_c * tanh_c);
        vector grads[4] = {dc * g * i * (1 - i), dc * cell * f * (1 - f), dh * tanh_c * o * (1 - o),
                           dc * i * (1 - g * g)};
        store(kept + u, dc * f, left);
        UNROLL for (int gate = 0; gate < 4; gate++) {
            store(grad_gates + gate * width + u, grads[gate], left);
            add(grad_input + gate * width + u, grads[gate], left);
        }
    }
}

/* The number of elements of `memory` in the functions below: the weights of a lane in panels, the sums of a step, and
   what the backward pass keeps from step to step. */
place memory(place parts, place width, place texts) {
    place states = whole_vectors(width), columns = parts * states, depth = parts * width;
    place forward = columns * (width + texts), backward = states * (depth + texts) + width * texts;
    return forward > backward ? forward : backward;
}

/* Compute the states of a layer: of a GRU with 3 parts (r, z, n), of an LSTM with 4 (i, f, o, g).

   starts: T + 1 numbers, the texts of all earlier steps; source: for each row the row of inputs_NG that it takes;
   weight_LGH; memory: see above; bias_LH: that of a GRU's recurrent n. Outputs: gates_P4H (of a GRU r, z, the
   recurrent part of n, and n), hidden_PH, and of an LSTM the cells and their tanh, both P x H. */
void forward(place parts, place steps, const place *starts, place lanes, place width, const place *source,
             const real *weight, real *memory, const real *inputs, const real *bias, real *gates, real *hidden,
             real *cell, real *squashed) {
    place padded = whole_vectors(width), columns = parts * padded;
    real *panels = memory, *sums = memory + columns * width;
    memset(sums, 0, starts[1] * columns * sizeof(real));
    for (place lane = 0; lane < lanes; lane++) {
        pack(panels, weight + lane * parts * width * width, width, parts, width * width, width, 1, width);
        for (place step = 0, before = 0; step < steps; step++) {
            place size = starts[step + 1] - starts[step], first = lanes * starts[step] + lane * size;
            for (place text = 0; text < size; text++)
                for (place part = 0; part < parts; part++) {
                    const real *from = inputs + source[first + text] * parts * width + part * width;
                    if (parts == 3 && part == 2)
                        from = bias + lane * width; /* the input of n is not a recurrent part */
                    memcpy(sums + text * columns + part * padded, from, width * sizeof(real));
                }
            if (step) multiply(size, width, hidden + before * width, width, 1, panels, sums, columns);
            for (place text = 0, row = first; text < size; text++, row++) {
                real *sum = sums + text * columns, *to = gates + row * 4 * width;
                place back = (before + text) * width;
                if (parts == 3)
                    gru_text(width, sum, inputs + source[row] * 3 * width, step ? hidden + back : 0, to,
                             hidden + row * width);
                else
                    lstm_text(width, sum, step ? cell + back : 0, to, cell + row * width, squashed + row * width,
                              hidden + row * width);
            }
            before = first;
        }
    }
}

/* Compute the gradients of a layer from those of its states, grad_PH. Outputs: grad_inputs_NG, to which is added;
   grad_gates_LSG, the gradients of the recurrent products; before_LSH, the states one step earlier. */
void backward(place parts, place steps, const place *starts, place lanes, place width, const place *source,
              const real *weight, real *memory, const real *grad, const real *gates, const real *hidden,
              const real *cell, const real *squashed, real *grad_inputs, real *grad_gates, real *before_S) {
    place columns = whole_vectors(width), depth = parts * width, texts = starts[1];
    real *panels = memory, *sums = panels + columns * depth, *kept = sums + columns * texts;
    for (place lane = 0; lane < lanes; lane++) {
        place later = 0, in_lane = lane * starts[steps];
        memset(kept, 0, texts * width * sizeof(real));
        pack(panels, weight + lane * depth * width, depth, 1, 0, width, width, 1);
        for (place step = steps - 1; step >= 0; step--) {
            place size = starts[step + 1] - starts[step], first = lanes * starts[step] + lane * size;
            place earlier = step ? starts[step] - starts[step - 1] : 0;
            place before = step ? lanes * starts[step - 1] + lane * earlier : 0;
            memset(sums, 0, size * columns * sizeof(real));
            multiply(later, depth, grad_gates + (in_lane + starts[step + 1]) * depth, depth, 1, panels, sums,
                     columns);
            for (place text = 0, row = first; text < size; text++, row++) {
                place at = in_lane + starts[step] + text, back = (before + text) * width;
                real *grad_input = grad_inputs + source[row] * depth;
                if (step) memcpy(before_S + at * width, hidden + back, width * sizeof(real));
                else memset(before_S + at * width, 0, width * sizeof(real));
                if (parts == 3)
                    gru_text_back(width, sums + text * columns, grad + row * width, gates + row * 4 * width,
                                  step ? hidden + back : 0, kept + text * width, grad_input, grad_gates + at * depth);
                else
                    lstm_text_back(width, sums + text * columns, grad + row * width, gates + row * 4 * width,
                                   step ? cell + back : 0, squashed + row * width, kept + text * width, grad_input,
                                   grad_gates + at * depth);
            }
            later = size;
        }
    }
}
