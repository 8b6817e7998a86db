/* Fully connected layers with ReLU between them (models/bag.c, methods/kteps.c).

   Legend: B rows; widths: of the input and of each layer's output; I, O: the widths of a layer. Parameters, and their
   gradients, are the addresses of each layer's weight_OI and bias_O in turn. Memory is that of the largest product. */

#include "products.h"

static place widest(place layers, const place *widths) {
    place found = 0;
    for (place layer = 0; layer <= layers; layer++) found = widths[layer] > found ? widths[layer] : found;
    return found;
}

/* The numbers of the hidden layers of a row. */
static place hidden_widths(place layers, const place *widths) {
    place sum = 0;
    for (place layer = 1; layer < layers; layer++) sum += widths[layer];
    return sum;
}

/* hidden: the B x O numbers after ReLU of each layer but the last, in turn; outputs: those of the last. */
static void dense_forward(place layers, place rows, const place *widths, const real *input, real *const *parameters,
                          real *memory, real *hidden, real *outputs) {
    for (place layer = 0; layer < layers; layer++, parameters += 2) {
        place in = widths[layer], out = widths[layer + 1], last = layer + 1 == layers;
        real *to = last ? outputs : hidden;
        for (place row = 0; row < rows; row++) memcpy(to + row * out, parameters[1], out * sizeof(real));
        add_product(rows, in, out, input, in, 1, parameters[0], 1, in, memory, to, out);
        if (last) break;
        for (place i = 0; i < rows * out; i++) to[i] = to[i] < 0 ? 0 : to[i]; /* NaN stays */
        input = to;
        hidden += rows * out;
    }
}

/* From the gradient of the outputs to those of the parameters and the inputs, which are added. hidden: the end of what
   dense_forward wrote. scratch: twice B times the largest width. */
static void dense_backward(place layers, place rows, const place *widths, const real *inputs, const real *hidden,
                           const real *grad, real *const *parameters, real *const *grads, real *memory, real *scratch,
                           real *grad_inputs) {
    place size = rows * widest(layers, widths);
    for (place layer = layers - 1; layer >= 0; layer--) {
        place in = widths[layer], out = widths[layer + 1];
        const real *input = layer ? hidden -= rows * in : inputs;
        real *bias = grads[2 * layer + 1], *below = layer ? scratch + layer % 2 * size : grad_inputs;
        add_product(out, rows, in, grad, 1, out, input, in, 1, memory, grads[2 * layer], in);
        for (place row = 0; row < rows; row++)
            for (place i = 0; i < out; i++) bias[i] += grad[row * out + i];
        if (layer) memset(below, 0, rows * in * sizeof(real));
        add_product(rows, out, in, grad, out, 1, parameters[2 * layer], in, 1, memory, below, in);
        for (place i = 0; layer && i < rows * in; i++) below[i] = input[i] > 0 ? below[i] : 0;
        grad = below;
    }
}
