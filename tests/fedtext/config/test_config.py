"""Experiment files and overrides: errors that say where and what to do."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

import fedtext
from fedtext.config import files
from fedtext.config.files import find, load
from fedtext.config.keys import about
from fedtext.config.overrides import override, parse_override, parse_overrides
from fedtext.errors import UserError, command_line
from fedtext.methods import METHODS
from tests import tiny
from tune_spaces.cases import cases

GOOD = """\
name: x
corpus: demo
method:
  name: kteps
  lambda1: 0.1
uplink:
  - gaussian: {sigma: 0.1}
model:
  embedding:
    init: {word2vec: {epochs: 3}}
"""


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
        ("demo", "dmo", "e.yaml, line 2: corpus cannot be 'dmo'; did you mean demo?"),
        ("gaussian", "gausian", "e.yaml, line 7: uplink.0 cannot be 'gausian'; did you mean gaussian?"),
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


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["rounds=3"], "command line: there is no key rounds; did you mean training.rounds?"),
        (["lr=3"], "there is no key lr; did you mean training.optimizer.lr or server.optimizer.lr?"),
        (["training.stack=x"], "command line: training.stack: should be a valid integer or 'auto', but here it is 'x'"),
        (
            ["training.engine=nativ"],
            "training.engine: should be 'reference', 'cells', 'triton' or 'native' or 'auto', but here it is 'nativ'",
        ),
        (["training.rounds=many"], "line: training.rounds: should be a valid integer, but here it is 'many'"),
        (["training.rounds="], "command line: training.rounds: should be a valid integer, but here it is None"),
        (["training.optimizer={lr: x}"], "command line: training.optimizer.lr: should be a valid number, but here"),
        (
            ["participation.sampling=poison"],
            "command line: participation.sampling: should be 'fixed', 'poisson', 'separated' or 'epochs', but",
        ),
        (["method=ktps"], "command line: method cannot be 'ktps'; did you mean kteps?"),
        (
            ["uplink={a: 1, a: 2}"],
            "command line: the value of uplink, '{a: 1, a: 2}': the key a is given a second time",
        ),
        (["server.noise.multiplier=1"], "command line: server.noise: a client's part"),
        (["corpus=table"], "command line: the key corpus.path is missing"),
        (["name=training", "training.rounds=0"], "command line: training.rounds: should be greater than or equal to 1"),
        (["corpus=table", "corpus.path=x", "corpus.table.path=y"], "line: there is no key corpus.table; did you mean"),
        (
            ["server.noise.mechanism=bisr", "server.noise.multiplier=1"],
            "the key server.noise.mechanism.bands is missing",
        ),
        (["training.stack={a: 1}"], "training.stack: should be a valid integer or 'auto', but here it is {'a': 1}"),
        (["evaluation.thresholds={Ag_val: [80]}"], "thresholds.Ag_val: 80 is no share between 0 and 1: write 0.8"),
        (["evaluation.thresholds={AUC_val: [0.5, 101]}"], "thresholds.AUC_val: 101 is no share between 0 and 1"),
        (["evaluation.thresholds={Ag_val: []}"], "thresholds.Ag_val: there is no value: write one, as [0.8], or leave"),
        (["uplink=[{clip: {norm: 1}, gaussian: {}}]"], "uplink.0 has clip and gaussian, and an entry is one of them"),
        (["uplink.0.gaussian={sigma: 1}", "uplink.0.sigma=3"], "uplink.0 needs a name: write {name: gaussian, ...}"),
        (["baselines=[{fedprox: {mu: 1}}]"], "baselines.0 needs a name: write {name: fedprox, ...}, with its keys"),
        (["training={on: 2}"], "a key of training is True for YAML, and no text (yes, no, on and off are true and"),
        (["training={optimizer.lr: 2}"], "no key training.optimizer.lr; keys of a section stand within it: write opti"),
        (["training.rounds=a\0b"], "this is not YAML (character 2 is #x0000, which it may not have: remove"),
        (
            ["tracking.register='a/b:c'"],
            "tracking.register: 'a/b:c' is no name in MLflow's registry: write one without",
        ),
        (["tracking.register=''"], "tracking.register: '' is no name in MLflow's registry: write one without / and :"),
        (["audits=[word_relations]"], "command line: the key audits.0.word_relations.words is missing"),
        (["corpus.vocabulary={private: triehhh}"], "line: corpus.vocabulary.private cannot be 'triehhh'; did you mean"),
        (["corpus.vocabulary={size: 9}"], "command line: the key corpus.vocabulary.private is missing"),
        (["corpus.vocabulary={private: triehh, sise: 9}"], "no key corpus.vocabulary.sise; did you mean size?"),
        (
            ["corpus.vocabulary={private: {noisy_sums: {epsilom: 2}}}"],
            "line: there is no key corpus.vocabulary.private.noisy_sums.epsilom; did you mean epsilon?",
        ),
        (
            ["corpus.vocabulary={private: {triehh: {epsilon: -1}}}"],
            "line: corpus.vocabulary.private.triehh.epsilon: should be greater than or equal to 0.001",
        ),
        (["corpus.vocabulary=0"], "command line: corpus.vocabulary: should be greater than or equal to 1"),
        (["corpus.vocabulary=x"], "corpus.vocabulary: should be a valid integer, but here it is 'x'"),
        (["corpus.vocabulary=[1]"], "corpus.vocabulary: should be a valid integer, but here it is [1]"),
        (["participation.pace={spread: {pareto: 0}}"], "line: participation.pace.spread.pareto: should be greater"),
        (["training.batch_size=[1]"], "training.batch_size: should be a valid integer, but here it is [1]"),
        (["model.head.hidden=[0]"], "command line: model.head.hidden.0: should be greater than or equal to 1"),
        (["model.head.hidden=x"], "model.head.hidden: should be a valid integer or a list, but here it is 'x'"),
        (["corpus.vocabulary={name: a, private: triehh}"], "no key corpus.vocabulary.name; valid: private, size"),
    ],
)
def test_an_error_in_an_override_blames_the_command_line(tmp_path: Path, words: list[str], sentence: str) -> None:
    file = tmp_path / "e.yaml"
    file.write_text(GOOD)
    with pytest.raises(UserError) as caught, command_line():
        load(str(file), words)
    assert sentence in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize("word", ["training.rounds=many", "training.rounds={a: 1, a: 2}"])
def test_in_python_an_error_in_an_override_blames_the_argument(word: str) -> None:
    with pytest.raises(UserError, match=r"(?m)^overrides: .*training\.rounds"):
        fedtext.load({"corpus": "demo"}, word)


def test_an_error_in_the_file_is_not_blamed_on_the_command_line(tmp_path: Path) -> None:
    file = tmp_path / "e.yaml"
    file.write_text(GOOD.replace("0.1", "x"))
    with pytest.raises(
        UserError, match=r"^e.yaml, line 5: method.lambda1: should be a valid number, but here it is 'x'"
    ):
        load(str(file), ["training.rounds=3"], {"seed": 1})


def test_overrides_reach_any_depth_and_turn_words_into_mappings() -> None:
    base = {"corpus": "demo", "uplink": [{"gaussian": {"sigma": 1}}], "method": {"name": "kteps"}}
    changes = dict(
        map(
            parse_override,
            ["corpus.clients=3", "uplink.0.gaussian.sigma=0.5", "training.optimizer.lr=1e-3", "method=fedavg"],
        )
    )
    assert override(base, changes) == {
        "corpus": {"name": "demo", "clients": 3},
        "uplink": [{"gaussian": {"sigma": 0.5}}],
        "method": "fedavg",
        "training": {"optimizer": {"lr": "1e-3"}},  # YAML 1.1 reads this as a word; the schema reads it as a number
    }
    assert base["corpus"] == "demo"
    by_name = override({"uplink": ["gaussian"]}, {"uplink.0.gaussian.sigma": 2})
    assert by_name == {"uplink": [{"gaussian": {"sigma": 2}}]}
    for word, message in (
        ("lr", "is not key=value"),
        ("uplink.3.x=1", "entries 0 to 0"),
        ("audits.0.x=1", r"^audits\.0 does not exist: that list is empty"),
        ("seed.a=1", "has no keys"),
    ):
        with pytest.raises(UserError, match=message):
            override(base | {"seed": 3, "audits": []}, dict([parse_override(word)]))
    assert parse_overrides(["method=kteps", "method.beta=2", "method.beta=3"]) == {"method": "kteps", "method.beta": 3}
    with pytest.raises(UserError, match=r"^method\.beta has no effect, since method after it replaces the section"):
        parse_overrides(["method.beta=2", "method=kteps"])


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


def test_an_override_leaves_its_values_alone() -> None:
    changes = {"uplink": [{"clip": {"norm": 1.0}}], "uplink.0.clip.norm": 2.0}
    assert override({}, changes) == {"uplink": [{"clip": {"norm": 2.0}}]}
    assert changes["uplink"] == [{"clip": {"norm": 1.0}}]
