"""The whole protocol in this process: what the server sees, and what comes of it."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load

from fedtext.client.local_fleet import LocalFleet
from fedtext.errors import UserError
from fedtext.ledger.report import reveals
from fedtext.mechanisms.base import Mechanism, Tensors
from fedtext.methods import METHODS
from fedtext.secure import records
from tests import tiny
from tests.loops import nonempty
from tests.sampled import slow_but

CORPUS = tiny.corpus(clients=12)
ALL = {"neighbors": 99}  # all others, so that dropouts leave enough
TWO = tiny.TRAINING | {"rounds": 2}
NOT_SUMMED = {"pooled", "asp_mtl", "local_only", "fedatt"}  # no updates, or a server that needs each


def changes(method: str) -> dict[str, Any]:
    if method == "fedsgd":
        return {"training": TWO | {"optimizer": {"lr": 0.1, "momentum": 0}, "batch_size": {"steps": 1}}}
    return {"training": TWO}


def finished(method: str = "fedavg", secure: Any = None, folder: Path | None = None, **sections: Any) -> Any:
    given = {"participation": {"dropout": 0.1}, **changes(method), **sections}
    given["server"] = {"secure_aggregation": secure, **given.pop("server", {})}
    federation = tiny.federation(tiny.experiment(method, **given), CORPUS, Watched, folder)
    federation.records = list(federation.run())
    return federation


class Watched(LocalFleet):
    """A fleet that keeps all that the server receives."""

    def exchange(self, step: str, messages: Mapping[int, bytes]) -> dict[int, bytes]:
        answers = super().exchange(step, messages)
        self.said = [*getattr(self, "said", []), (step, dict(messages), answers)]
        return answers

    def train(self, *given: Any, **named: Any) -> Iterator[Any]:
        for reply in super().train(*given, **named):
            self.payloads = [*getattr(self, "payloads", []), (reply.client, reply.payload.copy())]
            yield reply


@pytest.mark.parametrize("method", slow_but([name for name in METHODS if name not in NOT_SUMMED], "fedavg", "kteps"))
def test_masks_change_no_bit_though_clients_drop_out(method: str) -> None:
    plain, masked = finished(method, {"masks": False}), finished(method, ALL)
    assert masked.flat.tobytes() == plain.flat.tobytes()
    removed = sum(record.metrics["secure_removed"] for record in masked.records)
    assert removed > 0 or not masked.experiment.participation.dropout, "all clients of fedsgd take part"
    exact = finished(method)
    if not any(record.metrics["secure_cut"] for record in masked.records):
        assert np.abs(masked.flat - exact.flat).max() < 1e-3
    for record, other in nonempty(zip(masked.records, plain.records, strict=True)):
        assert record.metrics["loss"] == other.metrics["loss"]
        assert record.metrics["bytes_up"] == other.metrics["bytes_up"]


@pytest.mark.parametrize(
    "uplink",
    [
        [{"clip": {"norm": 0.5}}, {"gaussian": {"sigma": 0.01}}],
        [{"quantize": {"q": 0.01}}, {"randomized_response": {"epsilon": 2.0}}],
        [{"project": {"d1": 1, "d2": 2}}],
    ],
    ids=["noise", "bits", "projection"],
)
def test_what_mechanisms_send_is_summed(uplink: list[Any]) -> None:
    method = "kteps"
    plain, masked = (finished(method, secure, uplink=uplink) for secure in ({"masks": False}, ALL))
    assert masked.flat.tobytes() == plain.flat.tobytes()
    assert np.isfinite(masked.flat).all()


class Reversing(Mechanism):
    """A mechanism whose server's half gives the tensors back in another order."""

    name: str = "reversing"

    def apply(self, delta: Tensors, received: Mapping[str, Any], rng: np.random.Generator) -> Tensors:
        return delta

    def restore(self, sent: Tensors, received: Mapping[str, Any]) -> Tensors:
        return {name: sent[name] for name in reversed(sent)}


def test_masks_are_removed_in_the_order_of_tensors_whatever_a_mechanism_makes_of_it() -> None:
    ends = []
    for secure in ({"masks": False}, ALL):
        made = tiny.experiment("fedavg", server={"secure_aggregation": secure}, training=TWO)
        made = made.model_copy(update={"uplink": (Reversing(),)})
        federation = tiny.federation(made, CORPUS)
        list(federation.run())
        ends.append(federation.flat.tobytes())
    assert ends[0] == ends[1]


class Lying(Watched):
    """One of whose clients answers with wrong shares of private keys."""

    def exchange(self, step: str, messages: Mapping[int, bytes]) -> dict[int, bytes]:
        answers = super().exchange(step, messages)
        if step == "open":
            liar = min(answers)
            shares = records.unpack(answers[liar])
            answers[liar] = records.pack({k: v[:-1] + bytes([v[-1] ^ (v[:1] == b"k")]) for k, v in shares.items()})
        return answers


def test_a_wrong_share_of_a_client_that_dropped_out_is_noticed() -> None:
    experiment = tiny.experiment(
        "fedavg", server={"secure_aggregation": ALL}, participation={"dropout": 0.1}, training=TWO
    )
    with pytest.raises(
        UserError,
        match=r"round \d: server.secure_aggregation: the shares of client \d+'s key give another one: a client",
    ):
        list(tiny.federation(experiment, CORPUS, Lying).run())


def test_without_masks_the_privacy_report_says_that_the_server_sees_updates() -> None:
    central = {"weights": "uniform", "noise": {"multiplier": 0.5}}
    for masks in nonempty((True, False)):
        experiment = tiny.experiment(
            "fedavg", server={"secure_aggregation": {"masks": masks}, **central}, uplink=["clip"]
        )
        said = " ".join(reveals(experiment))
        assert ("the server sees each update behind masks" in said) == masks
        assert ("the server sees each update, in integers without masks" in said) == (not masks)
        assert ("the server sees each clipped update as it is" in said) == (not masks)


def test_poisson_samples_and_central_noise_are_the_same_under_masks() -> None:
    central = {"weights": "uniform", "noise": {"multiplier": 0.5}}
    sections: dict[str, Any] = {
        "uplink": ["clip"],
        "server": central,
        "participation": {"sampling": "poisson", "fraction": 0.7},
    }
    plain, masked = (finished("fedavg", secure, **sections) for secure in ({"masks": False}, ALL))
    assert masked.flat.tobytes() == plain.flat.tobytes()


def test_clients_vanish_before_they_have_shared_their_keys_and_after() -> None:
    """No one has shares of theirs or masks for them; of those who vanish later masks are removed."""
    sections: dict[str, Any] = {"participation": {"dropout": 0.15}, "seed": 2}
    masked, plain = (finished("fedavg", secure, **sections) for secure in (ALL, {"masks": False}))
    assert masked.flat.tobytes() == plain.flat.tobytes()
    by_step: dict[str, list[Any]] = {"keys": [], "shares": [], "receive": [], "open": []}
    for step, messages, answers in masked.fleet.said:
        by_step[step].append((messages, answers))
    early = late = 0
    for place, record in nonempty(enumerate(masked.records)):
        keys, (shares, sealed), (boxes, _), (asked, _) = (by_step[step][place] for step in by_step)
        assert len(keys[0]) == 12
        assert boxes.keys() == shares.keys() <= keys[0].keys()
        for client, message in nonempty(boxes.items()):
            assert records.unpack(message).keys() == sealed.keys() - {client}, "all others who have sent shares"
        trained = {client for client, _ in masked.fleet.payloads}
        assert asked.keys() <= trained & boxes.keys()
        assert record.metrics["secure_removed"] == len(boxes) - record.metrics["clients_trained"]
        early, late = early + len(keys[0]) - len(boxes), late + int(record.metrics["secure_removed"])
    assert early > 0 < late


def test_a_round_in_which_too_many_vanish_before_they_share_is_one_sentence() -> None:
    with pytest.raises(
        UserError, match=r"round \d: server.secure_aggregation: \d of the 11 neighbours of client \d+ an"
    ):
        finished("fedavg", ALL | {"threshold": 0.95}, participation={"dropout": 0.4})


def test_late_clients_share_keys_and_their_masks_are_removed() -> None:
    paced = {"fraction": 0.6, "over_selection": 1.5, "pace": {"texts_per_second": 10}, "deadline_s": 1e6}
    plain, masked = (finished("fedavg", secure, participation=paced) for secure in ({"masks": False}, ALL))
    assert masked.flat.tobytes() == plain.flat.tobytes()
    assert masked.records[0].metrics["secure_removed"] == masked.records[0].metrics["clients_late"] > 0


def test_rounds_with_more_clients_than_they_need_are_opened_at_once() -> None:
    """The graph counts the clients that are late; with one for those alone that drop out, most rounds were repeated."""
    paced = {"fraction": 0.7, "over_selection": 1.3, "pace": {"spread": 1}}
    experiment = tiny.experiment("fedavg", server={"secure_aggregation": {}}, participation=paced, training=TWO)
    for record in nonempty(tiny.federation(experiment, tiny.corpus(clients=40), Watched).run()):
        assert "round_attempts" not in record.metrics
        assert record.metrics["clients_late"] == 9


class Failing(Watched):
    """One of whose clients fails after it has shared its keys."""

    def train(self, *given: Any, **named: Any) -> Iterator[Any]:
        from dataclasses import replace

        for reply in super().train(*given, **named):
            yield replace(reply, error="it broke", payload=reply.payload[:0]) if reply.client == 4 else reply


def test_a_client_that_fails_is_one_that_drops_out() -> None:
    made = []
    for secure in ({"masks": False}, ALL):
        skipping = {"on_client_error": "skip"}
        sections = {"server": {"secure_aggregation": secure}, "participation": skipping, "training": TWO}
        federation = tiny.federation(tiny.experiment("fedavg", **sections), CORPUS, Failing)
        made.append((federation.flat, list(federation.run()), federation.flat))
        made[-1] = (federation.flat.tobytes(), made[-1][1][-1].metrics)
    (plain, _), (masked, metrics) = made
    assert plain == masked
    assert metrics["secure_removed"] == metrics["clients_failed"] == 1


def test_a_run_goes_on_to_the_same_bits_with_new_keys(tmp_path: Path) -> None:
    whole = finished("fedavg", ALL)
    first = tiny.federation(whole.experiment, CORPUS, Watched, tmp_path)
    next(first.run())
    second = tiny.federation(whole.experiment, CORPUS, Watched, tmp_path)
    assert len(second.history) == 1
    list(second.run())
    assert second.flat.tobytes() == whole.flat.tobytes()
    keys = [answers[0] for step, _, answers in (*first.fleet.said, *second.fleet.said) if step == "keys"]
    assert len(keys) == len(set(keys)) == 2
    written = b"".join(file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())
    assert written
    assert not {key for key in keys if key in written}


def test_what_the_server_receives_is_masked() -> None:
    """Each vector is uniform, and another one in each run, although the updates are the same."""
    masked, again, plain = finished("fedavg", ALL), finished("fedavg", ALL), finished("fedavg", {"masks": False})
    assert len(masked.fleet.payloads) == len(plain.fleet.payloads) > 15
    differences = []
    both = masked.fleet.payloads, again.fleet.payloads, plain.fleet.payloads
    for (client, sent), (same, other), (_, bare) in nonempty(zip(*both, strict=True)):
        assert client == same
        vectors = [joined(load(payload.tobytes())) for payload in (sent, other, bare)]
        assert np.mean(vectors[0] == vectors[1]) < 0.01
        assert np.mean(vectors[0] == vectors[2]) < 0.01
        differences.append(vectors[0] - vectors[2])
    counts = np.bincount(np.concatenate(differences).view(np.uint8), minlength=256)
    mean = counts.sum() / 256
    assert ((counts - mean) ** 2 / mean).sum() < 400  # chi-squared with 255 degrees of freedom: 1e-8


def joined(tensors: Mapping[str, np.ndarray]) -> np.ndarray:
    return np.concatenate([tensors[name].reshape(-1) for name in sorted(tensors) if not name.startswith("#")])


def test_the_server_has_shares_of_one_secret_of_each_client() -> None:
    made = finished("fedavg", ALL)
    opened = [
        {(peer, share[:1]) for answer in answers.values() for peer, share in records.unpack(answer).items()}
        for step, _, answers in made.fleet.said
        if step == "open"
    ]
    for kinds in nonempty(opened):
        assert len({peer for peer, _ in kinds}) == len(kinds)
    assert {kind for kinds in opened for _, kind in kinds} == {b"s", b"k"}, "some dropped out, and others did not"


def test_a_round_that_is_not_opened_is_one_sentence() -> None:
    fragile = {"neighbors": 2, "threshold": 1.0}
    with pytest.raises(
        UserError,
        match=r"round 1: server.secure_aggregation: 1 of the 2 neighbours of client \d+ answer, and its masks are "
        "removed with 2: lower threshold, or set dropping to the share of clients that drop out",
    ):
        finished("fedavg", fragile, participation={"dropout": 0.4})


def test_a_round_of_two_is_refused() -> None:
    with pytest.raises(UserError, match=r"at most 2 of 12 clients, and a sum hides the updates of 3 or more"):
        finished("fedavg", ALL, participation={"fraction": 0.17})
    with pytest.raises(UserError, match=r"round \d: server.secure_aggregation: it has [12] clients, and a sum hides"):
        finished("fedavg", ALL, participation={"sampling": "poisson", "fraction": 0.1}, training=TWO | {"rounds": 20})


def test_a_round_of_nobody_is_as_it_is_without_masks() -> None:
    empty = {"sampling": "poisson", "fraction": 1e-9}
    central = {"weights": "uniform", "noise": {"multiplier": 0.5}}
    plain, masked = (
        finished("fedavg", secure, participation=empty, server=central, uplink=["clip"])
        for secure in ({"masks": False}, ALL)
    )
    assert masked.flat.tobytes() == plain.flat.tobytes()
