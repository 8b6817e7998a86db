/* HSIC of two branches' features, with its gradients (engine native; methods/hsic.py).

   Legend: B texts of a batch, F features of a branch. */

#include <math.h>

#include "../models/products.h"

/* distances_BB: the squared distances of all pairs. */
static void squared_distances(place texts, place width, const real *features, real *distances) {
    for (place i = 0; i < texts; i++)
        for (place j = 0; j <= i; j++) {
            vector sums = {0};
            for (place f = 0; f < width; f += LANES) {
                vector step = load(features + i * width + f, width - f) - load(features + j * width + f, width - f);
                sums += step * step;
            }
            real sum = 0;
            for (place lane = 0; lane < LANES; lane++) sum += sums[lane];
            distances[i * texts + j] = distances[j * texts + i] = sum;
        }
}

/* The median of the distances of different texts, of an even number the lower one; `values` is scratch, B x B. */
static real median(place texts, const real *distances, real *values) {
    place count = 0;
    for (place i = 0; i < texts; i++)
        for (place j = 0; j < i; j++) {
            real value = distances[i * texts + j];
            if (value != value) return value;
            values[count++] = value;
        }
    for (place first = 0, last = count - 1, rank = (count - 1) / 2; first < last;) { /* quickselect */
        real pivot = values[(first + last) / 2];
        place low = first, high = last;
        while (low <= high) {
            while (values[low] < pivot) low++;
            while (values[high] > pivot) high--;
            if (low > high) break;
            real other = values[low];
            values[low++] = values[high];
            values[high--] = other;
        }
        if (rank <= high) last = high;
        else if (rank >= low) first = low;
        else break;
    }
    return values[(count - 1) / 2];
}

/* centred_BB = H L H: the kernel without the means of its rows and columns. */
static void centre(place texts, const real *kernel, real *centred, real *means) {
    real total = 0;
    for (place i = 0; i < texts; i++) {
        means[i] = 0;
        for (place j = 0; j < texts; j++) means[i] += kernel[i * texts + j];
        total += means[i] /= texts;
    }
    for (place i = 0; i < texts; i++)
        for (place j = 0; j < texts; j++)
            centred[i * texts + j] = kernel[i * texts + j] - means[i] - means[j] + total / texts;
}

/* Compute HSIC, its `value`, and the gradients for both branches' features.

   bandwidth: of the kernel exp(-d^2 / b); 0: the median of the squared distances. memory: 5 B x B + B. */
void hsic(place texts, place shared_width, place private_width, const real *shared, const real *private, real bandwidth,
          real *memory, real *value, real *grad_shared, real *grad_private) {
    const place size = texts * texts, widths[2] = {shared_width, private_width};
    const real *features[2] = {shared, private};
    real *grads[2] = {grad_shared, grad_private}, *kernels[2] = {memory, memory + size}, slopes[2], sum = 0;
    real *centred[2] = {memory + 2 * size, memory + 3 * size}, *scratch = memory + 4 * size, *means = scratch + size;
    for (int branch = 0; branch < 2; branch++) {
        real *kernel = kernels[branch];
        squared_distances(texts, widths[branch], features[branch], kernel);
        real middle = bandwidth ? bandwidth : median(texts, kernel, scratch);
        slopes[branch] = -1 / (!bandwidth && middle < (real)1e-12 ? (real)1e-12 : middle);
        for (place i = 0; i < size; i++) kernel[i] = exp(kernel[i] * slopes[branch]);
        centre(texts, kernel, centred[branch], means);
    }
    const real pairs = (real)((texts - 1) * (texts - 1));
    for (place i = 0; i < size; i++) sum += centred[0][i] * kernels[1][i];
    *value = sum / pairs;
    for (int branch = 0; branch < 2; branch++) {
        const place width = widths[branch];
        memset(grads[branch], 0, texts * width * sizeof(real));
        for (place i = 0; i < texts; i++)
            for (place j = 0; j < texts; j++) { /* d |x_i - x_j|^2 / d x_i = 2 (x_i - x_j), and so for x_j */
                place at = i * texts + j;
                real weight = centred[1 - branch][at] * kernels[branch][at] * slopes[branch] * 4 / pairs;
                const real *one = features[branch] + i * width, *other = features[branch] + j * width;
                for (place f = 0; f < width; f++) grads[branch][i * width + f] += weight * (one[f] - other[f]);
            }
    }
}
