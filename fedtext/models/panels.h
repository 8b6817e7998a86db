/* Copies of the right factor of a product in the order in which the product reads it. */

#pragma once

#include "vectors.h"

#define COUNT (BYTES * 8 / REAL_BITS) /* LANES, for the preprocessor */
#if defined(__clang__) || __GNUC__ >= 12
#define TURNS 1
/* Of the numbers of two vectors, those of each that trade places: at a distance of `apart`. */
#define LOWER(at, apart) ((at) & (apart) ? COUNT + (at) - (apart) : (at))
#define UPPER(at, apart) ((at) & (apart) ? COUNT + (at) : (at) + (apart))
#define TWO(which, at, apart) which(at, apart), which(at + 1, apart)
#define FOUR(which, at, apart) TWO(which, at, apart), TWO(which, at + 2, apart)
#define EIGHT(which, at, apart) FOUR(which, at, apart), FOUR(which, at + 4, apart)
#if COUNT == 16
#define PLACES(which, apart) EIGHT(which, 0, apart), EIGHT(which, 8, apart)
#elif COUNT == 8
#define PLACES(which, apart) EIGHT(which, 0, apart)
#elif COUNT == 4
#define PLACES(which, apart) FOUR(which, 0, apart)
#else
#define PLACES(which, apart) TWO(which, 0, apart)
#endif
#define STAGE(apart)                                                                       \
    UNROLL for (int i = 0; i < COUNT; i++)                                                 \
        if (!(i & (apart))) {                                                              \
            vector one = square[i], two = square[i + (apart)];                             \
            square[i] = __builtin_shufflevector(one, two, PLACES(LOWER, apart));           \
            square[i + (apart)] = __builtin_shufflevector(one, two, PLACES(UPPER, apart)); \
        }

/* Transpose a square of LANES vectors: in stages, each of which exchanges one bit of the numbers of row and column. */
INLINE void turn(vector square[]) {
    STAGE(1)
#if COUNT > 2
    STAGE(2)
#endif
#if COUNT > 4
    STAGE(4)
#endif
#if COUNT > 8
    STAGE(8)
#endif
}
#else
#define TURNS 0
#endif

/* Copy the right side of a product into panels of PANEL columns (the last may be narrower) and all `depth` rows:
   element (k, column) is from[k * down + column * across] of each part in turn, padded to whole vectors with zeros. */
static void pack(real *panels, const real *from, place depth, place parts, place part, place width, place down,
                 place across) {
    place padded = whole_vectors(width), columns = parts * padded;
    for (place first = 0, wide; first < columns; first += PANEL, panels += depth * wide) {
        wide = columns - first < PANEL ? columns - first : PANEL;
        for (place v = 0; v < wide; v += LANES) { /* of one part */
            place unit = (first + v) % padded, there = width - unit < LANES ? width - unit : LANES;
            const real *source = from + (first + v) / padded * part + unit * across;
            real *to = panels + v;
            if (across == 1) {
                for (place k = 0; k < depth; k++) store(to + k * wide, load(source + k * down, there), LANES);
                continue;
            }
            place turned = 0;
#if TURNS
            if (down == 1 && there == LANES)
                for (; turned + LANES <= depth; turned += LANES) {
                    vector square[COUNT];
                    UNROLL for (int i = 0; i < COUNT; i++) square[i] = load(source + i * across + turned, LANES);
                    turn(square);
                    UNROLL for (int i = 0; i < COUNT; i++) store(to + (turned + i) * wide, square[i], LANES);
                }
#endif
            for (place block = turned, end; block < depth; block = end) { /* its cache lines are all written before the next */
                end = depth - block < LANES ? depth : block + LANES;
                for (place column = 0; column < LANES; column++)
                    for (place k = block; k < end; k++)
                        to[k * wide + column] = column < there ? source[column * across + k * down] : 0;
            }
        }
    }
}
