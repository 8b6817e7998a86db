"""Overrides of an experiment's keys: what they change, and errors in them."""

from pathlib import Path

import pytest

import fedtext
from fedtext.config.files import load
from fedtext.config.overrides import override, parse_override, parse_overrides
from fedtext.errors import UserError, command_line
from tests.fedtext.config.content import GOOD, OF_PLUGIN


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
        (["method=ktps"], f"command line: method cannot be 'ktps'{OF_PLUGIN}; did you mean kteps?"),
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
        (["training={rounds:2}"], "no key training.rounds:2; YAML needs a blank after the colon: write rounds: 2"),
        (["uplink=[{clip: {norm:0.5}}]"], "YAML needs a blank after the colon: write norm: 0.5"),
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


def test_an_override_leaves_its_values_alone() -> None:
    changes = {"uplink": [{"clip": {"norm": 1.0}}], "uplink.0.clip.norm": 2.0}
    assert override({}, changes) == {"uplink": [{"clip": {"norm": 2.0}}]}
    assert changes["uplink"] == [{"clip": {"norm": 1.0}}]
