"""Adapters of low rank: what is trained, sent and kept, and the aggregation of their factors."""

import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from fedtext.aggregations.lora import Factors, best_factors, mean_product
from fedtext.api.binding import bind
from fedtext.api.model import Model
from fedtext.layout import TABLE
from fedtext.ledger.distributed import grid
from fedtext.methods import METHODS, FedAvg
from fedtext.methods.copies import is_private, private_name
from fedtext.models.adapted import LoRALinear
from fedtext.models.adapters import RESIDUAL, A, B
from fedtext.models.batch import Batch
from fedtext.models.parts import Parts
from fedtext.models.transformer import TransformerClassifier
from fedtext.parameters import build_network, initial
from fedtext.server.trained import trained
from fedtext.testing.runs import check_run
from tests import tiny
from tests.checkpoints import SCRATCH, saved
from tests.loops import nonempty

LATE = {"personalize": None, "every": 2}
EXACT = {"aggregation": {"lora": {"factors": "exact"}}}
SIZES = {"architecture": "bert"}


def adapted(**lora: Any) -> dict[str, Any]:
    return SCRATCH | {"dropout": 0.0, "adapter": {"lora": {"rank": 2, **lora}}}


def finished(lora: Mapping[str, Any] | None = None, method: Any = "fedavg", **changes: Any) -> Any:
    rest = {"evaluation": LATE, "training": tiny.TRAINING | {"rounds": 2}} | changes
    return tiny.Finished(method, model=adapted(**lora or {}), **rest)


def shared(run: Any, flat: NDArray[np.float32] | None = None) -> Mapping[str, NDArray[np.float32]]:
    views: Mapping[str, NDArray[np.float32]] = run.layout.views(run.flat if flat is None else flat)
    return views


@pytest.mark.parametrize("architecture", ["bert", "distilbert"])
def test_an_adapter_begins_as_the_model_that_it_is_put_into(architecture: str) -> None:
    lengths_B = torch.tensor([4, 2])
    batch = Batch(torch.tensor([[1, 2, 3, 4], [5, 6, 0, 0]]), lengths_B, torch.tensor([0, 1]))
    every = {"modules": ["query", "key", "value", "output", "up", "down"]}
    outputs, names = [], []
    for model in (SCRATCH | {"dropout": 0.0}, adapted(**every)):
        config = TransformerClassifier.model_validate(model | {"architecture": architecture})
        torch.manual_seed(5)
        network = FedAvg().network(Parts(config, 2)).eval()
        network.embedding = torch.nn.Embedding.from_pretrained(torch.randn(9, 8, generator=torch.manual_seed(1)))
        outputs.append(network.encoder(network.embedding, batch))
        names.append({name for name, _ in network.named_parameters()})
    assert torch.allclose(*outputs, rtol=0, atol=1e-6)
    layers = [module for module in network.encoder.modules() if isinstance(module, LoRALinear)]
    assert len(layers) == 2 * 6
    assert {name for name in names[1] if name.startswith("encoder.")} == {
        name for name in names[1] if name.endswith((A, B))
    }
    assert len([name for name in names[1] if name.endswith((A, B))]) == 2 * 2 * 6


def test_a_layer_is_the_sum_of_its_weights_and_its_factors() -> None:
    config = TransformerClassifier.model_validate(adapted(alpha=3.0, residual=True)).adapter
    assert config is not None
    base = torch.nn.Linear(5, 4).double()
    layer = LoRALinear(base, config.lora).double()
    with torch.no_grad():
        layer.lora_B.normal_()
        assert layer.lora_residual is not None
        layer.lora_residual.normal_()
    inputs = torch.randn(3, 5, dtype=torch.float64)
    whole = base.weight + 3.0 / 2 * (layer.lora_B @ layer.lora_A + layer.lora_residual)
    assert torch.allclose(layer(inputs), inputs @ whole.T + base.bias, rtol=0, atol=1e-12)


def test_clients_send_factors_and_head_and_nothing_else_moves() -> None:
    run = finished()
    before, after = shared(run, run.before), shared(run)
    moved = {name for name in before if not np.array_equal(before[name], after[name])}
    sent = {name for name in before if name.endswith((A, B)) or name.startswith("head.")}
    assert moved == sent
    assert set(run.decoder.shapes(1)) == sent
    assert run.coordinates == sum(before[name].size for name in sent)
    assert set(before) == sent
    assert np.array_equal(trained(run, tiny.TWO).shared[TABLE], initial(run.experiment, tiny.TWO)[1][TABLE])
    assert run.rows[-1].metrics["loss"] < run.rows[0].metrics["loss"]


def test_the_second_factor_has_its_own_rate() -> None:
    """After one step of SGD: the first factor does not move yet, since the second is 0."""
    one_step = tiny.TRAINING | {"rounds": 1, "local_epochs": 1, "batch_size": 100, "optimizer": {"momentum": 0}}
    runs = [finished({"lr_ratio": ratio}, training=one_step) for ratio in (1, 8)]
    before = shared(runs[0], runs[0].before)
    moved = [{name: after - before[name] for name, after in shared(run).items()} for run in runs]
    for name in nonempty(before):
        times = 8 if name.endswith(f".{B}") else 1
        assert np.allclose(moved[1][name], times * moved[0][name], rtol=1e-4, atol=1e-8), name
        assert moved[0][name].any() == (name.endswith(f".{B}") or name.startswith("head.")), name


def test_every_process_builds_the_same_weights(checkpoint: Any) -> None:
    for model in (adapted(), {"name": "transformer", "checkpoint": str(checkpoint), "embedding": {"dim": 8}}):
        made = tiny.experiment("fedavg", model=model | {"adapter": {}})
        one, other = (dict(build_network(made, 2, 3).named_buffers()) for _ in range(2))
        assert one.keys() == other.keys()
        assert all(nonempty(torch.equal(one[name], other[name]) for name in one))


@pytest.mark.parametrize("method", sorted(METHODS.keys() - {"fedevocab", "fedrecon"}))
def test_adapters_train_with_every_method_whose_clients_train_no_embedding_of_their_own(method: str) -> None:
    run = finished(method=method)
    assert any(name.endswith(f".{B}") for name, _ in run.worker.network.named_parameters())
    losses = [record.metrics["loss"] for record in run.rows]
    assert len(losses) == 2
    assert np.isfinite(losses).all()


@pytest.mark.parametrize(
    ("lora", "changes"),
    [
        ({}, {}),
        ({"dropout": 0.2, "lr_ratio": 8}, {"method": "kteps"}),
        ({}, {"server": {"aggregation": "lora"}}),
        ({"residual": True}, {"server": EXACT}),
        ({"share": "a"}, {}),
        ({"train": "b"}, {"uplink": [{"clip": {"norm": 0.1}}, {"gaussian": {"sigma": 0.01}}]}),
        (
            {},
            {"uplink": [{"quantize": {"q": 0.01}}, {"randomized_response": {"epsilon": 4.0}}]},
        ),
        (
            {},
            {
                "uplink": [{"clip": {"norm": 0.3}}],
                "server": {"weights": "uniform", "noise": {"multiplier": 0.5}},
                "participation": {"fraction": 0.7, "sampling": "poisson"},
            },
        ),
        (
            {},
            {
                "uplink": [{"clip": {"norm": 0.3}}],
                "server": {"weights": "uniform", "secure_aggregation": {"range": 0.3}},
            },
        ),
    ],
)
def test_a_run_has_the_same_bits_in_any_packing_and_after_an_interruption(lora: Any, changes: Any) -> None:
    changes = dict(changes)
    made = tiny.experiment(changes.pop("method", "fedavg"), model=adapted(**lora), evaluation=LATE, **changes)
    check_run(made)


def test_kept_factors_stay_with_clients() -> None:
    run = finished({"share": "a"})
    assert not any(nonempty(name.endswith(f".{B}") for name in shared(run)))
    states = run.worker.private
    kept = {name for state in states.values() for name in state}
    assert kept
    assert all(nonempty(name.endswith(f".{B}") for name in kept))
    firsts = [state[min(kept)] for state in states.values()]
    assert not np.array_equal(*firsts[:2])
    assert "Ap_0" in run.rows[-1].metrics


def test_a_fixed_first_factor_is_no_parameter() -> None:
    run = finished({"train": "b"})
    assert not any(nonempty(name.endswith(f".{A}") for name in shared(run)))
    assert any(name.endswith(f".{B}") for name in shared(run))


def clients(rng: np.random.Generator, count: int = 5) -> tuple[list[Factors], NDArray[np.float64]]:
    made = [Factors(rng.standard_normal((3, 7)), rng.standard_normal((6, 3))) for _ in range(count)]
    share_K = rng.random(count)
    return made, share_K / share_K.sum()


def test_products_are_summed_and_factored_in_double_precision() -> None:
    rng = np.random.default_rng(0)
    made, share_K = clients(rng)
    written = sum(share * factors.b_OR @ factors.a_RI for share, factors in zip(share_K, made, strict=True))
    product_OI = mean_product(made, share_K)
    assert np.abs(product_OI - written).max() < 1e-12
    best = best_factors(product_OI, made[0].a_RI)
    values = np.linalg.svd(product_OI, compute_uv=False)
    assert np.linalg.norm(product_OI - best.product()) == pytest.approx(np.sqrt((values[3:] ** 2).sum()), rel=1e-9)
    alone = best_factors(made[0].product(), made[1].a_RI)
    assert np.abs(alone.product() - made[0].product()).max() < 1e-12
    none = best_factors(np.zeros((6, 7)), made[0].a_RI)
    assert np.array_equal(none.a_RI, made[0].a_RI)
    assert not none.b_OR.any()


def weights(state: Mapping[str, NDArray[np.float32]], layer: str, more: Mapping[str, Any] | None = None) -> Any:
    """B A, with the residual if there is one, in float64; ``more`` is a client's update."""
    first, second = (state[f"{layer}.{name}"].astype(np.float64) for name in (A, B))
    if more is not None:
        first, second = first + more[f"{layer}.{A}"], second + more[f"{layer}.{B}"]
    residual = state.get(f"{layer}.{RESIDUAL}")
    return second @ first + (0 if residual is None else residual.astype(np.float64))


@pytest.mark.parametrize("factors", ["exact", "svd", "mean"])
def test_the_model_of_a_round_is_the_mean_of_the_clients_models(factors: str) -> None:
    made = tiny.experiment(
        "fedavg",
        model=adapted(residual=factors == "exact"),
        server={"aggregation": {"lora": {"factors": factors}}},
        training=tiny.TRAINING | {"rounds": 3},
        evaluation=LATE | {"every": 3},
    )
    run = tiny.federation(made, tiny.TWO, tiny.Recording)
    before = {name: tensor.copy() for name, tensor in shared(run).items()}
    for record in nonempty(run.run()):
        updates = [
            run.decoder.update(reply.payload, reply.client, run.flat, record.round) for reply in run.fleet.received
        ]
        total = sum(update.samples for update in updates)
        now, missed, norm = shared(run), 0.0, 0.0
        for layer in nonempty([name.removesuffix(f".{A}") for name in now if name.endswith(f".{A}")]):
            each = [update.samples / total * weights(before, layer, update.tensors) for update in updates]
            apart = np.linalg.norm(sum(each) - weights(now, layer))
            missed, norm = missed + apart**2, norm + np.linalg.norm(sum(each)) ** 2
            if factors == "exact":
                assert np.abs(sum(each) - weights(now, layer)).max() < 1e-6
        assert record.metrics["lora_error"] > 1e-3 or (factors == "svd" and record.metrics["lora_error"] >= 0)
        if factors != "exact":
            assert record.metrics["lora_error"] == pytest.approx((missed / norm) ** 0.5, rel=1e-3, abs=1e-6)
        before = {name: tensor.copy() for name, tensor in now.items()}
    if factors == "exact":
        assert any(tensor.any() for name, tensor in before.items() if name.endswith(RESIDUAL))


@pytest.mark.parametrize("method", ["ditto", "apfl"])
def test_a_personal_copy_has_the_residual_of_the_shared_model(method: str) -> None:
    """It is a part of the base of every model, as in Singhal et al. 2025, equation 8."""
    run = tiny.Finished(
        method,
        tiny.TWO,
        model=adapted(residual=True),
        server=EXACT,
        training=tiny.TRAINING | {"rounds": 2},
        evaluation=LATE,
        save={"model": "clients"},
    )
    made = trained(run, tiny.TWO)
    found = bind(made, made.names[0]).model.parameters
    for name in nonempty([name for name in found if name.endswith(RESIDUAL) and not is_private(name)]):
        assert found[name].any()
        assert torch.equal(found[private_name(name)], found[name])
        assert not torch.equal(found[private_name(name.replace(RESIDUAL, A))], found[name.replace(RESIDUAL, A)])
    local = run.worker.stack(run.flat, [0]).tensors(0)
    for name in nonempty([name for name in local if name.endswith(RESIDUAL)]):
        assert torch.equal(local[name], found[name])


def test_a_layer_is_adapted_once() -> None:
    with pytest.raises(ValueError, match="name each layer once"):
        tiny.experiment("fedavg", model=adapted(modules=["query", "query"]))


def test_a_saved_model_has_the_weights_that_its_adapters_are_put_into(tmp_path: Path) -> None:
    checkpoint = saved("bert", tmp_path / "checkpoint")
    model = {"name": "transformer", "checkpoint": str(checkpoint), "embedding": {"dim": 8}, "adapter": {}}
    rows = len(tiny.TWO.vocabulary)
    corpus = replace(tiny.TWO, table_VD=np.random.default_rng(0).standard_normal((rows, 8)).astype(np.float32))
    run = tiny.Finished("fedavg", corpus, model=model, training=tiny.TRAINING | {"rounds": 1}, evaluation=LATE)
    made = Model(trained(run, corpus))
    before = made.predict([" ".join(corpus.vocabulary[2:5])])
    made.save(tmp_path / "model")
    shutil.rmtree(checkpoint)
    assert Model.load(tmp_path / "model").predict([" ".join(corpus.vocabulary[2:5])]) == before


def test_the_noise_of_clients_is_of_the_coordinates_that_are_sent() -> None:
    noise = {"multiplier": 1.0, "mechanism": "skellam"}
    server = {
        "weights": "uniform",
        "noise": noise,
        "secure_aggregation": {"range": 0.3, "masks": False, "colluding": 0.0},
    }
    changes = {
        "uplink": [{"clip": {"norm": 0.3}}],
        "server": server,
        "participation": {"min_clients": 4},
    }
    run = tiny.Finished("fedavg", tiny.corpus(clients=4), model=adapted(), evaluation=LATE, **changes)
    assert TABLE not in run.decoder.sent.shapes
    assert run.step.summation.ring.grid == grid(run.experiment, 4, run.coordinates)
    assert run.worker.secure.ring.grid == run.step.summation.ring.grid
