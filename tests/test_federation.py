"""The loop over rounds: when state is saved, and who is counted."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from fedtext.checkpoint import Checkpoints
from fedtext.federation import Federation
from fedtext.fleet import LocalFleet
from fedtext.parameters import initial
from fedtext.reply import Reply
from tests import tiny


@pytest.mark.parametrize(("rounds", "every", "saved"), [(5, 2, [2, 4, 5]), (3, 5, [3]), (4, 2, [2, 4]), (2, 1, [1, 2])])
def test_state_is_saved_every_so_often_and_after_the_last_round(
    rounds: int, every: int, saved: list[int], tmp_path: Path
) -> None:
    corpus = tiny.corpus(clients=2, texts=2)
    experiment = tiny.experiment(
        training=tiny.TRAINING | {"rounds": rounds}, checkpoint={"every": every}, evaluation={"personalize": None}
    )
    shared, private = initial(experiment, corpus)
    checkpoints = Checkpoints(tmp_path, "one")
    federation = Federation(experiment, shared, LocalFleet(experiment, corpus, private), checkpoints)
    found = set()
    for row in federation.run():
        snapshot = checkpoints.load()
        if snapshot is not None:
            found.add(snapshot.round)
        if row["round"] in saved:
            assert snapshot is not None
            assert snapshot.flat.tobytes() == federation.flat.tobytes()
    assert sorted(found) == saved
    last = checkpoints.load()
    assert last is not None
    assert len(last.history) == rounds
    again = Federation(experiment, shared, LocalFleet(experiment, corpus, private), checkpoints)
    assert list(again.run()) == [], "nothing is left to do"
    assert again.flat.tobytes() == federation.flat.tobytes()


class Unlucky(LocalFleet):
    """One in which client 1 fails in every round."""

    def train(self, handle: Any, round_: int, cohort: Sequence[int]) -> Iterator[Reply]:
        for reply in super().train(handle, round_, cohort):
            if reply.client == 1:
                yield Reply(1, error="OSError: no")
            else:
                self.bytes_up = getattr(self, "bytes_up", 0) + reply.bytes_up
                yield reply


def test_a_client_that_failed_has_not_trained() -> None:
    """Of four clients three count: in the number of trained clients, and as those whom the bytes are divided by."""
    corpus = tiny.corpus(clients=4, texts=2)
    experiment = tiny.experiment(
        participation={"on_client_error": "skip"},
        training=tiny.TRAINING | {"rounds": 1},
        evaluation={"personalize": None},
    )
    shared, private = initial(experiment, corpus)
    fleet = Unlucky(experiment, corpus, private)
    (row,) = Federation(experiment, shared, fleet, None).run()
    metrics = row["metrics"]
    assert metrics["clients_trained"] == 3
    assert metrics["clients_failed"] == 1
    assert metrics["bytes_up"] == fleet.bytes_up
    assert metrics["bytes_per_client"] == (metrics["bytes_up"] + metrics["bytes_down"]) / 3
