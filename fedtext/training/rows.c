/* Steps of momentum SGD on the rows of a table that a batch uses (engine native; training/native_rows.py).

   A row is read and written once, where torch's operations copy it several times.
   Legend: U rows of the batch, N rows of the table, D columns. */

#include "../runtime/numbers.h"

#define AHEAD 4 /* rows lie anywhere in memory: so many are asked for in advance */

static inline void prefetch(const real *row, place columns) {
    for (place i = 0; i < columns; i += 64 / (place)sizeof(real)) __builtin_prefetch(row + i);
}

/* fetched_UD: the rows after the steps that they missed, during which their velocity alone moved them. */
void fetch(place count, place columns, const place *rows, const place *missed, const real *move, const real *table,
           const real *velocity, real *fetched) {
    for (place u = 0; u < count; u++) {
        if (u + AHEAD < count) {
            prefetch(table + rows[u + AHEAD] * columns, columns);
            prefetch(velocity + rows[u + AHEAD] * columns, columns);
        }
        const real *from = table + rows[u] * columns, *moving = velocity + rows[u] * columns;
        const real by = move[missed[u]];
        real *to = fetched + u * columns;
        for (place i = 0; i < columns; i++) to[i] = from[i] - by * moving[i];
    }
}

/* One step: the velocity decays by the steps missed and this one, the gradient is added to it, and the row moves. */
void step(place count, place columns, const place *rows, const place *missed, const real *decay, real lr,
          const real *grad, const real *restrict fetched, real *restrict table, real *restrict velocity) {
    for (place u = 0; u < count; u++) {
        if (u + AHEAD < count) {
            prefetch(table + rows[u + AHEAD] * columns, columns);
            prefetch(velocity + rows[u + AHEAD] * columns, columns);
        }
        real *to = table + rows[u] * columns, *moving = velocity + rows[u] * columns;
        const real left = decay[missed[u] + 1];
        for (place i = 0; i < columns; i++) {
            moving[i] = grad[u * columns + i] + left * moving[i];
            to[i] = fetched[u * columns + i] - lr * moving[i];
        }
    }
}
