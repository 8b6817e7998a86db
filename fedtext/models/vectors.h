/* Vectors of the widest registers. */

#pragma once

#include <string.h>
#if defined(__AVX512F__) || defined(__FMA__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#include "../runtime/numbers.h"

#if defined(__AVX512F__)
#define BYTES 64 /* of a vector */
#elif defined(__AVX__)
#define BYTES 32
#else
#define BYTES 16
#endif
#if defined(__AVX512F__) || defined(__aarch64__) /* 32 vectors fit into registers, else 16 */
#define WIDTH 4                                  /* vectors of a panel of weights */
#else
#define WIDTH 2
#endif
#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 16")

#define LANES ((place)(BYTES / sizeof(real))) /* numbers in a vector */
#define PANEL (WIDTH * LANES)
typedef real vector __attribute__((vector_size(BYTES)));
typedef real_bits mask __attribute__((vector_size(BYTES)));

/* Vectors at any address; at the end of a row only the `count` numbers that are there. */
#if defined(__AVX512F__) && REAL_BITS == 32
INLINE vector load_part(const real *from, place count) {
    return (vector)_mm512_maskz_loadu_ps((__mmask16)((1u << count) - 1), from);
}

INLINE void store_part(real *to, vector value, place count) {
    _mm512_mask_storeu_ps(to, (__mmask16)((1u << count) - 1), (__m512)value);
}
#elif defined(__AVX512F__)
INLINE vector load_part(const real *from, place count) {
    return (vector)_mm512_maskz_loadu_pd((__mmask8)((1u << count) - 1), from);
}

INLINE void store_part(real *to, vector value, place count) {
    _mm512_mask_storeu_pd(to, (__mmask8)((1u << count) - 1), (__m512d)value);
}
#else
static __attribute__((noinline)) vector load_part(const real *from, place count) {
    vector value = {0};
    for (place i = 0; i < count; i++) value[i] = from[i];
    return value;
}

static __attribute__((noinline)) void store_part(real *to, vector value, place count) {
    for (place i = 0; i < count; i++) to[i] = value[i];
}
#endif

INLINE vector load(const real *from, place count) {
    vector value;
    if (count < LANES) return load_part(from, count);
    memcpy(&value, from, BYTES);
    return value;
}

INLINE void store(real *to, vector value, place count) {
    if (count < LANES) store_part(to, value, count);
    else memcpy(to, &value, BYTES);
}

INLINE void add(real *to, vector value, place count) { store(to, load(to, count) + value, count); }

static place whole_vectors(place width) { return (width + LANES - 1) / LANES * LANES; }
