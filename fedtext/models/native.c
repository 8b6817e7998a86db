/* A GRU or LSTM layer over all texts of a batch, forward and backward (engine native).

   models/native.py calls these functions; models/cells.py has the same sums in torch's operations.

   A row is one text at one step of one lane (a direction of a client). Rows are ordered by step, lane and text
   (models/packing.py); in the arrays from which weight gradients are computed by lane, step and text. Each element of
   a product is summed in ascending order, whatever tile it falls into: results do not depend on the other texts and
   lanes.

   Legend: T steps, L lanes, B texts of a step, H hidden units, G gates (3H or 4H), S rows of a lane, P = L x S rows,
   N projected inputs. */

#include "exponential.h"

INLINE vector sigmoid(vector x) { return 1 / (1 + exponential(-x)); }

INLINE vector vector_tanh(vector x) { return 1 - 2 / (1 + exponential(2 * x)); }

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
        vector g = vector_tanh(load(sums + 2 * padded + u, LANES)), c = i * g;
        vector o = sigmoid(load(sums + 3 * padded + u, LANES));
        if (before) c += f * load(before + u, width - u);
        vector tanh_c = vector_tanh(c);
        store(gates + u, i, width - u);
        store(gates + width + u, f, width - u);
        store(gates + 2 * width + u, g, width - u);
        store(gates + 3 * width + u, o, width - u);
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
        vector g = load(gates + 2 * width + u, left), o = load(gates + 3 * width + u, left);
        vector tanh_c = load(squashed + u, left);
        if (before) cell = load(before + u, left);
        vector dh = load(grad + u, left) + load(sums + u, LANES);
        vector dc = load(kept + u, left) + dh * o * (1 - tanh_c * tanh_c);
        vector grads[4] = {dc * g * i * (1 - i), dc * cell * f * (1 - f), dc * i * (1 - g * g),
                           dh * tanh_c * o * (1 - o)};
        store(kept + u, dc * f, left);
        UNROLL for (int gate = 0; gate < 4; gate++) {
            store(grad_gates + gate * width + u, grads[gate], left);
            add(grad_input + gate * width + u, grads[gate], left);
        }
    }
}

/* A layer, and the batch's texts. Lanes are ordered by client, then direction. `weights` has of each lane those of its
   inputs (G x I) and of its states (G x H), and the biases of both (G), in torch's order of gates. `starts` are T + 1
   numbers: the texts of all earlier steps. `source` is the input of each row: one of (client, input, direction). */
typedef struct {
    place parts, steps, lanes, directions, width, inputs, depth; /* parts: of G, 3 or 4; inputs of a client; depth: I */
    const place *starts, *source, *order, *lengths;              /* order: the texts of a client, longest first */
    const real *const *weights;
} layer;

/* The elements of `memory` in the functions below: the weights of a lane in panels, the sums of a step, and what the
   backward pass keeps from step to step, with the gradient of the texts' means. */
place memory(const layer *of) {
    place states = whole_vectors(of->width), columns = of->parts * states, depth = of->parts * of->width;
    place texts = of->starts[1], forward = columns * (of->width + texts);
    place backward = states * (depth + texts) + of->width * (2 * texts + 1);
    place widest = depth > of->depth ? depth : of->depth, most = product_memory(widest);
    most = most > forward ? most : forward;
    return most > backward ? most : backward;
}

/* Project every input of a lane's client, into projected_NG at the places of the lane. */
static void project(const layer *of, place lane, const real *inputs, real *memory, real *projected) {
    place client = lane / of->directions, gates = of->parts * of->width, pitch = of->directions * gates;
    const real *const *weights = of->weights + lane * 4;
    place both = of->parts == 4 ? gates : 2 * of->width; /* the reset gate scales the recurrent bias of a GRU's n */
    real *bias = projected + (client * of->inputs * of->directions + lane % of->directions) * gates;
    for (place i = 0; i < gates; i++) bias[i] = weights[2][i] + (i < both ? weights[3][i] : 0);
    for (place n = 1; n < of->inputs; n++) memcpy(bias + n * pitch, bias, gates * sizeof(real));
    add_product(of->inputs, of->depth, gates, inputs + client * of->inputs * of->depth, of->depth, 1, weights[0], 1,
                of->depth, memory, bias, pitch);
}

/* Compute the states of a layer: of a GRU with 3 parts (r, z, n), of an LSTM with 4 (i, f, g, o).

   Outputs: projected_NG; gates_P4H (of a GRU r, z, the recurrent part of n, and n); hidden_PH; of an LSTM the cells and
   their tanh, both P x H; and unless it is null means_BF, of each text's states. */
void forward(const layer *of, const real *inputs, real *memory, real *projected, real *gates, real *hidden, real *cell,
             real *squashed, real *means) {
    const place parts = of->parts, width = of->width, lanes = of->lanes, texts = of->starts[1];
    place padded = whole_vectors(width), columns = parts * padded;
    real *panels = memory, *sums = memory + columns * width;
    for (place lane = 0; lane < lanes; lane++) {
        const real *const *weights = of->weights + lane * 4;
        place client = lane / of->directions, features = of->directions * width;
        real *mean = means ? means + client * texts * features + lane % of->directions * width : 0;
        project(of, lane, inputs, memory, projected);
        memset(sums, 0, texts * columns * sizeof(real));
        pack(panels, weights[1], width, parts, width * width, width, 1, width);
        for (place text = 0; mean && text < texts; text++) memset(mean + text * features, 0, width * sizeof(real));
        for (place step = 0, before = 0; step < of->steps; step++) {
            place size = of->starts[step + 1] - of->starts[step], first = lanes * of->starts[step] + lane * size;
            for (place text = 0; text < size; text++)
                for (place part = 0; part < parts; part++) {
                    const real *from = projected + of->source[first + text] * parts * width + part * width;
                    if (parts == 3 && part == 2) from = weights[3] + 2 * width; /* n's input is not a recurrent part */
                    memcpy(sums + text * columns + part * padded, from, width * sizeof(real));
                }
            if (step) multiply(size, width, hidden + before * width, width, 1, panels, sums, columns, columns);
            for (place text = 0, row = first; text < size; text++, row++) {
                real *sum = sums + text * columns, *to = gates + row * 4 * width;
                place back = (before + text) * width, which = client * texts + of->order[client * texts + text];
                if (parts == 3)
                    gru_text(width, sum, projected + of->source[row] * 3 * width, step ? hidden + back : 0, to,
                             hidden + row * width);
                else
                    lstm_text(width, sum, step ? cell + back : 0, to, cell + row * width, squashed + row * width,
                              hidden + row * width);
                if (mean && step < of->lengths[which]) /* it is no padding */
                    for (place i = 0; i < width; i++)
                        mean[(which - client * texts) * features + i] += hidden[row * width + i];
            }
            before = first;
        }
        for (place text = 0; mean && text < texts; text++)
            for (place i = 0; i < width; i++) mean[text * features + i] /= of->lengths[client * texts + text];
    }
}

/* Compute a lane's gradients, all of which are added to what is there, from those of the recurrent products and of the
   projections. `grads` are those of its weights, in their order; grad_inputs may be null. */
static void weight_gradients(const layer *of, place lane, const real *inputs, const real *grad_projected,
                             const real *grad_gates, const real *before, real *memory, real *grad_inputs,
                             real *const *grads) {
    const place width = of->width, gates = of->parts * width, rows = of->starts[of->steps], depth = of->depth;
    place offset = lane / of->directions * of->inputs, pitch = of->directions * gates;
    grad_projected += (offset * of->directions + lane % of->directions) * gates;
    add_product(gates, of->inputs, depth, grad_projected, 1, pitch, inputs + offset * depth, depth, 1, memory, grads[0],
                depth);
    add_product(gates, rows, width, grad_gates, 1, gates, before, width, 1, memory, grads[1], width);
    for (place n = 0; n < of->inputs; n++)
        for (place i = 0; i < gates; i++) grads[2][i] += grad_projected[n * pitch + i];
    place both = of->parts == 4 ? gates : 2 * width;
    memcpy(grads[3], grads[2], both * sizeof(real));
    for (place row = 0; row < rows; row++)
        for (place i = both; i < gates; i++) grads[3][i] += grad_gates[row * gates + i];
    if (grad_inputs)
        add_product(of->inputs, gates, depth, grad_projected, pitch, 1, of->weights[lane * 4], depth, 1, memory,
                    grad_inputs + offset * depth, depth);
}

/* Compute the gradients of a layer from those of its states, grad_PH, or of the texts' means, grad_BF; the other is
   null. To all outputs is added: grad_projected_NG, grad_inputs (which may be null), and `grads`, those of the weights.
   Scratch: grad_gates_LSG, the gradients of the recurrent products, and before_LSH, the states one step earlier. */
void backward(const layer *of, const real *inputs, real *memory, const real *grad, const real *grad_means,
              const real *gates, const real *hidden, const real *cell, const real *squashed, real *grad_projected,
              real *grad_gates, real *before_S, real *grad_inputs, real *const *grads) {
    const place width = of->width, lanes = of->lanes, *starts = of->starts, texts = starts[1], steps = of->steps;
    place columns = whole_vectors(width), depth = of->parts * width, features = of->directions * width;
    real *panels = memory, *sums = panels + columns * depth, *kept = sums + columns * texts;
    real *share = kept + width * texts, *zeros = share + width * texts; /* share: of a lane's means */
    for (place lane = 0; lane < lanes; lane++) {
        place later = 0, in_lane = lane * starts[steps], client = lane / of->directions * texts;
        memset(kept, 0, texts * width * sizeof(real));
        memset(zeros, 0, width * sizeof(real));
        for (place text = 0; grad_means && text < texts; text++)
            for (place i = 0; i < width; i++)
                share[text * width + i] =
                    grad_means[(client + text) * features + lane % of->directions * width + i] / of->lengths[client + text];
        pack(panels, of->weights[lane * 4 + 1], depth, 1, 0, width, width, 1);
        for (place step = steps - 1; step >= 0; step--) {
            place size = starts[step + 1] - starts[step], first = lanes * starts[step] + lane * size;
            place earlier = step ? starts[step] - starts[step - 1] : 0;
            place before = step ? lanes * starts[step - 1] + lane * earlier : 0;
            memset(sums, 0, size * columns * sizeof(real));
            multiply(later, depth, grad_gates + (in_lane + starts[step + 1]) * depth, depth, 1, panels, sums, columns,
                     columns);
            for (place text = 0, row = first; text < size; text++, row++) {
                place at = in_lane + starts[step] + text, back = (before + text) * width;
                real *to = grad_projected + of->source[row] * depth;
                place which = of->order[client + text];
                const real *from = grad ? grad + row * width : zeros;
                if (grad_means && step < of->lengths[client + which]) from = share + which * width;
                if (step) memcpy(before_S + at * width, hidden + back, width * sizeof(real));
                else memset(before_S + at * width, 0, width * sizeof(real));
                if (of->parts == 3)
                    gru_text_back(width, sums + text * columns, from, gates + row * 4 * width, step ? hidden + back : 0,
                                  kept + text * width, to, grad_gates + at * depth);
                else
                    lstm_text_back(width, sums + text * columns, from, gates + row * 4 * width,
                                   step ? cell + back : 0, squashed + row * width, kept + text * width, to,
                                   grad_gates + at * depth);
            }
            later = size;
        }
        weight_gradients(of, lane, inputs, grad_projected, grad_gates + in_lane * depth, before_S + in_lane * width,
                         memory, grad_inputs, grads + lane * 4);
    }
}
