"""Clients of unequal ranks: who has which, what they receive, train and send, and how the server combines it."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from safetensors.numpy import load, load_file

from fedtext.aggregations.lora import Factors, best_factors, mean_product
from fedtext.api.model import Model
from fedtext.client.evaluate import evaluate_client
from fedtext.evaluation import SPLITS
from fedtext.models.adapters import A, B
from fedtext.models.ranks import ALIKE, Ranks, assigned
from fedtext.server.trained import trained
from fedtext.state.fingerprint import fingerprint
from fedtext.testing.runs import check_run
from fedtext.wire.encoding import encoded_size
from sweeps.cost import cost
from tests import tiny
from tests.checkpoints import SCRATCH, saved
from tests.loops import nonempty

SHARES = {1: 0.4, 2: 0.4, 4: 0.2}
CORPUS = tiny.corpus(clients=5)
OPTIMIZER = {"name": "adamw", "lr": 0.05, "weight_decay": 0.1}
Shared = Mapping[str, NDArray[np.float32]]


def experiment(factors: str = "svd", method: Any = "fedavg", lora: Any = None, **changes: Any) -> Any:
    base: dict[str, Any] = {
        "model": SCRATCH | {"dropout": 0.0, "adapter": {"lora": {"ranks": SHARES} if lora is None else lora}},
        "server": {"aggregation": {"lora": {"factors": factors}}},
        "training": tiny.TRAINING | {"optimizer": OPTIMIZER},
        "evaluation": {"personalize": None, "every": 2},
    }
    return tiny.experiment(method, **base | changes)


@cache
def rounds(factors: str) -> Any:
    """A run of two rounds: of each the parameters before and after it, the updates, and its metrics."""
    run = tiny.federation(experiment(factors), CORPUS, tiny.Recording)
    found, before = [], {name: tensor.copy() for name, tensor in run.state.items()}
    for record in run.run():
        updates = {
            r.client: run.decoder.update(r.payload, r.client, run.flat, record.round) for r in run.fleet.received
        }
        after = {name: tensor.copy() for name, tensor in run.state.items()}
        found.append((before, after, updates, record.metrics, list(run.fleet.received)))
        before = after
    assert len(found) == 2
    return run, found


def layers(state: Shared) -> list[str]:
    return [name.removesuffix(f".{A}") for name in state if name.endswith(f".{A}")]


@pytest.mark.parametrize(("clients", "counts"), [(10, [5, 3, 2]), (7, [4, 2, 1]), (1, [1, 0, 0]), (100, [50, 30, 20])])
def test_as_many_clients_have_a_rank_as_its_share_says(clients: int, counts: list[int]) -> None:
    rank_K = assigned({8: 0.2, 2: 0.5, 4: 0.3}, 3, clients)
    assert [Counter(rank_K.tolist())[rank] for rank in (2, 4, 8)] == counts
    assert np.array_equal(rank_K, assigned({2: 0.5, 4: 0.3, 8: 0.2}, 3, clients))


def test_who_has_which_rank_is_a_draw_of_the_experiment() -> None:
    draws = {tuple(assigned(SHARES, seed, 10).tolist()) for seed in range(20)}
    assert len(draws) > 15
    first = Counter(draw[0] for draw in draws)
    assert set(first) == {1, 2, 4}


def test_a_client_has_the_first_entries_along_the_axis_of_ranks() -> None:
    axes = {f"a.{A}": 0, f"a.{B}": 1}
    ranks = Ranks(axes.get, np.array([2, 3]))
    tensors = {f"a.{A}": np.arange(1.0, 13).reshape(3, 4), f"a.{B}": np.arange(1.0, 7).reshape(2, 3), "w": np.ones(2)}
    held, masked = ranks.held(tensors, 0), ranks.masked(tensors, 0)
    assert held[f"a.{A}"].tolist() == [[1, 2, 3, 4], [5, 6, 7, 8]]
    assert held[f"a.{B}"].tolist() == [[1, 2], [4, 5]]
    assert masked[f"a.{B}"].tolist() == [[1, 2, 0], [4, 5, 0]]
    assert masked[f"a.{A}"].tolist() == [[1, 2, 3, 4], [5, 6, 7, 8], [0, 0, 0, 0]]
    assert held["w"] is masked["w"] is tensors["w"]
    assert tensors[f"a.{B}"].all()
    tensor = ranks.masked({f"a.{B}": torch.ones(2, 3)}, 0)[f"a.{B}"]
    assert tensor.tolist() == [[1, 1, 0], [1, 1, 0]]
    shapes = {name: array.shape for name, array in tensors.items()}
    assert ranks.shapes(shapes, 0) == {f"a.{A}": (2, 4), f"a.{B}": (2, 2), "w": (2,)}
    assert ranks.shapes(shapes, 1) == ALIKE.shapes(shapes, 0) == shapes
    assert ranks.lacking(shapes) == pytest.approx((4 + 2) / 2)
    assert ALIKE.lacking(shapes) == 0
    assert (ranks.rank(1), ALIKE.rank(1)) == (3, None)


def test_flexlora_in_double_precision_is_the_singular_value_decomposition_of_the_mean_product() -> None:
    rng, share_K = np.random.default_rng(0), np.array([0.5, 0.3, 0.2])
    made = [Factors(rng.standard_normal((rank, 7)), rng.standard_normal((6, rank))) for rank in (1, 2, 4)]
    written = torch.from_numpy(sum(w * each.b_OR @ each.a_RI for w, each in zip(share_K, made, strict=True)))
    product_OI = mean_product(made, share_K)
    assert np.abs(product_OI - written.numpy()).max() < 1e-12
    new = best_factors(product_OI, made[2].a_RI)
    left, values, right = torch.linalg.svd(written)
    for rank in (1, 2, 4):
        best = (left[:, :rank] * values[:rank]) @ right[:rank]
        assert np.abs(new.b_OR[:, :rank] @ new.a_RI[:rank] - best.numpy()).max() < 1e-12
    part = made[2].changed(np.ones((2, 7), np.float32), np.ones((6, 2), np.float32))
    assert np.array_equal(part.a_RI, made[2].a_RI[:2] + 1)
    assert np.array_equal(part.b_OR, made[2].b_OR[:, :2] + 1)


def test_a_round_of_flexlora_is_its_brute_force_computation() -> None:
    """And the first r rows and columns, which a client of rank r receives, are the best approximation of that rank."""
    run, found = rounds("svd")
    rank_K = assigned(SHARES, run.experiment.seed, 5)
    for before, after, updates, metrics, _ in nonempty(found):
        total = sum(update.samples for update in updates.values())
        for layer in nonempty(layers(after)):
            mean = torch.zeros(8, 8, dtype=torch.float64)
            for client, update in updates.items():
                rank = rank_K[client]
                first = before[f"{layer}.{A}"][:rank].astype(np.float64) + update.tensors[f"{layer}.{A}"]
                second = before[f"{layer}.{B}"][:, :rank].astype(np.float64) + update.tensors[f"{layer}.{B}"]
                mean += update.samples / total * torch.from_numpy(second @ first)
            left, values, right = torch.linalg.svd(mean)
            for rank in sorted(SHARES):
                best = (left[:, :rank] * values[:rank]) @ right[:rank]
                received = after[f"{layer}.{B}"][:, :rank] @ after[f"{layer}.{A}"][:rank]
                assert np.abs(received - best.numpy()).max() < 1e-6
            assert values[4] > 1e-6  # the mean has a higher rank
        assert metrics["lora_error"] > 0
    assert any(np.abs(now - then).max() > 0.01 for now, then in zip(after.values(), found[0][0].values(), strict=True))


def test_each_row_has_the_mean_of_the_clients_that_have_it() -> None:
    run, found = rounds("mean")
    rank_K = assigned(SHARES, run.experiment.seed, 5)
    for before, after, updates, _, _ in nonempty(found):
        for layer in nonempty(layers(after)):
            for row in range(4):
                among = [update for client, update in updates.items() if rank_K[client] > row]
                for name, place in ((f"{layer}.{A}", row), (f"{layer}.{B}", (slice(None), row))):
                    changes = [update.samples * update.tensors[name][place].astype(np.float64) for update in among]
                    written = before[name][place] + sum(changes) / sum(update.samples for update in among)
                    assert np.abs(after[name][place] - written).max() < 1e-6
    few = run.experiment.aggregation.aggregate(before, [updates[int(np.argmin(rank_K))]])[0]
    assert np.array_equal(few[f"{layer}.{A}"][1:], before[f"{layer}.{A}"][1:])  # nobody has them
    assert not np.array_equal(few[f"{layer}.{A}"][:1], before[f"{layer}.{A}"][:1])


def test_a_client_sends_and_receives_what_it_has() -> None:
    run, found = rounds("svd")
    shapes = {name: tensor.shape for name, tensor in run.state.items()}
    bytes_down, numbers = 0, []
    for client in range(5):
        rank = int(assigned(SHARES, run.experiment.seed, 5)[client])
        of = {n: (rank, 8) if n.endswith(A) else (8, rank) if n.endswith(B) else shape for n, shape in shapes.items()}
        payload = load(next(reply for reply in found[-1][4] if reply.client == client).payload.tobytes())
        sent = {name: tensor for name, tensor in payload.items() if not name.startswith("#")}
        assert {name: tensor.shape for name, tensor in sent.items()} == {name: of[name] for name in sent}
        assert len([name for name in sent if name.endswith((A, B))]) == 8
        numbers.append(sum(tensor.size for tensor in sent.values()))
        down = {name: shape for name, shape in of.items() if name in sent}
        assert down.keys() == shapes.keys() - {"embedding.weight"}
        bytes_down += encoded_size(down)
    _, _, _, metrics, replies = found[-1]
    assert metrics["bytes_up"] == sum(reply.payload.nbytes for reply in replies)
    assert metrics["bytes_down"] == bytes_down  # the table does not change, and has been received before
    assert run.coordinates == max(numbers)
    told = cost(run.experiment, CORPUS)
    assert (told.up, told.down) == pytest.approx((4 * np.mean(numbers), 4 * np.mean(numbers)))


@pytest.mark.parametrize("method", ["fedprox", "ditto", "kteps"])
def test_no_step_moves_what_a_client_does_not_have(method: str) -> None:
    factors_of = "mean" if method == "ditto" else "svd"  # Ditto compares factors, which svd computes anew
    run = tiny.federation(experiment(factors_of, method=method), CORPUS)
    for _ in nonempty(run.run()):
        pass
    host = run.fleet.worker
    for client, rank in nonempty(enumerate(assigned(SHARES, run.experiment.seed, 5).tolist())):
        phase = host.method.phases(1)[-1]
        stack = host.stack(run.flat, [client])
        host.run(phase, stack, run.flat, [client], 1)
        factors = {name: tensor for name, tensor in stack.tensors(0).items() if name.endswith((A, B))}
        assert len(factors) == (16 if method == "ditto" else 8)
        for name, tensor in nonempty(factors.items()):
            held = tensor.movedim(1 if name.endswith(B) else 0, 0)
            assert held[:rank].abs().sum() > 0
            assert not held[rank:].any()


def test_a_client_evaluates_what_it_has_received() -> None:
    run, _ = rounds("svd")
    host = run.fleet.worker
    masked = run.flat.copy()
    for name, tensor in run.layout.views(masked).items():
        if name.endswith((A, B)):
            np.moveaxis(tensor, 1 if name.endswith(B) else 0, 0)[1:] = 0
    client = int(np.argmin(assigned(SHARES, run.experiment.seed, 5)))
    whole, first = (evaluate_client(host, flat, 2, client, False, SPLITS, {}) for flat in (run.flat, masked))
    assert whole.metrics == first.metrics
    host.ranks, ranks = ALIKE, host.ranks
    stacks = [host.stack(flat, [client]).flat_CP.clone() for flat in (run.flat, masked)]
    host.ranks = ranks
    assert not torch.equal(*stacks)


def test_the_texts_of_all_clients_are_read_by_the_model_of_each() -> None:
    run = tiny.federation(experiment(evaluation={"personalize": None, "every": 2, "union": {}}), CORPUS)
    flat = run.flat + np.random.default_rng(0).standard_normal(run.flat.size).astype(np.float32)
    one_by_one = [run.fleet.worker.evaluate(flat, 2, [client], True)[client].metrics for client in range(5)]
    together = run.fleet.worker.evaluate(flat, 2, range(5), True)
    assert [together[client].metrics for client in range(5)] == one_by_one
    assert len({metrics["Global"] for metrics in one_by_one}) > 1


@pytest.mark.parametrize(
    ("factors", "changes"),
    [
        ("svd", {}),
        ("mean", {"method": "ditto", "server": {"aggregation": "lora", "optimizer": {"name": "sgd", "momentum": 0.5}}}),
        ("svd", {"uplink": [{"clip": {"norm": 0.1}}, {"gaussian": {"sigma": 0.01}}]}),
        ("svd", {"uplink": [{"quantize": {"q": 0.1}}, {"randomized_response": {"epsilon": 4.0}}]}),
        ("svd", {"method": "lg_fedavg", "server": {}}),  # nothing of a factor is shared, and the server combines none
    ],
)
def test_a_run_has_the_same_bits_in_any_packing_and_after_an_interruption(factors: str, changes: Any) -> None:
    check_run(experiment(factors, **changes), tiny.corpus(clients=3))


def test_a_single_rank_is_the_rank_of_all() -> None:
    one, other = experiment(lora={"ranks": {4: 1.0}}), experiment(lora={"rank": 4})
    assert one == other
    assert fingerprint(one, "", 5) == fingerprint(other, "", 5)
    unequal = experiment()
    assert unequal.model.adapter.lora.rank == 4
    assert type(unequal).model_validate(unequal.model_dump(mode="json")) == unequal
    assert fingerprint(unequal, "", 5) != fingerprint(other, "", 5)


@pytest.mark.parametrize(
    ("lora", "sentence"),
    [
        ({"ranks": {2: 0.5, 8: 0.4}}, "the shares add up to 0.9: they are to add up to 1"),
        ({"ranks": {8: 0.4}}, "the shares add up to 0.4"),
        ({"ranks": {}}, "the shares add up to 0"),
        ({"ranks": {2: 0.5, 8: 0.5}, "rank": 4}, "the largest is 8, and rank, in the place of which they are, is 4"),
        ({"ranks": {4: 1.0}, "rank": 8}, "the largest is 4, and rank, in the place of which they are, is 8"),
        ({"ranks": {0: 0.5, 8: 0.5}}, "greater than 0"),
        ({"ranks": {2: 0.0, 8: 1.0}}, "greater than 0"),
        ({"ranks": {"two": 1.0}}, "valid integer"),
    ],
)
def test_ranks_that_are_none_are_refused(lora: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        experiment(lora=lora)


def test_a_saved_adapter_has_the_largest_rank_and_a_clients_model_its_own(tmp_path: Path) -> None:
    base = saved("bert", tmp_path / "checkpoint")
    made = experiment(
        model={"name": "transformer", "checkpoint": str(base), "embedding": {"dim": 8}}
        | {"adapter": {"lora": {"ranks": SHARES, "alpha": 64.0}}},
        save={"model": "clients"},
    )
    rows = len(CORPUS.vocabulary)
    corpus = replace(CORPUS, table_VD=np.random.default_rng(0).standard_normal((rows, 8)).astype(np.float32))
    run = tiny.federation(made, corpus)
    for _ in nonempty(run.run()):
        pass
    Model(trained(run, corpus)).save(tmp_path / "model")
    factors = load_file(tmp_path / "model" / "adapter" / "adapter_model.safetensors")
    assert {min(tensor.shape) for tensor in factors.values()} == {4}
    model, texts = Model.load(tmp_path / "model"), [" ".join(corpus.vocabulary[2:9])]
    whole, rank_K = model.predict(texts), assigned(SHARES, made.seed, 5)
    for client, rank in nonempty(enumerate(rank_K.tolist())):
        assert (model.predict(texts, client=f"client{client}") == whole) == (rank == 4)
