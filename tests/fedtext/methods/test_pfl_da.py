"""PFL-DA: the mixture of shared and private predictions by hand, and its limiting cases."""

import math

import pytest
import torch
from torch.nn.functional import cross_entropy

from fedtext.methods import PFLDA
from fedtext.methods.pfl_da import mixture
from tests import tiny


def test_pfl_da_by_hand() -> None:
    g_s, g_p = torch.tensor([[0.0, math.log(3)]]), torch.tensor([[math.log(4), 0.0]])  # 1/4, 3/4 and 4/5, 1/5
    log_BC = mixture(g_s, g_p, torch.tensor([math.log(3)]))  # alpha = 3/4
    assert log_BC.exp()[0].tolist() == pytest.approx([0.75 * 0.25 + 0.25 * 0.8, 0.75 * 0.75 + 0.25 * 0.2])
    for gate, expected in ((200.0, [0.25, 0.75]), (-200.0, [0.8, 0.2]), (0.0, [0.525, 0.475])):
        assert mixture(g_s, g_p, torch.tensor([gate])).exp()[0].tolist() == pytest.approx(expected)


def test_pfl_da_with_an_open_gate_is_fedavg_and_with_a_new_one_the_mean_of_both() -> None:
    model, batch = tiny.model_and_batch(PFLDA())
    shared, private, both = (PFLDA().probabilities(model, batch, which) for which in ("shared", "private", "both"))
    assert torch.allclose(both, (shared + private) / 2)
    assert not torch.allclose(shared, private)
    right_B = both[torch.arange(5), batch.labels_B]
    assert PFLDA().loss(model, {}, batch)["ce"].item() == pytest.approx(-right_B.log().mean().item())
    model.parameters["gate_private.bias"] = torch.tensor([200.0], dtype=torch.float64)
    plain = cross_entropy(shared.log(), batch.labels_B)
    assert PFLDA().loss(model, {}, batch)["ce"].item() == pytest.approx(plain.item())
    assert torch.allclose(PFLDA().probabilities(model, batch, "both"), shared)
