"""KTEPS: its terms by hand, its architectures, and its limiting cases."""

import math
from typing import Any, Literal

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from fedtext.client.worker import Worker
from fedtext.layout import TABLE
from fedtext.methods import KTEPS
from fedtext.methods.base import Batch, Model
from fedtext.methods.hsic import gram, hsic
from fedtext.models.bag import BagClassifier
from fedtext.models.parts import Parts
from fedtext.models.recurrent import RecurrentClassifier
from fedtext.parameters import initial
from fedtext.runtime.compiled import compile_problem
from tests import tiny
from tests.fedtext.methods.objectives import CORPUS
from tests.loops import nonempty


def test_kteps_without_its_weights_is_independent_losses_of_what_each_architecture_leaves_common() -> None:
    common = ["encoder.rnn.bias_ih_l0", TABLE]
    for architecture, reached in (("classifier", [1, 1]), ("encoder", [0, 1]), ("everything", [0, 0])):
        method = KTEPS(lambda1=0, lambda2=0, architecture=architecture)  # type: ignore[arg-type]
        assert [grad is not None for grad in tiny.grads(method, "ce_private", common)] == [bool(n) for n in reached]
        assert all(nonempty(grad is not None for grad in tiny.grads(method, "ce_shared", common)))
        model, batch = tiny.model_and_batch(method)
        terms = KTEPS(architecture=architecture).loss(model, {}, batch)  # type: ignore[arg-type]
        assert set(terms) == {"ce_shared", "ce_private", "transfer", "diversity"}
        shared = method.probabilities(model, batch, "shared")
        assert torch.allclose(terms["ce_shared"], cross_entropy(shared.log(), batch.labels_B))


def test_without_projections_one_encoder_has_no_diversity_and_two_have() -> None:
    for architecture in ("encoder", "everything"):
        method = KTEPS(projection=False, architecture=architecture)  # type: ignore[arg-type]
        model, batch = tiny.model_and_batch(method)
        _, _, o_s_BF, o_p_BF = model(batch)
        assert not torch.equal(o_s_BF, o_p_BF)
        assert "diversity" in method.loss(model, {}, batch)
    model, batch = tiny.model_and_batch(KTEPS(projection=False, lambda2=0))
    _, _, o_s_BF, o_p_BF = model(batch)
    assert torch.equal(o_s_BF, o_p_BF)
    with pytest.raises(ValueError, match=r"both branches have the same features.*set lambda2 to 0, or architecture"):
        KTEPS(projection=False)


def test_the_shared_branch_learns_alike_beside_a_branch_that_is_private_altogether_as_without_it() -> None:
    with_private = tiny.Finished({"name": "kteps", "architecture": "everything", "lambda1": 0, "lambda2": 0})
    for seed in (1, 2):  # whatever the private branch is
        other = Worker(
            with_private.experiment,
            CORPUS,
            CORPUS.clients,
            {name: value + seed for name, value in with_private.private.items()},
        )
        payloads = [worker.train(with_private.before, 1, [0])[0].payload for worker in (with_private.worker, other)]
        assert np.array_equal(*payloads)


def test_kteps_without_its_weights_is_two_independent_losses() -> None:
    method = KTEPS(lambda1=0, lambda2=0)
    model, batch = tiny.model_and_batch(method)
    terms = method.loss(model, {}, batch)
    g_s, g_p, _, _ = model(batch)
    assert set(terms) == {"ce_shared", "ce_private"}
    assert torch.equal(terms["ce_shared"], cross_entropy(g_s, batch.labels_B))
    assert torch.equal(terms["ce_private"], cross_entropy(g_p, batch.labels_B))


def test_kteps_transfer_by_hand() -> None:
    g_s, g_p = torch.tensor([[0.0, math.log(3)]]), torch.tensor([[math.log(4), 0.0]], requires_grad=True)
    teacher, student = (1 / 4, 3 / 4), (4 / 5, 1 / 5)  # softmax at T = 1
    printed = KTEPS(temperature=1).transfer(g_s, g_p)
    assert printed.item() == pytest.approx(-(student[0] * math.log(teacher[0]) + student[1] * math.log(teacher[1])))
    standard = KTEPS(temperature=1, distillation="standard").transfer(g_s, g_p)
    assert standard.item() == pytest.approx(-(teacher[0] * math.log(student[0]) + teacher[1] * math.log(student[1])))
    # T = 0.25 sharpens the teacher: odds 3 become 3^4
    sharp = KTEPS(temperature=0.25).transfer(g_s, g_p)
    assert sharp.item() == pytest.approx(-(student[0] * math.log(1 / 82) + student[1] * math.log(81 / 82)), rel=1e-5)


@pytest.mark.parametrize("distillation", ["printed", "standard"])
def test_kteps_transfer_teaches_the_private_branch_only(distillation: Literal["printed", "standard"]) -> None:
    g_s, g_p = torch.randn(4, 2, requires_grad=True), torch.randn(4, 2, requires_grad=True)
    KTEPS(distillation=distillation).transfer(g_s, g_p).backward()
    assert g_s.grad is None
    assert g_p.grad is not None


def test_hsic_equals_its_definition_and_by_hand() -> None:
    o_s, o_p = torch.randn(6, 3, dtype=torch.float64), torch.randn(6, 4, dtype=torch.float64)
    centring = torch.eye(6, dtype=torch.float64) - 1 / 6
    expected = torch.trace(gram(o_s, "median") @ centring @ gram(o_p, "median") @ centring) / 25
    assert hsic(o_s, o_p).item() == pytest.approx(expected.item())
    # two points: d^2 is its own median, so both Grams are [[1, 1/e], [1/e, 1]], centred (1 - 1/e)/2 * [[1,-1],[-1,1]]
    points = torch.tensor([[0.0], [7.0]], dtype=torch.float64)
    assert hsic(points, 3 * points).item() == pytest.approx((1 - 1 / math.e) ** 2)
    constant = torch.zeros(6, 2, dtype=torch.float64)
    assert hsic(o_s, constant, bandwidth=1.0).item() == pytest.approx(0, abs=1e-15)


def test_a_kernel_of_a_given_bandwidth_by_hand() -> None:
    """Squared distances 4 and 1 and 5, divided by b = 2."""
    kernel_BB = gram(torch.tensor([[0.0, 0.0], [2.0, 0.0], [0.0, 1.0]]), 2.0)
    assert kernel_BB[0].tolist() == pytest.approx([1.0, math.exp(-2.0), math.exp(-0.5)])
    assert kernel_BB[1, 2].item() == pytest.approx(math.exp(-2.5))


def test_diversity_has_a_gradient_at_any_scale_and_offset_with_a_median_bandwidth_and_not_with_a_small_one() -> None:
    base = torch.randn(8, 128)
    values = []
    for scale, offset in ((1.0, 0.0), (1e-3, 5.0), (1e3, 0.0)):
        o_s = (scale * base + offset).requires_grad_()
        value = hsic(o_s, base.flip(1))
        value.backward()
        values.append(value.item())
        assert o_s.grad is not None
        assert scale * o_s.grad.norm() > 1e-3
    assert values == pytest.approx([values[0]] * 3, rel=1e-2)
    saturated = (10 * base).requires_grad_()
    hsic(saturated, base, bandwidth=2.0).backward()
    assert saturated.grad is not None
    assert saturated.grad.norm() < 1e-12


def test_one_sample_has_no_diversity_term() -> None:
    model, batch = tiny.model_and_batch(KTEPS(), texts=1)
    assert "diversity" not in KTEPS().loss(model, {}, batch)


def test_kteps_inference_modes() -> None:
    model, batch = tiny.model_and_batch(KTEPS())
    shared, private, both = (KTEPS().probabilities(model, batch, mode) for mode in ("shared", "private", "both"))
    assert torch.allclose(both, (shared + private) / 2)
    assert not torch.allclose(shared, private)


def test_kteps_private_parameters_differ_between_clients_and_stay_with_them() -> None:
    corpus, experiment = tiny.corpus(), tiny.experiment("kteps")
    private = initial(experiment, corpus)[1]
    federation = tiny.federation(experiment, corpus)
    fleet = federation.fleet
    list(federation.run())
    heads = [fleet.worker.private[client]["head_private.0.weight"] for client in range(3)]
    assert not np.array_equal(heads[0], heads[1])
    assert not np.array_equal(heads[0], private["head_private.0.weight"])


def test_two_samples_have_a_diversity_term() -> None:
    model, batch = tiny.model_and_batch(KTEPS(), texts=2)
    assert KTEPS().loss(model, {}, batch)["diversity"].item() == pytest.approx((1 - 1 / math.e) ** 2, rel=1e-6)


@pytest.mark.skipif(bool(compile_problem()), reason=compile_problem())
@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"distillation": "standard", "bandwidth": 3.0, "temperature": 2.0},
        {"lambda1": 0, "architecture": "encoder"},
        {"lambda2": 0, "projection": False},
        {"projection": False, "architecture": "everything"},
    ],
    ids=str,
)
@pytest.mark.parametrize("hidden", [[], [7, 20]], ids=str)
def test_the_terms_in_c_and_their_gradients_are_those_of_torch(keys: dict[str, Any], hidden: list[int]) -> None:
    method = KTEPS.model_validate(keys)
    model = {"name": "bigru", "hidden": 5, "embedding": {"dim": 6}, "head": {"hidden": hidden}}
    torch.manual_seed(3)
    network = method.network(Parts(RecurrentClassifier.model_validate(model), classes=3)).double()
    named = {name: torch.randn_like(tensor).mul(0.5).requires_grad_() for name, tensor in network.named_parameters()}
    for name in [name for name in named if name.startswith("embedding")]:
        named[name] = torch.randn(20, 6, dtype=torch.float64, requires_grad=True)
    tokens = np.random.default_rng(0)
    for texts in nonempty([1, 2, 9]):
        lengths_B = torch.from_numpy(tokens.integers(1, 8, texts))
        tokens_BT, labels_B = torch.from_numpy(tokens.integers(1, 20, (texts, 8))), torch.arange(texts) % 3
        plain, native = (Batch(tokens_BT, lengths_B, labels_B, native=native) for native in (False, True))
        wanted, found = (method.loss(Model(network, named), named, batch) for batch in (plain, native))
        assert list(found) == list(wanted)
        assert all(type(term.grad_fn).__name__ == "NativeTermsBackward" for term in nonempty(list(found.values())))
        leaves = list(named.values())
        for name in nonempty(list(wanted)):
            assert found[name].item() == pytest.approx(wanted[name].item(), rel=1e-11, abs=1e-13), name
            ours, theirs = (
                torch.autograd.grad(
                    3 * term[name], leaves, retain_graph=True, allow_unused=True, materialize_grads=True
                )
                for term in (found, wanted)
            )
            for one, other in nonempty(list(zip(ours, theirs, strict=True))):
                assert torch.allclose(one, other, rtol=1e-9, atol=1e-12), name


@pytest.mark.skipif(bool(compile_problem()), reason=compile_problem())
@pytest.mark.parametrize("hidden", [[], [4]], ids=str)
def test_one_unit_for_two_classes_is_left_to_torch(hidden: list[int]) -> None:
    """Whose head may be a single layer too: in C its output would be the only class."""
    bag = {"name": "bag", "hidden": hidden, "output": "sigmoid", "embedding": {"dim": 5}}
    network = KTEPS().network(Parts(BagClassifier.model_validate(bag), classes=2)).double()
    named = dict(network.named_parameters()) | {TABLE: torch.randn(9, 5, dtype=torch.float64)}
    tokens_BT, lengths_B, labels_B = (
        torch.tensor([[1, 2], [3, 4], [5, 6]]),
        torch.tensor([2, 1, 2]),
        torch.tensor([0, 1, 1]),
    )
    plain, native = (
        KTEPS().loss(Model(network, named), named, Batch(tokens_BT, lengths_B, labels_B, native=native))
        for native in (False, True)
    )
    for name in nonempty(list(plain)):
        assert native[name].item() == pytest.approx(plain[name].item(), rel=1e-11), name
