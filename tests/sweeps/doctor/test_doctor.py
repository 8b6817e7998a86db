"""The doctor's checks of this machine, on real faults."""

import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from fedtext.corpora import CORPORA
from fedtext.runtime import compiled
from sweeps.doctor import machine, software, storage
from sweeps.doctor.asked import Asked
from sweeps.doctor.corpora import data_files, folder, needing
from sweeps.doctor.experiment import foreseen
from sweeps.doctor.finding import Finding, exit_status, size
from tests import ROOT, commands
from tests.fedtext.config.content import OF_PLUGIN
from tests.stores import SECRET, object_store
from tests.sweeps.doctor.findings import only, seen


def test_this_environment_has_what_constraints_say() -> None:
    found = list(software.installed())
    assert exit_status(found) == 0
    assert {finding.section for finding in found} == {"software"}
    assert any(f"Python {sys.version_info[0]}.{sys.version_info[1]}" in finding.message for finding in found)


def test_every_extra_has_a_purpose() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(software.EXTRAS) == set(project["optional-dependencies"])


def test_packages_that_are_missing_or_old_are_named() -> None:
    missing = only(software.needed(["numpy", "no-such-package>=2"]), "problem")
    assert missing.message == "no-such-package is not installed"
    assert missing.remedy == "pip install -c constraints.txt no-such-package"
    assert "is older than 99.1" in only(software.needed(["numpy>=99.1"]), "problem").message
    assert software.python(">=99.2").status == "problem"
    lacks = software.extra_of("word2vec", ["numpy", "no-such-package"])
    assert (lacks.status, "lacks no-such-package" in lacks.message) == ("warning", True)
    assert "old: numpy" in software.extra_of("word2vec", ["numpy>=99"]).message
    assert software.extra_of("word2vec", ["numpy"]).status == "ok"
    assert software.parsed("ray[default,tune]>=2.50") == ("ray", "2.50")
    assert software.numbers("2.13.0+cpu") > software.numbers("2.9.1")


def test_other_versions_than_the_tested_ones_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    numpy = software.version_of("numpy")
    monkeypatch.setattr(software, "ROOT", tmp_path)
    (tmp_path / "constraints.txt").write_text(f"numpy=={numpy}\npydantic==0.1\nno-such-package==1\n")
    found = software.pinned()
    assert found.status == "warning"
    assert "(tested: 0.1)" in found.message
    assert "numpy" not in found.message
    (tmp_path / "constraints.txt").write_text(f"numpy=={numpy}\n")
    assert software.pinned().status == "ok"


def test_a_missing_compiler_is_a_warning(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for cached in (compiled.compile_problem, compiled.compiled):
        cached.cache_clear()
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    found = machine.compiler()
    for cached in (compiled.compile_problem, compiled.compiled):
        cached.cache_clear()
    assert found.status == "warning"
    assert "no C compiler was found" in found.message
    assert "install one, such as gcc" in found.message


def test_a_driver_that_fails_is_a_warning(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Stand-ins for nvidia-smi: one that lists a card, which torch without CUDA cannot use, and one that fails."""
    command = tmp_path / "nvidia-smi"
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    command.write_text("#!/bin/sh\necho 'Some GPU, 81559 MiB, 550.1'\n")
    command.chmod(0o755)
    from fedtext.runtime.devices import no_cuda

    if no_cuda():
        (found,) = machine.gpus()
        assert found.status == "warning"
        assert "Some GPU, 81559 MiB" in found.message
        assert no_cuda() in found.message
    command.write_text("#!/bin/sh\necho 'NVIDIA-SMI has failed'\nexit 9\n")
    (found,) = machine.gpus()
    assert (found.status, "NVIDIA-SMI has failed" in found.message) == ("warning", True)


def test_shared_memory_that_is_too_small_is_a_warning(disk: Path) -> None:
    assert machine.shared_memory(disk, 1e9).status == "warning"
    assert machine.shared_memory(disk, 1e6).status == "ok"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 8 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", folder], capture_output=True).returncode:
        pytest.skip("a small file system cannot be mounted here, which takes root")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


def test_a_full_disk_is_a_problem_and_a_nearly_full_one_a_warning(disk: Path) -> None:
    assert storage.folder(disk / "runs", "results", "or elsewhere").status == "warning"
    with suppress(OSError), (disk / "filled").open("wb", buffering=0) as file:
        while True:
            file.write(bytes(1 << 12))
    found = storage.folder(disk / "runs", "results", "or elsewhere")
    assert found.status == "problem"
    assert found.message.startswith(f"results: {disk}/runs cannot be written (No space left on device): free space")
    assert found.message.endswith(", or elsewhere")


def test_a_read_only_folder_is_a_problem() -> None:
    assert storage.folder(Path("/proc/here"), "results", "or elsewhere").status == "problem"


def test_a_good_folder_is_left_as_it_was(tmp_path: Path) -> None:
    assert storage.folder(tmp_path / "a" / "b", "results", "or elsewhere").status in ("ok", "warning")
    assert list(tmp_path.iterdir()) == []


def table(folder: Path) -> Path:
    """A small corpus as Parquet."""
    import pyarrow
    import pyarrow.parquet

    rows = {"split": ["train", "test"] * 20, "label": [0, 0, 1, 1] * 10, "text": [f"a text {n}" for n in range(40)]}
    folder.mkdir(parents=True, exist_ok=True)
    pyarrow.parquet.write_table(pyarrow.table(rows), folder / "sst2.parquet")
    return folder / "sst2.parquet"


def test_files_of_corpora_have_digests_and_damaged_ones_are_problems(tmp_path: Path) -> None:
    import hashlib

    file = table(tmp_path / "sst2")
    found = list(data_files(tmp_path))
    assert [finding.status for finding in found] == ["ok", "ok"]
    assert f"sha256 {hashlib.sha256(file.read_bytes()).hexdigest()[:12]}" in found[0].message
    assert "fdu (adversaries.yaml, kteps.yaml, kteps_star.yaml, transformer.yaml)" in found[1].message
    whole = file.read_bytes()
    half = len(whole) // 2
    for damaged in (whole[:half], whole[:8] + bytes(60) + whole[68:], b""):
        file.write_bytes(damaged)
        assert f"{file} cannot be read as parquet" in only(data_files(tmp_path), "problem").message
    file.unlink()
    (tmp_path / "ptb.train.txt").write_bytes(b"a sentence\n\xff\n")
    assert "line 2, byte 1: 0xff is not UTF-8" in only(data_files(tmp_path), "problem").message
    assert folder(str(tmp_path)) == (tmp_path, None)
    _, problem = folder(str(tmp_path / "nowhere"))
    assert problem is not None
    assert (problem.status, "there is no folder" in problem.message) == ("problem", True)


def test_experiments_are_known_by_their_corpus() -> None:
    found = needing()
    assert found["fdu"] == ["adversaries.yaml", "kteps.yaml", "kteps_star.yaml", "transformer.yaml"]
    assert set(found) <= set(CORPORA)


def test_an_experiment_that_would_run_has_no_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDTEXT_HOME", str(tmp_path))
    found = list(foreseen(Asked(str(commands.write(tmp_path))), None, [{"CPU": 4.0}]))
    assert exit_status(found) == 0, found
    assert any("3 trials" in finding.message for finding in found)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kteps.yaml"]


def test_storage_at_a_uri_is_written_and_left_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDTEXT_HOME", str(tmp_path))
    file = commands.write(tmp_path)
    with object_store(monkeypatch, tmp_path / "cache") as store:
        found = list(foreseen(Asked(str(file), [f"storage={store.uri('runs')}"]), None, [{"CPU": 4.0}]))
        assert exit_status(found) == 0, found
        assert ("ok", "storage: s3://fedtext-tests/runs can be written") in seen(found)
        assert any("3 trials" in finding.message for finding in found)
        assert store.files() == []
        assert not list(tmp_path.glob("s3*"))
        gone = store.uri("runs").replace("fedtext-tests", "no-such-bucket")
        problem = only(foreseen(Asked(str(file), [f"storage={gone}"]), None, [{"CPU": 4.0}]), "problem")
        assert problem.message.startswith("storage: s3://no-such-bucket/runs/.probe-")
        words = [f"storage=s3://me:{SECRET}@bucket/runs"]
        problem = only(foreseen(Asked(str(file), words), None, [{"CPU": 4.0}]), "problem")
        assert "the URI of s3 contains credentials" in problem.message
        assert SECRET not in problem.message


def test_a_store_without_a_registry_is_a_problem_where_one_is_needed(
    tmp_path: Path, ready: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDTEXT_HOME", str(tmp_path))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    (tmp_path / "mlflow.db").write_bytes(ready.read_bytes())
    file = commands.write(tmp_path)
    needed = Asked(str(file), ["tracking.register=reviews", "save.model=shared"])
    assert exit_status(foreseen(needed, None, [{"CPU": 4.0}])) == 0
    monkeypatch.setenv("MLFLOW_REGISTRY_URI", "nowhere://at/all")
    assert exit_status(foreseen(Asked(str(file)), None, [{"CPU": 4.0}])) == 0
    found = only(foreseen(needed, None, [{"CPU": 4.0}]), "problem")
    assert found.message.startswith("tracking.register: MLflow at sqlite:")


FAULTS = {
    "a typo": (["training.round=3"], "there is no key training.round; did you mean rounds?"),
    "two of them": (
        ["training.round=3", "method=fedavgg"],
        f"method cannot be 'fedavgg'{OF_PLUGIN}; did you mean fedavg?",
    ),
    "a corpus that is not there": (["corpus={name: fdu, validation: 0.2}"], "corpus fdu: no fdu_mtl.parquet"),
    "vectors that are not there": (
        ["model.embedding.init={file: {path: gone.txt}}"],
        "no word vectors at gone.txt",
    ),
    "a folder that cannot be written": (["storage=/proc/here"], "storage: /proc/here cannot be written"),
    "MLflow away": (["tracking.uri=http://127.0.0.1:9"], "the MLflow server at http://127.0.0.1:9 cannot be reached"),
    "no room": (["resources.cpus_per_actor=8"], "no node has 8 CPUs for a client actor"),
    "too few actors": (["resources.clients_per_actor=1", "resources.cpus_per_actor=2"], "the cluster has room for 2"),
    "a metric that is not computed": (["tune.metric=Ag_val", "corpus.validation=0"], "Ag_val"),
}


@pytest.mark.parametrize(("words", "sentence"), FAULTS.values(), ids=list(FAULTS))
def test_what_would_fail_is_said(
    words: list[str], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDTEXT_HOME", str(tmp_path))
    monkeypatch.delenv("FEDTEXT_DATA", raising=False)
    file = commands.write(tmp_path)
    found = list(foreseen(Asked(str(file), words), tmp_path, [{"CPU": 4.0}]))
    assert exit_status(found) == 2
    assert any(sentence in finding.message for finding in found if finding.status == "problem"), found
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kteps.yaml"]


WRONG = {
    "a method that is none": (["method=fedavgg"], "method cannot be 'fedavgg'"),
    "a key that is none": (["training.round=3"], "there is no key training.round"),
    "a name that is none": (["name=a/b"], "is to be the name of a folder"),
    "keys that do not go together": (["uplink=[{randomized_response: {epsilon: 1}}]"], "randomized_response"),
    "a plug-in that is not there": (["plugins=[gone.py]"], "plugins: there is no file"),
    "another key of the section": (["tracking.model=perhaps"], "tracking.model"),
}


@pytest.mark.parametrize(("words", "sentence"), WRONG.values(), ids=list(WRONG))
def test_what_is_valid_in_a_file_that_is_refused_is_checked(
    words: list[str], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store, the folder and the corpus are looked at, whatever else is wrong in the file."""
    monkeypatch.setenv("FEDTEXT_HOME", str(tmp_path))
    file = commands.write(tmp_path)
    words = ["tracking.uri=http://127.0.0.1:9", "storage=/proc/here", *words]
    found = list(foreseen(Asked(str(file), words), tmp_path, [{"CPU": 4.0}]))
    first, *others = [finding.message for finding in found if finding.status == "problem"]
    assert sentence in first
    assert others[0].startswith("storage: /proc/here cannot be written")
    if not sentence.startswith("tracking"):  # a section is valid as a whole
        assert others[1].startswith("the MLflow server at http://127.0.0.1:9 cannot be reached")
    assert len(others) == 2 - sentence.startswith("tracking"), others
    assert any(finding.message.startswith("corpus demo: 4 clients") for finding in found), found


def test_a_corpus_and_a_store_that_are_wrong_are_said_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDTEXT_HOME", str(tmp_path))
    monkeypatch.delenv("FEDTEXT_DATA", raising=False)
    words = ["method=fedavgg", "storage=s3:///runs", "corpus={name: fdu, validation: 0.2}"]
    found = list(foreseen(Asked(str(commands.write(tmp_path)), words), tmp_path, [{"CPU": 4.0}]))
    problems = [finding.message for finding in found if finding.status == "problem"]
    assert [sum(word in message for message in problems) for word in ("fedavgg", "fdu_mtl.parquet")] == [1, 1], found
    (unread,) = foreseen(Asked(str(tmp_path / "none.yaml")), tmp_path, [{"CPU": 4.0}])
    assert unread.message.startswith("there is no experiment file")


def test_sizes_are_in_units_that_people_read() -> None:
    assert [size(number) for number in (0, 999, 1000, 6_052_756, 25.3e9, 3e15)] == [
        "0 B", "999 B", "1.0 kB", "6.1 MB", "25.3 GB", "3000.0 TB",
    ]  # fmt: skip


def test_findings_are_lines_and_json() -> None:
    finding = Finding("storage", "warning", "little space", "free some")
    assert finding.line == "  warning  little space: free some"
    assert json.loads(json.dumps(finding.to_json()))["remedy"] == "free some"
    assert exit_status([finding]) == 0
    assert exit_status([finding, Finding("storage", "problem", "none")]) == 2
