"""Embedding rows that batches touch now and then."""

import numpy as np
import pytest
import torch

from fedtext.layout import Layout
from fedtext.models.config import TABLE
from fedtext.training.stack import Stack, Workspace
from fedtext.training.tables import TouchedRows
from tests import tiny

ROWS, STEPS, LR = 6, 40, 0.3


@pytest.mark.parametrize("momentum", [0.0, 0.01, 0.9, 0.999999])
def test_rows_make_the_steps_they_missed(momentum: float) -> None:
    """Against torch's own optimizer of the whole table. 0.01^k is no number any more before the steps are over."""
    rng = np.random.default_rng(0)
    stack = Stack(Layout({TABLE: (ROWS, 2)}), [ROWS], Workspace(torch.device("cpu"), torch.float64))
    dense = torch.from_numpy(rng.normal(size=(ROWS, 2))).requires_grad_()
    stack.tensors(0)[TABLE].copy_(dense.detach())
    theirs, ours = torch.optim.SGD([dense], lr=LR, momentum=momentum), TouchedRows(stack, LR, momentum)
    for turn in range(2):  # the second one starts anew, and knows how far the first one looked ahead
        ours.reset()
        theirs.state.clear()
        for _ in range(STEPS * (1 + 3 * turn)):
            words = np.sort(rng.choice(ROWS - 1, 2, replace=False))  # the last row is never touched
            gradient = torch.from_numpy(rng.normal(size=(2, 2)))
            assert torch.allclose(ours.begin(range(1), [words]), dense[words], rtol=0, atol=1e-12)
            ours.step(range(1), gradient)
            dense.grad = torch.zeros_like(dense).index_copy(0, torch.from_numpy(words), gradient)
            theirs.step()
        ours.finish()
        assert torch.allclose(stack.tensors(0)[TABLE], dense, rtol=0, atol=1e-12)
        velocity = theirs.state[dense].get("momentum_buffer", None) if momentum else None
        if velocity is not None:
            assert torch.allclose(ours.state(0)["momentum_buffer"], velocity, rtol=0, atol=1e-12)


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize(("engine", "stack"), [("reference", 1), ("cells", 1), ("cells", 3)])
def test_a_frozen_table_stays_and_everything_else_learns_as_it_would(optimizer: str, engine: str, stack: int) -> None:
    """Beside a table whose steps are too small to show in float32."""

    def trained(embedding_lr: float) -> tiny.Finished:
        options = {"name": optimizer, "lr": 0.05, "embedding_lr": embedding_lr, "persist": True}
        return tiny.Finished(
            "fedavg", training=tiny.TRAINING | {"optimizer": options, "engine": engine, "stack": stack}
        )

    frozen, slow = trained(0), trained(1e-30)
    before = frozen.layout.views(frozen.before)
    assert frozen.state[TABLE].tobytes() == before[TABLE].tobytes()
    for name, tensor in frozen.state.items():
        np.testing.assert_array_equal(tensor, slow.state[name], err_msg=name)
        assert name == TABLE or (tensor != before[name]).any(), name
