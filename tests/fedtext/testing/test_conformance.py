"""Our own parts keep what is promised of every part."""

from pathlib import Path
from typing import Any

import pytest

from fedtext.aggregations import AGGREGATIONS
from fedtext.audits import AUDITS
from fedtext.corpora import CORPORA
from fedtext.mechanisms import MECHANISMS, Clip, Quantize
from fedtext.methods import METHODS
from fedtext.models import MODELS
from fedtext.testing import (
    check_aggregation,
    check_audit,
    check_corpus,
    check_mechanism,
    check_method,
    check_model,
)
from tests import tiny
from tests.data import real_data
from tests.sampled import slow_but

METHOD_SECTIONS: dict[str, dict[str, Any]] = {
    "fedsgd": {"training": tiny.TRAINING | {"local_epochs": 1}},
}
SMALL: dict[str, dict[str, Any]] = {
    "bag": {"hidden": [4], "embedding": {"dim": 5}},
    "logistic": {},
    "vectors": {"hidden": [4], "embedding": {"dim": 5}},
    "transformer": {"embedding": {"dim": 8}, "layers": 1, "heads": 2, "intermediate": 8, "positions": 12},
    "gru_lm": {"embedding": {"dim": 4}, "hidden": 4},
    "lstm_lm": {"embedding": {"dim": 4}, "hidden": 6, "projection": True},
    "causal": {"embedding": {"dim": 4}, "layers": 1, "heads": 2, "positions": 100},
}
RECURRENT = {"embedding": {"dim": 5}, "hidden": 4, "head": {"hidden": 3}}
BEFORE: dict[str, list[Any]] = {"gaussian": [Clip(norm=0.5)], "randomized_response": [Quantize()]}
MECHANISM_KEYS: dict[str, dict[str, Any]] = {"project": {"d1": 2, "d2": 4}, "clip": {"norm": 0.5}}
AGGREGATION_KEYS: dict[str, dict[str, Any]] = {
    "norm_bounded": {"norm": 0.05},
    "trimmed_mean": {"share": 0.2},
    "centered_clipping": {"radius": 3.0, "iterations": 2},
}
AGGREGATION_SECTIONS: dict[str, dict[str, Any]] = {
    "lora": {"model": {"name": "transformer", "adapter": {}} | SMALL["transformer"]},
}
AUDIT_KEYS: dict[str, dict[str, Any]] = {
    "word_relations": {"words": ["w3", "w9", "w20"], "top": 4},
    "span_inversion": {"budget": 2_000},
    "attribute_inference": {"words": ["w12", "w20"], "shadows": 8},
}
AUDIT_SECTIONS: dict[str, dict[str, Any]] = {
    "span_inversion": {"model": {"name": "transformer"} | SMALL["transformer"], "training": tiny.TRAINING},
}


@pytest.mark.parametrize("name", slow_but(METHODS, "fedavg", "kteps", "asp_mtl", "fedrecon", "scaffold"))
def test_methods(name: str) -> None:
    check_method(METHODS[name](), **METHOD_SECTIONS.get(name, {}))


@pytest.mark.parametrize("name", MECHANISMS)
def test_mechanisms(name: str) -> None:
    check_mechanism(MECHANISMS[name](**MECHANISM_KEYS.get(name, {})), BEFORE.get(name, []))


@pytest.mark.parametrize("name", slow_but(AGGREGATIONS, "mean", "median", "attention", "centered_clipping"))
def test_aggregations(name: str) -> None:
    check_aggregation(AGGREGATIONS[name](**AGGREGATION_KEYS.get(name, {})), **AGGREGATION_SECTIONS.get(name, {}))


@pytest.mark.parametrize("name", MODELS)
def test_models(name: str) -> None:
    check_model(MODELS[name].model_validate({"name": name, **SMALL.get(name, RECURRENT)}))


# exposure is of planted secrets, which the corpus of this check has not: tests/fedtext/audits/test_exposure.py
@pytest.mark.parametrize("name", [name for name in AUDITS if name != "exposure"])
def test_audits(name: str) -> None:
    check_audit(AUDITS[name](**AUDIT_KEYS.get(name, {})), **AUDIT_SECTIONS.get(name, {}))


def test_corpora(tmp_path: Path) -> None:
    check_corpus(CORPORA["demo"]())
    (tmp_path / "texts.csv").write_text("text,label\n" + "".join(f"word{n % 7} text,{n % 2}\n" for n in range(40)))
    table = {"name": "table", "path": str(tmp_path / "texts.csv"), "text": "text", "label": "label", "clients": 2}
    check_corpus(CORPORA["table"].model_validate(table))
    (tmp_path / "ptb").mkdir()
    for split in ("train", "valid", "test"):
        (tmp_path / f"ptb/ptb.{split}.txt").write_text("".join(f"a word{n % 7} of text {n}\n" for n in range(40)))
    check_corpus(CORPORA["ptb"].model_validate({"name": "ptb", "clients": 2}), str(tmp_path))


def test_the_corpus_of_reviews() -> None:
    check_corpus(CORPORA["fdu"].model_validate({"name": "fdu", "share": 0.05}), real_data("fdu_mtl/fdu_mtl.parquet"))
