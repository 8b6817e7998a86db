"""The index arithmetic of engine native, in C, against that of the other engines, in numpy."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from fedtext.runtime.compiled import compile_problem
from fedtext.training.batches import Assembler, Texts
from tests import tiny
from tests.loops import nonempty

pytestmark = pytest.mark.skipif(bool(compile_problem()), reason=compile_problem())


@pytest.mark.parametrize("directions", [1, 2])
@pytest.mark.parametrize(("cut", "ahead"), [(True, False), (False, False), (False, True)])
def test_a_recurrent_layer_gets_the_same_batch(directions: int, cut: bool, ahead: bool) -> None:
    rng = np.random.default_rng(directions)
    texts = Texts(tiny.token_set(rng, 60, 1, 300, 12), 300)
    cells = Assembler(directions, cut, torch.device("cpu"), "cells", ahead)
    native = replace(cells, engine="native")
    for size in nonempty([1, 2, 8, 60, 60]):
        chosen_B = rng.permutation(np.flatnonzero(texts.lengths_N > int(ahead)))[:size]
        (got, rows), (expected, expected_rows) = (each.single(texts, chosen_B) for each in (native, cells))
        assert np.array_equal(rows[0], expected_rows[0])
        assert got.words is not None
        assert expected.words is not None
        for name in nonempty(["tokens_BT", "lengths_B", "labels_B"]):
            assert torch.equal(getattr(got, name), getattr(expected, name)), name
        for name in nonempty(["word_S", "source_P"]):
            assert torch.equal(getattr(got.words, name), getattr(expected.words, name)), name
        packing, other = got.words.packing, expected.words.packing
        assert packing.sizes_T == other.sizes_T
        for name in nonempty(["order_CB", "starts_T", "lengths_CB"]):
            assert np.array_equal(getattr(packing, name), getattr(other, name)), name
    assert not texts.number_R.any(), "scratch is left as it was"


def test_a_bag_gets_the_numbers_of_its_words_and_their_rows() -> None:
    rng = np.random.default_rng(0)
    texts = Texts(tiny.token_set(rng, 30, 1, 200, 9), 200, as_sets=True)
    plain = Assembler(None, False, torch.device("cpu"), "native")
    chosen_B = rng.permutation(30)[:7]
    batch, (rows_U,) = replace(plain, cut=True).single(texts, chosen_B)
    whole, none = plain.single(texts, chosen_B)
    assert none == []
    there_BT = np.arange(whole.tokens_BT.shape[1]) < whole.here.lengths_B[:, None]
    assert np.array_equal(rows_U, np.unique(whole.here.tokens_BT[there_BT]))
    assert np.array_equal(rows_U[batch.here.tokens_BT[there_BT]], whole.here.tokens_BT[there_BT])
    assert np.array_equal(rows_U[batch.here.tokens_S], whole.here.tokens_BT[there_BT])
