/* Attention within each text, forward and backward (engine native; models/native_attention.py).

   The tokens of all texts lie end to end. Those of a text attend to all of its tokens, or if it is causal to those that
   are not after them. Weights are computed again in the backward pass, and not stored.

   Legend: B texts, L tokens of a text, N heads, A width of a head, D = N x A. Queries, keys, values, outputs and their
   gradients are S x D; a head's are columns of them. weights_KQ of a text and a head: a row for each key, and in whole
   vectors a column for each query, so that softmax needs no sum within a vector. */

#pragma once

#include <stdint.h>

#include "draws.h"
#include "exponential.h"
#include "sums.h"

typedef struct {
    place texts, heads, width, causal;
    const place *starts; /* of each text's tokens, and the end of the last one */
    double scale, share; /* factors of the products, and of the weights that dropout leaves */
    uint64_t key, limit; /* of dropout, as in draws.h; limit 0: it leaves all */
} layout;

static place longest(const layout *all) {
    place most = 0;
    for (place text = 0, tokens; text < all->texts; text++) {
        tokens = all->starts[text + 1] - all->starts[text];
        most = tokens > most ? tokens : most;
    }
    return most;
}

/* The memory of products: `write_scores` copies all keys of a text at once. */
static place panels(const layout *all) {
    place scores = DEPTH * whole_vectors(longest(all)), others = product_memory(all->width);
    return scores > others ? scores : others;
}

/* The elements of memory that `attend`, with one matrix of weights, and `attend_back`, with three, need. */
place attention_memory(const layout *all, place matrices) {
    return panels(all) + matrices * longest(all) * whole_vectors(longest(all));
}

/* softmax over the keys of the products with the queries from `first` on, as many as a vector has, times `scale`. The
   sum has SUMS parts, as in sums.h. */
static void softmax(place tokens, place first, place causal, real scale, real *weights) {
    place pitch = whole_vectors(tokens);
    vector top = load(weights + first, LANES), part[SUMS] = {{0}};
    mask query;
    for (place lane = 0; lane < LANES; lane++) query[lane] = causal ? first + lane : tokens;
    for (place key = 1; key < tokens; key++) {
        vector each = load(weights + key * pitch + first, LANES);
        mask above = (each > top) & (query >= (real_bits)key);
        top = (vector)(((mask)each & above) | ((mask)top & ~above));
    }
    for (place key = 0; key < tokens; key++) {
        real *at = weights + key * pitch + first;
        vector each = (vector)((mask)exponential((load(at, LANES) - top) * scale) & (query >= (real_bits)key));
        store(at, each, LANES);
        part[key % SUMS] += each;
    }
    for (int half = SUMS / 2; half; half /= 2)
        for (int lane = 0; lane < half; lane++) part[lane] += part[lane + half];
    for (place key = 0; key < tokens; key++) {
        real *at = weights + key * pitch + first;
        store(at, load(at, LANES) / part[0], LANES);
    }
}

/* Replace the gradients of the weights of these queries by those of their products. */
static void softmax_back(place tokens, place first, real scale, const real *weights, real *grads) {
    place pitch = whole_vectors(tokens);
    vector part[SUMS] = {{0}};
    for (place key = 0; key < tokens; key++)
        part[key % SUMS] += load(weights + key * pitch + first, LANES) * load(grads + key * pitch + first, LANES);
    for (int half = SUMS / 2; half; half /= 2)
        for (int lane = 0; lane < half; lane++) part[lane] += part[lane + half];
    for (place key = 0; key < tokens; key++) {
        place at = key * pitch + first;
        store(grads + at, load(weights + at, LANES) * (load(grads + at, LANES) - part[0]) * scale, LANES);
    }
}

/* products_KQ = left_KA right_QA^T of a text and a head. */
static void write_scores(const layout *all, place tokens, const real *left, const real *right, real *memory,
                         real *products) {
    place pitch = all->heads * all->width, padded = whole_vectors(tokens);
    memset(products, 0, tokens * padded * sizeof(real));
    for (place k = 0, step; k < all->width; k += step) {
        step = all->width - k < DEPTH ? all->width - k : DEPTH;
        pack(memory, right + k, step, 1, 0, tokens, 1, pitch);
        multiply(tokens, step, left + k, pitch, 1, memory, products, padded, padded);
    }
}

static void attention_weights(const layout *all, place tokens, const real *query, const real *key, real *memory,
                              real *weights) {
    write_scores(all, tokens, key, query, memory, weights);
    for (place first = 0; first < tokens; first += LANES)
        softmax(tokens, first, all->causal, (real)all->scale, weights);
}

/* Multiply by what dropout leaves. drawn: the place of the first weight. */
static void drop(const layout *all, place tokens, place drawn, const real *from, real *to) {
    place padded = whole_vectors(tokens);
    for (place key = 0; key < tokens; key++, from += padded, to += padded, drawn += tokens)
        for (place i = 0; i < padded; i += LANES)
            store(to + i, left_over(drawn + i, all->key, all->limit, load(from + i, LANES)) * (real)all->share, LANES);
}

void attend(const layout *all, const real *query, const real *key, const real *value, real *memory, real *output) {
    real *weights = memory + panels(all);
    place pitch = all->heads * all->width, drawn = 0;
    for (place text = 0; text < all->texts; text++) {
        place first = all->starts[text] * pitch, tokens = all->starts[text + 1] - all->starts[text];
        for (place head = 0, at = first; head < all->heads; head++, at += all->width, drawn += tokens * tokens) {
            attention_weights(all, tokens, query + at, key + at, memory, weights);
            if (all->limit) drop(all, tokens, drawn, weights, weights);
            write_product(0, 0, tokens, tokens, all->width, weights, 1, whole_vectors(tokens), value + at, pitch, 1, memory,
                          output + at, pitch);
        }
    }
}

/* The gradients of queries, keys and values. */
void attend_back(const layout *all, const real *query, const real *key, const real *value, const real *grad,
                 real *memory, real *grad_query, real *grad_key, real *grad_value) {
    place pitch = all->heads * all->width, width = all->width, size = longest(all) * whole_vectors(longest(all));
    real *weights = memory + panels(all), *grads = weights + size, *dropped = all->limit ? grads + size : weights;
    for (place text = 0, drawn = 0; text < all->texts; text++) {
        place start = all->starts[text] * pitch, tokens = all->starts[text + 1] - all->starts[text];
        place padded = whole_vectors(tokens);
        for (place head = 0, at = start; head < all->heads; head++, at += width, drawn += tokens * tokens) {
            attention_weights(all, tokens, query + at, key + at, memory, weights);
            write_scores(all, tokens, value + at, grad + at, memory, grads);
            if (all->limit) {
                drop(all, tokens, drawn, grads, grads);
                drop(all, tokens, drawn, weights, dropped);
            }
            write_product(0, 0, tokens, tokens, width, dropped, padded, 1, grad + at, pitch, 1, memory, grad_value + at, pitch);
            for (place first = 0; first < tokens; first += LANES)
                softmax_back(tokens, first, (real)all->scale, weights, grads);
            write_product(0, 0, tokens, tokens, width, grads, 1, padded, key + at, pitch, 1, memory, grad_query + at, pitch);
            write_product(0, 0, tokens, tokens, width, grads, padded, 1, query + at, pitch, 1, memory, grad_key + at, pitch);
        }
    }
}
