"""What ``--keys`` says: everything that an experiment can hold is described, with its alternatives."""

import inspect
import subprocess
import sys

import pytest

from fedtext.__main__ import main
from fedtext.audits import AUDITS
from fedtext.config.experiment import Experiment
from fedtext.config.keys import about, keys
from fedtext.corpora import CORPORA
from fedtext.errors import UserError
from fedtext.mechanisms import MECHANISMS
from fedtext.methods import METHODS
from fedtext.metrics import METRICS
from fedtext.schema import fields_of, names_of
from tests import ROOT
from tests.loops import nonempty

KEYS = list(keys())
CLASSES = list(dict.fromkeys(cls for key in KEYS for cls in key.classes))
SECTIONS = {"method": METHODS, "uplink": MECHANISMS, "corpus": CORPORA, "audits": AUDITS}


def test_no_key_is_without_a_description() -> None:
    assert len(KEYS) > 400
    assert [key.path for key in KEYS if not key.description.strip()] == []


@pytest.mark.parametrize("cls", [Experiment, *CLASSES], ids=lambda cls: cls.__name__)
def test_the_first_line_of_a_docstring_is_a_sentence_of_its_own(cls: type) -> None:
    assert cls.__dict__.get("__doc__"), "a class that is chosen has a docstring of its own"
    first, *rest = inspect.cleandoc(cls.__doc__ or "").splitlines()
    assert first.endswith(".")
    assert not rest or not rest[0], "behind the summary is a blank line"


def test_everything_that_can_be_chosen_is_told_with_its_keys_and_alternatives() -> None:
    for section, classes in SECTIONS.items():
        for name, cls in nonempty(classes.items()):
            told = about(name)
            assert told.startswith(f"{section}: {name}\n")
            for option in nonempty(fields_of(cls)):
                assert option == "name" or f".{option}: " in told, (name, option)
            assert f"alternatives ({section}):\n" in told
            alternatives = told.partition("alternatives")[2].splitlines()[1:]
            assert [line.split()[0] for line in alternatives] == [other for other in classes if other != name]
        assert {line.split()[0] for line in about(section).splitlines() if line.startswith("  ")} >= set(classes)


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        (
            "kteps",
            ["  method.lambda1: number >= 0; default 0.01", "      weight of the knowledge transfer, equation 8"],
        ),
        ("kteps", ["  method.architecture: classifier | encoder | everything; default classifier"]),
        ("kteps", ["  method.bandwidth: number > 0 | median; default median"]),
        ("kteps", ["written: method: {name: kteps, lambda1: 0.01}"]),
        ("training.rounds", ["training.rounds: integer >= 1; default 50"]),
        ("rounds", ["training.rounds: integer >= 1; default 50"]),
        ("lr", ["training.optimizer.lr (of adamw): number > 0; default 5e-05"]),
        ("training.optimizer", ["training.optimizer: sgd | adam | adamw; default sgd", "one of:"]),
        ("adam", ["training.optimizer: adam", "server.optimizer: adam"]),
        ("mechanisms", ["uplink: list of clip | gaussian | project | quantize | randomized_response; default []"]),
        ("clip", ["written: uplink: [{clip: {norm: 1.0}}]"]),
        ("word_relations", ["  audits.word_relations.words: list of text of length >= 1; required"]),
        ("server.noise", ["  server.noise.delta: number > 0 and < 1; default 1e-05"]),
        ("gru", ["model: bigru | gru | bilstm | lstm", "  model.embedding.dim: integer >= 1; default 200"]),
        ("pooled", ["It has no keys."]),
        ("", ["  [kteps]   # KTEPS (Li et al. 2021): a shared and a private classifier, with knowledge transfer"]),
        ("", ["    lambda1 = 0.01   # weight", "  clients_per_actor = auto   #", "  batch_size = 8   # texts"]),
    ],
)
def test_a_key_is_told_with_its_type_range_and_default(name: str, lines: list[str]) -> None:
    told = about(name).splitlines()
    for line in nonempty(lines):
        assert any(found.startswith(line) for found in told), line


def test_every_metric_is_told() -> None:
    told = about("metrics")
    for metric in nonempty(METRICS):
        assert f"\n  {metric.name}{'*' if metric.validation else ''} ({metric.unit}" in told
    assert about("Ag").startswith("Ag* (fraction, larger, test, evaluated rounds)\n    accuracy of the shared model")
    assert "\n  Ag* (fraction, larger, test, evaluated rounds)\n" in told


def test_a_name_that_is_not_there_is_one_sentence_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UserError, match=r"called 'ktpes'; did you mean kteps\?$"):
        about("ktpes")
    assert main(["--keys", "ktpes"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert main(["--keys", "kteps"]) == 0
    assert capsys.readouterr().out.startswith("method: kteps\n")


@pytest.mark.parametrize(("name", "status"), [("uplink", 0), ("uplonk", 2)])
def test_the_commands_tell_a_key_by_its_name(name: str, status: int) -> None:
    command = [sys.executable, "-m", "platform.sweep", "--keys", name]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == status
    if status:
        assert done.stdout == ""
        assert done.stderr.endswith("called 'uplonk'; did you mean uplink?\n")
    else:
        assert done.stdout == about(name) + "\n"


def test_names_lead_to_one_class_in_a_section() -> None:
    for key in nonempty(KEYS):
        if key.is_choice:
            names = [name for cls in key.classes for name in names_of(cls)]
            assert len(set(names)) == len(names), key.path


def test_a_pattern_describes_all_that_match_with_type_and_default() -> None:
    found = about("training.opt*.l*").split("\n\n")
    names = {one.partition(":")[0] for one in found}
    assert {"training.optimizer.lr (of sgd)", "training.optimizer.lr (of adam)"} <= names
    assert all(nonempty(name.startswith("training.optimizer.lr (of ") for name in names))
    assert "default" in found[0].splitlines()[0]
    assert found[0].splitlines()[1].strip()
    parts = about("LAMB").split("\n\n")
    assert {"method.lambda1 (of kteps)", "method.lambda2 (of kteps)"} <= {one.partition(":")[0] for one in parts}
    assert any(one.startswith("method: fedprox\n") for one in about("fedpr").split("\n\n"))
    assert any(one.startswith("bytes_up ") for one in about("bytes_*").split("\n\n"))
    assert not any(nonempty(one.startswith("baselines") for one in about("fedpr*").split("\n\n")))


def test_a_name_comes_before_a_pattern_and_what_matches_nothing_is_one_sentence() -> None:
    assert about("kteps").startswith("method: kteps\n")
    for name in ("lamda1", "training.rouns", "x*y*z"):
        with pytest.raises(UserError, match="called '"):
            about(name)
    with pytest.raises(UserError, match="did you mean lambda1"):
        about("lamda1")
