/* Sums of table rows over the words of a text, their gradient, and the loss of a classifier on them (engine native;
   models/native_bag.py).

   Legend: B texts, S words of all texts, D columns, V rows of the table, C outputs of the last layer. */

#include "dense.h"

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

place loss_memory(place texts, place layers, const place *widths) {
    return 2 * texts * widths[0] + head_memory(texts, layers, widths);
}

/* Mean cross-entropy of dense layers on ReLU(sums + bias), and its gradients, all zero before. widths[0] is D, bias may
   be null, and without `relu` the sums are not cut. */
double loss(place texts, const place *lengths, const place *words, const real *values, const real *table,
            const real *bias, place relu, place layers, const place *widths, real *const *parameters,
            const place *labels, real *memory, real *grad_table, real *grad_bias, real *const *grads) {
    place columns = widths[0];
    real *first = memory, *grad_first = first + texts * columns;
    sums(texts, columns, lengths, words, values, table, first);
    for (place text = 0; text < texts && bias; text++)
        for (place i = 0; i < columns; i++) first[text * columns + i] += bias[i];
    for (place i = 0; relu && i < texts * columns; i++) first[i] = first[i] < 0 ? 0 : first[i];
    memset(grad_first, 0, texts * columns * sizeof(real));
    double found = head_loss(texts, layers, widths, first, parameters, labels, grad_first + texts * columns,
                             grads ? grad_first : 0, grads);
    if (!grads) return found;
    for (place i = 0; relu && i < texts * columns; i++) grad_first[i] = first[i] > 0 ? grad_first[i] : 0;
    for (place text = 0; text < texts && bias; text++)
        for (place i = 0; i < columns; i++) grad_bias[i] += grad_first[text * columns + i];
    if (grad_table) spread(texts, columns, lengths, words, values, grad_first, grad_table);
    return found;
}
