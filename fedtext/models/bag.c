/* Sums of table rows over the words of a text, their gradient, and the loss of a classifier on them (engine native;
   models/native_bag.py).

   Legend: B texts, S words of all texts, D columns, V rows of the table, C outputs of the last layer. */

#include <math.h>

#include "dense.h"

#if REAL_BITS == 32
#define EXP expf
#else
#define EXP exp
#endif

/* sums_BD: the rows of each text's words, each times its value; without values, the rows. */
void sums(place texts, place columns, const place *lengths, const place *words, const real *values, const real *table,
          real *restrict sums) {
    for (place text = 0; text < texts; text++, sums += columns) {
        for (place i = 0; i < columns; i++) sums[i] = 0;
        for (place left = lengths[text]; left > 0; left--, words++) {
            const real *row = table + *words * columns, value = values ? *values++ : 1;
            for (place i = 0; i < columns; i++) sums[i] += value * row[i];
        }
    }
}

/* grad_VD, to which is added: the gradient of a text's sum reaches the rows of its words, times their values. */
void spread(place texts, place columns, const place *lengths, const place *words, const real *values,
            const real *grad, real *restrict grad_table) {
    for (place text = 0; text < texts; text++, grad += columns)
        for (place left = lengths[text]; left > 0; left--, words++) {
            real *row = grad_table + *words * columns, value = values ? *values++ : 1;
            for (place i = 0; i < columns; i++) row[i] += value * grad[i];
        }
}

/* Replace logits by the gradient of the mean cross-entropy, and return that. A single unit z stands for the logits 0
   and z of two classes. */
static double cross_entropy(place texts, place outputs, const place *labels, real *logits) {
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

/* The elements of memory that `loss` needs, without those of its products, which come first. */
static place product_part(place layers, const place *widths) { return product_memory(widest(layers, widths)); }

place loss_memory(place texts, place layers, const place *widths) {
    place each = 2 * widths[0] + hidden_widths(layers, widths) + widths[layers] + 2 * widest(layers, widths);
    return product_part(layers, widths) + texts * each;
}

/* Mean cross-entropy of dense layers on ReLU(sums + bias), and its gradients, all zero before. widths[0] is D, bias may
   be null, and without `relu` the sums are not cut. */
double loss(place texts, const place *lengths, const place *words, const real *values, const real *table,
            const real *bias, place relu, place layers, const place *widths, real *const *parameters,
            const place *labels, real *memory, real *grad_table, real *grad_bias, real *const *grads) {
    place columns = widths[0], outputs = widths[layers];
    real *first = memory + product_part(layers, widths), *grad_first = first + texts * columns;
    real *logits = grad_first + texts * columns, *hidden = logits + texts * outputs;
    real *scratch = hidden + texts * hidden_widths(layers, widths);
    sums(texts, columns, lengths, words, values, table, first);
    for (place text = 0; text < texts && bias; text++)
        for (place i = 0; i < columns; i++) first[text * columns + i] += bias[i];
    for (place i = 0; relu && i < texts * columns; i++) first[i] = first[i] < 0 ? 0 : first[i];
    if (layers) dense_forward(layers, texts, widths, first, parameters, memory, hidden, logits);
    else memcpy(logits, first, texts * columns * sizeof(real));
    double found = cross_entropy(texts, outputs, labels, logits);
    if (!grads) return found;
    if (layers) memset(grad_first, 0, texts * columns * sizeof(real));
    else memcpy(grad_first, logits, texts * columns * sizeof(real));
    dense_backward(layers, texts, widths, first, scratch, logits, parameters, grads, memory, scratch, grad_first);
    for (place i = 0; relu && i < texts * columns; i++) grad_first[i] = first[i] > 0 ? grad_first[i] : 0;
    for (place text = 0; text < texts && bias; text++)
        for (place i = 0; i < columns; i++) grad_bias[i] += grad_first[text * columns + i];
    if (grad_table) spread(texts, columns, lengths, words, values, grad_first, grad_table);
    return found;
}
