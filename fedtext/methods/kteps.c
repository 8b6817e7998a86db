/* The terms of KTEPS with their gradients, and HSIC alone (engine native; methods/native_kteps.py).

   Legend: B texts of a batch, F features of a branch, C classes. */

#include <math.h>

#include "../models/dense.h"

/* distances_BB: the squared distances of all pairs. They and what follows from them are doubles: where distances are far
   below the bandwidth, centring cancels kernels that are nearly 1. */
static void squared_distances(place texts, place width, const real *features, double *distances) {
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
static double median(place texts, const double *distances, double *values) {
    place count = 0;
    for (place i = 0; i < texts; i++)
        for (place j = 0; j < i; j++) {
            double value = distances[i * texts + j];
            if (value != value) return value;
            values[count++] = value;
        }
    for (place first = 0, last = count - 1, rank = (count - 1) / 2; first < last;) { /* quickselect */
        double pivot = values[(first + last) / 2];
        place low = first, high = last;
        while (low <= high) {
            while (values[low] < pivot) low++;
            while (values[high] > pivot) high--;
            if (low > high) break;
            double other = values[low];
            values[low++] = values[high];
            values[high--] = other;
        }
        if (rank <= high) last = high;
        else if (rank >= low) first = low;
        else break;
    }
    return values[(count - 1) / 2];
}

/* The least bandwidth that is taken from a batch (hsic.py). */
static double narrowest(place texts, place width, const real *features) {
    double sum = 0;
    for (place i = 0; i < texts * width; i++) sum += (double)features[i] * features[i];
    return 1e-9 * sum / texts + 1e-12;
}

/* centred_BB = H L H: the kernel without the means of its rows and columns. */
static void centre(place texts, const double *kernel, double *centred, double *means) {
    double total = 0;
    for (place i = 0; i < texts; i++) {
        means[i] = 0;
        for (place j = 0; j < texts; j++) means[i] += kernel[i * texts + j];
        total += means[i] /= texts;
    }
    for (place i = 0; i < texts; i++)
        for (place j = 0; j < texts; j++)
            centred[i * texts + j] = kernel[i * texts + j] - means[i] - means[j] + total / texts;
}

/* The numbers of `memory` that hsic takes: 5 B x B + B doubles, wherever it begins. */
place hsic_memory(place texts) {
    return (texts * (5 * texts + 1) + 1) * (place)(sizeof(double) / sizeof(real));
}

/* Compute HSIC, its `value`, and the gradients for both branches' features.

   bandwidth: of the kernel exp(-d^2 / b); 0: the median of the squared distances. memory: hsic_memory. */
void hsic(place texts, place shared_width, place private_width, const real *shared, const real *private, real bandwidth,
          real *memory, real *value, real *grad_shared, real *grad_private) {
    const place size = texts * texts, widths[2] = {shared_width, private_width};
    const real *features[2] = {shared, private};
    real *grads[2] = {grad_shared, grad_private};
    double *at = (double *)(((uintptr_t)memory + sizeof(double) - 1) / sizeof(double) * sizeof(double)), slopes[2];
    double *kernels[2] = {at, at + size}, *centred[2] = {at + 2 * size, at + 3 * size}, sum = 0;
    double *scratch = at + 4 * size, *means = scratch + size;
    for (int branch = 0; branch < 2; branch++) {
        double *kernel = kernels[branch];
        squared_distances(texts, widths[branch], features[branch], kernel);
        double middle = bandwidth ? bandwidth : median(texts, kernel, scratch);
        double least = bandwidth ? bandwidth : narrowest(texts, widths[branch], features[branch]);
        slopes[branch] = -1 / (middle < least ? least : middle);
        for (place i = 0; i < size; i++) kernel[i] = exp(kernel[i] * slopes[branch]);
        centre(texts, kernel, centred[branch], means);
    }
    const double pairs = (double)((texts - 1) * (texts - 1));
    for (place i = 0; i < size; i++) sum += centred[0][i] * kernels[1][i];
    *value = sum < 0 ? 0 : (real)(sum / pairs); /* it is never negative, but by rounding */
    for (int branch = 0; branch < 2; branch++) {
        const place width = widths[branch];
        memset(grads[branch], 0, texts * width * sizeof(real));
        for (place i = 0; i < texts; i++)
            for (place j = 0; j < texts; j++) { /* d |x_i - x_j|^2 / d x_i = 2 (x_i - x_j), and so for x_j */
                place pair = i * texts + j;
                real weight = (real)(centred[1 - branch][pair] * kernels[branch][pair] * slopes[branch] * 4 / pairs);
                const real *one = features[branch] + i * width, *other = features[branch] + j * width;
                for (place f = 0; f < width; f++) grads[branch][i * width + f] += weight * (one[f] - other[f]);
            }
    }
}

/* Where the numbers of a batch lie in `memory`, of both branches where there are two: the shared one is first. */
typedef struct {
    real *products, *features[2], *logits[2], *hidden[2], *kernel[2], *entropy[2], *transfer, *grads[2], *scratch;
    real *kernels, *end;
} parts;

static parts places(place texts, place layers, const place *widths, real *memory) {
    place sizes[2] = {texts * widths[0], texts * widths[layers]}, wide = widest(layers, widths);
    parts at = {.products = memory};
    memory += product_memory(wide);
    for (int branch = 0; branch < 2; branch++) {
        at.features[branch] = memory, memory += sizes[0];
        at.kernel[branch] = memory, memory += sizes[0]; /* the gradient of HSIC */
        at.grads[branch] = memory, memory += sizes[0];
        at.logits[branch] = memory, memory += sizes[1];
        at.entropy[branch] = memory, memory += sizes[1]; /* the gradient of the cross-entropy */
        at.hidden[branch] = memory, memory += texts * hidden_widths(layers, widths);
    }
    at.transfer = memory, memory += sizes[1]; /* the gradient of the transfer, for the private branch's logits */
    at.scratch = memory, memory += 2 * texts * wide;
    at.kernels = memory, memory += hsic_memory(texts);
    at.end = memory;
    return at;
}

place terms_memory(place texts, place layers, const place *widths) {
    static real start[1];
    return places(texts, layers, widths, start).end - start;
}

/* log_C, the logarithm of a softmax. */
static void log_softmax(place classes, const real *logits, double scale, double *log_) {
    double most = -INFINITY, sum = 0;
    for (place c = 0; c < classes; c++) most = logits[c] * scale > most ? logits[c] * scale : most;
    for (place c = 0; c < classes; c++) sum += exp(logits[c] * scale - most);
    for (place c = 0; c < classes; c++) log_[c] = logits[c] * scale - most - log(sum);
}

/* The terms, in `values`: cross-entropy of the shared and the private branch, transfer, and diversity.

   shared, private: the encoders' outputs. parameters: weight and bias of the shared projection, if `projected`, and of
   each layer of its classifier, and the same of the private branch. logs: scratch, 3 C. standard: the other way round
   of equation 8. diverse: whether diversity is wanted; its bandwidth is as that of `hsic`. */
void terms(place texts, place projected, place layers, const place *widths, const real *shared, const real *private,
           real *const *parameters, const place *labels, double *logs, double temperature, place standard,
           place diverse, real bandwidth, real *memory, double *values) {
    const place classes = widths[layers], square[2] = {widths[0], widths[0]};
    const parts at = places(texts, layers, widths, memory);
    const real *features[2] = {shared, private};
    for (int branch = 0; branch < 2; branch++) {
        if (projected) {
            dense_forward(1, texts, square, features[branch], parameters, at.products, 0, at.features[branch]);
            parameters += 2;
        } else memcpy(at.features[branch], features[branch], texts * widths[0] * sizeof(real));
        dense_forward(layers, texts, widths, at.features[branch], parameters, at.products, at.hidden[branch],
                      at.logits[branch]);
        parameters += 2 * layers;
    }
    double *own[2] = {logs, logs + classes}, *teacher = logs + 2 * classes;
    for (int term = 0; term < 4; term++) values[term] = 0;
    for (place text = 0; text < texts; text++) {
        const place row = text * classes;
        for (int branch = 0; branch < 2; branch++) {
            log_softmax(classes, at.logits[branch] + row, 1, own[branch]);
            values[branch] -= own[branch][labels[text]] / texts;
            for (place c = 0; c < classes; c++)
                at.entropy[branch][row + c] = (real)((exp(own[branch][c]) - (c == labels[text])) / texts);
        }
        log_softmax(classes, at.logits[0] + row, 1 / temperature, teacher);
        double sum = 0;
        for (place c = 0; c < classes; c++) sum -= standard ? exp(teacher[c]) * own[1][c] : exp(own[1][c]) * teacher[c];
        values[2] += sum / texts;
        for (place c = 0; c < classes; c++) {
            double slope = standard ? exp(own[1][c]) - exp(teacher[c]) : exp(own[1][c]) * (-teacher[c] - sum);
            at.transfer[row + c] = (real)(slope / texts);
        }
    }
    if (diverse) {
        real value;
        hsic(texts, widths[0], widths[0], at.features[0], at.features[1], bandwidth, at.kernels, &value, at.kernel[0],
             at.kernel[1]);
        values[3] = value;
    }
}

/* From the slopes of the terms, `by`, to the gradients of parameters and encoders' outputs, which are added. */
void terms_backward(place texts, place projected, place layers, const place *widths, const real *shared,
                    const real *private, real *const *parameters, place diverse, const double *by, real *memory,
                    real *const *grads, real *grad_shared, real *grad_private) {
    const place classes = widths[layers], size = texts * widths[0], square[2] = {widths[0], widths[0]};
    const parts at = places(texts, layers, widths, memory);
    const real *features[2] = {shared, private};
    real *grad_features[2] = {grad_shared, grad_private};
    for (int branch = 0; branch < 2; branch++) {
        real *logits = at.logits[branch], *grad = projected ? at.grads[branch] : grad_features[branch];
        for (place i = 0; i < texts * classes; i++) {
            logits[i] = (real)by[branch] * at.entropy[branch][i];
            if (branch) logits[i] += (real)by[2] * at.transfer[i];
        }
        if (projected) memset(grad, 0, size * sizeof(real));
        const place own = 2 * projected; /* the projection's parameters come first */
        dense_backward(layers, texts, widths, at.features[branch],
                       at.hidden[branch] + texts * hidden_widths(layers, widths), logits, parameters + own, grads + own,
                       at.products, at.scratch, grad);
        for (place i = 0; diverse && i < size; i++) grad[i] += (real)by[3] * at.kernel[branch][i];
        if (projected)
            dense_backward(1, texts, square, features[branch], 0, grad, parameters, grads, at.products, at.scratch,
                           grad_features[branch]);
        parameters += own + 2 * layers, grads += own + 2 * layers;
    }
}
