/* Products of matrices (engine native; models/native_products.py). */

#include "products.h"

void product(const real *start, place begin, place rows, place depth, place columns, const real *left, place stride,
             place next, const real *right, place down, place across, real *memory, real *sums) {
    write_product(start, begin, rows, depth, columns, left, stride, next, right, down, across, memory, sums, columns);
}

/* The elements of memory of a packed right factor. */
place packed_size(place depth, place columns) { return depth * whole_vectors(columns); }

void pack_factor(place depth, place columns, const real *right, place down, place across, real *panels) {
    for (place k = 0, step; k < depth; k += step, panels += packed_size(step, columns)) {
        step = depth - k < DEPTH ? depth - k : DEPTH;
        pack(panels, right + k * down, step, 1, 0, columns, down, across);
    }
}

/* `product` with a packed right factor. */
void packed_product(const real *start, place begin, place rows, place depth, place columns, const real *left,
                    place stride, place next, const real *panels, real *sums) {
    for (place k = 0, step; k < depth; k += step, panels += packed_size(step, columns)) {
        step = depth - k < DEPTH ? depth - k : DEPTH;
        multiply_from(start, begin, rows, step, left + k * next, stride, next, panels, 0, sums, columns, columns);
        start = sums, begin = columns;
    }
}

/* A linear layer that does not change, in panels, with an adapter beside it (models/native_linear.py). S rows, I inputs,
   O outputs, R rank; all matrices are contiguous. Memory is that of a product of the widest of I, O and R. */
typedef struct {
    place rows, inputs, outputs, rank;
    double scale;
    const real *panels, *weight_OI, *bias_O, *a_RI, *b_OR;
} adapted;

/* outputs_SO = bias + inputs W^T + between B^T, where between_SR = scale inputs A^T. */
void adapted_outputs(const adapted *of, const real *inputs, real *memory, real *between, real *outputs) {
    place in = of->inputs, out = of->outputs, rank = of->rank;
    packed_product(of->bias_O, 0, of->rows, in, out, inputs, in, 1, of->panels, outputs);
    write_product(0, 0, of->rows, in, rank, inputs, in, 1, of->a_RI, 1, in, memory, between, rank);
    for (place i = 0; i < of->rows * rank; i++) between[i] *= (real)of->scale;
    add_product(of->rows, rank, out, between, rank, 1, of->b_OR, 1, rank, memory, outputs, out);
}

/* From grad_SO to the gradients of inputs, which are added to `start`, of A and of B. Those that are null are left out.
   scratch: S x R. */
void adapted_gradients(const adapted *of, const real *inputs, const real *between, const real *grad, const real *start,
                       real *memory, real *scratch, real *grad_inputs, real *grad_a, real *grad_b) {
    place in = of->inputs, out = of->outputs, rank = of->rank, rows = of->rows;
    write_product(0, 0, rows, out, rank, grad, out, 1, of->b_OR, rank, 1, memory, scratch, rank);
    for (place i = 0; i < rows * rank; i++) scratch[i] *= (real)of->scale;
    if (grad_inputs) {
        write_product(start, start ? in : 0, rows, out, in, grad, out, 1, of->weight_OI, in, 1, memory, grad_inputs, in);
        add_product(rows, rank, in, scratch, rank, 1, of->a_RI, in, 1, memory, grad_inputs, in);
    }
    if (grad_a) write_product(0, 0, rank, rows, in, scratch, 1, rank, inputs, in, 1, memory, grad_a, in);
    if (grad_b) write_product(0, 0, out, rows, rank, grad, 1, out, between, rank, 1, memory, grad_b, rank);
}
