/* Steps of momentum SGD on the rows of a table that a batch uses (engine native; training/native_rows.py).

   A row is read and written once, where torch's operations copy it several times. This file includes itself twice: for
   float and for double. Legend: U rows of the batch, N rows of the table, D columns. */

#ifndef REAL

#include <stdint.h>

typedef int64_t place;

#define REAL float
#define NAME(name) name##_float
#include "rows.c"
#undef REAL
#undef NAME

#define REAL double
#define NAME(name) name##_double
#include "rows.c"

#else

#define AHEAD 4 /* rows lie anywhere in memory: so many are asked for in advance */

static inline void NAME(prefetch)(const REAL *row, place columns) {
    for (place i = 0; i < columns; i += 64 / (place)sizeof(REAL)) __builtin_prefetch(row + i);
}

/* fetched_UD: the rows after the steps that they missed, during which their velocity alone moved them. */
void NAME(fetch)(place count, place columns, const place *rows, const place *missed, const REAL *move,
                 const REAL *table, const REAL *velocity, REAL *fetched) {
    for (place u = 0; u < count; u++) {
        if (u + AHEAD < count) {
            NAME(prefetch)(table + rows[u + AHEAD] * columns, columns);
            NAME(prefetch)(velocity + rows[u + AHEAD] * columns, columns);
        }
        const REAL *from = table + rows[u] * columns, *moving = velocity + rows[u] * columns;
        const REAL by = move[missed[u]];
        REAL *to = fetched + u * columns;
        for (place i = 0; i < columns; i++) to[i] = from[i] - by * moving[i];
    }
}

/* One step: the velocity decays by the steps missed and this one, the gradient is added to it, and the row moves. */
void NAME(step)(place count, place columns, const place *rows, const place *missed, const REAL *decay, REAL lr,
                const REAL *grad, const REAL *restrict fetched, REAL *restrict table, REAL *restrict velocity) {
    for (place u = 0; u < count; u++) {
        if (u + AHEAD < count) {
            NAME(prefetch)(table + rows[u + AHEAD] * columns, columns);
            NAME(prefetch)(velocity + rows[u + AHEAD] * columns, columns);
        }
        REAL *to = table + rows[u] * columns, *moving = velocity + rows[u] * columns;
        const REAL left = decay[missed[u] + 1];
        for (place i = 0; i < columns; i++) {
            moving[i] = grad[u * columns + i] + left * moving[i];
            to[i] = fetched[u * columns + i] - lr * moving[i];
        }
    }
}
#endif
