"""Corpora of language models: on small files made here, and on the real Penn Treebank."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError

from fedtext.corpora import hub
from fedtext.corpora.language import LanguageCorpus
from fedtext.corpora.prepare import prepare
from fedtext.corpora.ptb import PTBCorpus
from fedtext.corpora.shares import deal
from fedtext.corpora.statistics import render
from fedtext.corpora.types import Corpus, Coverage, RawCorpus, Split
from fedtext.corpora.wikitext import WikiText2Corpus
from fedtext.errors import UserError
from fedtext.models.base import Embedding
from fedtext.text.embeddings import WordVectors
from fedtext.text.tokens import BOS_ID, EOS_ID, Unlabeled, decode
from tests.data import real_data
from tests.loops import nonempty

LINES = {
    "train": [" the Cat sat on the <unk> ", "", " a dog . ran . . away . ", " the cat \n", " <s> odd </s> "],
    "valid": [" the cow sat ", " a dog ", " = Moo = "],
    "test": [" the cat sat ", " a cow ran . the end . "],
}
HUB_SIDES = {"train": "train", "valid": "validation", "test": "test"}


def write(folder: Path, name: str = "ptb.{}.txt", **lines: list[str]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for side, given in (LINES | lines).items():
        (folder / name.format(side)).write_text("".join(f"{line.rstrip()}\n" for line in given))
    return folder


def ptb(data: Path, **options: Any) -> Corpus:
    return prepare(PTBCorpus(**{"clients": 1} | options), Embedding(dim=4), 0, data)


def texts(raw: RawCorpus, side: str) -> list[list[str]]:
    return [getattr(client, side).texts for client in raw.clients]


def read(data: Path, **options: Any) -> list[list[str]]:
    raw = PTBCorpus(**{"clients": 1} | options).read(data, 0)
    return [texts(raw, side)[0] for side in ("train", "validation", "test")]


# Sentences


def test_lines_become_framed_sentences_that_end_at_full_stops(tmp_path: Path) -> None:
    train, validation, test = read(write(tmp_path))
    assert train == [
        "<s> the cat sat on the <unk> </s>", "<s> a dog </s>", "<s> ran </s>", "<s> away </s>", "<s> the cat </s>",
        "<s> <unk> odd <unk> </s>",
    ]  # fmt: skip
    assert validation == ["<s> the cow sat </s>", "<s> a dog </s>", "<s> = moo = </s>"]
    assert test == ["<s> the cat sat </s>", "<s> a cow ran </s>", "<s> the end </s>"]


def test_a_line_can_be_one_sentence_with_its_full_stops(tmp_path: Path) -> None:
    train, _, test = read(write(tmp_path), sentences="lines")
    assert len(train) == 4
    assert train[1] == "<s> a dog . ran . . away . </s>"
    assert test == ["<s> the cat sat </s>", "<s> a cow ran . the end . </s>"]


def test_the_vocabulary_is_that_of_train_and_a_client_holds_all_of_it(tmp_path: Path) -> None:
    corpus = ptb(write(tmp_path), clients=2)
    train = Counter(["the", "cat", "sat", "on", "the", "a", "dog", "ran", "away", "the", "cat", "odd"])
    expected = sorted(train, key=lambda word: (-train[word], word))
    assert corpus.vocabulary == ["<pad>", "<unk>", "<s>", "</s>", *expected]
    assert (corpus.vocabulary[BOS_ID], corpus.vocabulary[EOS_ID]) == ("<s>", "</s>")
    assert corpus.classes == len(corpus.vocabulary) - 1
    for client in nonempty(corpus.clients):
        assert client.rows_R.tolist() == list(range(len(corpus.vocabulary)))
        assert client.rows_R.dtype == np.int32
        assert client.train_rows == len(corpus.vocabulary)
        for tokens in (client.train, client.validation, client.test):
            assert not tokens.labels_N.any()
            assert (tokens.tokens_T[tokens.offsets[:-1]] == BOS_ID).all()
            assert (tokens.tokens_T[tokens.offsets[1:] - 1] == EOS_ID).all()
    (whole,) = ptb(tmp_path).clients
    held = decode(whole.validation.tokens_T, whole.validation.offsets, whole.rows_R, corpus.vocabulary)
    assert held[0] == ["<s>", "the", "<unk>", "sat", "</s>"]  # the cow is in validation and test alone


def test_signs_are_in_the_smallest_vocabulary(tmp_path: Path) -> None:
    assert ptb(write(tmp_path), vocabulary=1).vocabulary == ["<pad>", "<unk>", "<s>", "</s>", "the"]


def test_a_cut_sentence_has_no_end_and_is_counted(tmp_path: Path) -> None:
    corpus = ptb(write(tmp_path), max_length=4)
    (client,), (report,) = corpus.clients, corpus.report
    assert np.diff(client.train.offsets).tolist() == [4, 4, 3, 3, 4, 4]
    assert (client.train.tokens_T[client.train.offsets[1:] - 1] == EOS_ID).tolist() == [False, *[True] * 4, False]
    assert report.cut == 2 + 2 + 2
    assert report.tokens == (16, 3 + 3 + 3, 3 + 3 + 3)
    assert ptb(tmp_path, max_length=None).report[0].cut == 0


def test_statistics_say_tokens_and_no_classes(tmp_path: Path) -> None:
    (report,) = ptb(write(tmp_path)).report
    assert report.tokens == (7 + 3 + 2 + 2 + 3 + 4, 4 + 3 + 4, 4 + 4 + 3)  # every sentence's words and its end
    assert report.mean_length == 15 / 6
    assert (report.empty, report.cut) == (0, 0)
    assert report.unknown == (1 + 2, 1 + 3, 1 + 1)
    lines = render(ptb(tmp_path, clients=2)).splitlines()
    table = [line for line in lines[: lines.index("")] if not line.startswith("-")]
    assert {len(line) for line in table} == {len(table[0])}
    assert table[-1].split() == ["total", "6", "3", "3", "21", "11", "11", "2", "13", "0", "0", "0"]
    assert "classes" not in "\n".join(lines)
    assert "12 candidates for the next word (including <s>, which never comes next)" in lines[-4]
    assert "<unk>: 14.3% of train tok, 36.4% of val tok, 18.2% of test tok, predicted as one word" in "\n".join(lines)


def test_unknown_words_without_any_in_train_are_said_not_to_be_learned(tmp_path: Path) -> None:
    data = write(tmp_path, train=["the cat sat", "a dog ran"])
    corpus = ptb(data, validation=0)
    assert [(report.tokens, report.unknown) for report in corpus.report] == [((8, 0, 11), (0, 0, 2))]
    assert "<unk>: 0.0% of train tok, 18.2% of test tok, predicted as one word, which is not" in render(corpus)
    (half,) = ptb(data, share=0.5).report  # half the words, and more that are unknown
    assert half.unknown[2] > 2


def test_word_vectors_of_train_see_no_validation_sentence_and_signs_are_no_words_without_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[set[str]] = []

    def trained(sentences: list[Unlabeled], dim: int, *_: Any) -> WordVectors:
        given.append({sentence.text for sentence in sentences})
        return WordVectors(["the", "cat", "<s>"], np.ones((3, dim), np.float32))

    monkeypatch.setattr("fedtext.models.initial_table.train_vectors", trained)
    config, raw = PTBCorpus(clients=2), PTBCorpus(clients=1).read(write(tmp_path), 0).clients[0]
    for part in ("train", "full"):
        init = {"word2vec": {"corpus": part}}
        corpus = prepare(config, Embedding.model_validate({"dim": 2, "init": init}), 0, tmp_path)
    train, every = set(raw.train.texts), {*raw.train.texts, *raw.validation.texts, *raw.test.texts}
    assert given == [train, every]
    words = len(corpus.vocabulary) - len(["<pad>", "<unk>", "<s>", "</s>"])
    assert corpus.coverage == Coverage(2 / words, (3 + 2) / 15, words - 2)  # the three times, cat twice


def test_leaked_sentences_are_counted_and_never_dropped(tmp_path: Path) -> None:
    data = write(tmp_path, test=["the cat", "the dog"])
    assert ptb(data).report[0].leaks.own == 1
    for value in ("own", "all"):
        with pytest.raises(ValidationError, match="leave drop_leaked out of a language model's corpus"):
            ptb(data, drop_leaked=value)


@pytest.mark.parametrize("text", ["hash", {"words": {"letters": True}}])
def test_words_cannot_be_hashed_nor_cut_down_to_letters(text: Any) -> None:
    with pytest.raises(ValidationError, match="text: a language model predicts words"):
        PTBCorpus(text=text)


def test_the_share_of_train_and_of_validation_can_be_less(tmp_path: Path) -> None:
    data = write(tmp_path)
    assert len(ptb(data, share=0.5).clients[0].train) == 3
    assert [len(side) for side in read(data, validation=0.4)] == [6, 1, 3]
    (tmp_path / "ptb.valid.txt").unlink()
    assert [len(side) for side in read(data, validation=0)] == [6, 0, 3]


# Shares


def numbered(count: int, name: str) -> Split:
    return Split([f"{name}{number}" for number in range(count)], np.arange(count))


def test_shares_of_validation_leave_the_others_as_they_are() -> None:
    train, test, validation = numbered(23, "train"), numbered(11, "test"), numbered(9, "validation")
    without = deal(train, test, 4, 3)
    clients = deal(train, test, 4, 3, validation)
    for before, client in nonempty(zip(without, clients, strict=True)):
        assert (before.name, before.train.texts, before.test.texts) == (
            client.name, client.train.texts, client.test.texts,
        )  # fmt: skip
        assert not len(before.validation)
    assert [len(client.validation) for client in clients] == [3, 2, 2, 2]
    assert sorted(text for client in clients for text in client.validation.texts) == sorted(validation.texts)
    assert clients[0].validation.texts != deal(train, test, 4, 4, validation)[0].validation.texts
    assert [client.test.labels.tolist() for client in without] == GIVEN_OUT
    with pytest.raises(UserError, match=r"10 clients cannot share 9 validation texts: lower it, .*corpus\.validation"):
        deal(train, test, 10, 3, validation)


GIVEN_OUT = [[2, 8, 10], [3, 6, 9], [0, 1, 7], [4, 5]]  # shares of runs that were begun before must come out again


# Files


@pytest.mark.parametrize("inner", ["", "ptb"])
def test_a_table_or_files_give_the_same(tmp_path: Path, inner: str) -> None:
    files = write(tmp_path / "files" / inner)
    rows = [(side, f" {line} ") for side, lines in LINES.items() for line in lines]
    table = pa.table({"split": [side for side, _ in rows], "text": [line for _, line in rows]})
    folder = tmp_path / "table" / inner
    folder.mkdir(parents=True)
    pq.write_table(table, folder / "ptb.parquet")
    assert ptb(tmp_path / "files").digest == ptb(tmp_path / "table").digest
    (files / "ptb.test.txt").unlink()
    with pytest.raises(UserError, match=r"ptb\.test\.txt is missing or empty"):
        ptb(tmp_path / "files")
    pq.write_table(table.slice(3), folder / "ptb.parquet")
    assert len(read(tmp_path / "table")[0]) == 2
    pq.write_table(table.slice(5), folder / "ptb.parquet")
    with pytest.raises(UserError, match=r"no row whose split is 'train'"):
        ptb(tmp_path / "table")


def test_missing_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=rf"no ptb\.parquet and no ptb\.train\.txt, .* in {tmp_path}: .*data=FOLDER"):
        ptb(tmp_path)


@pytest.mark.parametrize("inner", ["", "wikitext2", "wikitext-2"])
def test_wikitext_is_read_with_its_headings(tmp_path: Path, inner: str) -> None:
    write(tmp_path / inner, "wiki.{}.tokens")
    raw = WikiText2Corpus(clients=1).read(tmp_path, 0)
    assert texts(raw, "validation") == [["<s> the cow sat </s>", "<s> a dog </s>", "<s> = moo = </s>"]]
    assert (raw.name, raw.classes) == ("wikitext2", 0)


def test_wikitext_comes_from_the_hub_where_there_are_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = pytest.importorskip("datasets")
    asked: list[Any] = []

    def load(*arguments: Any, **options: Any) -> dict[str, Any]:
        asked.append((arguments, options))
        return {HUB_SIDES[side]: {"text": lines} for side, lines in LINES.items()}

    monkeypatch.setattr(datasets, "load_dataset", load)
    monkeypatch.setattr(hub, "_unreached", lambda: None)
    monkeypatch.setenv("FEDTEXT_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("FEDTEXT_DATA", raising=False)
    from_hub = WikiText2Corpus(clients=2).read(None, 0)
    assert asked == [(("Salesforce/wikitext", "wikitext-2-v1"), {"cache_dir": str(tmp_path / "cache" / "datasets")})]
    write(tmp_path, "wiki.{}.tokens")
    from_files = WikiText2Corpus(clients=2).read(tmp_path, 0)
    assert len(asked) == 1
    for side in ("train", "validation", "test"):
        assert texts(from_hub, side) == texts(from_files, side)


def test_without_files_or_network_a_sentence_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = pytest.importorskip("datasets")

    def load(*arguments: Any, **options: Any) -> None:
        raise ConnectionError("the hub is not reached\nand so on")

    monkeypatch.setattr(datasets, "load_dataset", load)
    monkeypatch.setattr(hub, "_unreached", lambda: None)
    monkeypatch.setenv("FEDTEXT_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("FEDTEXT_DATA", raising=False)
    with pytest.raises(
        UserError, match=r"no wikitext2\.parquet .* \(the hub is not reached\): give .*data=FOLDER"
    ) as caught:
        WikiText2Corpus().read(None, 0)
    assert "\n" not in str(caught.value)


# The real one


@pytest.mark.parametrize("sentences", ["stops", "lines"])
def test_the_real_penn_treebank(sentences: Any) -> None:
    data = real_data("ptb/ptb.parquet")
    corpus = prepare(PTBCorpus(sentences=sentences), Embedding(), 0, data)
    reports = corpus.report
    lines, words = (42_068, 3_370, 3_761), (887_521, 70_390, 78_669)
    assert tuple(sum(c) for c in zip(*((r.train, r.validation, r.test) for r in reports), strict=True)) == lines
    tokens = tuple(sum(c) for c in zip(*(r.tokens for r in reports), strict=True))
    assert tokens == tuple(sum(pair) for pair in zip(words, lines, strict=True))  # an end sign a line
    assert len(corpus.vocabulary) == 9_999 + len(["<pad>", "<s>", "</s>"])  # <unk> is one of the 9,999
    assert sum(report.cut for report in reports) == 0
    assert {report.train for report in reports} == {420, 421}
    assert isinstance(PTBCorpus(), LanguageCorpus)
