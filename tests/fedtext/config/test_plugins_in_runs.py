"""Plug-ins in what names a run, and in runs that go on."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import fedtext
from fedtext.config import files
from fedtext.config.experiment import Experiment
from fedtext.errors import UserError
from fedtext.state.fingerprint import fingerprint, released
from sweeps.folder import RunFolder
from sweeps.prepare import asked
from sweeps.request import Request
from tests import tiny
from tests.fedtext.config.plugged import AUDIT, CONTENT, MINE, write
from tests.loops import nonempty


def test_the_source_is_part_of_what_names_a_run_and_no_path_is(tmp_path: Path) -> None:
    digests = set()
    for place, source in enumerate((MINE, MINE, MINE + "\n")):
        folder = tmp_path / str(place)
        folder.mkdir()
        experiment = fedtext.load(write(folder, source))
        digests.add((fingerprint(experiment, "content", 3), released(experiment, "content", 3)))
    assert len(digests) == 2
    assert len({digest for pair in digests for digest in pair}) == 4
    unused = fedtext.load(CONTENT | {"method": "fedavg"}, plugins=[tmp_path / "0/mine.py"])
    assert released(unused, "content", 3) != released(fedtext.load(unused, "plugins=[]"), "content", 3)


def test_the_source_of_audits_alone_is_no_part_of_what_names_a_run(tmp_path: Path) -> None:
    plain = fedtext.load(CONTENT | {"method": "fedavg"})
    for source, others in nonempty(((AUDIT, False), (AUDIT + "\n", False), (AUDIT + MINE, True))):
        made = fedtext.load(write(tmp_path, source, method="fedavg", audits=["looks"]))
        for digest in nonempty((fingerprint, released)):
            assert (digest(made, "content", 3) != digest(plain, "content", 3)) == others


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({}, "plugins needs the plug-in gone_since, which is not installed here: install it, or put it where"),
        (  # of an entry point, which no experiment lists
            {"name": "some-methods", "version": "1.2+local", "key": "method"},
            r"method needs the plug-in gone_since of the package some-methods 1\.2\+local, which is not installed here"
            r': install it \(pip install "some-methods==1\.2"\)$',
        ),
    ],
)
def test_a_run_whose_package_is_gone_names_it_and_its_key(
    change: dict[str, str], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDTEXT_HOME", str(tmp_path))
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "gone_since.py").write_text(MINE)
    experiment, folder = fedtext.load(CONTENT, plugins=["gone_since"]), RunFolder(tmp_path / "runs" / "first")
    folder.create(CONTENT, experiment, "run")
    plan = json.loads((folder.path / "plan.json").read_text())
    assert plan["packages"] == [{"module": "gone_since", "name": "", "version": "", "key": "plugins"}]
    assert asked(Request("run", None, resume="first")).experiment == experiment
    plan["packages"][0] |= change
    plan["content"] |= {"plugins": []} if change else {}
    (folder.path / "plan.json").write_text(json.dumps(plan))
    monkeypatch.delitem(sys.modules, "gone_since")
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place != str(tmp_path)])
    (tmp_path / "again.json").write_text(json.dumps(CONTENT))  # which is YAML
    listed, elsewhere = CONTENT | {"plugins": ["gone_since"]}, CONTENT | {"storage": str(tmp_path / "runs")}
    for named in nonempty([None, tmp_path / "again.json", CONTENT, listed, elsewhere]):
        with pytest.raises(UserError, match=f"^{folder.path}/plan.json: {sentence}"):
            asked(Request("run", named, resume="first"))
    for run in nonempty([None, "second"]):  # of no run that there is
        with pytest.raises(UserError, match="method cannot be 'mine'"):
            asked(Request("run", CONTENT, resume=run))


def test_a_run_goes_on_with_another_text_of_its_audits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, mine = write(tmp_path, AUDIT, method="fedavg", audits=["looks"]), tmp_path / "mine.py"
    monkeypatch.setenv("FEDTEXT_HOME", str(tmp_path))
    folder = RunFolder(tmp_path / "runs" / "first")
    content, experiment = files.load(file)
    folder.create(content, experiment, "run")
    mine.write_text(AUDIT + "\n")
    mended = asked(Request("run", None, plugins=[mine], resume="first"))
    assert [plugin.source for plugin in mended.experiment.plugins] == [AUDIT + "\n"]
    assert asked(Request("run", file, resume="first")).experiment == mended.experiment
    folder.create(mended.content, mended.experiment, "run")
    assert asked(Request("run", None, resume="first")).experiment == mended.experiment
    mine.write_text(AUDIT + MINE)
    with pytest.raises(UserError, match=r"a run goes on with its own copy of mine\.py, and this one has another text"):
        asked(Request("run", None, plugins=[mine], resume="first"))


def test_without_plug_ins_noise_is_drawn_as_ever() -> None:
    noisy = tiny.configured("fedavg", uplink=[{"clip": {"norm": 0.1}}, {"gaussian": {"sigma": 0.01}}])
    assert released(noisy, "tiny", 3) == "1edbef3ae69e202182800b586737765e94e7bcee4c3a8b2e8b80472503a32b37"


def test_a_run_goes_on_with_the_text_it_was_begun_with(tmp_path: Path) -> None:
    file, folder = write(tmp_path), RunFolder(tmp_path / "run")
    content, experiment = files.load(file)
    folder.create(content, experiment, "run")
    (tmp_path / "run").rename(tmp_path / "moved")
    folder = RunFolder(tmp_path / "moved")
    folder.check(experiment)
    file.with_name("mine.py").unlink()
    assert files.validate(folder.content()) == experiment
    assert not folder.longer(experiment)
    for source in (MINE + "\n", None):
        changed = (
            fedtext.load(write(tmp_path, source)) if source else fedtext.load(experiment, "plugins=[]", "method=fedavg")
        )
        with pytest.raises(UserError, match=r'begun otherwise \(.*plugins.mine.py "\w{8}" -> '):
            folder.check(changed)


def test_another_text_of_its_file_is_refused_when_a_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, mine = write(tmp_path), tmp_path / "mine.py"
    monkeypatch.setenv("FEDTEXT_HOME", str(tmp_path))
    content, experiment = files.load(file)
    RunFolder(tmp_path / "runs" / "first").create(content, experiment, "run")
    request = Request("run", None, plugins=[mine], resume="first")
    assert asked(request).experiment == experiment
    mine.write_text(MINE + "\n")
    with pytest.raises(UserError, match=r"a run goes on with its own copy of mine\.py, and this one has another text"):
        asked(request)
    assert asked(replace(request, plugins=[])).experiment == experiment


def test_an_experiment_reads_back_from_its_folder(tmp_path: Path) -> None:
    experiment = fedtext.load(write(tmp_path))
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "experiment.yaml").write_text(files.resolved(experiment))
    files.keep_plugins(experiment, kept)
    assert fedtext.load(kept / "experiment.yaml") == experiment
    assert Experiment.model_validate(experiment.model_dump() | {"plugins": experiment.plugins}) == experiment
