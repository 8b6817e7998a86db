"""Runs that are made longer, and those whose number of rounds is fixed."""

from pathlib import Path
from typing import Any

import pytest

from fedtext.errors import UserError
from fedtext.ledger import FILE
from fedtext.server.federation import Federation
from fedtext.state.fingerprint import fingerprint, fixed_length
from tests import tiny
from tests.loops import nonempty

LOCALLY: dict[str, Any] = {
    "participation": {"fraction": 0.5},
    "server": {"optimizer": "adam"},
    "training": tiny.TRAINING | {"optimizer": {"name": "adam", "lr": 0.01, "persist": True}},
    "uplink": [{"clip": {"norm": 0.1}}, {"gaussian": {"sigma": 0.1}}],
}
CENTRALLY: dict[str, Any] = {
    "uplink": [{"clip": {"norm": 0.1}}],
    "server": {"weights": "uniform", "noise": {"multiplier": 1.0}},
    "wire": {"rows": "all"},
}


@pytest.mark.parametrize("changes", [{}, LOCALLY, CENTRALLY], ids=["plain", "noise and optimizers", "central noise"])
def test_a_run_made_longer_equals_one_begun_with_as_many_rounds(changes: dict[str, Any], tmp_path: Path) -> None:
    """The row that was its last keeps what only a last round has, and the ledger is told anew of all rounds."""
    corpus = tiny.corpus(clients=4, texts=4)

    def run(rounds: int, folder: str) -> Federation:
        training = changes.get("training", tiny.TRAINING) | {"rounds": rounds}
        experiment = tiny.experiment("kteps", **changes | {"training": training})
        assert not fixed_length(experiment)
        federation = tiny.federation(experiment, corpus, folder=tmp_path / folder)
        list(federation.run())
        return federation

    short, longer, whole = run(2, "run"), run(5, "run"), run(5, "whole")
    assert longer.flat.tobytes() == whole.flat.tobytes()
    assert longer.fleet.private_states() == whole.fleet.private_states()
    timed = {"time", "seconds"}
    for record, expected in nonempty(zip(longer.history, whole.history, strict=True)):
        kept, wanted = (
            {k: v for k, v in each.metrics.items() if not timed & set(k.split("_"))} for each in (record, expected)
        )
        late = set(kept) - set(wanted)
        assert {k: v for k, v in kept.items() if k not in late} == wanted
        assert late == ({"Ap"} if record.round == 2 else set())
    ledgers = [record.files[FILE] for record in longer.history if FILE in record.files]
    assert ledgers[0] == short.history[0].files[FILE]
    assert ledgers[-1] == whole.history[0].files[FILE]
    assert len(ledgers) == (2 if changes else 1), "without a guarantee there is nothing new to say"
    with pytest.raises(UserError, match="5 rounds are completed, more than 3"):
        run(3, "run")


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"server": CENTRALLY["server"] | {"noise": {"target_epsilon": 5.0}}}, "server.noise.target_epsilon"),
        ({"corpus": {"name": "demo", "validation": 0.2}, "evaluation": {"select": "Ag_val"}}, "evaluation.select"),
        (
            {
                "corpus": {"name": "demo", "validation": 0.2},
                "evaluation": {"every": 2, "thresholds": {"Ag_val": [0.5]}},
            },
            "evaluation.thresholds",
        ),
    ],
)
def test_a_run_whose_end_shapes_it_has_its_rounds_in_its_fingerprint(changes: dict[str, Any], why: str) -> None:
    made = [
        tiny.experiment(**CENTRALLY | {"server": {"weights": "uniform"}} | changes | {"training": training})
        for training in (tiny.TRAINING, tiny.TRAINING | {"rounds": 5})
    ]
    assert why in fixed_length(made[0])
    assert len({fingerprint(each, "content", 3) for each in made}) == 2


@pytest.mark.parametrize("evaluation", [{"every": 2}, {"thresholds": {"Ag_val": [0.5]}}])
def test_thresholds_alone_and_rarer_evaluations_alone_leave_a_run_free_to_be_made_longer(
    evaluation: dict[str, Any],
) -> None:
    corpus = {"name": "demo", "validation": 0.2}
    made = [
        tiny.experiment(corpus=corpus, evaluation=evaluation, training=tiny.TRAINING | {"rounds": rounds})
        for rounds in (2, 5)
    ]
    assert len({fingerprint(each, "content", 3) for each in made}) == 1
