"""PCA compression of the embedding: by hand, on the wire, in a run."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import load

from fedtext.config import files
from fedtext.errors import UserError
from fedtext.layout import TABLE
from fedtext.ledger import ledger
from fedtext.ledger.report import reveals
from fedtext.mechanisms import Project
from fedtext.mechanisms.project import BASIS, components
from fedtext.methods import METHODS
from fedtext.parameters import initial
from fedtext.seeding import generator
from fedtext.server.federation import Federation
from fedtext.wire.decoder import Decoder
from tests import tiny
from tests.loops import nonempty
from tests.sampled import slow_but
from tests.tiny import Recording
from tune_spaces.cases import cases

RNG = generator(0, "test")
DIM = 5  # of tiny.experiment's embedding
SHARING = [name for name, m in METHODS.items() if m.shares and not m.pooled and not m.whole_table]
SQRT_HALF = np.sqrt(0.5).astype(np.float32)


def project(d1: int, d2: int, *others: Any) -> list[Any]:
    return [{"project": {"d1": d1, "d2": d2}}, *others]


def run(method: str = "fedavg", **changes: Any) -> tuple[Federation, Recording, list[dict[str, Any]]]:
    corpus, experiment = tiny.corpus(), tiny.experiment(method, **changes)
    federation = tiny.federation(experiment, corpus, Recording)
    fleet = federation.fleet
    return federation, fleet, list(federation.run())


def tables(rows: int, dim: int, seed: int = 0) -> tuple[dict[str, NDArray[np.float32]], dict[str, NDArray[np.float32]]]:
    """Received parameters and a change of them, with a mean far from zero."""
    rng = np.random.default_rng(seed)
    received = {TABLE: (rng.standard_normal((rows, dim)) * np.linspace(3, 0.3, dim) + 2).astype(np.float32)}
    received["bias"] = rng.standard_normal(3).astype(np.float32)
    return received, {name: (0.1 * rng.standard_normal(t.shape)).astype(np.float32) for name, t in received.items()}


def test_two_dimensions_by_hand() -> None:
    """The rows (3,1), (1,3), (-1,-3), (-3,-1), shifted by (10, 0): the covariance is [[5, 3], [3, 5]], its eigenvectors
    (1, 1) and (1, -1) over sqrt 2 with eigenvalues 8 and 2."""
    received = {TABLE: np.array([[13, 0], [11, 3], [9, -3], [7, -1]], np.float32)}
    delta = {TABLE: np.array([[0, 1], [0, 0], [0, 0], [0, 0]], np.float32), "bias": np.array([1.0], np.float32)}
    first = Project(d1=1, d2=1)
    sent = first.apply(delta, received, RNG)
    assert np.allclose(sent[BASIS], [[SQRT_HALF], [SQRT_HALF]])
    assert np.allclose(sent[TABLE][:, 0], np.array([14, 14, 6, 6]) * SQRT_HALF)  # of the raw rows, mean and all
    assert np.array_equal(sent["bias"], delta["bias"])
    assert first.metrics(delta, received, sent)["energy_kept"] == pytest.approx(0.8)
    restored = first.restore(sent, received)
    assert set(restored) == {TABLE, "bias"}
    assert np.allclose(received[TABLE] + restored[TABLE], [[7, 7], [7, 7], [3, 3], [3, 3]], atol=1e-5)
    second = Project(d1=2, d2=2)
    sent = second.apply(delta, received, RNG)
    assert np.allclose(np.abs(sent[BASIS]), SQRT_HALF)
    assert sent[BASIS][0, 0] * sent[BASIS][1, 0] < 0
    assert second.metrics(delta, received, sent)["energy_kept"] == pytest.approx(0.2)


@pytest.mark.parametrize(("rows", "dim"), [(50, 8), (3, 8), (1, 4)], ids=["many rows", "few rows", "one row"])
def test_all_components_are_the_identity_up_to_rounding(rows: int, dim: int) -> None:
    received, delta = tables(rows, dim)
    everything = Project(d1=1, d2=dim)
    sent = everything.apply(delta, received, RNG)
    restored = everything.restore(sent, received)
    assert np.abs(restored[TABLE] - delta[TABLE]).max() < 1e-5
    assert restored[TABLE].dtype == sent[TABLE].dtype == sent[BASIS].dtype == np.float32
    assert np.array_equal(restored["bias"], delta["bias"])
    if rows > 1:
        assert everything.metrics(delta, received, sent)["energy_kept"] == pytest.approx(1, abs=1e-5)


def test_components_are_eigenvectors_in_order_and_their_signs_are_settled() -> None:
    table_RD = tables(60, 6)[0][TABLE].astype(np.float64)
    vectors_DD = components(table_RD)
    covariance_DD = np.cov(table_RD.T, bias=True)
    values_D = np.diag(vectors_DD.T @ covariance_DD @ vectors_DD)
    assert np.allclose(covariance_DD @ vectors_DD, vectors_DD * values_D)
    assert np.all(np.diff(values_D) < 0)
    assert np.allclose(vectors_DD.T @ vectors_DD, np.eye(6))
    assert np.all(vectors_DD[np.abs(vectors_DD).argmax(0), np.arange(6)] > 0)
    shifted = components(5 - table_RD[::-1])  # the covariance knows neither sign nor order of rows, nor their mean
    assert np.allclose(shifted, vectors_DD)


def test_the_largest_entry_of_every_component_is_positive() -> None:
    """Of a table whose axes are turned, so that a component's largest entry is not that of its own number."""
    rng = np.random.default_rng(4)
    turned_DD = np.linalg.qr(rng.standard_normal((7, 7)))[0]
    table_RD = (rng.standard_normal((80, 7)) * np.linspace(4, 0.5, 7)) @ turned_DD
    vectors_DD = components(table_RD)
    largest_D = np.abs(vectors_DD).argmax(0)
    assert np.any(largest_D != np.abs(vectors_DD).argmax(1))
    assert np.all(vectors_DD[largest_D, np.arange(7)] > 0)


def test_what_is_restored_is_the_projection_on_the_kept_components() -> None:
    received, delta = tables(40, 8)
    chosen = Project(d1=3, d2=6)
    restored = chosen.restore(chosen.apply(delta, received, RNG), received)[TABLE] + received[TABLE]
    table_RD = (received[TABLE] + delta[TABLE]).astype(np.float64)
    values_D, ascending_DD = np.linalg.eigh(np.cov(table_RD.T, bias=True))
    kept_DM = ascending_DD[:, ::-1][:, 2:6]
    assert np.allclose(restored, table_RD @ kept_DM @ kept_DM.T, atol=1e-5)
    share = values_D[::-1][2:6].sum() / values_D.sum()
    figures = chosen.metrics(delta, received, chosen.apply(delta, received, RNG))
    assert figures["energy_kept"] == pytest.approx(share, rel=1e-5)


@pytest.mark.parametrize("rows", ["own", "all"])
@pytest.mark.parametrize("method", SHARING)
def test_every_method_sends_so_many_numbers_of_its_embedding(method: str, rows: str) -> None:
    if not tiny.experiment(method).shares_table:
        with pytest.raises(ValueError, match=f"project needs a shared embedding, and method {method} shares none"):
            tiny.experiment(method, uplink=project(2, 4))
        return
    federation, fleet, made = run(method, uplink=project(2, 4), wire={"rows": rows})
    decoder, plain = Decoder(fleet.worker.experiment, federation.layout), set(federation.layout.shapes)
    assert len(fleet.received) == 3
    for reply in nonempty(fleet.received):
        content, data = load(reply.payload.tobytes()), fleet.worker.clients[reply.client]
        assert set(content) == plain | {BASIS, "#samples"} | ({"#rows"} if rows == "own" else set())
        kept = [] if fleet.withheld is None else fleet.withheld
        sent = int((~np.isin(data.rows_R[: data.train_rows], kept)).sum())
        count = sent if rows == "own" else federation.layout.shapes[TABLE][0]
        assert content[TABLE].shape == (count, 3)
        assert content[BASIS].shape == (DIM, 3)
        update = decoder.update(reply.payload, reply.client, federation.flat, 1)
        assert {name: tensor.shape for name, tensor in update.tensors.items()} == (
            federation.layout.with_rows(count).shapes
        )
    assert made[-1].metrics["bytes_up"] == sum(len(reply.payload) for reply in fleet.received)
    weights = [reply.metrics["samples"] for reply in fleet.received]
    shares = [reply.metrics["energy_kept"] for reply in fleet.received]
    assert made[-1].metrics["energy_kept"] == pytest.approx(np.average(shares, weights=weights))
    assert 0 < min(shares) < max(shares) < 1


@pytest.mark.parametrize("rows", ["own", "all"])
@pytest.mark.parametrize("method", slow_but(SHARING, "fedavg", "kteps", "fedper"))
def test_a_run_with_all_components_is_one_without_compression(method: str, rows: str) -> None:
    if not tiny.experiment(method).shares_table:
        return
    with_, _, _ = run(method, uplink=project(1, DIM), wire={"rows": rows})
    without, _, _ = run(method, wire={"rows": rows})
    assert np.allclose(with_.flat, without.flat, atol=1e-4)
    assert not np.allclose(with_.flat, run(method, uplink=project(2, DIM), wire={"rows": rows})[0].flat, atol=1e-2)


def test_holders_alone_decide_about_a_row() -> None:
    """The row of a word that one client has is what the server restores for it; nobody's row stays."""
    training = tiny.TRAINING | {"rounds": 1}
    federation, fleet, _ = run(
        uplink=project(2, 4), wire={"rows": "own"}, server={"absent_rows": "holders_only"}, training=training
    )
    before = initial(fleet.worker.experiment, tiny.corpus())[0][TABLE]
    contents = [load(reply.payload.tobytes()) for reply in fleet.received]
    held = np.concatenate([content["#rows"] for content in contents])
    assert np.array_equal(np.delete(federation.state[TABLE], held, 0), np.delete(before, held, 0))
    alone = 0
    for content in nonempty(contents):
        restored = content[TABLE] @ content[BASIS].T
        for place, row in nonempty(enumerate(content["#rows"])):
            if (held == row).sum() == 1:
                assert np.allclose(federation.state[TABLE][row], restored[place], atol=1e-5)
                alone += 1
    assert alone > 3


def test_noise_behind_it_lies_on_the_compressed_rows_the_projection_and_everything_else() -> None:
    sigma, training = 0.01, tiny.TRAINING | {"rounds": 1}
    changes: dict[str, Any] = {"training": training, "wire": {"rows": "own"}}
    changes["model"] = {"embedding": {"dim": 40}, "hidden": 16, "head": {"hidden": 16}}
    _, clean, _ = run("kteps", uplink=project(2, 30), **changes)
    _, noisy, _ = run("kteps", uplink=project(2, 30, {"gaussian": {"sigma": sigma}}), **changes)
    for without, with_ in nonempty(zip(clean.received, noisy.received, strict=True)):
        plain, noised = (load(reply.payload.tobytes()) for reply in (without, with_))
        for name in nonempty(plain):
            noise = noised[name].astype(np.float64) - plain[name]
            if name.startswith("#"):
                assert not noise.any()
            elif noise.size > 200:
                assert noise.std() == pytest.approx(sigma, rel=5 / np.sqrt(2 * noise.size))
            else:
                assert noise.all()
        assert plain[BASIS].size > 200 < plain[TABLE].size
        assert with_.metrics["energy_kept"] == without.metrics["energy_kept"]  # of the projection, not of the noise


def test_a_clip_before_it_bounds_what_the_client_changed() -> None:
    bounded, fleet, _ = run(uplink=[{"clip": {"norm": 1e-6}}, *project(1, DIM)])
    before = bounded.layout.pack(initial(fleet.worker.experiment, tiny.corpus())[0])
    assert np.allclose(bounded.flat, before, atol=1e-4)


@pytest.mark.parametrize(
    ("uplink", "words"),
    [
        ([*project(2, 4), "clip"], "clip needs the change of the embedding, and project leaves the embedding itself: "),
        ([*project(2, 4), "gaussian", "clip"], "clip needs the change of the embedding, and project"),
        ([*project(2, 4), "quantize"], "quantize needs .* project leaves the embedding itself: leave out one of them"),
        (["quantize", *project(2, 4)], "project needs numbers, and quantize leaves bits"),
        (project(2, 4, *project(2, 4)), "leave out one of them"),
        (project(2, 6), r"project.d2 \(6\) is more than the 5 components that model.embedding.dim gives"),
        (project(4, 3), r"d1 \(4\) is greater than d2 \(3\)"),
    ],
)
def test_what_makes_no_sense_is_refused(uplink: list[Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        tiny.experiment(uplink=uplink)


def test_a_local_baseline_is_spared_what_it_cannot_do() -> None:
    content = tiny.experiment().model_dump(mode="json") | {
        "uplink": project(2, 4, "gaussian"),
        "audits": [{"word_relations": {"words": ["w3"]}}],
        "baselines": ["local_only", "pooled", "fedevocab", "fedavg"],
        "space": {"uplink.0.project.d1": {"grid": [1, 2]}, "uplink.0.project.d2": {"grid": [4, 5]}},
        "tune": {"metric": "Ag"},
    }
    made = cases(content, files.validate(content), "test")
    shown = [([part.name for part in c.experiment.uplink], len(c.experiment.audits)) for c in made]
    assert shown == [([], 0), ([], 0), (["gaussian"], 0), *[(["project", "gaussian"], 1)] * 5]
    assert {case.label for case in made[4:]} == {"d1=1 d2=4", "d1=1 d2=5", "d1=2 d2=4", "d1=2 d2=5"}
    with pytest.raises(UserError, match=r"space .*project\.d2"):
        cases(content, files.validate(content | {"space": {"uplink.0.project.d2": {"grid": [4, 6]}}}), "test")


@pytest.mark.parametrize(("d1", "falls"), [(3, True), (2, True), (1, False)])
def test_leaving_out_the_first_components_forgets_more_every_round(d1: int, falls: bool) -> None:
    """Nobody trains (a rate of 0 for the embedding), so that what changes the table is the projection alone."""
    corpus = tiny.corpus(clients=3, texts=60)
    experiment = tiny.experiment(
        uplink=project(d1, 12),
        model={"embedding": {"dim": 12}, "hidden": 4, "head": {"hidden": 3}},
        training={"rounds": 5, "local_epochs": 1, "batch_size": 64, "optimizer": {"lr": 0.01, "embedding_lr": 0}},
        evaluation={"personalize": None},
    )
    shared = initial(experiment, corpus)[0]
    federation = tiny.federation(experiment, corpus)
    rows = np.unique(np.concatenate([client.rows_R[: client.train_rows] for client in corpus.clients]))
    first = shared[TABLE][rows].var(0).sum()
    left = [federation.state[TABLE][rows].var(0).sum() / first for _ in federation.run()]
    if falls:
        assert np.all(np.diff([1, *left]) < -0.02), left
        assert left[-1] < 0.5
    else:
        assert np.allclose(left, 1, atol=1e-4)


def test_what_it_does_not_protect_is_said() -> None:
    experiment = tiny.experiment(uplink=project(2, 4, "gaussian"))
    said = reveals(experiment, ledger(experiment, 100, 10, 25))
    assert any("project: no (epsilon, delta) guarantee" in sentence for sentence in said)
    assert any("whose norm no clip" in sentence for sentence in said)


def test_of_a_table_whose_rows_are_alike_all_of_no_variance_is_kept() -> None:
    step = Project(d1=1, d2=1)
    alike = {TABLE: np.ones((4, 3), np.float32)}
    none = {TABLE: np.zeros((4, 3), np.float32)}
    assert step.metrics(none, alike, step.apply(none, alike, np.random.default_rng(0))) == {"energy_kept": 1.0}
