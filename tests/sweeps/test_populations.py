"""Population-based training on Ray, and the same population after a kill."""

import json
import os
import shutil
import signal
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import yaml

from dashboards.trial import Outcome, title
from fedtext.records import RoundRecord
from fedtext.server.start import participant_count
from fedtext.state.checkpoint import Checkpoints, history
from fedtext.state.fingerprint import fingerprint
from fedtext.state.machines import Machines, machines_of
from sweeps.folder import RunFolder
from sweeps.job import Job, key
from sweeps.population import Population, evolved
from tests import tiny
from tests.commands import EXPERIMENT, Forked, command, runs, states
from tests.loops import nonempty
from tune_spaces.cases import cases
from tune_spaces.population import Exploit

POPULATION: dict[str, Any] = EXPERIMENT | {
    "corpus": EXPERIMENT["corpus"] | {"clients": 2},
    "method": "fedavg",
    "baselines": ["local_only"],
    "evaluation": {"personalize": None},
    "space": {"training.optimizer.lr": {"loguniform": [0.001, 0.1]}},
    "tune": {"scheduler": "pbt", "metric": "loss", "samples": 4, "interval": 1},
}


@pytest.mark.ray
@pytest.mark.slow
def test_a_population_and_the_same_one_after_a_kill(tmp_path: Path) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    for home in (whole, killed):
        home.mkdir()
        (home / "population.yaml").write_text(yaml.safe_dump(POPULATION))
    words = ("sweep", str(whole / "population.yaml"), "--name", "run", "--num-cpus", "2")
    done = command(whole, *words, timeout=600)
    assert done.returncode == 0, done.stderr
    run = whole / "runs" / "run"
    generations = json.loads((run / "population.json").read_text())
    assert [len(one["exploits"]) for one in generations] == [1, 1], "a quarter of four, after rounds 1 and 2 of 3"
    members = [f"{number:02d}-fedavg" for number in range(1, 5)]
    records = {case: history(run / case / "checkpoint") for case in ["00-local_only", *members]}
    assert {len(found) for found in nonempty(list(records.values()))} == {3}
    last = generations[-1]["exploits"][0]
    taker, giver = members[last["member"]], members[last["donor"]]
    assert records[taker][:2] == records[giver][:2], "its rounds until then are those of the other"
    assert records[taker][2].metrics["loss"] != records[giver][2].metrics["loss"]
    rate = f"{last['point']['training.optimizer.lr']:.4g}"
    assert f"{taker}  goes on from {giver} after round 2: {taker} lr={rate}" in done.stdout
    table = next(line for line in done.stdout.splitlines() if f" {taker} " in line and "3/3" in line)
    assert rate[:5] in table, "the table has the values of the end"
    assert "changes" in next(run for run in runs(whole) if run.data.tags.get("fedtext.case") == taker).data.tags

    started = Forked(killed, *(word.replace(str(whole), str(killed)) for word in words))
    marks = killed / "runs" / "run"
    while started.poll() is None and not list(marks.glob("*/checkpoint/generation.json")):
        time.sleep(0.02)
    os.kill(started.pid, signal.SIGKILL)
    started.wait()
    resumed = command(killed, "sweep", "--resume", "run", "--num-cpus", "2", timeout=600)
    assert resumed.returncode == 0, resumed.stderr
    assert json.loads((marks / "population.json").read_text()) == generations
    assert states(marks) == states(run)
    shutil.rmtree(run / "report")
    report = command(whole, "report", "run")
    assert report.returncode == 0, report.stderr
    assert rate[:5] in (run / "report" / "tables" / "results.csv").read_text()


def population(folder: Path) -> Population:
    """A population of four whose members have not begun."""
    experiment = tiny.experiment(
        "kteps",
        space={"method.lambda1": {"uniform": [0.1, 1.0]}},
        tune={"scheduler": "pbt", "metric": "loss", "samples": 4, "interval": 1},
        training=tiny.TRAINING | {"rounds": 3},
    )
    content = experiment.model_dump(mode="json")
    corpora, store = {key(experiment): tiny.corpus()}, None
    members = cases(content, experiment, "test")
    job = Job(True, experiment, members, corpora, {}, {}, [], store, RunFolder(folder))  # type: ignore[arg-type]
    return Population(job, content, "test")


def reach(population: Population, number: int, round_: int) -> None:
    """Leave what a member leaves that has trained up to a round."""
    case = population.job.cases[number]
    corpus = population.job.corpora[key(case.experiment)]
    made_from = fingerprint(case.experiment, corpus.content, participant_count(case.experiment, corpus))
    rows = [RoundRecord(one, 0.0, {"loss": float(number)}) for one in range(1, round_ + 1)]
    Checkpoints(population.job.folder.case(case.id) / "checkpoint", made_from).save(
        np.zeros(3, dtype=np.float32), {}, rows
    )


def test_an_interrupted_generation_decides_nothing(tmp_path: Path) -> None:
    """Tune returns from an interruption as from the end of all trials."""
    interrupted, asked = population(tmp_path), list[Mapping[str, int]]()
    callback: Any = SimpleNamespace(until={}, outcomes={}, change=lambda case, sentence: None)

    def train(until: Mapping[str, int]) -> None:
        asked.append(until)
        for number in range(3):
            reach(interrupted, number, len(asked))

    interrupted.run(train, callback)
    assert asked == [dict.fromkeys(interrupted.members, 1)], "there is no second generation"
    assert not (tmp_path / "population.json").exists()

    asked.clear()
    callback.outcomes[interrupted.members[3]] = Outcome("failed")
    interrupted.run(train, callback)
    assert len(asked) == 3, "a member that has failed holds up no other"
    assert len(json.loads((tmp_path / "population.json").read_text())) == 2


def test_a_changed_point_that_is_no_experiment_leaves_that_of_the_donor(tmp_path: Path) -> None:
    changing = population(tmp_path)
    first = list(changing.job.cases)
    reach(changing, 0, 1)
    exploit = {"member": 3, "donor": 0, "point": {"method.lambda1": -1.0}}
    said = list[tuple[str, str]]()
    callback: Any = SimpleNamespace(
        change=lambda case, sentence: said.append((case.id, sentence)),
        changed=lambda case_id, sentence: said.append((case_id, sentence)),
    )
    Machines(changing.job.folder.case(first[0].id) / "checkpoint", "any").train(1, ["A"])
    changing._carry_out(Exploit(3, 0, {"method.lambda1": -1.0}), 1, callback)
    assert machines_of(changing.job.folder.case(first[3].id) / "checkpoint") == ["A"], "on which it was trained"
    (tmp_path / "population.json").write_text(json.dumps([{"done": True, "exploits": [exploit]}]))
    resumed = evolved(first, changing.job.folder, changing.job.experiment, changing.content, "test")
    assert resumed == changing.job.cases
    assert resumed[3] == replace(first[0], id=first[3].id, group=first[3].group)
    assert not resumed[3].problem
    again = Population(changing.job, changing.content, "test")
    for number, donor, case in nonempty(again.begun):
        assert (number, donor, case) == (1, first[0].id, resumed[3])
    callback.outcomes = dict.fromkeys(again.members, Outcome("finished"))
    again.run(lambda until: None, callback)
    expected = first[3].id, f"goes on from {first[0].id} after round 1: {title(resumed[3])}"
    assert said == [expected, expected], "once when it is carried out, and once when the run is continued"
