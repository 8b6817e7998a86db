/* Fully connected layers with ReLU between them, and the loss of a classifier (models/bag.c, models/head.c,
   methods/kteps.c).

   Legend: B rows; widths: of the input and of each layer's output; I, O: the widths of a layer. Parameters, and their
   gradients, are the addresses of each layer's weight_OI and bias_O in turn. Memory is that of the largest product. */

#include <math.h>

#include "products.h"

#if REAL_BITS == 32
#define EXP expf
#else
#define EXP exp
#endif

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

/* Replace logits by the gradient of the mean cross-entropy, and return that. A single unit z stands for the logits 0
   and z of two classes. */
static inline double cross_entropy(place texts, place outputs, const place *labels, real *logits) {
    double loss = 0;
    for (place text = 0; text < texts; text++, logits += outputs) {
        double z = logits[0], most = z, sum = 0;
        if (outputs == 1) {
            double both = log1p(exp(-fabs(z))) + (z > 0 ? z : 0); /* log(1 + exp(z)) */
            loss += labels[text] ? both - z : both;
            logits[0] = (real)((exp(z - both) - (labels[text] != 0)) / texts);
            continue;
        }
        for (place i = 1; i < outputs; i++) most = logits[i] > most ? logits[i] : most;
        for (place i = 0; i < outputs; i++) sum += EXP(logits[i] - (real)most);
        loss += log(sum) + most - logits[labels[text]];
        for (place i = 0; i < outputs; i++)
            logits[i] = (real)((EXP(logits[i] - (real)most) / sum - (i == labels[text])) / texts);
    }
    return loss / texts;
}

/* The elements of memory that `head_loss` needs. */
static place head_memory(place texts, place layers, const place *widths) {
    place each = hidden_widths(layers, widths) + widths[layers] + 2 * widest(layers, widths);
    return product_memory(widest(layers, widths)) + texts * each;
}

/* Mean cross-entropy of `layers` dense layers, which may be none, on features_BF. The gradients of features and
   parameters are added, unless `grads` is null. */
static inline double head_loss(place texts, place layers, const place *widths, const real *features,
                               real *const *parameters, const place *labels, real *memory, real *grad_features,
                               real *const *grads) {
    place outputs = widths[layers];
    real *logits = memory + product_memory(widest(layers, widths)), *hidden = logits + texts * outputs;
    real *scratch = hidden + texts * hidden_widths(layers, widths);
    if (layers) dense_forward(layers, texts, widths, features, parameters, memory, hidden, logits);
    else memcpy(logits, features, texts * outputs * sizeof(real));
    double found = cross_entropy(texts, outputs, labels, logits);
    for (place i = 0; grads && !layers && i < texts * outputs; i++) grad_features[i] += logits[i];
    if (grads && layers)
        dense_backward(layers, texts, widths, features, scratch, logits, parameters, grads, memory, scratch,
                       grad_features);
    return found;
}
