"""Rows of a table, and the data and the code that their trials were made with."""

import json
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dashboards.figures import Reproduction, common
from dashboards.reproduction import markdown
from dashboards.trial import Outcome
from fedtext import load
from fedtext.config import files
from fedtext.errors import UserError
from fedtext.records import RoundRecord
from fedtext.state.checkpoint import Checkpoints
from sweeps import folder as run_folder
from sweeps import kept
from sweeps.arrange import corpora_of
from sweeps.asked import Asked
from sweeps.reproduce import reproduce
from sweeps.sources import commits, data_digest, data_digests, noted
from sweeps.work import Work
from tune_spaces.cases import Case

A, B = "a" * 12, "b" * 12  # digests of data


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Asked:
    """Table 3 of KTEPS with two rounds, of KTEPS and FedAvg."""
    monkeypatch.setenv("FEDTEXT_HOME", str(tmp_path))
    monkeypatch.setattr(kept, "picture", lambda _: b"")  # takes most of the time
    changes = ("training.rounds=2", "corpus={name: demo}")
    return Asked("kteps", ["3"], methods=["KTEPS", "FedAvg"], changes=changes, out=tmp_path / "tables")


def cases(asked: Asked, row: str = "KTEPS") -> list[Case]:
    """The cases of three seeds of a row."""
    return Work.of(replace(asked, seeds=3, again=True)).left(lambda _: None)["3"][row]


def train(asked: Asked, new: Sequence[Case], data: str, done: Sequence[Case] = (), rounds: int = 2) -> None:
    """What a command leaves that trains ``new`` up to a round, and takes ``done`` as they are."""
    work, each = Work.of(asked), [case.id for case in (*done, *new)]
    folder = work.folder
    folder.create(work.content, work.experiment, cases=[*done, *new])
    folder.note(noted(folder, [*done, *new], [case.id for case in done], dict.fromkeys(each, data)))
    records = [RoundRecord(n, 0.0, {"Ap": 0.5, "train_seconds": 1.0}) for n in range(1, rounds + 1)]
    for case in new:
        Checkpoints(folder.case(case.id) / "checkpoint", "of a test").save(np.zeros(1, np.float32), {}, records)
        if rounds == case.experiment.training.rounds:
            folder.record(case.id, Outcome("finished"))


def written(asked: Asked, **changes: object) -> str:
    """The table that ``--finished`` writes."""
    work = replace(asked, finished=True, **changes)  # type: ignore[arg-type]
    assert reproduce(work, lambda _: None) == 0
    made = Work.of(work).kept("3")
    assert made is not None
    return markdown(kept.named(made))


def code_of(monkeypatch: pytest.MonkeyPatch, commit: str) -> None:
    monkeypatch.setattr(run_folder, "git_state", lambda: {"git.commit": commit * 40})


def test_rows_of_different_data_stand_in_a_table_and_are_not_compared(asked: Asked) -> None:
    train(asked, cases(asked)[:1], A)
    train(asked, cases(asked, "FedAvg")[:1], A)
    said = written(asked)
    assert "| KTEPS - FedAvg | " in said
    assert "of 1 pairs of rows that the paper orders" in said
    assert "DIFFERENT DATA" not in said
    folder = Work.of(asked).folder
    folder.note({cases(asked, "FedAvg")[0].id: {"data": B}})
    said = written(asked, again=True)
    assert "ROWS OF DIFFERENT DATA, or of data that another version read otherwise, are not compared:" in said
    assert f" FedAvg ({B}); KTEPS ({A}).  \n" in said
    assert "Paired differences" not in said
    assert "that the paper orders" not in said


def test_a_row_gets_no_seeds_of_other_data(asked: Asked) -> None:
    first, second, third = cases(asked)
    train(asked, [first], A)
    written(asked)
    train(asked, [second], B)
    with pytest.raises(UserError, match=r"^table 3: row KTEPS would have seeds of different data, or of data that ano"):
        written(asked, seeds=2)
    with pytest.raises(UserError, match="row KTEPS would have seeds of different data"):
        written(asked, seeds=2, again=True)
    Work.of(asked).folder.note({second.id: {"data": A}})
    assert "over 2 seeds" in written(asked, seeds=2)
    (file,) = Work.of(asked).out.glob("*.csv")
    file.write_text("".join(line for line in file.read_text().splitlines(True) if not line.startswith("data,")))
    train(asked, [third], B)
    assert "over 3 seeds" in written(asked, seeds=3)
    assert f"data,KTEPS,,,,,,,,{B}\n" in file.read_text()


def test_a_row_has_the_commits_of_its_own_trials(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, third = cases(asked)
    code_of(monkeypatch, "1")
    train(asked, [first], A)
    train(asked, [third], A, rounds=1)
    code_of(monkeypatch, "2")
    train(asked, [second, third], A, done=[first])
    code_of(monkeypatch, "3")
    train(asked, [], A, done=[first, second, third])
    folder = Work.of(asked).folder
    assert commits(folder, [first]) == "1111111"
    assert commits(folder, [second]) == "2222222"
    assert commits(folder, [third, second]) == "1111111, 2222222"
    assert "Code: 1111111.  " in written(asked)
    assert "Code: 1111111, 2222222.  " in written(asked, seeds=2)
    folder.note({first.id: {"commits": []}})
    (other, *_) = cases(asked, "FedAvg")
    assert commits(folder, [other]) == "1111111, 2222222, 3333333", "of all commands, if it is not noted"


def test_a_digest_of_data_is_that_of_all_rows_and_seeds(tmp_path: Path) -> None:
    lines = ["text,label,client", *(f"word{n % 5} word{n % 7},{n % 2},{n % 3}" for n in range(60))]
    for name, text in (("one", lines), ("two", [*lines, "word,1,1"])):
        (tmp_path / name).mkdir()
        (tmp_path / name / "reviews.csv").write_text("\n".join(text) + "\n")
    corpus = {"name": "table", "path": "reviews.csv", "text": "text", "label": "label", "client": "client"}
    model = {"embedding": {"dim": 4}, "hidden": 4, "head": {"hidden": 4}}
    scene = files.validate({"name": "small", "corpus": corpus, "model": model, "method": "fedavg"})
    one, two = (data_digest(scene, tmp_path / name, {}) for name in ("one", "two"))
    assert one != two
    assert len(one) == 12
    case = Case("case", "case", "", False, {}, scene)
    assert data_digest(scene, None, corpora_of(scene, [case], tmp_path / "one")) == one, "it is not read again"
    assert data_digest(scene, tmp_path, {}) == "", "the scene has no such data"


def test_a_digest_of_data_has_the_word_vectors_of_its_row(tmp_path: Path) -> None:
    """Rows with other vectors on the same corpus are compared, and seeds of a row have the same vectors."""
    for name, number in (("one.txt", 1), ("two.txt", 2), ("three.txt", 2)):
        (tmp_path / name).write_text(f"good {number} 0 0 0\nbad 0 {number} 0 0\n")
    model = {"embedding": {"dim": 4}, "hidden": 4, "head": {"hidden": 4}}
    scene = files.validate({"name": "small", "corpus": {"name": "demo"}, "model": model, "method": "fedavg"})
    one, two, three = ({"file": {"path": str(tmp_path / f"{name}.txt")}} for name in ("one", "two", "three"))
    inits = {"plain": {"random": {}}, "one": one, "two": two, "three": three, "each": {"each": {"sources": [one, two]}}}
    made = {
        name: load(scene, f"model.embedding.init={json.dumps(init)}", *(["method=fedevocab"] if name == "each" else []))
        for name, init in inits.items()
    }
    cases = [Case(name, name, "", False, {}, experiment) for name, experiment in made.items()]
    found = data_digests(scene, cases, None, {})
    base = data_digest(scene, None, {})
    assert found["plain"] == base
    assert found["two"] == found["three"], "of the content"
    assert len(set(found.values())) == 4
    assert {common(digest) for digest in found.values()} == {base}
    again = data_digests(made["one"], cases, None, {})
    assert again["one"] == again["plain"] == data_digest(made["one"], None, {}), "those of the scene are in its digest"
    assert again["one"] != base


def test_a_digest_of_data_has_the_checkpoint_folders_of_its_row(tmp_path: Path) -> None:
    for name, number in (("one", 1), ("two", 2), ("three", 2)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "model.safetensors").write_bytes(bytes([number]))
    model = {"embedding": {"dim": 4}, "hidden": 4, "head": {"hidden": 4}}
    scene = files.validate({"name": "small", "corpus": {"name": "demo"}, "model": model, "method": "fedavg"})
    inits = {name: {"checkpoint": {"source": str(tmp_path / name)}} for name in ("one", "two", "three")}
    inits |= {"hub": {"checkpoint": {"source": "some/model"}}}
    made = {name: load(scene, f"model.embedding.init={json.dumps(init)}") for name, init in inits.items()}
    transformer = {"name": "transformer", "checkpoint": str(tmp_path / "one")}
    pieces = {"pieces": {"checkpoint": str(tmp_path / "one")}}
    made["model"] = load(scene, f"model={json.dumps(transformer)}", f"corpus.text={json.dumps(pieces)}")
    found = data_digests(
        scene, [Case(name, name, "", False, {}, experiment) for name, experiment in made.items()], None, {}
    )
    assert found["two"] == found["three"], "of the content"
    assert found["hub"] == data_digest(scene, None, {}), "a name is told by itself"
    assert found["one"] == found["model"]
    assert len(set(found.values())) == 3
    assert {common(digest) for digest in found.values()} == {found["hub"]}
    (tmp_path / "one" / "config.json").write_text("{}")
    case = Case("one", "one", "", False, {}, made["one"])
    assert data_digests(scene, [case], None, {})["one"] != found["one"]


def test_rows_with_other_word_vectors_are_compared(asked: Asked) -> None:
    train(asked, cases(asked)[:1], f"{A}+{A}")
    train(asked, cases(asked, "FedAvg")[:1], A)
    said = written(asked)
    assert "| KTEPS - FedAvg | " in said
    assert "DIFFERENT DATA" not in said
    train(asked, cases(asked)[1:2], f"{A}+{B}")
    with pytest.raises(UserError, match="row KTEPS would have seeds of different data"):
        written(asked, seeds=2, methods=["KTEPS"])


def test_commands_that_write_a_table_at_once_lose_no_rows(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    train(asked, cases(asked)[:1], A)
    train(asked, cases(asked, "FedAvg")[:1], A)
    works = [Work.of(replace(asked, methods=[name])) for name in ("KTEPS", "FedAvg")]
    whole, writing, wrote = kept.table_csv, threading.Event(), threading.Event()

    def slowly(made: Reproduction) -> str:  # the table has been read, and is now written
        if not writing.is_set():
            writing.set()
            wrote.wait(0.3)  # for the other command, which must not have read it
        return whole(made)

    def write(work: Work) -> None:
        rows = work.left(lambda _: None)
        work.write(rows, work.finished(rows, lambda _: None))

    monkeypatch.setattr(kept, "table_csv", slowly)
    with ThreadPoolExecutor() as pool:
        first = pool.submit(write, works[0])
        assert writing.wait(10)
        pool.submit(write, works[1]).add_done_callback(lambda _: wrote.set())
    first.result()
    made = Work.of(asked).kept("3")
    assert made is not None
    assert {cell.row for cell in made.cells if cell.seeds} == {"KTEPS", "FedAvg"}
    assert sorted(path.suffix for path in works[0].out.iterdir()) == [".csv", ".md", ".png"], "no lock is left"


def test_a_table_that_another_command_writes_is_waited_for(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "PATIENCE_S", 0.0)
    train(asked, cases(asked)[:1], A)
    out = Work.of(asked).out
    with kept.alone(out), pytest.raises(UserError, match=f"^{out}: another command is writing tables there: give"):
        written(asked)
    written(asked)


def test_rows_are_not_replaced_by_fewer_seeds(asked: Asked) -> None:
    train(asked, cases(asked)[:2], A)
    train(asked, cases(asked, "FedAvg")[:1], A)
    written(asked, seeds=2)
    said = list[object]()
    left = Work.of(replace(asked, again=True)).left(said.append)
    assert list(left["3"]) == ["FedAvg"]
    assert str(said[0]).startswith("  table 3: KTEPS kept (kteps-FDU-table3-")
    assert list(Work.of(replace(asked, seeds=2, again=True)).left(print)["3"]) == ["FedAvg", "KTEPS"]
