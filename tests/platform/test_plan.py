"""``--dry-run``: what would run, and where, without running it."""

import platform.run
import platform.sweep
from collections import Counter
from pathlib import Path
from platform._words import RESUME, guarded
from typing import Any

import pytest
import ray
import torch

import fedtext
from dashboards.trial import Outcome
from fedtext import parameters
from fedtext.config import yaml_text
from fedtext.corpora.prepare import prepare
from fedtext.errors import UserError, command_line
from sweeps import arrange
from sweeps.cost import cost
from sweeps.folder import RunFolder
from sweeps.plan import plan
from sweeps.request import Cluster, Request
from tests.commands import EXPERIMENT, Forked, write
from tests.loops import nonempty
from tests.planned import experiment, rows

ASSUMED = ["--dry-run", "--num-cpus", "16", "--num-gpus", "8"]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FEDTEXT_HOME", str(tmp_path))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    return tmp_path


def test_the_plan_of_a_cluster_that_is_only_assumed(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    began = ray.is_initialized()
    assert platform.sweep.main([str(write(home)), *ASSUMED]) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[:4] == [
        "kteps: 3 trials, 1 of them baselines",
        "    00-fedavg              3 rounds  4 clients  360 texts in all  8.8 kB up   9.4 kB down a client and round",
        "    01-kteps lambda1=0.01  3 rounds  4 clients  360 texts in all  9.9 kB up  10.4 kB down a client and round",
        "    02-kteps lambda1=0.1   3 rounds  4 clients  360 texts in all  9.9 kB up  10.4 kB down a client and round",
    ]
    for sentence in (
        "in all 9 rounds, 1,080 texts read by local updates, ",
        "nothing was started",
        "3 trials side by side, each with 4 client actors of 1 CPU and 0.5 GPUs: 12 of 16 CPUs and 6 of 8 GPUs on 1",
        "corpus demo: 4 clients, ",
        "engine cells: ",
        "the server learns each client's number of train texts",
        "as they are",
    ):
        assert sentence in out
    reserved = f"6 of 8 GPUs would be reserved, but here torch {torch.__version__} has no CUDA"
    assert (reserved in out) == (not torch.version.cuda and not torch.version.hip)
    assert [path.name for path in home.iterdir()] == ["kteps.yaml"], "something was made"
    assert ray.is_initialized() == began, "Ray was started"


def test_the_plan_of_one_run_and_of_an_experiment_that_does_not_fit(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert platform.run.main([str(write(home)), *ASSUMED, "tune.concurrent=1", "resources.gpus_per_actor=0"]) == 0
    out = capsys.readouterr().out
    assert "kteps: 1 trial\n" in out
    assert "one trial at a time, with 4 client actors of 1 CPU: 4 of 16 CPUs and 0 of 8 GPUs on 1 node" in out
    assert "reserved" not in out
    done = Forked(home, "run", str(home / "kteps.yaml"), *ASSUMED, "resources.cpus_per_actor=17").wait()
    assert done.returncode == 2
    assert done.stderr == (
        "error: resources: no node has 17 CPUs and 0.125 GPUs for a client actor; the cluster has 16 CPUs and 8 GPUs "
        "on 1 node\n"
    )


def test_what_has_ended_takes_no_share_of_the_plan(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from fedtext.config.files import load

    content, experiment = load(str(write(home)), [], {})
    folder = RunFolder.new(home / "runs", "cut", "kteps", "sweep")
    folder.create(content, experiment, "sweep")
    folder.record("01-kteps", Outcome("finished", tuple(rows(3))))
    folder.record("02-kteps", Outcome("stopped", tuple(rows(1))))
    assert platform.sweep.main(["--resume", "cut", *ASSUMED]) == 0
    out = capsys.readouterr().out
    assert "    01-kteps lambda1=0.01  (finished before)\n    02-kteps lambda1=0.1   (stopped before)\n" in out
    assert "one trial at a time, with 4 client actors of 1 CPU and 1 GPU: 4 of 16 CPUs and 4 of 8 GPUs" in out


def test_the_plan_of_a_run_that_goes_on_with_more_rounds(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from fedtext.config.files import load

    content, experiment = load(str(write(home, space={}, baselines=[])), [], {})
    folder = RunFolder.new(home / "runs", "more", "kteps", "run")
    folder.create(content, experiment, "run")
    folder.record("00-kteps", Outcome("finished", tuple(rows(3))))
    assert platform.run.main(["--resume", "more", *ASSUMED]) == 0
    assert "    00-kteps  (finished before)\n" in capsys.readouterr().out
    assert platform.run.main(["--resume", "more", "training.rounds=5", *ASSUMED]) == 0
    out = capsys.readouterr().out
    assert "    00-kteps  5 rounds  4 clients" in out, "of its rounds there is no checkpoint here"
    assert "  in all 5 rounds, " in out
    assert folder.ended() == {"00-kteps": "finished"}, "nothing is written"
    whole = {"training": EXPERIMENT["training"] | {"rounds": 3}}
    content, experiment = load(str(write(home, space={"chosen": {"grid": {"this": whole}}}, baselines=[])), [], {})
    RunFolder.new(home / "runs", "fixed", "kteps", "sweep").create(content, experiment, "sweep")
    with pytest.raises(UserError, match="fixed cannot have more rounds: its trial 00-kteps has a number of its own"):
        platform.sweep.main(["--resume", "fixed", "training.rounds=5", *ASSUMED])


def test_the_plan_of_this_machine_starts_and_writes_nothing(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    began = ray.is_initialized()
    words = [str(write(home)), "--dry-run", "--num-cpus", "3", "resources.gpus_per_actor=0"]
    assert platform.sweep.main(words) == 0
    assert "side by side, each with 1 client actor of 1 CPU: 3 of 3 CPUs on 1 node" in capsys.readouterr().out
    assert ray.is_initialized() == began
    assert [path.name for path in home.iterdir()] == ["kteps.yaml"]


def test_cases_share_what_a_plan_is_made_of(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A grid of ten thousand cases takes some seconds: one corpus is read, and few networks are built."""
    counts: Counter[str] = Counter()

    def counted(where: Any, name: str) -> None:
        whole = getattr(where, name)
        monkeypatch.setattr(where, name, lambda *given, **named: (counts.update([name]), whole(*given, **named))[1])

    counted(parameters, "build_network")
    counted(arrange, "prepare")
    counted(yaml_text, "parse")
    found = []
    for values in (2, 12):
        parameters._KNOWN.clear()
        counts.clear()
        grid = {f"method.lambda{key}": {"grid": [n / 100 for n in range(values)]} for key in (1, 2)}
        space = grid | {"uplink": {"grid": [[], [{"clip": {"norm": 1}}]]}}
        lines = plan(
            Request("sweep", str(write(home, space=space)), (), (), None, None, None, None, Cluster(None, 4, 0))
        )
        assert lines[0] == f"kteps: {2 * values**2 + 1} trials, 1 of them baselines"
        found.append(dict(counts))
    assert found[0] == found[1]
    assert found[1]["prepare"] == 1
    assert found[1]["build_network"] == 2, "that of the baseline, and one for all others"


def test_a_plan_trains_no_word_vectors(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("gensim")
    cache = tmp_path / "cache"
    monkeypatch.setenv("FEDTEXT_CACHE", str(cache))
    model = EXPERIMENT["model"] | {"embedding": {"dim": 8, "init": {"word2vec": {"corpus": "train"}}}}
    file = str(write(home, model=model))

    def planned(*overrides: str) -> list[str]:
        return plan(Request("sweep", file, overrides, (), None, None, None, None, Cluster(None, 4, 0)))

    untrained = "  word vectors are not trained yet (skip-gram, 8 dimensions, 5 epochs on "
    before = planned()
    assert len([line for line in before if line.startswith(untrained)]) == 1
    assert not cache.exists()
    content = {key: value for key, value in EXPERIMENT.items() if key not in ("space", "baselines")}
    fedtext.run(content | {"method": "fedavg", "model": model}, "training.rounds=1")
    (kept,) = cache.iterdir()
    after = planned()
    assert [line for line in after if not line.startswith("  vectors for ")] == [
        line for line in before if not line.startswith(untrained)
    ], "what else a plan shows does not depend on them"
    kept.unlink()
    planned("method=fedevocab", "space={}", "baselines=[]")
    assert len([*cache.iterdir()]) == 1, "own vocabularies depend on them"


def test_an_interrupted_dry_run_has_nothing_to_continue(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(request: Request) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("sweeps.plan.plan", interrupted)
    monkeypatch.setattr("sweeps.prepare.prepared", interrupted)
    for words, said in nonempty(((ASSUMED, "nothing was started"), ([], RESUME))):
        assert guarded(lambda _, given=words: platform.sweep.main([str(write(home)), *given]), RESUME)() == 130
        assert capsys.readouterr().err == f"interrupted; {said}\n"


def test_a_dry_run_refuses_what_the_command_would(home: Path) -> None:
    file = str(write(home))
    for words, sentence in (
        (["tracking.uri=http://127.0.0.1:9"], "the MLflow server at http://127.0.0.1:9 cannot"),
        (["tracking.uri=sqlite:////proc/here/a.db"], "the MLflow database /proc/here/a.db cannot be written"),
        (["storage=/proc/here"], "storage: /proc/here/kteps-"),
        (["--data", "/nowhere"], "--data: there is no folder /nowhere"),
    ):
        with pytest.raises(UserError) as raised, command_line():
            platform.sweep.main([file, *ASSUMED, *words])
        assert sentence in str(raised.value)
    assert [path.name for path in home.iterdir()] == ["kteps.yaml"]


def test_the_bytes_of_a_plan_are_those_that_a_run_sends() -> None:
    for changes in ({}, {"method": "kteps"}, {"method": "fedper"}, {"wire": {"rows": "all"}}, {"method": "local_only"}):
        content = {key: value for key, value in EXPERIMENT.items() if key not in ("space", "baselines")}
        result = fedtext.run(content | {"method": "fedavg"} | changes, "training.rounds=1")
        corpus = prepare(result.experiment.corpus, result.experiment.model.embedding, 0, None)
        found = cost(result.experiment, corpus)
        sent = {name: result.metrics[f"bytes_{name}"] / 4 for name in ("up", "down")}
        for name, planned in (("up", found.up), ("down", found.down)):
            assert 0 <= sent[name] - planned <= 3000, (changes, name, "names, shapes and row numbers in front")
        assert found.texts == 4 * 30


def test_clients_that_a_round_does_not_wait_for_receive_its_parameters() -> None:
    more = {"fraction": 0.5, "pace": {}, "over_selection": 2.0}
    plain, over = (experiment("fedavg", participation={"fraction": 0.5} | changes) for changes in ({}, more))
    corpus = prepare(plain.corpus, plain.model.embedding, 0, None)
    found, expected = cost(over, corpus), cost(plain, corpus)
    assert (found.clients, found.invited) == (expected.clients, 2 * expected.clients)
    assert found.total - expected.total == expected.rounds * expected.clients * expected.down > 0


def test_a_plan_counts_the_rounds_and_clients_that_are_left() -> None:
    made = experiment("fedavg", rounds=10, participation={"fraction": 0.5})
    corpus = prepare(made.corpus, made.model.embedding, 0, None)
    there = len(corpus.clients)
    whole, half = cost(made, corpus), cost(made, corpus, done=5)
    assert (whole.rounds, half.rounds, whole.clients) == (10, 5, there / 2)
    assert whole.texts == 2 * half.texts
    assert whole.total == 2 * half.total > 0
    assert cost(made, corpus, done=12).total == 0
