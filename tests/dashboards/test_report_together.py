"""The sentence of a sweep's report on the guarantee of all its trials together."""

from pathlib import Path
from typing import Any

import pytest

from dashboards.report.collect import Sweep
from dashboards.trial import Outcome
from fedtext.accounting import composition
from fedtext.config.files import validate
from fedtext.ledger.report import of_trials
from fedtext.ledger.together import Trial
from sweeps.folder import RunFolder
from sweeps.report import collected
from tests.fedtext.ledger.noisy import ROUNDS, central
from tests.loops import nonempty
from tune_spaces.cases import cases


def test_the_trials_of_a_sweep_have_a_guarantee_together() -> None:
    pytest.importorskip("dp_accounting")
    keys = central(1.0, {"multiplier": 2.0}, baselines=[{"name": "pooled"}], tune={"metric": "Ap"})
    content = keys.model_dump(mode="json") | {"space": {"server.noise.multiplier": {"grid": [2.0, 3.0]}}}
    experiment = validate(content)
    swept = Sweep("swept", experiment, cases(content, experiment, "test"), {}, {})
    (sentence,) = swept.guarantees()
    epsilon = composition.gaussian((ROUNDS / 4 + ROUNDS / 9) ** -0.5, 1, 1e-5)
    assert f": the 2 of seed 0 together: epsilon = {epsilon:.4g} at delta = 1e-05" in sentence
    changing = experiment.model_copy(update={"tune": experiment.tune.model_copy(update={"scheduler": "pbt"})})
    assert Sweep("swept", changing, swept.cases, {}, {}).guarantees() == []


def test_trials_that_have_ended_without_records_are_not_taken_for_new_ones(tmp_path: Path) -> None:
    """An earlier version may have run them, whose trials of a seed had the same samples."""
    pytest.importorskip("dp_accounting")
    participation = {"fraction": 0.1, "sampling": "poisson"}
    keys = central(1.0, {"multiplier": 2.0}, participation=participation, tune={"metric": "Ap"})
    content = keys.model_dump(mode="json") | {"space": {"server.noise.multiplier": {"grid": [2.0, 3.0]}}}
    experiment, folder = validate(content), RunFolder(tmp_path)
    planned = cases(content, experiment, "test")
    alike = "2 runs are composed without amplification"
    folder.create(content, experiment, "sweep")
    for status in nonempty(["left", "failed", "finished", "stopped"]):
        for case in nonempty(planned) if status != "left" else ():
            folder.record(case.id, Outcome(status))
        (sentence,) = collected(folder, experiment, planned).guarantees()
        assert (alike in sentence) == (status in ("finished", "stopped")), status
    for case in nonempty(planned):
        (folder.case(case.id) / "checkpoint" / "round-000001").mkdir(parents=True)  # with no file: it is damaged
        (folder.case(case.id) / "outcome.json").unlink(missing_ok=True)
    found = collected(folder, experiment, planned)
    assert len(found.problems) == len(found.unread) == len(planned)
    (sentence,) = found.guarantees()
    assert alike in sentence


@pytest.mark.parametrize(
    ("corpora", "seeds", "named"),
    [
        ([{"name": "demo"}], (0, 1), ["the 2 of seed 0 together, and the 2 of seed 1 together"]),
        ([{"name": "fdu"}], (0, 1, 4), ["the 6 of seeds 0, 1 and 4 together"]),
        (
            [{"name": "agnews", "clients": 4}, {"name": "agnews", "clients": 9}],
            (3,),
            ["the 2 of seed 3, corpus.clients=4 together, and the 2 of seed 3, corpus.clients=9 together"],
        ),
    ],
)
def test_trials_together_are_named_by_what_they_have_in_common(
    corpora: list[dict[str, Any]], seeds: tuple[int, ...], named: list[str]
) -> None:
    pytest.importorskip("dp_accounting")
    made = [
        Trial(central(1.0, {"multiplier": z}, corpus=corpus, seed=seed))
        for seed in seeds
        for corpus in corpora
        for z in (2.0, 3.0)
    ]
    without = Trial(made[0].experiment.model_copy(update={"server": type(made[0].experiment.server)(), "seed": 7}))
    said = of_trials([*made, without])
    assert [one.split(": ")[1] for one in said] == named


def test_other_guarantees_have_sentences_of_their_own() -> None:
    pytest.importorskip("dp_accounting")
    made = [Trial(central(1.0, {"multiplier": 2.0 + seed}, seed=seed)) for seed in (0, 0, 1, 1)]
    first, second = of_trials(made)
    assert ": the 2 of seed 0 together: epsilon = " in first
    assert ": the 2 of seed 1 together: epsilon = " in second
    assert first.replace("seed 0", "seed 1") != second
