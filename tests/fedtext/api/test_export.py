"""Causal language models in the format of the package transformers."""

import sys
from pathlib import Path
from typing import Any

import pytest
import tokenizers
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import fedtext
from fedtext.api import export
from fedtext.api.model import Model
from fedtext.commands import main
from fedtext.errors import UserError
from fedtext.text import byte_pairs
from fedtext.text.tokens import BOS, EOS, UNK, sentence_words
from tests import tiny
from tests.loops import nonempty

TEXTS = ["the cat sat", "the <unk> sat", "a <s> naïve dog\tran", "", "x y"]
SMALL = {"name": "causal", "embedding": {"dim": 8}, "layers": 2, "heads": 2, "positions": 100, "dropout": 0.0}
LORA = {"lora": {"rank": 2, "modules": ["query", "value", "output", "up", "down"]}}
EXACT = {"aggregation": {"lora": {"factors": "exact"}}}
KINDS: dict[str, tuple[Any, Any, Any]] = {
    "words": ({}, {}, {}),
    "pairs": ({}, {"text": {"bpe": {"size": 280}}}, {}),
    "untied": ({"tied": False}, {"text": {"bpe": {"size": 280}}}, {}),
    "adapters": ({"adapter": LORA}, {"text": {"bpe": {"size": 280}}}, {}),
    "residual": ({"adapter": {"lora": LORA["lora"] | {"residual": True}}}, {"text": {"bpe": {"size": 280}}}, EXACT),
}


def run(folder: Path, model: Any, corpus: Any, server: Any) -> str:
    for side, count in (("train", 12), ("valid", 2), ("test", 2)):
        (folder / f"ptb.{side}.txt").write_text("the cat sat on the mat\na dog ran\n" * count)
    experiment = {
        "name": "words",
        "corpus": {"name": "ptb", "clients": 2} | corpus,
        "model": SMALL | model,
        "method": "fedavg",
        "server": server,
        "training": {"rounds": 2, "batch_size": 4, "optimizer": {"name": "adam", "lr": 0.03}},
        "evaluation": {"personalize": None},
    }
    fedtext.run(experiment, data=folder, out=folder / "out")
    return str(folder / "out" / "model")


@pytest.mark.parametrize("kind", KINDS)
def test_the_package_computes_the_same_probabilities_of_the_same_tokens(kind: str, tmp_path: Path) -> None:
    source = run(tmp_path, *KINDS[kind])
    assert main(["export", source, str(tmp_path / "gpt")]) == 0
    theirs, tokenizer = (kind.from_pretrained(tmp_path / "gpt") for kind in (AutoModelForCausalLM, AutoTokenizer))
    ours = Model.load(source)
    bound = ours._bind(None)
    first = len(bound.vocabulary) - len(bound.model.network.embedding.weight)
    for text in nonempty(TEXTS):
        prepared = text if kind == "words" else " ".join(text.split())  # other blanks are byte pairs, too
        ids = tokenizer(prepared, return_tensors="pt").input_ids
        assert ids[0].tolist() == [row - first for row in ours._writing(bound).rows(text)]
        with torch.no_grad():
            logits_TV, expected_TV = theirs(ids).logits[0], bound.model.network.following(ids)[0]
        torch.testing.assert_close(logits_TV, expected_TV, atol=1e-5, rtol=1e-5)
    moved = [name for name, tensor in ours.trained.shared.items() if name.endswith("lora_B") and tensor.any()]
    assert bool(moved) == ("adapter" in KINDS[kind][0]), "the adapters that are merged have been trained"
    kept = sorted(path.name for path in (tmp_path / "gpt").iterdir())
    assert main(["export", source, str(tmp_path / "gpt")]) == 0, "what was exported before is replaced"
    assert sorted(path.name for path in (tmp_path / "gpt").iterdir()) == kept


def test_words_that_look_like_special_tokens_are_those_of_training(tmp_path: Path) -> None:
    """Of a text <s> and </s> are unknown words; within a word nothing is a token of its own."""
    entries = [UNK, BOS, EOS, "the", "<mask>", "cat", "cat<s>", "<unk>s"]
    ids = {word: row for row, word in enumerate(entries)}
    export.tokenizer(entries, "").save_pretrained(tmp_path)
    exported = AutoTokenizer.from_pretrained(tmp_path)
    texts = [
        "the <s> cat",
        "<s>",
        "a<s>b </s>",
        "cat<s> <s>cat",
        "<unk> <unk>s the<unk>",
        "<mask> <pad> <s> <s>",
        "",
        " ",
    ]
    between = [*export.BLANKS, "\u200b", "\ufeff", "."]
    for text in nonempty([*texts, *(f"the{each}<s>{each}cat" for each in between)]):
        assert exported(text).input_ids == [1, *(ids.get(word, 0) for word in sentence_words(text))], repr(text)
    assert {blank for blank in map(chr, range(sys.maxunicode + 1)) if blank.isspace()} == set(export.BLANKS)
    assert exported.decode([1, 3, 5, 2], skip_special_tokens=True) == "the cat"


def of_bytes() -> tokenizers.Tokenizer:
    """A tokenizer with tokens that were added to it, as of a model of tools."""
    made = tokenizers.Tokenizer.from_str(byte_pairs.trained(["hello the cat sat"], 280))
    made.add_tokens([tokenizers.AddedToken("<tool>", normalized=False), tokenizers.AddedToken("cat")])
    made.add_special_tokens(["<|endoftext|>"])
    return made


def of_characters(*special: str) -> tokenizers.Tokenizer:
    """A tokenizer that knows some characters only: the last special token stands for the others."""
    made = tokenizers.Tokenizer(tokenizers.models.BPE(unk_token=special[-1]))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace()
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=40, special_tokens=[*special], show_progress=False)
    made.train_from_iterator(["hello the cat sat"], trainer)
    return made


def lower_case() -> tokenizers.Tokenizer:
    """A tokenizer with a normalizer of its own."""
    made = of_bytes()
    made.normalizer = tokenizers.normalizers.Lowercase()
    return made


@pytest.mark.parametrize(
    "made", [of_bytes(), of_characters("[UNK]"), of_characters("<s>", "<pad>", "</s>", "<unk>"), lower_case()]
)
def test_the_tokenizer_of_a_checkpoint_gives_the_tokens_of_training(made: tokenizers.Tokenizer) -> None:
    entries = byte_pairs.vocabulary(made.to_str(), framed=True)
    exported = export.tokenizer(entries[1:], made.to_str())
    for text in nonempty(
        [
            "hello cat",
            "a <tool> call",
            "the cat <unk> sat",
            "zzz the été",
            "x <|endoftext|> y",
            "<s> a</s>",
            "a </s> <s>",
        ]
    ):
        words = " ".join(sentence_words(text))
        rows = byte_pairs.encode(made.to_str(), [f"<s> {words} </s>"], None, framed=True).tokens_T
        assert exported(text).input_ids == [row - 1 for row in rows[:-1]], text
    assert exported.decode([exported.bos_token_id, exported.eos_token_id], skip_special_tokens=True) == ""


def test_a_folder_with_something_else_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = run(tmp_path, *KINDS["words"])
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("all of it")
    assert main(["export", source, str(tmp_path / "mine")]) == 2
    assert "has something else than a model that was exported before, which would be lost" in capsys.readouterr().err
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["thesis.txt"]


def test_no_file_that_export_did_not_write_is_removed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Neither a checkpoint from elsewhere, nor what lies beside a model that was exported before."""
    source, folder = run(tmp_path, *KINDS["words"]), tmp_path / "gpt"
    folder.mkdir()
    for name in nonempty(("config.json", "tokenizer.json", "notes.txt")):
        (folder / name).write_text("{}")
    assert main(["export", source, str(folder)]) == 2
    assert "would be lost: name another folder" in capsys.readouterr().err
    assert {path.read_text() for path in folder.iterdir()} == {"{}"}
    assert main(["export", source, str(tmp_path / "ours")]) == 0
    (tmp_path / "ours" / "notes.txt").write_text("precious")
    assert main(["export", source, str(tmp_path / "ours")]) == 2
    assert "ours also has notes.txt, which would be lost" in capsys.readouterr().err
    assert (tmp_path / "ours" / "notes.txt").read_text() == "precious"
    assert (tmp_path / "ours" / "model.safetensors").is_file()
    assert not list(tmp_path.glob(".ours-*")), "no draft is left behind"


def test_a_file_and_a_uri_are_no_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = run(tmp_path, *KINDS["words"])
    (tmp_path / "file").write_text("all of it")
    assert main(["export", source, str(tmp_path / "file")]) == 2
    assert "file is a file, and a model is a folder" in capsys.readouterr().err
    assert (tmp_path / "file").read_text() == "all of it"
    assert main(["export", source, "s3://bucket/gpt"]) == 2
    assert "s3://bucket/gpt is a URI, and a model is written to a local folder" in capsys.readouterr().err
    for place in nonempty(("s3://bucket/model", Path("s3://bucket/model"))):
        with pytest.raises(UserError, match="s3://bucket/model is a URI"):
            Model.load(source).save(place)


def test_a_classifier_is_refused() -> None:
    classifier = tiny.experiment("fedavg")
    with pytest.raises(UserError, match="model bigru has no form in the package transformers"):
        export.check(classifier)
