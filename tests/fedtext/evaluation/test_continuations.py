"""Continuations: by hand, by the package's own generation, in runs, in saved models and on the command line."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from torch import nn

import fedtext
from fedtext.api.predictions import NextWords
from fedtext.commands import main
from fedtext.corpora.ptb import PTBCorpus
from fedtext.errors import UserError
from fedtext.evaluation.continuations import FILE, Generate, Writing
from fedtext.methods.base import Model
from fedtext.models.causal import CausalLanguageModel, CausalNetwork
from fedtext.models.language import LanguageModel
from fedtext.models.parts import Parts, whole
from tests import tiny
from tests.loops import nonempty

WORDS = ["<pad>", "<unk>", "<s>", "</s>", "a", "b", "c"]
WRITING = Writing(PTBCorpus(), WORDS)
ROWS = len(WORDS) - 1


class Chain(LanguageModel):
    """A model whose next token depends on the last one alone: its state is the number of tokens read."""

    def __init__(self, logits_VV: list[list[float]], reach: int | None = None) -> None:
        super().__init__()
        self.logits_VV, self.reach = torch.tensor(logits_VV), reach

    def forward(self, batch: Any) -> Any:
        raise NotImplementedError

    def hidden(self, tokens_BT: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError

    def step(self, tokens_B: torch.Tensor, state_LB: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor]:
        read = torch.ones(1, len(tokens_B)) + (0 if state_LB is None else state_LB)
        return self.logits_VV[tokens_B], read


def chain(reach: int | None = None) -> Model:
    """After <s>: <unk> is the most probable, then a. After a: b, after b: c or as often a, after c: </s>."""
    logits = np.full((ROWS, ROWS), -9.0)
    logits[1, [0, 1, 3]] = [5, 4, 3]
    logits[3, 4] = logits[4, [5, 3]] = logits[5, 2] = 3
    logits[4, 5] += 1e-3
    return Model(Chain(logits.tolist(), reach), {})


def continued(prompt: str, reach: int | None = None, seed: int = 0, **keys: Any) -> str:
    asked = Generate(prompts=(prompt,), **keys)
    return WRITING.continued(chain(reach), prompt, asked, np.random.default_rng(seed))


def test_the_most_probable_tokens_follow_until_the_sentence_ends() -> None:
    assert continued("") == " a b c", "never <unk> or <s>, and </s> ends it"
    assert continued("a") == " b c"
    assert continued("b never") == "", "after an unknown word all are as probable, and the first, </s>, is taken"
    assert continued("", tokens=2) == " a b"
    assert continued("a", reach=3) == " b c", "the last token need not be read"
    assert continued("a", reach=2) == " b"
    with pytest.raises(UserError, match="a text has 3 tokens, and the model has 3 positions"):
        continued("a b c", reach=3)


def test_tokens_are_drawn_from_the_probabilities_at_a_temperature() -> None:
    for temperature in (1.0, 0.25):
        found = Counter(continued("b", seed=seed, tokens=1, temperature=temperature) for seed in range(400))
        weights = {" c": np.exp(3.001 / temperature), " a": np.exp(3 / temperature)}
        total = sum(weights.values()) + 2 * np.exp(-9 / temperature)
        for text, weight in nonempty(weights.items()):
            assert found[text] / 400 == pytest.approx(weight / total, abs=0.08)  # over three standard errors
    assert continued("", temperature=1e-308) == continued(""), "as good as 0"


def test_greedy_continuations_are_those_of_the_package() -> None:
    torch.manual_seed(2)
    sizes = {"n_embd": 8, "n_layer": 2, "n_head": 2, "n_positions": 20, "vocab_size": ROWS}
    theirs = transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes, initializer_range=0.9)).eval()
    keys = {"embedding": {"dim": 8}, "layers": 2, "heads": 2, "positions": 20}
    network = whole(Parts(CausalLanguageModel.model_validate(keys), ROWS)).eval()
    assert isinstance(network, CausalNetwork)
    network.embedding = nn.Embedding.from_pretrained(theirs.transformer.wte.weight.detach())
    state = {name: tensor for name, tensor in theirs.transformer.state_dict().items() if name != "wte.weight"}
    network.decoder.load_state_dict(state)
    banned = [[0], [1]]  # <unk> and <s>, as rows of the table
    given = torch.tensor([[1, 3, 4]])
    tokens = theirs.generate(
        given, max_new_tokens=10, do_sample=False, eos_token_id=2, pad_token_id=2, bad_words_ids=banned
    )[0, 3:].tolist()
    expected = "".join(f" {WORDS[1 + row]}" for row in tokens if row != 2)
    asked = Generate(prompts=("a b",), tokens=10)
    assert WRITING.continued(Model(network, {}), "a b", asked, np.random.default_rng(0)) == expected
    assert expected


MODELS = {
    "causal": {"name": "causal", "embedding": {"dim": 8}, "layers": 1, "heads": 2, "positions": 100, "dropout": 0.0},
    "llama": {
        "name": "causal",
        "architecture": "llama",
        "embedding": {"dim": 8},
        "layers": 1,
        "heads": 2,
        "kv_heads": 1,
        "positions": 100,
        "dropout": 0.0,
    },
    "gru_lm": {"name": "gru_lm", "embedding": {"dim": 24}, "hidden": 24},
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("text", ["words", {"bpe": {"size": 270}}], ids=["words", "pairs"])
def test_a_run_writes_them_and_its_saved_model_continues_texts(
    tmp_path: Path, name: str, text: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    for side, count in (("train", 12), ("valid", 2), ("test", 2)):
        (tmp_path / f"ptb.{side}.txt").write_text("the cat sat on the mat\n" * count)
    experiment = {
        "name": "words",
        "corpus": {"name": "ptb", "clients": 1, "text": text},
        "model": MODELS[name],
        "method": "fedavg",
        "training": {"rounds": 4, "local_epochs": 10, "batch_size": 4, "optimizer": {"name": "adam", "lr": 0.03}},
        "evaluation": {"personalize": None, "select": "perplexity_val", "generate": {"prompts": ["the cat", ""]}},
    }
    result = fedtext.run(experiment, data=tmp_path, out=tmp_path / "out")
    page = (tmp_path / "out" / FILE).read_text()
    assert page == result.history[-1].files[FILE]
    assert "- the cat **|** sat on the mat\n" in page
    assert "-  **|** the cat sat on the mat\n" in page
    folder = str(tmp_path / "out" / "model")
    assert fedtext.Model.load(folder).generate(["the cat", "the cat sat"]) == [" sat on the mat", " on the mat"]
    capsys.readouterr()
    assert main(["predict", folder, "the cat", "--tokens", "20"]) == 0
    assert capsys.readouterr().out == "the cat sat on the mat\n"
    assert main(["predict", folder, "the cat"]) == 0
    sat = "sat" if text == "words" else '" sat"'
    assert capsys.readouterr().out.startswith("the cat sat" if name != "gru_lm" else f"next: {sat} ")
    assert main(["predict", folder, "the cat", "--tokens", "2", "--temperature", "-1"]) == 2
    assert "a temperature from 0 to 10" in capsys.readouterr().err


def test_what_a_terminal_would_act_on_is_escaped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A model over bytes may write any of them, and its most probable token may be a blank."""
    for side in ("train", "valid", "test"):
        (tmp_path / f"ptb.{side}.txt").write_text("a \x1b]0;b\x07 c\n" * 8)
    experiment = {
        "name": "bytes",
        "corpus": {"name": "ptb", "clients": 1, "text": {"bpe": {"size": 256}}},
        "model": MODELS["gru_lm"],
        "method": "fedavg",
        "training": {"rounds": 2, "local_epochs": 20, "batch_size": 4, "optimizer": {"name": "adam", "lr": 0.03}},
        "evaluation": {"personalize": None},
    }
    fedtext.run(experiment, data=tmp_path, out=tmp_path / "out")
    folder = str(tmp_path / "out" / "model")
    capsys.readouterr()
    assert main(["predict", folder, "a", "--tokens", "20"]) == 0
    assert capsys.readouterr().out == "a \\x1b]0;b\\x07 c\n"
    (found,) = fedtext.Model.load(folder).predict(["a"])
    assert isinstance(found, NextWords)
    assert found.words[0][0] == " ", "not the end"
    assert main(["predict", folder, "a", "--temperature", "0.8"]) == 2
    assert "say with --tokens how many" in capsys.readouterr().err
    assert main(["predict", folder, "caf\udce9"]) == 2
    assert "number 0 of the list is no UTF-8" in capsys.readouterr().err


def test_a_beginning_that_is_too_long_is_refused_before_the_first_round(tmp_path: Path) -> None:
    experiment = {
        "name": "long",
        "corpus": {"name": "ptb", "clients": 1, "validation": 0.0},
        "model": MODELS["causal"],
        "method": "fedavg",
        "training": {"rounds": 3, "local_epochs": 1, "batch_size": 4, "optimizer": {"name": "sgd", "lr": 0.1}},
        "evaluation": {"personalize": None, "generate": {"prompts": ["the", "the " * 100]}},
    }
    for side in ("train", "test"):
        (tmp_path / f"ptb.{side}.txt").write_text("the cat sat\n" * 4)
    trained: list[Any] = []
    with pytest.raises(UserError, match=r"evaluation\.generate\.prompts: a text has 100 tokens"):
        fedtext.run(experiment, data=tmp_path, on_round=trained.append)
    assert trained == []


def test_a_classifier_continues_nothing() -> None:
    result = fedtext.run(tiny.experiment(corpus={"name": "demo", "clients": 2, "train": 9, "test": 3, "max_length": 9}))
    with pytest.raises(UserError, match="is a classifier and continues no text"):
        result.model.generate(["a"])
