"""Byte pairs: trained here or of a checkpoint, in corpora, saved models, the ledger and bits per byte."""

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import transformers
from pydantic import ValidationError
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

import fedtext
from fedtext.corpora.demo import DemoCorpus
from fedtext.corpora.prepare import prepare
from fedtext.corpora.ptb import PTBCorpus
from fedtext.corpora.types import Corpus
from fedtext.errors import UserError
from fedtext.ledger.outside import outside
from fedtext.ledger.report import reveals
from fedtext.models.base import Embedding
from fedtext.state.fingerprint import fingerprint
from fedtext.text import byte_pairs, pretrained
from fedtext.text.tokens import BOS_ID, EOS_ID, PAD_ID
from tests import tiny
from tests.checkpoints import saved
from tests.loops import nonempty

LINES = ["the cat sat on the mat", "a café is a café", "the dog 狗 sat", "<s> the <unk> cat"]
SMALL = {"name": "causal", "embedding": {"dim": 8}, "layers": 1, "heads": 2, "positions": 100, "dropout": 0.0}


def trained(size: int = 280) -> str:
    return byte_pairs.trained(LINES * 3, size)


def ptb(folder: Path, **options: Any) -> PTBCorpus:
    for side, some in (("train", LINES * 6), ("valid", LINES), ("test", ["the cat saw the 𝄞 mat", "the <unk> dog"])):
        (folder / f"ptb.{side}.txt").write_text("\n".join(some) + "\n")
    return PTBCorpus.model_validate({"clients": 1, "text": {"bpe": {"size": 280}}} | options)


def prepared(folder: Path, **options: Any) -> Corpus:
    return prepare(ptb(folder, **options), Embedding(dim=4), 0, folder)


def gpt2(folder: Path) -> Path:
    """A checkpoint with a tokenizer of byte pairs, whose texts end with a special token as GPT-2's do."""
    made = transformers.PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(trained()),
        **dict.fromkeys(("bos_token", "eos_token", "unk_token"), "<|end|>"),
    )
    sizes = {"n_embd": 8, "n_layer": 1, "n_head": 2, "n_positions": 40, "vocab_size": len(made)}
    transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes)).save_pretrained(folder)
    made.save_pretrained(folder)
    return folder


def test_a_tokenizer_is_that_of_the_counts_and_its_texts_come_back() -> None:
    content, order = trained(), LINES * 3
    random.Random(0).shuffle(order)
    assert byte_pairs.trained(order, 280) == content
    entries = byte_pairs.vocabulary(content, framed=True)
    assert entries[:4] == ["<pad>", "<unk>", "<s>", "</s>"]
    assert len(set(entries)) == len(entries) <= 4 + 280
    sentences = [f"<s> {line} </s>" for line in [*LINES, "words never seen: żółć 𝄞"]]
    found = byte_pairs.encode(content, sentences, None, framed=True)
    for number, sentence in nonempty(enumerate(sentences)):
        rows = found.tokens_T[found.offsets[number] : found.offsets[number + 1]].tolist()
        assert (rows[0], rows[-1]) == (BOS_ID, EOS_ID)
        assert min(rows[1:-1]) > EOS_ID, "<s> and <unk> in a text are text"
        text = sentence[4:-5]
        assert byte_pairs.decode(content, rows, framed=True) == text
        assert found.bytes_N[number] == len(text.encode()) + 1
    alone = byte_pairs.encode(content, ["the cat", ""], None, framed=False)
    assert alone.tokens_T[-1] == PAD_ID
    assert byte_pairs.decode(content, alone.tokens_T[: alone.offsets[1]].tolist(), framed=False) == "the cat"


@pytest.mark.parametrize("kind", ["prefix", "bytes"])
def test_no_entry_of_a_text_is_left_out_of_the_softmax(kind: str) -> None:
    """Special tokens that texts have all the same: words put together of pieces with a prefix, and unknown bytes."""
    options: dict[str, Any] = {"continuing_subword_prefix": "##"} if kind == "prefix" else {"byte_fallback": True}
    made = Tokenizer(models.BPE(unk_token="[UNK]", **options))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    special = ["[UNK]", "cat", "[END]", *(f"<0x{byte:02X}>" for byte in range(256))]
    shown = {"continuing_subword_prefix": "##"} if kind == "prefix" else {}
    trainer = trainers.BpeTrainer(vocab_size=320, special_tokens=special, show_progress=False, **shown)
    made.train_from_iterator(["the cat sat", "a cat", "the cats"] * 3, trainer)
    rows = byte_pairs.encode(made.to_str(), ["<s> the cat é </s>"], None, framed=True).tokens_T
    never = byte_pairs.never(made.to_str())
    assert not set(rows[1:].tolist()) & set(never)
    entries = byte_pairs.vocabulary(made.to_str(), framed=True)
    assert entries.index("[END]") in never


def test_the_bytes_of_what_is_cut_off_are_not_counted() -> None:
    content = trained(256)  # bytes alone
    found = byte_pairs.encode(content, ["<s> the cat </s>"] * 2 + ["<s> a </s>"], 4, framed=True)
    assert found.bytes_N.tolist() == [3, 3, 2]
    assert np.diff(found.offsets).tolist() == [4, 4, 3]
    whole = byte_pairs.encode(content, ["<s> the </s>"], 5, framed=True)
    assert whole.bytes_N.tolist() == [4]
    assert byte_pairs.encode(content, ["<s> the </s>"], 4, framed=True).bytes_N.tolist() == [3], "</s> is cut off"
    snowman = [byte_pairs.encode(content, ["<s> \u2603 </s>"], longest, framed=True) for longest in (2, 3, 4, 5)]
    assert [found.bytes_N.tolist() for found in snowman] == [[1], [2], [3], [4]], "one character of three bytes"


@pytest.mark.parametrize("kind", ["characters", "blank in front"])
def test_the_bytes_of_a_character_that_is_cut_are_counted_one_by_one(kind: str) -> None:
    texts = ["\u2603 a \u2603\u2603", "e\u00e9", "\u00e9e \U0001d11e"]
    if kind == "characters":  # and bytes of those that are in no pair, as with Llama 2: no text has a pair here
        alone = {f"<0x{byte:02X}>": byte for byte in range(256)}
        made = Tokenizer(models.BPE(alone | {"\u2581": 256}, [], byte_fallback=True))
        made.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    else:
        made = Tokenizer.from_str(byte_pairs.trained(["a"], 256))
        made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    for text in texts:
        size = len(text.encode())
        for kept in nonempty(range(size + 1)):  # each byte is one token, after the blank in front
            found = byte_pairs.encode(made.to_str(), [f"<s> {text} </s>"], kept + 2, framed=True)
            assert len(found.tokens_T) == kept + 2
            assert found.bytes_N.tolist() == [kept], (text, kept)
        whole = byte_pairs.encode(made.to_str(), [f"<s> {text} </s>"], None, framed=True)
        assert whole.bytes_N.tolist() == [size + 1]


def test_a_corpus_has_the_same_bytes_whatever_its_tokens_are(tmp_path: Path) -> None:
    words, pairs = prepared(tmp_path, text="words"), prepared(tmp_path)
    for side in ("train", "test"):
        ours, theirs = (getattr(corpus.clients[0], side) for corpus in (pairs, words))
        assert ours.bytes_N.tolist() == theirs.bytes_N.tolist()
    assert prepared(tmp_path).digest == pairs.digest
    assert pairs.classes == len(pairs.vocabulary) - 1
    assert pairs.clients[0].test.bytes_N.sum() == sum(
        len(line.encode()) + 1 for line in ("the cat saw the 𝄞 mat", "the <unk> dog")
    )


def test_a_public_file_or_a_checkpoint_may_bring_the_tokenizer(tmp_path: Path) -> None:
    (tmp_path / "public.txt").write_text("\n".join(LINES * 3) + "\n")
    public = prepared(tmp_path, text={"bpe": {"trained_on": "public.txt", "size": 280}})
    assert public.tokenizer == trained()
    with pytest.raises(UserError, match=r"corpus.text.bpe.trained_on: there is no file none.txt, nor one in"):
        prepared(tmp_path, text={"bpe": {"trained_on": "none.txt"}})
    folder = gpt2(tmp_path / "gpt2")
    taken = prepared(tmp_path, text={"bpe": {"checkpoint": str(folder)}})
    assert taken.vocabulary[4:-1] == public.vocabulary[4:]
    vectors = pretrained.word_vectors(str(folder), 8)
    row = {word: vectors.vectors_WD[number] for number, word in enumerate(vectors.words)}
    assert all(nonempty(np.array_equal(row[word], row["<|end|>"]) for word in ("<unk>", "<s>", "</s>")))
    with pytest.raises(UserError, match="another kind than byte pairs"):
        prepared(tmp_path, text={"bpe": {"checkpoint": str(saved("bert", tmp_path / "bert"))}})


@pytest.mark.parametrize("model", [SMALL, {"name": "gru_lm", "embedding": {"dim": 8}, "hidden": 8}, "checkpoint"])
def test_a_run_over_byte_pairs_is_saved_with_its_tokenizer(tmp_path: Path, model: Any) -> None:
    text: dict[str, Any] = {"bpe": {"size": 280}}
    corpus = ptb(tmp_path).model_dump(include={"name", "clients"})
    if model == "checkpoint":
        text = {"bpe": {"checkpoint": str(gpt2(tmp_path / "gpt2"))}}
        model = {"name": "causal", "checkpoint": str(tmp_path / "gpt2"), "embedding": {"dim": 8}, "dropout": 0.0}
        corpus["max_length"] = 40
    experiment = {
        "name": "pairs",
        "corpus": corpus | {"text": text, "validation": 0.0},
        "model": model,
        "method": "fedavg",
        "training": {"rounds": 2, "local_epochs": 2, "batch_size": 4, "optimizer": {"name": "adam", "lr": 0.01}},
        "evaluation": {"personalize": None},
    }
    result = fedtext.run(experiment, data=tmp_path)
    metrics = result.metrics
    tests = ["the cat saw the 𝄞 mat", "the <unk> dog"]
    size = sum(len(line.encode()) + 1 for line in tests)
    pairs = byte_pairs.encode(result.model.trained.tokenizer, [f"<s> {line} </s>" for line in tests], None, framed=True)
    predicted = len(pairs.tokens_T) - 2
    assert metrics["bits_per_byte"] == pytest.approx(metrics["nats_per_token"] * predicted / np.log(2) / size, rel=1e-6)
    (tmp_path / "ptb.test.txt").write_text("the cat sat\n")
    (found,) = result.model.predict(["the cat sat"])
    expected = fedtext.run(experiment, data=tmp_path).metrics["perplexity"]
    assert found.perplexity == pytest.approx(expected, rel=1e-5)
    result.save(tmp_path / "model")
    (tmp_path / "gpt2").rename(tmp_path / "elsewhere") if (tmp_path / "gpt2").exists() else None
    loaded = fedtext.Model.load(tmp_path / "model")
    assert loaded.predict(["the cat"]) == result.model.predict(["the cat"])
    words = tmp_path / "model" / "vocabulary.json"
    entries = json.loads(words.read_text())
    words.write_text(json.dumps([*entries[:-2], entries[-1], entries[-2]]))
    with pytest.raises(UserError, match=r"vocabulary.json has other entries than tokenizer/tokenizer.json"):
        fedtext.Model.load(tmp_path / "model")
    (tmp_path / "model" / "tokenizer" / "tokenizer.json").write_text("{}")
    with pytest.raises(UserError, match="is no tokenizer"):
        fedtext.Model.load(tmp_path / "model")


def test_the_ledger_says_whose_texts_the_tokenizer_is_of() -> None:
    of_clients = tiny.language_model(corpus={"name": "ptb", "text": "bpe"})
    public = tiny.language_model(corpus={"name": "ptb", "text": {"bpe": {"trained_on": "wiki.txt"}}})
    assert "its train texts, on which the tokenizer is trained in one place" in outside(of_clients)
    assert "tokenizer" not in outside(public)
    assert "the tokenizer is trained on all clients' train texts in one place" in " ".join(reveals(of_clients))
    assert "the vocabulary is public byte pairs" in " ".join(reveals(public))
    alone = tiny.language_model("local_only", corpus={"name": "ptb", "text": "bpe"})
    assert "but its train texts, for the tokenizer, and" in reveals(alone)[0]
    assert fingerprint(of_clients, "", 2) != fingerprint(public, "", 2)


def test_classifiers_read_byte_pairs_too() -> None:
    corpus = DemoCorpus.model_validate(
        {"name": "demo", "clients": 2, "train": 20, "test": 5, "text": {"bpe": {"size": 300}}}
    )
    made = prepare(corpus, Embedding(dim=4), 0, None)
    assert made.vocabulary[0] == "<pad>"
    assert made.clients[0].train.bytes_N is None
    read = corpus.read(None, 0).clients[0].train.texts[0]
    tokens = made.clients[0].train
    rows = made.clients[0].rows_R[tokens.tokens_T[tokens.offsets[0] : tokens.offsets[1]]].tolist()
    assert byte_pairs.decode(made.tokenizer, rows, framed=False) == read


def test_what_does_not_go_together_is_refused() -> None:
    for options, said in nonempty(
        (
            (
                {"text": {"bpe": {"checkpoint": "gpt2", "size": 300}}},
                "size: the tokenizer of a checkpoint is not trained",
            ),
            ({"text": {"bpe": {"size": 100}}}, "greater than or equal to 256"),
            ({"text": "bpe", "secrets": {}}, "secrets: their digits are words"),
            ({"text": "bpe", "vocabulary": 100}, "all byte pairs have a row of the table"),
            ({"text": "hash"}, "use bpe"),
        )
    ):
        with pytest.raises(ValidationError, match=said):
            PTBCorpus.model_validate(options)
