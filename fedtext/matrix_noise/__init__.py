"""Correlated Gaussian noise for sums over rounds (DP-FTRL, matrix mechanisms).

A run releases prefix sums of its rounds' updates: A x with x the updates by round and A the lower triangle of
ones. A strategy factors A = B C. Releasing C x + s Z, with Z standard normal and s the noise multiplier times the
sensitivity of C, is one Gaussian mechanism, and what is released, A x + s B Z, is computed from it. The round's update
gets the noise s (C^-1 Z)_t, a part of which later rounds take away again.

The sensitivity of C depends on how often a client takes part, and how many rounds lie between. Here a client takes part
at most once in any ``separation`` consecutive rounds. Then it is the largest norm of a sum of columns of C that are at
least as far apart, for vectors x_t of norm 1 or less (Choquette-Choo et al. 2023, Multi-Epoch Matrix Factorization).
It also holds if updates depend on what was released before (Denisov et al. 2022), as in training.

Legend: N rounds, P parameters.
"""

from fedtext.matrix_noise.banded import optimal_bands
from fedtext.matrix_noise.blt import optimal_buffers
from fedtext.matrix_noise.square_root import inverse_square_root
from fedtext.matrix_noise.strategy import Errors, Strategy
from fedtext.matrix_noise.toeplitz import Banded, Buffered, InverseBanded
from fedtext.matrix_noise.tree import Tree

__all__ = [
    "Banded",
    "Buffered",
    "Errors",
    "InverseBanded",
    "Strategy",
    "Tree",
    "inverse_square_root",
    "optimal_bands",
    "optimal_buffers",
]
