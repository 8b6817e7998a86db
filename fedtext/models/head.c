/* The loss of a classifier's dense layers on the features of its encoder (engine native; models/fused.py). */

#include "dense.h"

place loss_memory(place texts, place layers, const place *widths) { return head_memory(texts, layers, widths); }

/* Mean cross-entropy, and its gradients, which are added to those of features and parameters. */
double loss(place texts, place layers, const place *widths, const real *features, real *const *parameters,
            const place *labels, real *memory, real *grad_features, real *const *grads) {
    return head_loss(texts, layers, widths, features, parameters, labels, memory, grad_features, grads);
}
