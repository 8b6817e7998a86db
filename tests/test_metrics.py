"""What a round's row says: bytes of all rounds, and the table in which every metric is described."""

from pathlib import Path

import pytest

from fedtext.checkpoint import Checkpoints
from fedtext.federation import Federation
from fedtext.parameters import initial
from tests import tiny


@pytest.mark.parametrize("stop", [None, 1, 3])
def test_bytes_are_added_up_over_rounds_also_of_a_run_that_was_resumed(stop: int | None, tmp_path: Path) -> None:
    corpus = tiny.corpus(clients=3)
    training, participation = tiny.TRAINING | {"rounds": 4}, {"fraction": 0.7, "dropout": 0.3}
    experiment = tiny.experiment("kteps", training=training, participation=participation)
    shared, private = initial(experiment, corpus)

    def federation() -> tuple[Federation, tiny.Recording]:
        fleet = tiny.Recording(experiment, corpus, private)
        return Federation(experiment, shared, fleet, Checkpoints(tmp_path, "same")), fleet

    up = down = 0.0
    made, fleet = federation()
    for _ in range(2):
        for row in made.run():
            metrics = row["metrics"]
            up += sum(len(reply.payload) for reply in fleet.received)
            down += metrics["bytes_down"]
            totals = {name: metrics[name] for name in ("bytes_up_total", "bytes_down_total", "bytes_total")}
            assert totals == {"bytes_up_total": up, "bytes_down_total": down, "bytes_total": up + down}
            if row["round"] == stop:
                break
        made, fleet = federation()
    assert len(made.history) == 4
    assert up > 0
    assert down > 0
