"""Clients that fail in a round with noise or masks: it is not repeated with others, since its noise is the same."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedtext.client.local_fleet import LocalFleet
from fedtext.client.worker import Worker
from fedtext.errors import UserError
from fedtext.messages import Reply
from fedtext.server.start import start
from fedtext.state import noise_key
from fedtext.state.failures import FILE, KEPT, Failures
from fedtext.state.noise_key import NoiseKey
from tests import tiny
from tests.loops import nonempty

CORPUS, CLIP = tiny.corpus(clients=6), {"clip": {"norm": 0.1}}
UNIFORM, SKIP = {"weights": "uniform"}, {"on_client_error": "skip"}
LONG: dict[str, Any] = {"training": tiny.TRAINING | {"rounds": 3}, "checkpoint": {"every": 3}, "participation": SKIP}
LOCAL = {"uplink": [CLIP, {"gaussian": {"sigma": 0.1}}]}
ADDED = UNIFORM | {"noise": {"multiplier": 5.0, "mechanism": "skellam"}, "secure_aggregation": {}}
FOUR, MASKED = {"min_clients": 4}, UNIFORM | {"secure_aggregation": {"range": 1.0}}
NOISY: dict[str, dict[str, Any]] = {
    "server": {"uplink": [CLIP], "server": UNIFORM | {"noise": {"multiplier": 5.0}}},
    "secret": {"uplink": [CLIP], "server": UNIFORM | {"noise": {"multiplier": 5.0}}, "privacy": {"noise": "secret"}},
    "clients": {"uplink": [CLIP], "server": ADDED, "participation": SKIP | FOUR},
    "masks": {"server": MASKED, "participation": SKIP | FOUR},  # sums are exact, and two of them differ by an update
    "uplink": LOCAL,
    "examples": {"training": LONG["training"] | {"dp_sgd": {"clip_norm": 1.0, "multiplier": 1.0}}},
    "buffer": LOCAL | {"server": {"buffer": {"size": 4}}, "participation": SKIP | {"pace": {}}},
}


class Failing(LocalFleet):
    """Clients fail in some rounds, as for want of memory."""

    failing: Mapping[int, int] = {}
    steps: list[str]

    def train(self, handle: Any, round_: int, cohort: Sequence[int]) -> Iterator[Reply]:
        for reply in super().train(handle, round_, cohort):
            fails = self.failing.get(round_) == reply.client
            yield Reply(reply.client, error="MemoryError") if fails else reply

    def exchange(self, step: str, messages: Mapping[int, bytes]) -> dict[int, bytes]:
        self.steps = [*getattr(self, "steps", []), step]
        return super().exchange(step, messages)


def released(name: str, folder: Path, failing: Mapping[int, int], rounds: int = 3) -> list[np.ndarray]:
    """The parameters after each round, until the process dies."""
    federation = begun(name, folder)
    federation.fleet.failing = failing
    ran = zip(range(rounds), federation.run(), strict=False)
    return [federation.flat.copy() for _ in ran]


def begun(name: str, folder: Path) -> Any:
    needed = {"secret": ["randomgen"], "clients": ["dp_accounting", "cryptography"], "masks": ["cryptography"]}
    for package in needed.get(name, []):
        pytest.importorskip(package)
    return tiny.federation(tiny.experiment(**(LONG | NOISY[name])), CORPUS, Failing, folder)


SLOW = "examples"  # the gradient of each text takes a backward pass of its own


@pytest.mark.parametrize(
    "name", [*(name for name in NOISY if name != SLOW), pytest.param(SLOW, marks=pytest.mark.slow)]
)
def test_a_round_with_noise_is_not_repeated_with_other_clients(name: str, tmp_path: Path) -> None:
    asked = begun(name, tmp_path / "asked")
    client = min({*asked._sample(1).clients} & {*asked._sample(2).clients})
    (first, second) = released(name, tmp_path, {2: client}, rounds=2)
    again = begun(name, tmp_path)
    again.fleet.failing = {1: client, 2: client}
    with pytest.raises(UserError, match=r"^round 1: other clients failed in it than before .*: start a new run"):
        list(again.run())
    if name in ("clients", "masks"):
        assert again.fleet.steps.count("open") == len(again.history) == 0, "no sum that differs is opened"
    third = released(name, tmp_path, {2: client, 3: client})
    assert [one.tobytes() for one in third[:2]] == [first.tobytes(), second.tobytes()]
    assert len(third) == 3, "what was never released may be computed with whoever does not fail"


@pytest.mark.parametrize(
    "name", [*(name for name in NOISY if name != SLOW), pytest.param(SLOW, marks=pytest.mark.slow)]
)
def test_a_client_that_failed_is_left_out_of_the_repeated_round_if_it_would_not_fail_again(
    name: str, tmp_path: Path
) -> None:
    asked = begun(name, tmp_path / "asked")
    client = min({*asked._sample(1).clients} & {*asked._sample(2).clients})
    (first, second) = released(name, tmp_path, {2: client}, rounds=2)
    again = begun(name, tmp_path)
    ran = [(record, again.flat.copy()) for record in again.run()]
    assert [flat.tobytes() for _, flat in ran[:2]] == [first.tobytes(), second.tobytes()]
    assert [record.metrics.get("clients_failed", 0.0) for record, _ in ran] == [0, 1, 0]


def test_without_noise_and_without_clients_that_are_left_out_nothing_is_written_down(tmp_path: Path) -> None:
    plain = LONG | {"uplink": [CLIP]}
    failing = {"participation": {"on_client_error": "fail"}}
    quantized = LONG | {"uplink": [CLIP, "quantize"]}  # random bits that guarantee nothing
    for place, changes in enumerate(nonempty((plain, quantized, LONG | NOISY["server"] | failing))):
        federation = tiny.federation(tiny.experiment(**changes), CORPUS, folder=tmp_path / str(place))
        list(federation.run())
        assert not (tmp_path / str(place) / FILE).exists()


def test_noise_of_clients_hides_them_whether_its_epsilon_can_be_computed_or_not(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("fedtext.accounting.composition.available", lambda: False)
    assert tiny.federation(tiny.experiment(**(LONG | LOCAL)), CORPUS, folder=tmp_path).failures


def test_failures_under_another_key_are_of_no_matter_and_damage_is_said(tmp_path: Path) -> None:
    one, other = (NoiseKey(bytes([number] * 32)) for number in (1, 2))
    Failures(tmp_path, one).keep(1, [{3: False, 4: False}])
    Failures(tmp_path, one).check(1, 1, [4, 3])
    with pytest.raises(UserError, match="round 1: other clients failed"):
        Failures(tmp_path, one).check(1, 1, [3])
    Failures(tmp_path, other).check(1, 1, [3])

    def away(name: str) -> None:
        raise UserError(f"no {name} there")

    with pytest.raises(UserError, match=r"no failures\.json there"):
        Failures(tmp_path, other, away).keep(2, [{3: False}])
    Failures(tmp_path, other).keep(2, [{4: False}])  # nothing of the round had been released
    assert Failures(tmp_path, other).earlier(2, 1, [3, 4]) == ([4], [])
    (tmp_path / FILE).write_text("{")
    with pytest.raises(UserError, match="is damaged"):
        Failures(tmp_path, one)


def test_files_tell_who_failed_with_the_key_alone(tmp_path: Path) -> None:
    key = NoiseKey(bytes(32))
    Failures(tmp_path, key).keep(3, [{2: False, 7: True, 1: False}, {2: False}])
    kept = Failures(tmp_path, key)
    assert kept.earlier(3, 1, range(9)) == ([1, 2], [7])
    assert kept.earlier(3, 2, range(9)) == ([2], [])
    assert kept.earlier(2, 1, range(9)) == kept.earlier(3, 3, range(9)) == ([], [])
    kept.check(3, 1, [1, 2, 7])
    kept.check(3, 2, [2])
    for attempt, others in nonempty(((1, [1, 2]), (1, [1, 2, 7, 8]), (1, [1, 2, 8]), (2, []), (2, [1]))):
        with pytest.raises(UserError, match="round 3: other clients failed"):
            kept.check(3, attempt, others)
    assert not set(kept.known["3"]) & set(kept.known["3/2"]), "not even that a client failed twice"


def test_failures_that_an_earlier_version_wrote_down_have_to_be_the_same(tmp_path: Path) -> None:
    kept = Failures(tmp_path, NoiseKey(bytes(32)))
    digest = hashlib.blake2b(b"1:[3, 4]", key=kept.noise.material, digest_size=8).hexdigest()
    (tmp_path / FILE).write_text(json.dumps({"key": kept.key, "rounds": {"1": digest}}))
    kept = Failures(tmp_path, NoiseKey(bytes(32)))
    assert kept.earlier(1, 1, [3, 4]) == ([], [])
    kept.check(1, 1, [4, 3])
    with pytest.raises(UserError, match="round 1: other clients failed"):
        kept.check(1, 1, [3])
    kept.keep(1, [{3: False, 4: False}])
    assert kept.known == {"1": digest}


@pytest.mark.parametrize("kind", ["raises", "not finite"])
def test_the_others_of_its_stack_are_trained_as_before(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a stack others have other draws of dropout than alone, so that their updates tell how they were trained."""
    model = {"embedding": {"dim": 5}, "hidden": 4, "dropout": 0.5}
    stacked = LONG | NOISY["server"] | {"training": LONG["training"] | {"stack": 6}, "model": model}

    def run(failing: bool, rounds: int) -> tuple[list[bytes], list[list[int]]]:
        made = tiny.federation(tiny.experiment(**stacked), CORPUS, folder=tmp_path)
        trained, attempt = list[list[int]](), Worker._attempt

        def attempted(worker: Worker, flat: Any, round_: int, members: Sequence[int]) -> Any:
            trained.append(list(members))
            if failing and round_ == 1 and kind == "raises" and 2 in members:
                return [(Reply(client, error="MemoryError"), {}) for client in members], "MemoryError"
            done, said = attempt(worker, flat, round_, members)
            if failing and round_ == 1 and kind == "not finite":
                done = [(Reply(2, error="nan", trained=True), {}) if one[0].client == 2 else one for one in done]
            return done, said

        monkeypatch.setattr(Worker, "_attempt", attempted)
        ran = [made.flat.tobytes() for _, _ in zip(range(rounds), made.run(), strict=False)]
        monkeypatch.undo()
        return ran, trained

    first, _ = run(True, 2)
    again, trained = run(False, 3)
    assert again[:2] == first
    alone = [[0], [1], [3], [4], [5]]
    assert trained == [*(alone if kind == "raises" else [list(range(6))]), list(range(6)), list(range(6))]


def test_rounds_that_no_run_repeats_are_forgotten(tmp_path: Path) -> None:
    kept = Failures(tmp_path, NoiseKey(bytes(32)))
    for round_ in range(1, 2 * KEPT + 1):
        kept.keep(round_, [{}, {round_: False}])
        if round_ % 2 == 0:
            kept.forget(round_)
    kept.keep(2 * KEPT + 1, [{}, {}])
    left = [name for round_ in range(3, 2 * KEPT + 2) for name in (f"{round_}", f"{round_}/2")]
    assert list(Failures(tmp_path, NoiseKey(bytes(32))).known) == left


def test_another_machine_has_the_key_and_the_failures_before_anything_is_released(tmp_path: Path) -> None:
    pytest.importorskip("randomgen")
    made, events = tiny.experiment(**(LONG | NOISY["secret"])), list[str]()

    class Noting(LocalFleet):
        def broadcast(self, flat: Any) -> Any:
            events.append("broadcast")
            return super().broadcast(flat)

    clients = partial(Noting, made, CORPUS)
    list(start(made, CORPUS, clients, tmp_path / "run", send=events.append).run())
    assert events == [noise_key.FILE, "broadcast", *(["failures.json", "broadcast"] * 3)]
    events.clear()
    start(made, CORPUS, clients, tmp_path / "run", send=events.append)
    assert events == [], "the key is there since the run began"
    shown = tiny.experiment(**(LONG | NOISY["server"]))
    start(shown, CORPUS, partial(LocalFleet, shown, CORPUS), tmp_path / "shown", send=events.append)
    assert events == [], "this key follows from the experiment"


def test_nothing_is_released_if_the_key_or_the_failures_cannot_be_copied(tmp_path: Path) -> None:
    pytest.importorskip("randomgen")

    def away(name: str) -> None:
        raise UserError(f"the store does not answer for {name}")

    for name, what in nonempty((("secret", noise_key.FILE), ("server", FILE))):
        made = tiny.experiment(**(LONG | NOISY[name]))
        with pytest.raises(UserError, match=f"for {what}"):
            list(start(made, CORPUS, partial(LocalFleet, made, CORPUS), tmp_path / name, send=away).run())
