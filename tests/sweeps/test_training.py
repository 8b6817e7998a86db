"""What is trained of a sweep whose trials have lost their place."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from actors.placement import Plan
from dashboards.callback import DisplacedError
from dashboards.trial import Outcome
from fedtext.records import RoundRecord
from fedtext.state.checkpoint import Checkpoints
from sweeps import training
from sweeps.folder import RunFolder
from sweeps.job import Job, key
from tests import tiny
from tests.checkpoints import SCRATCH
from tests.loops import nonempty
from tune_spaces.cases import cases


def test_what_audits_need_of_a_corpus_is_shipped_whichever_case_is_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    corpus = tiny.corpus()
    repeated = tuple(np.arange(len(client.test)) == 0 for client in corpus.clients)
    base = tiny.experiment()
    audited = tiny.experiment(audits=["membership"])
    shadowed = tiny.experiment(audits=[{"membership": {"attack": {"lira": {"shadows": 4}}}}])
    job: Any = SimpleNamespace(
        corpora={key(base): replace(corpus, repeated=repeated)},
        plans=defaultdict(lambda: Plan(1, 1, 0, 1)),
        folder=RunFolder(tmp_path),
    )
    put: list[Any] = []
    monkeypatch.setattr("actors.shipment.ray.put", lambda value: put.append(value) or len(put) - 1)
    assignments = training.Assignments(job, {})
    cases: Any = [SimpleNamespace(id=f"{place}", experiment=e) for place, e in enumerate((base, audited, shadowed))]
    sent = [put[assignments(case).shipment.lean] for case in nonempty(cases)]
    assert all(one.repeated == repeated for one in sent)
    assert [bool(one.tests) for one in sent] == [False, False, True]
    assert sum("test texts are also in" in message for message in caplog.messages) == 2


def test_word_vectors_are_shipped_to_the_cases_whose_server_does_not_send_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = replace(tiny.TWO, table_VD=np.ones((len(tiny.TWO.vocabulary), 8), np.float32), table_digest="ones")
    adapted = tiny.experiment(model=SCRATCH | {"adapter": {"lora": {"rank": 2}}})
    made = [adapted, *map(tiny.experiment, ("fedavg", "fedmmd", "lg_fedavg", "ditto"))]
    job: Any = SimpleNamespace(
        corpora={key(one): corpus for one in made},
        plans=defaultdict(lambda: Plan(1, 1, 0, 1)),
        folder=RunFolder(tmp_path),
    )
    put: list[Any] = []
    monkeypatch.setattr("actors.shipment.ray.put", lambda value: put.append(value) or len(put) - 1)
    assignments = training.Assignments(job, {})
    cases: Any = [SimpleNamespace(id=f"{place}", experiment=one) for place, one in enumerate(made)]
    sent = [put[assignments(case).shipment.lean] for case in nonempty(cases)]
    assert [one.table_VD is not None for one in sent] == [True, False, False, True, True]


CASES = [f"{number:02d}-kteps" for number in range(4)]


@pytest.mark.parametrize("until", [{}, {CASES[2]: 1, CASES[3]: 1}])
def test_trials_that_tune_had_not_begun_are_planned_again_with_the_one_that_lost_its_place(
    until: Mapping[str, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four trials, one at a time: the first ends, the second loses its node, and Tune ends without the others. If the
    last two pause, one of them has reached its round."""
    space = {"method.lambda1": {"grid": [0.1, 0.2, 0.3, 0.4]}}
    experiment = tiny.experiment("kteps", space=space, tune={"metric": "loss"}, baselines=[])
    corpora, plans = {key(experiment): tiny.corpus()}, dict.fromkeys(CASES, Plan(1, 1, 0, 1))
    folder = RunFolder(tmp_path)
    made = cases(experiment.model_dump(mode="json"), experiment, "test")
    job = Job(True, experiment, made, corpora, plans, {}, [], None, folder)  # type: ignore[arg-type]
    if until:
        saved = Checkpoints(folder.case(CASES[3]) / "checkpoint", "any")
        saved.save(np.zeros(3, dtype=np.float32), {}, [RoundRecord(1, 0.0, {})])
    callback: Any = SimpleNamespace(outcomes={}, displaced=set(), servers=SimpleNamespace(lost=None))
    begun, planned = list[list[str]](), list[list[str]]()

    def run(trials: Mapping[str, Any], *_: Any) -> None:
        begun.append([*trials])
        if len(begun) == 1:
            callback.outcomes[CASES[0]], callback.displaced = Outcome("finished"), {CASES[1]}
            raise DisplacedError
        callback.outcomes |= dict.fromkeys(trials, Outcome("finished"))

    monkeypatch.setattr(training.tune_sweep, "run", run)
    monkeypatch.setattr(training, "Assignments", lambda job, until: lambda case: case.id)
    monkeypatch.setattr(training, "arranged_again", lambda job, left: planned.append([case.id for case in left]) or "")
    training._train(job, callback, until)
    there = CASES[:3] if until else CASES
    assert begun == [there, there[1:]]
    assert planned == [there[1:]]
    assert callback.servers.lost == set(), "one that is given up while it starts is tried once more"
