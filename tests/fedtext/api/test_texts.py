"""Texts that are given to a trained model are read as those of its corpus were."""

import io
import json
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedtext
from fedtext.api.predictions import NextWords
from fedtext.commands import main
from fedtext.corpora.agnews import AGNewsCorpus
from fedtext.corpora.demo import DemoCorpus
from fedtext.corpora.encoding import cleaned
from fedtext.corpora.fdu import FDUCorpus
from fedtext.corpora.imdb import IMDBCorpus
from fedtext.corpora.iyy import IYYCorpus
from fedtext.corpora.ptb import PTBCorpus
from fedtext.corpora.reddit import RedditCorpus
from fedtext.text.vocabulary import WordIndex
from tests.data import real_data
from tests.loops import nonempty

TRAINING = {"rounds": 3, "local_epochs": 2, "batch_size": 4, "optimizer": {"name": "adam", "lr": 0.02}}
MODEL = {"name": "gru_lm", "embedding": {"dim": 8}, "hidden": 8}
LINES = [
    "<unk> of boeing co. reached n million @-@ a year",
    "the u.s. said it was n't <unk> any more",
    "mr. smith 's company is n't at n c\\/o the <unk>",
]
COMMENTS = ["I like it. It works well.", 'They said "try that again". See the U.S.\nNo idea, 1,000 times', "Isn't it?"]


def trained(corpus: dict[str, Any], data: Path | None = None) -> fedtext.Result:
    content = {"name": "texts", "corpus": corpus, "model": MODEL, "method": "fedavg", "training": TRAINING}
    return fedtext.run(content | {"evaluation": {"personalize": None}}, data=data)


def perplexity(model: fedtext.Model, texts: list[str], **how: Any) -> float:
    """That of all tokens of texts, and of the ends of their sentences."""
    nats = tokens = 0.0
    for text in nonempty(texts):
        (found,) = model.predict([text], **how)
        assert isinstance(found, NextWords)
        sentences = model._writing(model._bind(None)).sentences(text, **how)
        count = sum(len(rows) for rows in sentences if len(rows) > 1)
        nats, tokens = nats + count * math.log(found.perplexity), tokens + count
    return math.exp(nats / tokens)


@pytest.mark.parametrize(("text", "how"), [("words", {}), ({"bpe": {"size": 300}}, {"tokenized": True})], ids=str)
def test_words_of_a_corpus_are_not_tokenized_again(text: Any, how: dict[str, Any], tmp_path: Path) -> None:
    for side in ("train", "valid", "test"):
        (tmp_path / f"ptb.{side}.txt").write_text("\n".join(LINES * 4) + "\n")
    result = trained({"name": "ptb", "clients": 2, "text": text}, tmp_path)
    assert perplexity(result.model, LINES, **how) == pytest.approx(result.metrics["perplexity"], rel=1e-5)


def test_full_stops_and_line_breaks_end_sentences_as_in_training(tmp_path: Path) -> None:
    """A user's comments are all alike, so that the test split has the same ones in any draw."""
    rows = [{"author": f"user {number % 3}", "body": COMMENTS[number % 3]} for number in range(60)]
    (tmp_path / "reddit.jsonl").write_text("\n".join(map(json.dumps, rows)))
    result = trained({"name": "reddit", "clients": 3}, tmp_path)
    assert perplexity(result.model, COMMENTS) == pytest.approx(result.metrics["perplexity"], rel=1e-5)
    ended, begun = result.model.predict(["It works well.", ""])
    assert isinstance(ended, NextWords)
    assert isinstance(begun, NextWords)
    assert ended.words == begun.words, "a sentence begins"
    assert result.model.generate(["No idea. It works well."], 3) == result.model.generate([""], 3)


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("", [[]]),
        (".", [[]]),
        ("it works", [["it", "works"]]),
        ("it works . ", [["it", "works"], []]),
        ("a . b", [["a"], ["b"]]),
        ("a\nb <s>\n", [["a"], ["b", "<unk>"], []]),
        ("a\n\n", [["a"], []]),
    ],
)
def test_the_last_sentence_of_a_text_goes_on(text: str, sentences: list[list[str]]) -> None:
    assert PTBCorpus().sentences_of(text, str) == sentences
    if "\n" not in text:
        assert PTBCorpus(sentences="lines").sentences_of(text, str) == [text.split()]


def test_texts_are_read_by_the_rules_of_the_corpus() -> None:
    raw, index = "A SUPERB plot, isn't it? 6-yr. <unk>", WordIndex(["<pad>", "<unk>", "6-yr.", "plot"])
    for corpus, words in nonempty(
        [
            (DemoCorpus(), "a superb plot , is n't it ? 6-yr. <unk>"),
            (DemoCorpus(text={"words": {"stopwords": "drop"}}), "superb plot , n't ? 6-yr. <unk>"),
            (DemoCorpus(text={"words": {"letters": True}}), "a superb plot is nt it yr unk"),
            (DemoCorpus(text={"hash": {"buckets": 9}}), "a superb plot is nt it yr unk"),
            (RedditCorpus(), "a superb plot , is n't it ? 6-yr . < unk >"),
        ]
    ):
        assert cleaned(corpus, raw, index) == words
    assert cleaned(DemoCorpus(), raw, index, tokenized=True) == raw
    assert cleaned(DemoCorpus(text={"bpe": {"size": 300}}), "6-yr. <unk> it's", index) == "6-yr . <unk> it 's"


@pytest.mark.parametrize(
    ("corpus", "text", "read"),
    [
        (IMDBCorpus(), "The end.<br /><br />This", "the end this"),
        (IMDBCorpus(markup="keep"), "The end.<br /><br />This", "the endbr br this"),
        (AGNewsCorpus(), r"Haiti #39;s isle\of  #36;10", "haiti 's isle of $ 10"),
        (RedditCorpus(), "1 &gt; 0 &amp; so on", "1 > 0 & so on"),
        (IYYCorpus(marks=False), "good . <sssss> cheap .", "good . cheap ."),
        (IYYCorpus(), "good . <sssss> cheap .", "good . <sssss> cheap ."),
    ],
)
def test_marks_and_escapes_of_a_corpus_are_replaced_as_where_it_is_read(corpus: Any, text: str, read: str) -> None:
    assert cleaned(corpus, text, WordIndex(["<pad>", "<unk>", "<sssss>"])) == read


def test_test_texts_of_fdu_are_read_as_they_are() -> None:
    data = real_data("fdu_mtl/fdu_mtl.parquet")
    corpus, changed = FDUCorpus(clients=("baby", "music")), 0
    texts = [text for client in corpus.read(data, 0).clients for text in client.test.texts]
    words = {word for client in corpus.read(data, 0).clients for text in client.train.texts for word in text.split()}
    index = WordIndex(["<pad>", "<unk>", *sorted(words)])
    for text in nonempty(texts):
        assert cleaned(corpus, text, index, tokenized=True) == text
        changed += cleaned(corpus, text, index) != text
    assert changed < 0.1 * len(texts), "unknown words with punctuation alone"


def test_the_command_takes_texts_that_are_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    result = fedtext.run({"name": "x", "method": "fedavg", "corpus": {"name": "demo"}, "training": {"rounds": 1}})
    result.save(tmp_path / "model")
    assert main(["predict", str(tmp_path / "model"), "PLOT", "--tokenized"]) == 0
    upper = capsys.readouterr().out
    assert main(["predict", str(tmp_path / "model"), "PLOT"]) == 0
    lower = capsys.readouterr().out
    assert lower != upper
    monkeypatch.setattr(sys, "stdin", io.StringIO("\ufeffPLOT\n\ufeff\n"))
    assert main(["predict", str(tmp_path / "model")]) == 0
    assert capsys.readouterr().out.startswith(lower), "a byte-order mark is no part of the first text"
    raw, kept = result.model.predict(["PLOT"]), result.model.predict(["PLOT"], tokenized=True)
    assert not np.isclose(raw[0].probability, kept[0].probability)  # type: ignore[union-attr]
