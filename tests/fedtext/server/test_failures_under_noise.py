"""Clients that fail in a round with noise: the round is not repeated with others, since its noise is the same."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedtext.client.local_fleet import LocalFleet
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
NOISY: dict[str, dict[str, Any]] = {
    "server": {"uplink": [CLIP], "server": UNIFORM | {"noise": {"multiplier": 5.0}}},
    "secret": {"uplink": [CLIP], "server": UNIFORM | {"noise": {"multiplier": 5.0}}, "privacy": {"noise": "secret"}},
    "clients": {"uplink": [CLIP], "server": ADDED, "participation": SKIP | {"min_clients": 4}},
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
    for package in {"secret": ["randomgen"], "clients": ["dp_accounting", "cryptography"]}.get(name, []):
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
    for failing in nonempty(({}, {1: client, 2: client})):
        again = begun(name, tmp_path)
        again.fleet.failing = failing
        with pytest.raises(UserError, match=r"^round [12]: other clients failed in it than before .*: start a new run"):
            list(again.run())
        if name == "clients":
            opened = again.fleet.steps.count("open")
            assert opened == len(again.history), "no sum that differs is opened"
    third = released(name, tmp_path, {2: client, 3: client})
    assert [one.tobytes() for one in third[:2]] == [first.tobytes(), second.tobytes()]
    assert len(third) == 3, "what was never released may be computed with whoever does not fail"


def test_without_noise_and_without_clients_that_are_left_out_nothing_is_written_down(tmp_path: Path) -> None:
    plain = LONG | {"uplink": [CLIP]}
    failing = {"participation": {"on_client_error": "fail"}}
    quantized = LONG | {"uplink": [CLIP, "quantize"]}  # random bits that guarantee nothing
    for place, changes in enumerate(nonempty((plain, quantized, LONG | NOISY["server"] | failing))):
        federation = tiny.federation(tiny.experiment(**changes), CORPUS, folder=tmp_path / str(place))
        list(federation.run())
        assert not (tmp_path / str(place) / FILE).exists()


def test_failures_under_another_key_are_of_no_matter_and_damage_is_said(tmp_path: Path) -> None:
    one, other = (NoiseKey(bytes([number] * 32)) for number in (1, 2))
    Failures(tmp_path, one).check(1, {3, 4})
    Failures(tmp_path, one).check(1, [4, 3])
    with pytest.raises(UserError, match="round 1: other clients failed"):
        Failures(tmp_path, one).check(1, [3])
    Failures(tmp_path, other).check(1, [3])

    def away(name: str) -> None:
        raise UserError(f"no {name} there")

    with pytest.raises(UserError, match=r"no failures\.json there"):
        Failures(tmp_path, other, away).check(2, [3])
    Failures(tmp_path, other).check(2, [4])  # nothing of the round had been released
    (tmp_path / FILE).write_text("{")
    with pytest.raises(UserError, match="is damaged"):
        Failures(tmp_path, one)


def test_rounds_that_no_run_repeats_are_forgotten(tmp_path: Path) -> None:
    kept = Failures(tmp_path, NoiseKey(bytes(32)))
    for round_ in range(1, 2 * KEPT + 1):
        kept.check(round_, [round_])
        if round_ % 2 == 0:
            kept.forget(round_)
    kept.check(2 * KEPT + 1, [])
    assert list(Failures(tmp_path, NoiseKey(bytes(32))).known) == [str(round_) for round_ in range(3, 2 * KEPT + 2)]


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
