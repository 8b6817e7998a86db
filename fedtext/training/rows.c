/* Steps on the rows of a table that a batch uses (engine native; training/native_rows.py).

   A row is read and written once, where torch's operations copy it several times.
   Legend: U rows of the batch, N rows of the table, D columns. */

#include <math.h>

#include "../runtime/numbers.h"

#if REAL_BITS == 32
#define ROOT sqrtf
#else
#define ROOT sqrt
#endif
#define AHEAD 4 /* rows lie anywhere in memory: so many are asked for in advance */

static inline void prefetch(const real *row, place columns) {
    for (place i = 0; i < columns; i += 64 / (place)sizeof(real)) __builtin_prefetch(row + i);
}

/* Momentum SGD. `made` has the number of steps that each row has made. The clients of a stack have `count` rows each, and
   the number of steps in `steps`; a row that missed some is moved by its velocity alone, as `move` has it for 0, 1, 2, ...
   missed steps, at most `most`.

   fetched_UD: the rows after the steps that they missed, of which `missed` gets the numbers. */
void fetch(place clients, place count, place columns, const place *rows, const place *steps, const place *made,
           place most, const real *move, const real *table, const real *velocity, place *missed, real *fetched) {
    for (place u = 0; u < clients * count; u++) {
        if (u + AHEAD < clients * count) {
            prefetch(table + rows[u + AHEAD] * columns, columns);
            prefetch(velocity + rows[u + AHEAD] * columns, columns);
        }
        const real *from = table + rows[u] * columns, *moving = velocity + rows[u] * columns;
        place behind = steps[u / count] - made[rows[u]];
        missed[u] = behind < most ? behind : most;
        const real by = move[missed[u]];
        real *to = fetched + u * columns;
        for (place i = 0; i < columns; i++) to[i] = from[i] - by * moving[i];
    }
}

/* One step: the velocity decays by the steps missed and this one, the gradient is added to it, and the row moves. */
void step(place clients, place count, place columns, const place *rows, const place *steps, place *made,
          const place *missed, const real *decay, real lr, const real *grad, const real *restrict fetched,
          real *restrict table, real *restrict velocity) {
    for (place u = 0; u < clients * count; u++) {
        if (u + AHEAD < clients * count) {
            prefetch(table + rows[u + AHEAD] * columns, columns);
            prefetch(velocity + rows[u + AHEAD] * columns, columns);
        }
        real *to = table + rows[u] * columns, *moving = velocity + rows[u] * columns;
        const real left = decay[missed[u] + 1];
        for (place i = 0; i < columns; i++) {
            moving[i] = grad[u * columns + i] + left * moving[i];
            to[i] = fetched[u * columns + i] - lr * moving[i];
        }
        made[rows[u]] = steps[u / count] + 1;
    }
}

/* Make the steps that the rows of a client, from `first` to `last`, have missed. */
void finish(place columns, place first, place last, place steps, place *made, place most, const real *move,
            const real *decay, real *restrict table, real *restrict velocity) {
    for (place row = first; row < last; row++) {
        place behind = steps - made[row];
        if (!behind) continue;
        behind = behind < most ? behind : most;
        real *to = table + row * columns, *moving = velocity + row * columns;
        for (place i = 0; i < columns; i++) {
            to[i] -= move[behind] * moving[i];
            moving[i] *= decay[behind];
        }
        made[row] = steps;
    }
}

/* One step of Adam on a row; `grad` is null where its gradient is zero. */
static inline void adam_row(place columns, real kept, real share, real beta2, real added, real rate, real scale,
                            real epsilon, const real *grad, real *restrict row, real *restrict mean,
                            real *restrict square) {
    for (place i = 0; i < columns; i++) {
        real slope = grad ? grad[i] : 0;
        mean[i] += share * (slope - mean[i]);
        square[i] = beta2 * square[i] + added * slope * slope;
        row[i] = kept * row[i] - rate * mean[i] / (ROOT(square[i]) * scale + epsilon);
    }
}

/* One step of Adam on the rows from `first` to `last`, which are one client's.

   rows: those of the gradient, grad_UD. places_N: scratch, -1 for each row that had a gradient before, and -2 for the
   others, whose moments are zero: they do not move. kept: what weight decay leaves of a weight. share, added: 1 - beta1
   and 1 - beta2, which float32 numbers near 1 would not give. rate: lr divided by 1 - beta1^t. scale: 1 / sqrt(1 -
   beta2^t). */
void adam(place count, place columns, const place *rows, place first, place last, place *places, real kept, real share,
          real beta2, real added, real rate, real scale, real epsilon, const real *grad, real *table, real *mean,
          real *square) {
    for (place u = 0; u < count; u++) places[rows[u]] = u;
    for (place row = first; row < last; row++) {
        const place at = row * columns, from = places[row] * columns;
        if (places[row] >= 0)
            adam_row(columns, kept, share, beta2, added, rate, scale, epsilon, grad + from, table + at, mean + at,
                     square + at);
        else if (places[row] == -1)
            adam_row(columns, kept, share, beta2, added, rate, scale, epsilon, 0, table + at, mean + at, square + at);
        else continue;
        places[row] = -1;
    }
}
