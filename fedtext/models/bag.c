/* Sums of table rows over the words of a text, and their gradient (engine native; models/bag.py).

   This file includes itself twice: for float and for double. Legend: B texts, S words of all texts, D columns, V rows of
   the table. */

#ifndef REAL

#include <stdint.h>

typedef int64_t place;

#define REAL float
#define NAME(name) name##_float
#include "bag.c"
#undef REAL
#undef NAME

#define REAL double
#define NAME(name) name##_double
#include "bag.c"

#else

/* sums_BD: the rows of each text's words, each times its value; without values, the rows. */
void NAME(sums)(place texts, place columns, const place *lengths, const place *words, const REAL *values,
                const REAL *table, REAL *restrict sums) {
    for (place text = 0; text < texts; text++, sums += columns) {
        for (place i = 0; i < columns; i++) sums[i] = 0;
        for (place left = lengths[text]; left > 0; left--, words++) {
            const REAL *row = table + *words * columns, value = values ? *values++ : 1;
            for (place i = 0; i < columns; i++) sums[i] += value * row[i];
        }
    }
}

/* grad_VD, to which is added: the gradient of a text's sum reaches the rows of its words, times their values. */
void NAME(spread)(place texts, place columns, const place *lengths, const place *words, const REAL *values,
                  const REAL *grad, REAL *restrict grad_table) {
    for (place text = 0; text < texts; text++, grad += columns)
        for (place left = lengths[text]; left > 0; left--, words++) {
            REAL *row = grad_table + *words * columns, value = values ? *values++ : 1;
            for (place i = 0; i < columns; i++) row[i] += value * grad[i];
        }
}
#endif
