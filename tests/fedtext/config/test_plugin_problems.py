"""Each problem of a plug-in is reported in one sentence."""

import re
from pathlib import Path
from typing import Any, Literal

import pytest

import fedtext
from fedtext.__main__ import main
from fedtext.accounting.entry import Bound, Entry, Sent
from fedtext.config.claims import inherited_claims
from fedtext.errors import ClientError, UserError
from fedtext.mechanisms import MECHANISMS
from fedtext.mechanisms.gaussian import Gaussian
from fedtext.methods import METHODS
from tests.fedtext.config.plugged import AUDIT, CONTENT, HALVED, MIDDLE, MINE, write
from tests.loops import nonempty

SCALED = """
from typing import Literal

from fedtext.aggregations import SumAggregation


class Scaled(SumAggregation):
    \"\"\"Half of each update.\"\"\"

    name: Literal["scaled"] = "scaled"

    def factor(self, update):
        return 0.5
"""
LOUDER = """
from typing import Literal

from fedtext.mechanisms.gaussian import Gaussian


class Louder(Gaussian):
    \"\"\"Ten times what was bounded.\"\"\"

    name: Literal["louder"] = "louder"

    def apply(self, *received):
        return {name: 10 * tensor for name, tensor in super().apply(*received).items()}
"""
SILENT = """
from typing import Literal

from fedtext.adversaries import Attack


class Silent(Attack):
    \"\"\"Its hook is misspelt.\"\"\"

    name: Literal["silent"] = "silent"

    def sned(self, delta, draws):
        return delta
"""
CORPUS = """
from typing import Literal

import numpy as np

from fedtext.corpora.base import CorpusConfig
from fedtext.corpora.types import RawClient, RawCorpus, Split


def raw(text):
    texts = Split([text, "b"], np.array([0, 1]))
    return RawCorpus("tales", 2, [RawClient("a", texts, texts)])


class Tales(CorpusConfig):
    \"\"\"Tales.\"\"\"

    name: Literal["tales"] = "tales"

    def read(self, data, seed):
        return RETURNED
"""
NETWORK = """
from typing import Literal

from fedtext.models.base import ModelConfig


class Network(ModelConfig):
    \"\"\"A network.\"\"\"

    name: Literal["network"] = "network"

    def network(self, parts):
        return None
"""
FAULTS = {
    "missing": (None, "plugins: there is no file {folder}/mine.py or {here}/mine.py"),
    "raises": ("import math\n\nmath.sqrt(-1)\n", "mine.py, line 3: ValueError: math domain error"),
    "ends": ("import sys\nsys.exit(3)\n", "mine.py, line 2: SystemExit: 3"),
    "no Python": ("import math\nclass:\n", "mine.py, line 2: SyntaxError: invalid syntax"),
    "empty": (
        "import math\n",
        "mine.py defines no method, mechanism, aggregation, corpus, model, audit or attack: derive a class",
    ),
    "unnamed": (MINE.replace('Literal["mine"]', "str"), "mine.py defines no method"),
    "nameless": (MINE.replace('    name: Literal["mine"] = "mine"\n', ""), "mine.py: Mine has no name of its own"),
    "unfinished": (HALVED.replace("apply", "aply"), "mine.py: Halved lacks apply, which a mechanism has"),
    "no sentence on sums": (MIDDLE, "mine.py: Middle lacks secure, which an aggregation has"),
    "no sentence on scaled sums": (SCALED, "mine.py: Scaled lacks secure, which an aggregation has"),
    "an attack without a hook": (SILENT, "mine.py: Silent lacks texts or send, which an attack has"),
    "a guarantee of another output": (
        LOUDER,
        "mine.py: Louder lacks bound and guarantee of its own beside what it overrides, which a mechanism has",
    ),
    "a bound of another update": (
        LOUDER.replace("Gaussian", "Clip").replace("gaussian", "clip").replace("def apply", "def restore"),
        "mine.py: Louder lacks bound of its own beside what it overrides, which a mechanism has",
    ),
    "a bound of another key": (
        LOUDER.partition("    def apply")[0].replace("Gaussian", "Clip").replace("gaussian", "clip")
        + "    norm: float = 10.0\n",
        "mine.py: Louder lacks bound of its own beside what it overrides, which a mechanism has",
    ),
    "a guarantee of another helper": (
        LOUDER.partition("    def apply")[0]
        .replace("Gaussian", "RandomizedResponse")
        .replace("gaussian", "randomized_response")
        + "    @property\n    def flip(self):\n        return 0.0\n",
        "mine.py: Louder lacks guarantee and shuffled of its own beside what it overrides, which a mechanism has",
    ),
    "a guarantee of another bound": (
        LOUDER.partition("    def apply")[0] + "    def bound(self, before):\n        return before\n",
        "mine.py: Louder lacks guarantee of its own beside what it overrides, which a mechanism has",
    ),
    "a model of neither kind": (NETWORK, "mine.py: Network lacks ClassifierConfig or LanguageConfig as a base"),
    "a key without a type": (
        MINE.replace('Literal["mine"] = "mine"\n', 'Literal["mine"] = "mine"\n    lamda: "Nope" = 3\n'),
        "plugins: mine.py: Mine has a key of type Nope, which is not defined: import it, or define it before the class",
    ),
    "a key whose type is no type of keys": (
        "from __future__ import annotations\n"
        + MINE.replace('Literal["mine"] = "mine"\n', 'Literal["mine"] = "mine"\n    mode: Thing = None\n')
        + "\n\nclass Thing:\n    pass\n",
        "plugins: mine.py: a key of Mine has a type that no key can have (PydanticSchemaGenerationError: Unable to gen",
    ),
    "taken": (MINE.replace('"mine"', '"kteps"'), "mine.py defines the method kteps, which fedtext has already"),
    "twice": (MINE + MINE.replace("Mine", "Other"), "defines the method mine, which mine.py has already: choose"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_cannot_be_loaded_is_one_sentence(
    fault: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    source, sentence = FAULTS[fault]
    file = write(tmp_path, source or "")
    if source is None:
        (tmp_path / "mine.py").unlink()
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert main([str(file)]) == 2
    said = capsys.readouterr().err
    assert sentence.format(folder=tmp_path, here=tmp_path / "here") in said
    assert len(said.strip().splitlines()) == 1
    assert "mine" not in METHODS
    assert fedtext.load(CONTENT | {"method": "fedavg"}).method.name == "fedavg"


@pytest.mark.parametrize("raising", ["{}['away']", "dict.fromkeys([]).__getitem__('away')"])
def test_an_exception_in_a_client_names_the_line_of_the_plug_in(raising: str, tmp_path: Path) -> None:
    source = MINE.replace("        terms = super()", f"        {raising}\n        terms = super()")
    line = 1 + source.splitlines().index(f"        {raising}")
    with pytest.raises(ClientError, match=rf"failed in round 1: KeyError: 'away' \(mine\.py, line {line}\)$"):
        fedtext.run(write(tmp_path, source))


def test_an_exception_outside_of_a_client_ends_in_a_sentence_after_its_traceback(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = MIDDLE.replace("    def aggregate", '    secure = "it does not"\n\n    def aggregate')
    source = source.replace("        return state, {}", "        return {}['away'], {}")
    line = 1 + source.splitlines().index("        return {}['away'], {}")
    file = write(tmp_path, source, method="fedavg", server={"aggregation": "middle"})
    assert main([str(file)]) == 1
    said = capsys.readouterr().err
    assert said.startswith("Traceback (most recent call last):")
    assert said.splitlines()[-1] == f"error: plugins: KeyError: 'away' (mine.py, line {line})"


@pytest.mark.parametrize(
    ("returned", "problem"),
    [
        ("state", "dict, and not two mappings: the parameters, and metrics"),
        ("{}, {}", "parameters , and the model has embedding.weight"),
        ("{name: tensor[:1] for name, tensor in state.items()}, {}", "embedding.weight as float32 of (1, "),
        ("{name: tensor.astype('f8') for name, tensor in state.items()}, {}", "embedding.weight as float64 of "),
        ("{name: tensor.tolist() for name, tensor in state.items()}, {}", "embedding.weight as list, and not as"),
        ("state, {'looked_at': 'all'}", "metric looked_at as str, and not as a number"),
    ],
)
def test_what_an_aggregation_returns_is_checked(
    returned: str, problem: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Tensors of another shape could be broadcast into the parameters."""
    source = MIDDLE.replace("    def aggregate", '    secure = "it does not"\n\n    def aggregate')
    source = source.replace("        return state, {}", f"        return {returned}")
    assert main([str(write(tmp_path, source, method="fedavg", server={"aggregation": "middle"}))]) == 2
    assert f"error: aggregation middle: aggregate returned {problem}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("hook", "returned", "problem"),
    [
        ("metrics", "{'seen': 'all'}", "Seen: metrics returned {'seen': 'all'}, and not Real by name"),
        ("metrics", "1.0", "Seen: metrics returned 1.0, and not Real by name"),
        ("report", "'a page'", "Seen: report returned 'a page', and not str by name"),
    ],
)
def test_what_an_audit_returns_is_checked(hook: str, returned: str, problem: str, tmp_path: Path) -> None:
    hooks = {"metrics": "{'seen': 1.0}", "report": "{}"} | {hook: returned}
    source = AUDIT.replace("METRICS", hooks["metrics"]).replace("REPORT", hooks["report"])
    with pytest.raises((ClientError, ValueError), match=re.escape(problem)):
        fedtext.run(write(tmp_path, source, method="fedavg", audits=["looks"]))


def test_what_a_mechanism_guarantees_is_checked(tmp_path: Path) -> None:
    source = HALVED + "\n    def guarantee(self, bound, sent):\n        return 'private'\n"
    with pytest.raises(UserError, match="mechanism halved: guarantee returned str, and not a list of Entry"):
        fedtext.run(write(tmp_path, source, method="fedavg", uplink=["halved"]))


@pytest.mark.parametrize(
    ("returned", "problem"),
    [
        ("None", "corpus tales: read returned NoneType, and not a RawCorpus"),
        ("raw(3)", "corpus tales: client 'a' has 3, which is no text"),
    ],
)
def test_what_a_corpus_reads_is_checked(returned: str, problem: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=problem):
        fedtext.run(write(tmp_path, CORPUS.replace("RETURNED", returned), method="fedavg", corpus="tales"))


@pytest.mark.parametrize("rows", ["[:, :1]", "[:1]", "[:, 0]"])
def test_probabilities_of_another_shape_are_not_evaluated(rows: str, tmp_path: Path) -> None:
    source = MINE + (
        "\n    def probabilities(self, model, batch, inference):\n"
        f"        return super().probabilities(model, batch, inference){rows}\n"
    )
    with pytest.raises(ClientError, match=r"method mine: probabilities has shape \(.*\) for \d+ texts, and not \("):
        fedtext.run(write(tmp_path, source))


@pytest.mark.parametrize(
    ("plugins", "sentence"),
    [
        (
            ["no_such_module"],
            "plugins: there is no module no_such_module: install its package, or name a file, such as",
        ),
        (["a" * 5000 + ".py"], "a.py cannot be read (File name too long): name another file"),
        ([3], "plugins: 3 is not a plug-in: name a file"),
        ("mine.py", "plugins must be a list, as [a, b], but here it is 'mine.py'"),
        (["a/mine.py", "b/mine.py"], "plugins: two of them are called mine.py: rename one"),
        (["json"], "plugins: json defines no method"),
    ],
)
def test_what_is_no_plug_in_is_one_sentence(plugins: Any, sentence: str, tmp_path: Path) -> None:
    for folder, source in (("a", MINE), ("b", HALVED)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "mine.py").write_text(source)
    with pytest.raises(UserError) as refused:
        fedtext.load(write(tmp_path, plugins=plugins))
    assert sentence in str(refused.value)


BASE = """

class Shared(FedAvg):
    \"\"\"A base.\"\"\"


class Derived(Shared):
    \"\"\"FedAvg by way of a base.\"\"\"

    name: Literal["derived"] = "derived"
"""


def test_a_class_without_a_name_of_its_own_can_be_the_base_of_others(tmp_path: Path) -> None:
    loaded = fedtext.load(write(tmp_path, MINE + BASE), "method={name: derived}")
    assert type(loaded.method).__name__ == "Derived"
    assert METHODS["fedavg"].__name__ == "FedAvg"


def test_a_mechanism_keeps_the_guarantee_of_another_one_of_which_it_replaces_nothing_that_this_rests_on() -> None:
    class Named(Gaussian):
        """It has a name, a key, a helper, a metric and a sentence of its own."""

        name: Literal["named"] = "named"  # type: ignore[assignment]
        more: float = 1.0

        def helper(self) -> float:
            return self.more

        def metrics(self, delta: Any, received: Any, sent: Any) -> dict[str, float]:
            return {"more": self.helper()}

        def sentences(self, before: Bound, hidden: bool) -> list[str]:
            return ["named: it adds noise"]

    class Own(Gaussian):
        """It states what holds of its output."""

        name: Literal["own"] = "own"  # type: ignore[assignment]

        def apply(self, *received: Any) -> Any:
            return super().apply(*received)

        def bound(self, before: Bound) -> Bound:
            return super().bound(before)

        def guarantee(self, before: Bound, sent: Sent) -> list[Entry]:
            return super().guarantee(before, sent)

    class Follows(Own):
        name: Literal["follows"] = "follows"  # type: ignore[assignment]

    for cls in nonempty((Named, Own, Follows, *MECHANISMS.values())):
        assert inherited_claims(cls) == []
