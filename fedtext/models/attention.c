/* Attention within each text, forward and backward (engine native; models/native_attention.py).

   The tokens of all texts lie end to end. Those of a text attend to all of its tokens, or if it is causal to those that
   are not after them. Weights are computed again in the backward pass, and not stored.

   Legend: B texts, L tokens of a text, N heads, A width of a head, D = N x A. Queries, keys, values, outputs and their
   gradients are S x D; a head's are columns of them. P: weights_LL of a text and a head, in rows of a multiple of SUMS
   numbers. */

#include <stdint.h>

#include "draws.h"
#include "exponential.h"
#include "sums.h"

typedef struct {
    place texts, heads, width, causal;
    const place *starts; /* of each text's tokens, and the end of the last one */
    const uint8_t *kept; /* by dropout: for each text and head, L x L; null: all */
    double scale, share; /* factors of the products, and of the weights that are kept */
} layout;

static place row_size(place tokens) { return (tokens + SUMS - 1) / SUMS * SUMS; }

static place longest(const layout *all) {
    place most = 0;
    for (place text = 0, tokens; text < all->texts; text++) {
        tokens = all->starts[text + 1] - all->starts[text];
        most = tokens > most ? tokens : most;
    }
    return most;
}

static place panels(const layout *all) {
    place tokens = longest(all);
    return product_memory(tokens > all->width ? tokens : all->width);
}

/* The elements of memory that `attend`, with one matrix of weights, and `attend_back`, with three, need. */
place attention_memory(const layout *all, place matrices) {
    return panels(all) + matrices * longest(all) * row_size(longest(all));
}

/* softmax of the first `count` numbers times `scale`; those up to `end` become 0. */
static void softmax(real *row, place count, place end, real scale) {
    real part[SUMS] = {0}, most, sum;
    for (place i = count; i < end; i++) row[i] = row[0];
    vector top = load(row, LANES);
    for (place i = LANES; i < end; i += LANES) {
        vector each = load(row + i, LANES);
        mask above = each > top;
        top = (vector)(((mask)each & above) | ((mask)top & ~above));
    }
    most = top[0];
    for (int lane = 1; lane < LANES; lane++) most = top[lane] > most ? top[lane] : most;
    for (place i = 0; i < end; i += LANES) store(row + i, exponential((load(row + i, LANES) - most) * scale), LANES);
    for (place i = count; i < end; i++) row[i] = 0;
    for (place i = 0; i < end; i += SUMS)
        for (int lane = 0; lane < SUMS; lane++) part[lane] += row[i + lane];
    sum = sum_of(part);
    for (place i = 0; i < end; i++) row[i] /= sum;
}

/* sums_LL += left_LA right_LA^T, in rows of a multiple of SUMS numbers. */
static void add_scores(place tokens, place width, place pitch, const real *left, const real *right, real *memory,
                       real *sums) {
    for (place k = 0, step; k < width; k += step) {
        step = width - k < DEPTH ? width - k : DEPTH;
        pack(memory, right + k, step, 1, 0, tokens, 1, pitch);
        multiply(tokens, step, left + k, pitch, 1, memory, sums, whole_vectors(tokens), row_size(tokens));
    }
}

/* P of a text and a head. */
static void attention_weights(const layout *all, place tokens, const real *query, const real *key, real *memory,
                              real *weights) {
    place pitch = all->heads * all->width, padded = row_size(tokens);
    memset(weights, 0, tokens * padded * sizeof(real));
    add_scores(tokens, all->width, pitch, query, key, memory, weights);
    for (place row = 0; row < tokens; row++)
        softmax(weights + row * padded, all->causal ? row + 1 : tokens, padded, (real)all->scale);
}

/* Multiply by what dropout left. */
static void drop(const layout *all, place tokens, const uint8_t *kept, const real *from, real *to) {
    place padded = row_size(tokens);
    for (place row = 0; row < tokens; row++, kept += tokens)
        for (place i = 0; i < tokens; i++)
            to[row * padded + i] = kept[i] ? from[row * padded + i] * (real)all->share : 0;
}

void attend(const layout *all, const real *query, const real *key, const real *value, real *memory, real *output) {
    real *weights = memory + panels(all);
    const uint8_t *kept = all->kept;
    place pitch = all->heads * all->width;
    for (place text = 0; text < all->texts; text++) {
        place first = all->starts[text] * pitch, tokens = all->starts[text + 1] - all->starts[text];
        for (place head = 0, at = first; head < all->heads; head++, at += all->width) {
            attention_weights(all, tokens, query + at, key + at, memory, weights);
            if (kept) drop(all, tokens, kept, weights, weights), kept += tokens * tokens;
            write_product(0, 0, tokens, tokens, all->width, weights, row_size(tokens), 1, value + at, pitch, 1, memory,
                          output + at, pitch);
        }
    }
}

/* The gradients of queries, keys and values. */
void attend_back(const layout *all, const real *query, const real *key, const real *value, const real *grad,
                 real *memory, real *grad_query, real *grad_key, real *grad_value) {
    place pitch = all->heads * all->width, width = all->width, size = longest(all) * row_size(longest(all));
    real *weights = memory + panels(all), *grads = weights + size, *dropped = grads + size;
    const uint8_t *kept = all->kept;
    for (place text = 0; text < all->texts; text++) {
        place first = all->starts[text] * pitch, tokens = all->starts[text + 1] - all->starts[text];
        place padded = row_size(tokens);
        for (place head = 0, at = first; head < all->heads; head++, at += width) {
            const real *used = weights;
            attention_weights(all, tokens, query + at, key + at, memory, weights);
            memset(grads, 0, tokens * padded * sizeof(real));
            add_scores(tokens, width, pitch, grad + at, value + at, memory, grads);
            if (kept) {
                drop(all, tokens, kept, grads, grads);
                drop(all, tokens, kept, weights, dropped);
                used = dropped, kept += tokens * tokens;
            }
            write_product(0, 0, tokens, tokens, width, used, 1, padded, grad + at, pitch, 1, memory, grad_value + at, pitch);
            for (place row = 0; row < tokens; row++) { /* of softmax */
                real *of = grads + row * padded, *weight = weights + row * padded, mean = total(of, weight, padded);
                for (place i = 0; i < padded; i++) of[i] = weight[i] * (of[i] - mean) * (real)all->scale;
            }
            write_product(0, 0, tokens, tokens, width, grads, padded, 1, key + at, pitch, 1, memory, grad_query + at, pitch);
            write_product(0, 0, tokens, tokens, width, grads, 1, padded, query + at, pitch, 1, memory, grad_key + at, pitch);
        }
    }
}

/* 1 where a draw is at least `limit` of 2^32, else 0. */
void draw_kept(place count, uint64_t key, uint32_t limit, uint8_t *kept) {
    for (place i = 0; i < count; i += LANES) {
        drawn bits = draw(i, key);
        for (place lane = 0; lane < LANES && i + lane < count; lane++) kept[i + lane] = bits[lane] >= limit;
    }
}
