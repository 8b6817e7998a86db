"""Parts of a user's own, from files and installed modules, without a change to the repository."""

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

import fedtext
from fedtext.__main__ import main
from fedtext.config.compatibility import RULES
from fedtext.errors import UserError
from fedtext.mechanisms import MECHANISMS
from fedtext.methods import METHODS
from fedtext.metrics import METRICS, legend
from fedtext.state import model_folder
from fedtext.state.fingerprint import fingerprint, released
from tests.commands import ROOT
from tests.fedtext.config.plugged import CONTENT, HALVED, MINE, write
from tests.loops import nonempty

MORE = (
    MINE
    + """
from fedtext.config.compatibility import RULES
from fedtext.metrics import METRICS, Metric


def small(experiment):
    if experiment.method.name == "mine" and experiment.method.beta > 1:
        yield "method.beta: 1 is the largest that was tried: take less"


RULES.append(small)
METRICS.append(Metric("loss_size", "mean squared logit", kind="training"))
"""
)


def test_a_file_of_ones_own_trains_is_saved_and_is_loaded_again(tmp_path: Path) -> None:
    experiment = fedtext.load(write(tmp_path), "method.beta=0.25")
    assert (experiment.method.name, experiment.plugins[0].name) == ("mine", "mine.py")
    (tmp_path / "mine.py").unlink()  # nothing reads it any more
    result = fedtext.run(experiment)
    assert result.metrics["loss"] > result.metrics["loss_size"] > 0
    longer = fedtext.load(experiment, "training.rounds=2")
    assert (longer.method, longer.plugins) == (experiment.method, experiment.plugins)
    result.save(tmp_path / "model")
    assert (tmp_path / "model/plugins/mine.py").read_text() == MINE
    assert fedtext.Model.load(tmp_path / "model").experiment == result.experiment


def test_a_plug_in_that_is_kept_with_a_model_runs_only_where_it_is_trusted(tmp_path: Path) -> None:
    result = fedtext.run(fedtext.load(write(tmp_path)))
    result.save(tmp_path / "model")
    asked = [sys.executable, "-m", "fedtext", "predict", str(tmp_path / "model"), "superb"]
    for more, status in (([], 2), (["--trust-plugins"], 0)):
        done = subprocess.run([*asked, *more], cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == status, done.stderr
        assert ("needs the plug-in mine.py, a program" in done.stderr) == (status == 2)
    label, probability, _ = done.stdout.split()
    assert (label, probability) == (result.model.predict(["superb"])[0].label, f"{_probability(result):.3f}")
    experiment = model_folder.read(tmp_path / "model").experiment
    assert experiment.plugins == result.experiment.plugins


def _probability(result: fedtext.Result) -> float:
    (found,) = result.model.predict(["superb"])
    assert isinstance(found, fedtext.Prediction)
    return found.probability


def test_an_experiment_knows_the_parts_of_its_own_plug_ins_only(tmp_path: Path) -> None:
    mine, halved = write(tmp_path), CONTENT | {"method": "fedavg", "uplink": ["halved"]}
    (tmp_path / "halved.py").write_text(HALVED)
    assert "mine" not in METHODS
    first = fedtext.load(mine)
    assert "mine" in METHODS
    assert "mine" in fedtext.list_methods()
    second = fedtext.load(halved, plugins=[tmp_path / "halved.py"])
    assert ("mine" in METHODS, "halved" in MECHANISMS) == (False, True)
    with pytest.raises(UserError, match="method cannot be 'mine'"):
        fedtext.load(CONTENT)
    with pytest.raises(UserError, match=r"uplink\.0 cannot be 'halve' without .*; did you mean halved"):
        fedtext.load(halved | {"uplink": ["halve"]}, plugins=[tmp_path / "halved.py"])
    for experiment, given in ((first, mine), (second, halved)):  # they can be used whatever was loaded since
        content = experiment.model_dump(mode="json")
        again = fedtext.load(given, plugins=experiment.plugins) if given is halved else fedtext.load(mine)
        assert again.model_dump(mode="json") == content
        assert fingerprint(again, "content", 3) == fingerprint(experiment, "content", 3)
        assert pickle.loads(pickle.dumps(experiment)) == experiment
    assert type(fedtext.load(mine).method) is type(first.method), "the same text is loaded once"
    other = fedtext.load(write(tmp_path, name="other.py"))
    assert [plugin.name for plugin in other.all_plugins] == ["other.py"]
    assert fingerprint(other, "content", 3) == fingerprint(first, "content", 3)


def test_a_changed_file_takes_the_place_of_what_it_was(tmp_path: Path) -> None:
    before = fedtext.load(write(tmp_path))
    after = fedtext.load(write(tmp_path, MINE.replace("0.5", "0.75")))
    assert (before.method.model_dump()["beta"], after.method.model_dump()["beta"]) == (0.5, 0.75)
    assert type(before.method) is not type(after.method)
    assert before.model_copy(update={"seed": 1}).model_dump()["method"] == {"name": "mine", "beta": 0.5}
    assert pickle.loads(pickle.dumps(before)) == before


def test_rules_and_metrics_of_a_plug_in_are_there_while_it_is(tmp_path: Path) -> None:
    rules, metrics = list(RULES), list(METRICS)
    file = write(tmp_path, MORE)
    with pytest.raises(UserError, match=r"method.beta: 1 is the largest that was tried"):
        fedtext.load(file, "method.beta=2")
    assert (len(RULES), len(METRICS)) == (len(rules) + 1, len(metrics) + 1)
    assert legend(["loss_size", "loss_unheard_of"]) == ["loss_size: mean squared logit"]
    fedtext.load(CONTENT | {"method": "fedavg"})
    assert (list(RULES), list(METRICS)) == (rules, metrics)
    assert legend(["loss_size"]) == []


def test_a_pickle_is_read_where_the_file_never_was(tmp_path: Path) -> None:
    experiment = fedtext.load(write(tmp_path))
    (tmp_path / "pickle").write_bytes(pickle.dumps({"inside": [experiment]}))
    read = """
import pathlib, pickle, sys
(experiment,) = pickle.loads(pathlib.Path(sys.argv[1]).read_bytes())["inside"]
from fedtext.state.fingerprint import released
print(experiment.method.name, experiment.method.beta, released(experiment, "content", 3))
"""
    argv = [sys.executable, "-c", read, str(tmp_path / "pickle")]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True)
    assert done.stderr == ""
    assert done.stdout.split() == ["mine", "0.5", released(experiment, "content", 3)]


def test_on_the_command_line_they_come_to_those_of_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write(tmp_path, uplink=["halved"])
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "halved.py").write_text(HALVED)
    monkeypatch.chdir(tmp_path / "here")
    assert main([str(file), "--plugin", "halved.py", "--plugin", "halved.py"]) == 0
    assert "loss_size" in capsys.readouterr().out
    assert main([str(file), "--plugin", "halved.py", "--keys", "mine"]) == 0
    assert "method.beta: number >= 0; default 0.5" in capsys.readouterr().out
    assert main(["--plugin", "halved.py", "--keys", "halved"]) == 0
    assert "uplink: halved" in capsys.readouterr().out
    assert main(["--keys", "halved"]) == 2


PACKAGED = """
import importlib.util, json, pickle, sys
import fedtext
from fedtext.state.fingerprint import fingerprint
content = json.loads(sys.argv[1])
experiment = fedtext.load(content)
assert "mine" in fedtext.list_methods()
print(sorted(plugin.name for plugin in experiment.all_plugins), fingerprint(experiment, "content", 3))
assert pickle.loads(pickle.dumps(experiment)) == experiment
print(fingerprint(fedtext.load(content, "method=fedavg"), "content", 3))
"""


@pytest.mark.slow
def test_a_package_brings_its_plug_in(tmp_path: Path) -> None:
    """Its source is part of what names a run that uses it, and of no other."""
    package, about = tmp_path / "mypackage", tmp_path / "mypackage-1.0.dist-info"
    package.mkdir()
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: mypackage\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[fedtext.plugins]\nmine = mypackage\n")
    (package / "__init__.py").write_text("from mypackage.method import Mine\n")
    said = []
    for source in (MINE, MINE + "\n"):
        (package / "method.py").write_text(source)
        done = _packaged(tmp_path)
        assert done.returncode == 0, done.stderr
        said.append(done.stdout.splitlines())
    plain = fingerprint(fedtext.load(CONTENT | {"method": "fedavg"}), "content", 3)
    assert [lines[1] for lines in said] == [plain, plain]
    assert said[0][0] != said[1][0]
    assert all(nonempty(lines[0].startswith("['mypackage'] ") for lines in said))
    (package / "method.py").write_text("1 / 0\n")
    done = _packaged(tmp_path)
    assert "mypackage: ZeroDivisionError: division by zero; it is in the package mypackage: repair" in done.stderr


def _packaged(folder: Path) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": f"{folder}:{ROOT}", "PYTHONDONTWRITEBYTECODE": "1"}
    argv = [sys.executable, "-c", PACKAGED, json.dumps(CONTENT)]
    return subprocess.run(argv, env=environment, capture_output=True, text=True)


def test_one_plug_in_needs_no_list(tmp_path: Path) -> None:
    file = write(tmp_path, plugins=[])
    for one in nonempty([str(tmp_path / "mine.py"), tmp_path / "mine.py"]):
        assert fedtext.load(file, plugins=one).method.name == "mine"
