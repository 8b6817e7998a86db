/* A linear layer whose weight does not change, with or without an adapter beside it, forward and backward (engine native;
   models/native_linear.py).

   Legend: S rows, I inputs, O outputs, R rank; all matrices are contiguous. */

#pragma once

#include "halves.h"

typedef struct {
    place rows, inputs, outputs, rank; /* rank 0: no adapter */
    double scale;
    const real *panels, *weight_OI, *bias_O, *a_RI, *b_OR;
    const real *back;      /* null, or W^T in `panels`, and here W, are packed in bfloat16 */
    real *grad_a, *grad_b; /* null: not wanted */
} adapted;

/* The elements of the memory of a call. */
place adapted_memory(const adapted *of) {
    place widest = of->inputs > of->outputs ? of->inputs : of->outputs, product;
    place rounded = of->back ? halves_memory(of->rows, widest) : 0;
    product = product_memory(widest > of->rank ? widest : of->rank);
    return rounded > product ? rounded : product;
}

/* outputs_SO = bias + inputs W^T + between B^T, where between_SR = scale inputs A^T. */
void adapted_outputs(const adapted *of, const real *inputs, real *memory, real *between, real *outputs) {
    place in = of->inputs, out = of->outputs, rank = of->rank;
    if (of->back) product_of_halves(of->bias_O, 0, of->rows, in, out, inputs, of->panels, memory, outputs);
    else packed_product(of->bias_O, 0, of->rows, in, out, inputs, in, 1, of->panels, outputs);
    if (!rank) return;
    write_product(0, 0, of->rows, in, rank, inputs, in, 1, of->a_RI, 1, in, memory, between, rank);
    for (place i = 0; i < of->rows * rank; i++) between[i] *= (real)of->scale;
    add_product(of->rows, rank, out, between, rank, 1, of->b_OR, 1, rank, memory, outputs, out);
}

/* From grad_SO to the gradients of inputs, which are added to `start`, of A and of B. Those that are null are left out.
   scratch: S x R. */
void adapted_gradients(const adapted *of, const real *inputs, const real *between, const real *grad, const real *start,
                       real *memory, real *scratch, real *grad_inputs) {
    place in = of->inputs, out = of->outputs, rank = of->rank, rows = of->rows;
    if (grad_inputs && of->back)
        product_of_halves(start, start ? in : 0, rows, out, in, grad, of->back, memory, grad_inputs);
    else if (grad_inputs)
        write_product(start, start ? in : 0, rows, out, in, grad, out, 1, of->weight_OI, in, 1, memory, grad_inputs, in);
    if (rank && (grad_inputs || of->grad_a)) {
        write_product(0, 0, rows, out, rank, grad, out, 1, of->b_OR, rank, 1, memory, scratch, rank);
        for (place i = 0; i < rows * rank; i++) scratch[i] *= (real)of->scale;
    }
    if (rank && grad_inputs) add_product(rows, rank, in, scratch, rank, 1, of->a_RI, in, 1, memory, grad_inputs, in);
    if (of->grad_a) write_product(0, 0, rank, rows, in, scratch, 1, rank, inputs, in, 1, memory, of->grad_a, in);
    if (of->grad_b) write_product(0, 0, out, rows, rank, grad, 1, out, between, rank, 1, memory, of->grad_b, rank);
}
