"""Experiment files: errors that say where and what to do."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

import fedtext
from fedtext.config import files
from fedtext.config.files import find
from fedtext.config.keys import about
from fedtext.errors import UserError
from fedtext.methods import METHODS
from tests import tiny
from tests.fedtext.config.content import GOOD, OF_PLUGIN
from tune_spaces.cases import cases


def fault(tmp_path: Path, old: str, new: str) -> str:
    file = tmp_path / "e.yaml"
    assert old in GOOD
    file.write_text(GOOD.replace(old, new, 1))
    with pytest.raises(UserError) as caught:
        files.validate(files.read(file), file.name, file)
    return str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("lambda1", "lamda1", "e.yaml, line 5: there is no key method.lamda1; did you mean lambda1?"),
        ("demo", "dmo", f"e.yaml, line 2: corpus cannot be 'dmo'{OF_PLUGIN}; did you mean demo?"),
        ("gaussian", "gausian", f"e.yaml, line 7: uplink.0 cannot be 'gausian'{OF_PLUGIN}; did you mean gaussian?"),
        ("sigma", "sigm", "e.yaml, line 7: there is no key uplink.0.gaussian.sigm; did you mean sigma?"),
        ("sigma: 0.1", "sigma: -1", "e.yaml, line 7: uplink.0.gaussian.sigma: should be greater than 0"),
        (
            "epochs",
            "epoch",
            "e.yaml, line 10: there is no key model.embedding.init.word2vec.epoch; did you mean epochs?",
        ),
        ("corpus: demo\n", "", "e.yaml: the key corpus is missing"),
        (
            "model:",
            "training.optimizer.lr: 3\nmodel:",
            "e.yaml, line 8: there is no key training.optimizer.lr; keys of a section stand within it: write training: "
            "{optimizer: {lr: ...}}",
        ),
        (
            "model:",
            "2020-01-01: 3\nmodel:",
            "e.yaml: a key is 2020-01-01 for YAML, and no text (yes, no, on and off are true and false): put it in "
            "quotes, if it is a key at all",
        ),
        (
            "corpus: demo\n",
            "corpus: demo\naudits: [word_relations]\n",
            "e.yaml, line 3: the key audits.0.word_relations.words is missing",
        ),
        ("model:", "modle:", "e.yaml, line 8: there is no key modle; did you mean model?"),
        ("name: kteps", "name: fedavg", "e.yaml, line 5: there is no key method.lambda1; valid: name"),
        ("model:", "model:\n  dropuot: 0.1", "e.yaml, line 9: there is no key model.dropuot; did you mean dropout?"),
        (
            "model:",
            "model:\n  name: bag\n  zoom: 2",
            "e.yaml, line 10: there is no key model.zoom; valid: dense_init, dropout, embedding, hidden, name, output, "
            "values",
        ),
        (
            "name: x",
            "name: x/y",
            "e.yaml, line 1: name: 'x/y' is to be the name of a folder: use up to 100 letters (a to z), digits, ., _ "
            "and -, with a letter or a digit first",
        ),
        ("{sigma: 0.1}", "1", "e.yaml, line 7: uplink.0.gaussian must have keys and values, but here it is 1"),
    ],
)
def test_every_fault_is_one_sentence_with_place_and_nearest_key(
    tmp_path: Path, old: str, new: str, sentence: str
) -> None:
    assert fault(tmp_path, old, new) == sentence


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("method", "nonesuch", OF_PLUGIN),
        ("corpus", "nonesuch", OF_PLUGIN),
        ("model", {"name": "nonesuch"}, OF_PLUGIN),
        ("uplink.0", "nonesuch", OF_PLUGIN),
        ("audits.0", "nonesuch", OF_PLUGIN),
        ("baselines.0", "nonesuch", OF_PLUGIN),
        ("server.aggregation", "nonesuch", OF_PLUGIN),
        ("adversaries.attack", "nonesuch", OF_PLUGIN),
        ("server.optimizer", "nonesuch", ""),
        ("corpus.partition", "nonesuch", ""),
    ],
)
def test_a_name_that_a_plug_in_could_define_is_said_to_be_one(key: str, value: Any, said: str) -> None:
    content: dict[str, Any] = {"name": "x", "corpus": {"name": "imdb"}, "method": "fedavg"}
    section, _, inner = key.partition(".")
    content[section] = [value] if inner == "0" else {**content.get(section, {}), inner: value} if inner else value
    with pytest.raises(UserError) as caught:
        files.validate(content)
    (line,) = (line for line in str(caught.value).splitlines() if "nonesuch" in line)
    assert f"{key} cannot be 'nonesuch'{said}; " in line


def test_a_list_with_a_wrong_entry_is_not_too_short_as_well() -> None:
    lora: dict[str, Any] = {"modules": ["querry"]}
    content = {
        "name": "x",
        "corpus": "demo",
        "method": "fedavg",
        "model": {"name": "transformer", "adapter": {"lora": lora}},
    }
    with pytest.raises(UserError, match=r"lora\.modules\.0: should be 'query'[^\n]*$"):
        files.validate(content)
    lora["modules"] = []
    with pytest.raises(UserError, match=r"model\.adapter\.lora\.modules: .* at least 1 item"):
        files.validate(content)


@pytest.mark.parametrize(
    ("added", "words"),
    [
        ("evaluation: {personalize: {steps: 12, every: 5}}", "is not a multiple of every"),
        ("server: {absent_rows: holders_only}", "needs wire.rows: own"),
        ("training: {optimizer: {name: adam, momentum: 0.5}}", "there is no key training.optimizer.momentum"),
        ("training:", "training must have keys and values, but here it is None"),
        ("audits: label_leakage", "audits must be a list, as [a, b], but here it is 'label_leakage'"),
        ("tune: {concurrent: 0}", "tune.concurrent"),
        ("evaluation: {personalize: {lr_multiplier: .inf}}", "should be a finite number"),
        ("training: {optimizer: {lr: -1}}", "training.optimizer.lr: should be greater than 0"),
        ("server: {aggregation: {krum: 1}}", "server.aggregation.krum must have keys and values, but here it is 1"),
        ("evaluation: {thresholds: {Agval: [1]}}", "evaluation.thresholds.Agval: should be 'Ag_val', 'AUC_val', "),
        (
            "evaluation: {thresholds: {Agval: x}}",
            "evaluation.thresholds.Agval must be a list, as [a, b], but here it is 'x'",
        ),
        ("evaluation: {thresholds: {Agval: [x]}}", "evaluation.thresholds.Agval: should be 'Ag_val', 'AUC_val', "),
        ("evaluation: {personalize: {also: [{}]}}", "also: each entry must set a key, and no two may be the same"),
        (
            "evaluation: {personalize: {also: [{lr_multiplier: 1}, {lr_multiplier: 1.0}]}}",
            "evaluation.personalize: also: each entry must set a key, and no two may be the same: leave out the others",
        ),
    ],
)
def test_settings_that_cannot_be_are_refused(tmp_path: Path, added: str, words: str) -> None:
    assert words in fault(tmp_path, "name: x\n", f"name: x\n{added}\n")


def test_files_that_are_not_experiments(tmp_path: Path) -> None:
    for content, words in (
        ("a: [1", "line 1: this is not YAML"),
        ("- 1", "has keys and values"),
        ("a: b: c", "not YAML"),
    ):
        file = tmp_path / "bad.yaml"
        file.write_text(content)
        with pytest.raises(UserError, match=words):
            files.read(file)
    with pytest.raises(UserError, match="there is no experiment file nothing"):
        find("nothing.yaml")


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        (
            "corpus: demo",
            "corpus: demo\nname: y",
            "line 3: the key name is given a second time (first in line 1): keep",
        ),
        (
            "  lambda1: 0.1",
            "  lambda1: 1\n  lambda1: 2",
            "line 6: the key lambda1 is given a second time (first in line",
        ),
        ("{sigma: 0.1}", "{sigma: 1, sigma: 2}", "line 7: the key sigma is given a second time: keep one of the two"),
        (
            "  name: kteps",
            "\tname: kteps",
            "line 4: this is not YAML (there is a tab where a key or a value should begin",
        ),
    ],
)
def test_what_a_loader_would_pass_over_is_refused(tmp_path: Path, old: str, new: str, sentence: str) -> None:
    assert f"e.yaml, {sentence}" in fault(tmp_path, old, new)


def test_a_key_may_be_merged_and_given_again(tmp_path: Path) -> None:
    file = tmp_path / "e.yaml"
    file.write_text("a: &a {x: 1, y: 2}\nb: {<<: *a, x: 3}\n")
    assert files.read(file)["b"] == {"x": 3, "y": 2}


def test_ways_of_fine_tuning_that_differ_little_have_metrics_of_their_own() -> None:
    also = [{"lr_multiplier": 0.12345671}, {"lr_multiplier": 0.12345672}, {"lr_multiplier": 1e6, "inference": "shared"}]
    personalize = tiny.experiment("kteps", evaluation={"personalize": {"also": also}}).evaluation.personalize
    assert personalize is not None
    assert list(personalize.variants()) == [
        "Ap",
        "Ap_lr_multiplier_0.12345671",
        "Ap_lr_multiplier_0.12345672",
        "Ap_lr_multiplier_1000000_inference_shared",
    ]


@given(st.sampled_from(sorted(METHODS)), st.integers(0, 9), st.floats(1e-6, 1e3), st.booleans())
def test_the_resolved_file_reads_back_to_the_same_experiment(method: str, seed: int, lr: float, noisy: bool) -> None:
    changes: dict[str, Any] = {
        "seed": seed,
        "uplink": [{"clip": {"norm": lr}}, "gaussian"]
        if noisy and METHODS[method].shares and not METHODS[method].pooled
        else [],
    }
    experiment = tiny.experiment(method, training={"optimizer": {"lr": lr}}, **changes)
    assert files.validate(yaml.safe_load(files.resolved(experiment))) == experiment


def test_a_loss_is_better_when_smaller() -> None:
    assert tiny.experiment(tune={"metric": "loss"}).tune.direction == "min"
    assert tiny.experiment(tune={"metric": "Ag"}).tune.direction == "max"
    assert tiny.experiment(tune={"metric": "loss", "mode": "max"}).tune.direction == "max"


@pytest.mark.parametrize("method", ["ditto", "fedmmd"])
def test_lambda_is_a_key_although_it_is_a_word_of_python(method: str) -> None:
    chosen = fedtext.load("demo.yaml", f"method={method}", "method.lambda=0.7")
    assert chosen.method.lambda_ == 0.7  # type: ignore[attr-defined]
    assert "\n  lambda: 0.7\n" in files.resolved(chosen)
    assert fedtext.load(chosen, "training.rounds=3").method == chosen.method
    assert fedtext.load(chosen.model_dump(mode="json")).method == chosen.method
    with pytest.raises(UserError, match=r"there is no key method\.lambda_; did you mean lambda\?"):
        fedtext.load("demo.yaml", f"method={method}", "method.lambda_=0.7")
    with pytest.raises(UserError, match=r"method\.lambda: .* greater than or equal to 0"):
        fedtext.load("demo.yaml", f"method={method}", "method.lambda=-1")
    space = fedtext.load("demo.yaml", f"method={method}", "space={method.lambda: {grid: [0.0, 0.5]}}", "baselines=[]")
    made = cases(space.model_dump(mode="json"), space, "test")
    assert [case.experiment.method.lambda_ for case in made] == [0.0, 0.5]  # type: ignore[attr-defined]
    assert [case.label for case in made] == ["lambda=0", "lambda=0.5"]
    told = about(method)
    assert ".lambda: number >= 0; default 0.01" in told or ".lambda: number >= 0; default 0.1" in told
    assert "lambda_" not in told
    assert "lambda_" not in about("")
