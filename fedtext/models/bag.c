/* Sums of table rows over the words of a text, and their gradient (engine native; models/bag.py).

   Legend: B texts, S words of all texts, D columns, V rows of the table. */

#include "../runtime/numbers.h"

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
