"""Machines on which the clients of a run are trained: their names, and what is said where there are several."""

import logging
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest
import torch

import fedtext
from fedtext.client.local_fleet import LocalFleet
from fedtext.models.native_transformer import in_tiles
from fedtext.runtime.compiled import compile_problem
from fedtext.state import machine as machines
from fedtext.state.machines import FILE, Machines, machines_of
from tests import tiny
from tests.loops import nonempty

ZEN = """processor\t: 0
vendor_id\t: AuthenticAMD
cpu family\t: 25
model\t\t: 17
model name\t: AMD EPYC 9R14
flags\t\t: fpu avx2

processor\t: 1
vendor_id\t: AuthenticAMD
cpu family\t: 25
model\t\t: 17
"""
ARM = "processor\t: 0\nCPU implementer\t: 0x41\nCPU architecture: 8\nCPU variant\t: 0x1\nCPU part\t: 0xd40\n"


@pytest.mark.parametrize(
    ("told", "name"), [(ZEN, "AuthenticAMD 25/17"), (ARM, "0x41 8/0x1/0xd40"), (None, "arm64"), ("odd\n", "arm64")]
)
def test_a_processor_is_known_by_its_design(told: str | None, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def read_text(path: Path) -> str:
        assert path == Path("/proc/cpuinfo")
        if told is None:
            raise FileNotFoundError
        return told

    monkeypatch.setattr(Path, "read_text", read_text)
    monkeypatch.setattr(machines.platform, "processor", lambda: "arm64")
    machines.processor.cache_clear()
    try:
        assert machines.processor() == name
    finally:
        machines.processor.cache_clear()


def test_a_machine_is_its_processor_and_what_computes_on_it() -> None:
    begins, ends = f"{machines.processor()}, {torch.backends.cpu.get_cpu_capability()}", f", torch {torch.__version__}"
    assert machines.machine("cpu", native=False) == begins + ends
    tiles = ", AMX" if not compile_problem() and in_tiles() else ""
    compiled = machines.machine("cpu", native=True)
    assert compiled.startswith(f"{begins}{ends}, ")
    assert machines.machine("cpu", native=True, halves=True) == compiled.replace(begins, begins + tiles)
    if not compile_problem():
        assert not compiled.endswith("no compiler")


def test_a_device_that_is_no_gpu_of_cuda_has_a_name() -> None:
    assert machines.machine("mps", native=False) == f"{machines.processor()}, mps, torch {torch.__version__}"


NOISE = [{"clip": {"norm": 1.0}}, {"gaussian": {"sigma": 1.0}}]


class Elsewhere(LocalFleet):
    """A fleet of which a test says on which machines its clients are."""

    there: Collection[str] = ("A",)

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.machines = self.there


def noticed(folder: Path | None, until: int, *there: str, **changes: Any) -> list[str]:
    """What is said in the rounds of a run, which ends after ``until``, continued on these machines."""
    made = tiny.experiment(training=tiny.TRAINING | {"rounds": 4}, evaluation={"personalize": None}, **changes)
    fleet = type("There", (Elsewhere,), {"there": there})
    federation, said = tiny.federation(made, tiny.corpus(clients=2, texts=2), fleet, folder), []
    for record in nonempty(federation.run()):
        said.append(federation.notice)
        if record.round == until:
            break
    return said


def test_a_run_that_goes_on_elsewhere_says_so_once(tmp_path: Path) -> None:
    assert noticed(tmp_path, 2, "A") == ["", ""]
    (moved,) = noticed(tmp_path, 3, "B")
    assert moved.startswith("from round 3 on clients are trained on other machines (B) than before (A): ")
    assert "noise" not in moved
    (back,) = noticed(tmp_path, 4, "A", "B")
    assert back.startswith("from round 4 on clients are trained on other machines (A; B) than before (B): ")
    assert machines_of(tmp_path) == ["A", "B"]


def test_a_sentence_that_a_process_could_not_say_is_said_by_the_next_one(tmp_path: Path) -> None:
    Machines(tmp_path, "one").train(1, ["A"])
    said = Machines(tmp_path, "one").train(2, ["B"])  # it dies before the round is reported
    following = Machines(tmp_path, "one")
    assert following.train(2, ["B"]) == said != ""
    assert following.train(3, ["B"]) == ""
    assert Machines(tmp_path, "one").train(4, ["B"]) == "", "it was said"


def test_what_was_trained_before_the_first_checkpoint_is_known(tmp_path: Path) -> None:
    """Without noise the round is only computed again; with it, its two results have the same noise."""
    assert noticed(tmp_path, 1, "A", checkpoint={"every": 4}, uplink=NOISE) == [""]
    assert not list(tmp_path.glob("round-*"))
    first, *others = noticed(tmp_path, 4, "B", checkpoint={"every": 4}, uplink=NOISE)
    assert first.startswith("from round 1 on clients are trained on other machines (B) than before (A): ")
    assert "may have two results under the same noise" in first
    assert others == ["", "", ""]


def test_machines_of_a_cluster_that_differ_are_said(tmp_path: Path) -> None:
    said, *others = noticed(tmp_path, 4, "B", "A", "A", uplink=NOISE)
    assert said.startswith("clients are trained on different machines (A; B): ")
    assert "may have two results under the same noise" in said
    assert others == ["", "", ""]


def test_machines_of_another_run_and_damaged_files_are_replaced(tmp_path: Path) -> None:
    assert Machines(tmp_path, "one").train(1, ["A"]) == ""
    assert Machines(tmp_path, "one").known == ["A"]
    assert Machines(tmp_path, "two").train(1, ["B"]) == ""
    assert Machines(tmp_path, "two").known == ["B"]
    for content in nonempty(
        ("", "[]", '{"fingerprint": "two"}', '{"fingerprint": "two", "machines": 3, "last": [], "unsaid": ""}')
    ):
        (tmp_path / FILE).write_text(content)
        assert Machines(tmp_path, "two").known == []


def test_a_run_that_follows_another_one_has_its_machines(tmp_path: Path) -> None:
    donor, member = tmp_path / "donor", tmp_path / "member"
    for folder, names in nonempty(((donor, ["A"]), (donor, ["B"]), (member, ["C"]))):
        Machines(folder, folder.name).train(1, names)
    Machines(tmp_path / "next", "next").follow(donor, member)
    following = Machines(tmp_path / "next", "next")
    assert following.known == ["A", "B", "C"]
    assert following.train(3, ["B"]) == ""
    assert following.train(4, ["A"]).startswith(
        "from round 4 on clients are trained on other machines (A) than before (B)"
    )


def test_a_run_in_this_process_warns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    short = ("training.rounds=2", "corpus.share=0.02", "evaluation.personalize=null")
    for name, rounds in nonempty((("A", 1), ("B", 2))):
        monkeypatch.setattr("fedtext.client.local_fleet.machine_of", lambda experiment, device, name=name: name)
        with caplog.at_level(logging.WARNING):
            caplog.clear()
            fedtext.run("demo.yaml", *short, f"training.rounds={rounds}", out=tmp_path / "run", resume=rounds > 1)
    (warned,) = [each.message for each in caplog.records if "machine" in each.message]
    assert warned.startswith("from round 2 on clients are trained on other machines (B) than before (A): ")
