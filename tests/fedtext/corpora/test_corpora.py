"""Corpora: what is read, held out, counted and encoded."""

from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedtext.corpora import splits
from fedtext.corpora.base import CorpusConfig
from fedtext.corpora.prepare import prepare
from fedtext.corpora.splits import Leaking
from fedtext.corpora.statistics import render
from fedtext.corpora.types import ClientData, Corpus, Leaks, RawClient, RawCorpus, Split, TokenSet
from fedtext.errors import UserError
from fedtext.models.base import Embedding
from fedtext.text.tokens import Unlabeled, decode
from tests.loops import nonempty


def split(*texts: str, labels: list[int] | None = None) -> Split:
    return Split(list(texts), np.array(labels if labels is not None else [0] * len(texts), np.int64))


def corpus_of(*clients: RawClient, **options: Any) -> CorpusConfig:
    """A corpus that has exactly these clients."""

    class Given(CorpusConfig):
        name: Literal["given"] = "given"

        def read(self, data: Path | None, seed: int) -> RawCorpus:
            return RawCorpus("given", 2, list(clients))

    return Given(**options)


def encoded(config: CorpusConfig, seed: int = 0) -> Corpus:
    return prepare(config, Embedding(), seed, None)


def words(client: ClientData, tokens: TokenSet, corpus: Corpus) -> list[list[str]]:
    return decode(tokens.tokens_T, tokens.offsets, client.rows_R, corpus.vocabulary)


# Encoding


def test_encoding_by_hand() -> None:
    corpus = encoded(corpus_of(RawClient("a", split("b a b", "", "c a", labels=[1, 0, 1]), split("z b d", labels=[1])),
                               RawClient("b", split("d d d", labels=[0]), split("a d", labels=[0]))))  # fmt: skip
    assert corpus.vocabulary == ["<pad>", "<unk>", "d", "a", "b", "c"]  # 3 d; 2 a, 2 b; 1 c; z is only in test
    first, second = corpus.clients
    assert first.rows_R.tolist() == [0, 1, 3, 4, 5, 2]  # <pad>; train: <unk> (the empty text), a, b, c; test only: d
    assert first.train_rows == 5
    assert first.train.tokens_T.tolist() == [3, 2, 3, 1, 4, 2]
    assert first.train.offsets.tolist() == [0, 3, 4, 6]
    assert first.test.tokens_T.tolist() == [1, 3, 5]  # z is <unk>
    assert first.train.labels_N.tolist() == [1, 0, 1]
    assert second.rows_R.tolist() == [0, 2, 3]
    assert second.train_rows == 2
    assert (first.id, second.id) == (0, 1)
    assert len(first.validation) == 0
    assert first.validation.offsets.tolist() == [0]
    types = {tokens.tokens_T.dtype.name for tokens in (first.train, first.validation, first.test)}
    assert types == {"int32"}
    assert (first.rows_R.dtype, first.train.offsets.dtype, first.train.labels_N.dtype) == (np.int32, np.int64, np.int64)
    assert corpus.table_VD is None


WORD = st.sampled_from(["a", "b", "c", "d", "é", "日本", "'s", "<unk>", "<pad>"])
TEXT = st.lists(WORD, max_size=8).flatmap(
    lambda parts: st.sampled_from([" ", "  ", "\t", " \n"]).map(lambda blank: blank.join(parts))
)


@settings(max_examples=60, deadline=None)
@given(
    clients=st.lists(
        st.tuples(st.lists(TEXT, min_size=1, max_size=5), st.lists(TEXT, min_size=1, max_size=4)),
        min_size=1,
        max_size=3,
    ),
    max_length=st.integers(1, 6),
    vocabulary=st.integers(1, 6),
)
def test_decoding_gives_the_clipped_words_back(
    clients: list[tuple[list[str], list[str]]], max_length: int, vocabulary: int
) -> None:
    raw = [RawClient(f"c{i}", split(*train), split(*test)) for i, (train, test) in enumerate(clients)]
    corpus = encoded(corpus_of(*raw, max_length=max_length, vocabulary=vocabulary))
    known = set(corpus.vocabulary) - {"<pad>"}
    assert len(corpus.vocabulary) <= vocabulary + 2
    for client, texts in nonempty(zip(corpus.clients, raw, strict=True)):
        for tokens, side in ((client.train, texts.train), (client.test, texts.test)):
            expected = [
                [word if word in known else "<unk>" for word in text.split()[:max_length]] or ["<unk>"]
                for text in side.texts
            ]
            assert words(client, tokens, corpus) == expected
        train, rest = client.rows_R[: client.train_rows], client.rows_R[client.train_rows :]
        assert train[0] == 0
        assert set(train[1:]) == set(client.rows_R[client.train.tokens_T])
        assert np.all(np.diff(train) > 0)
        assert np.all(np.diff(rest) > 0)
        assert not set(train) & set(rest)


def test_digest_changes_with_anything_and_with_nothing_else() -> None:
    def digest(text: str = "a b", label: int = 1, test: str = "a", name: str = "n", **options: Any) -> str:
        return encoded(corpus_of(RawClient(name, split(text, labels=[label]), split(test)), **options)).digest

    changed = [
        digest(), digest(text="a c"), digest(text="b a"), digest(label=0), digest(test="b"), digest(name="m"),
        digest(max_length=1), digest(vocabulary=1),
    ]  # fmt: skip
    assert len(set(changed)) == len(changed)
    assert digest() == digest()
    assert len(digest()) >= 16
    assert set(digest()) <= set("0123456789abcdef")


# Faults of a corpus


def faulty() -> RawClient:
    return RawClient("f", split("a b", "a b", "", "c", "a b"), split("c", "d", " ", "c", "a  b"))


def test_report_counts_empty_duplicated_and_leaked_texts() -> None:
    (report,) = encoded(corpus_of(faulty())).report
    assert (report.train, report.validation, report.test) == (5, 0, 5)
    assert (report.empty, report.duplicates, report.leaks) == (2, 2, Leaks(3, 0))  # "c" twice, and "a  b"
    assert report.mean_length == 7 / 5
    assert report.vocabulary == 3


def test_leaked_test_texts_are_dropped_only_if_asked() -> None:
    kept, dropped = encoded(corpus_of(faulty())), encoded(corpus_of(faulty(), drop_leaked="own"))
    assert len(kept.clients[0].test) == 5
    assert len(dropped.clients[0].test) == 2
    assert words(dropped.clients[0], dropped.clients[0].test, dropped) == [["<unk>"], ["<unk>"]]  # "d", " "
    assert (dropped.report[0].test, dropped.report[0].leaks) == (2, Leaks(3, 0))


def test_texts_are_the_same_if_all_letters_and_digits_are() -> None:
    def leaked(train: str, test: str) -> int:
        return encoded(corpus_of(RawClient("a", split(train), split(test)))).report[0].leaks.own

    assert leaked("It isn't , is it ?", "it isn't, IS it?")
    assert leaked("naïve – café", "Naïve - CAFÉ!")
    assert leaked("日本 語", "日本語")
    assert leaked("straße", "STRASSE")
    assert not leaked("7 of 10", "8 of 10")
    assert not leaked("naïve", "nave")
    assert not leaked("...", "!!!")  # neither letters nor digits: nothing that could be the same
    assert not leaked("one two", "one two three")


def several(**options: Any) -> CorpusConfig:
    """Two clients and unlabeled texts. Of client a's test texts one stands in its own train split, one in b's, one
    among the unlabeled texts, one in a's train split and among the unlabeled texts, and one nowhere."""
    a = RawClient("a", split("own", "both"), split("Own.", "other", "free", "both", "new"))
    b = RawClient("b", split("other", "x"), split("x", "own", "y"))
    config = corpus_of(a, b, **options)

    class WithUnlabeled(type(config)):  # type: ignore[misc]
        @property
        def unlabeled(self) -> str:
            return "local"

        def read_unlabeled(self, data: Path | None, seed: int) -> list[Unlabeled]:
            return [Unlabeled("FREE", raw=True), Unlabeled("both !")]

    return WithUnlabeled(**options)


def test_leaks_are_counted_by_where_the_text_also_stands() -> None:
    assert [report.leaks for report in encoded(several()).report] == [Leaks(2, 1, 2, 1), Leaks(1, 1, 0, 0)]
    note = next(line for line in render(encoded(several())).splitlines() if line.startswith("leaked: "))
    assert "3 test texts are also in the client's own train split, 2 more in another's" in note
    assert "2 in the unlabeled texts (1 of them in no train split): 6 in all" in note


@pytest.mark.parametrize(
    ("drop", "left"),
    [
        ("none", [["Own.", "other", "free", "both", "new"], ["x", "own", "y"]]),
        ("own", [["other", "free", "new"], ["own", "y"]]),
        ("all", [["new"], ["y"]]),
    ],
)
def test_what_is_dropped_is_asked_for(drop: str, left: list[list[str]]) -> None:
    config = several(drop_leaked=drop)
    raw = config.read(None, 0)
    found = splits.used(raw, config, 0, Leaking.of(raw, config, None, 0))
    assert [client.test.texts for client in found] == left
    assert [client.train.texts for client in found] == [["own", "both"], ["other", "x"]]  # test is dropped, not train
    kept, whole = encoded(config), encoded(several())
    assert [len(client.test) for client in kept.clients] == [len(texts) for texts in left]
    assert [report.leaks for report in kept.report] == [report.leaks for report in whole.report]
    assert (kept.digest == whole.digest) == (drop == "none")


def test_unlabeled_texts_that_cannot_be_read_are_missed_only_where_they_are_asked_for() -> None:
    class Unread(type(several())):  # type: ignore[misc]
        def read_unlabeled(self, data: Path | None, seed: int) -> list[Unlabeled]:
            raise UserError("not there")

    assert [report.leaks for report in encoded(Unread(drop_leaked="own")).report] == [Leaks(2, 1), Leaks(1, 1)]
    assert "unlabeled" not in render(encoded(Unread()))
    with pytest.raises(UserError, match="not there"):
        encoded(Unread(drop_leaked="all"))


def test_validation_texts_that_leak_are_dropped_as_well() -> None:
    """Held-out texts from what is left of train, so that which are held out stays as it is."""
    texts = [f"text {i // 2} {'!' * (i % 2)}" for i in range(80)]  # in pairs that differ in a sign alone

    def sizes(drop: str) -> tuple[list[str], list[str]]:
        config = corpus_of(RawClient("a", split(*texts), split("t")), validation=0.5, drop_leaked=drop)
        raw = config.read(None, 0)
        (client,) = splits.used(raw, config, 0, Leaking.of(raw, config, None, 0))
        return client.train.texts, client.validation.texts

    (train, held), (same, left) = sizes("none"), sizes("own")
    assert same == train
    seen = {text.rstrip("! ") for text in train}
    assert left == [text for text in held if text.rstrip("! ") not in seen]
    assert 0 < len(left) < len(held)


def test_the_share_of_train_that_is_used_does_not_change_what_is_dropped() -> None:
    client = RawClient("a", split(*"abcdefghij"), split(*"abcdefghijkl"))
    for share in (1.0, 0.1):
        corpus = encoded(corpus_of(client, drop_leaked="own", share=share))
        assert len(corpus.clients[0].test) == 2


def test_dropping_all_test_texts_is_refused() -> None:
    with pytest.raises(UserError, match=r"drop_leaked: own leaves client 'a' without test texts.*: set it to none"):
        encoded(corpus_of(RawClient("a", split("x"), split("x")), drop_leaked="own"))
    with pytest.raises(UserError, match=r"drop_leaked: all leaves client 'a' without test texts.*: set it to own or"):
        encoded(corpus_of(RawClient("a", split("y"), split("x")), RawClient("b", split("x"), split("z")),
                          drop_leaked="all"))  # fmt: skip


@pytest.mark.parametrize(("old", "new"), [(True, "own"), (False, "none")])
def test_the_switch_that_drop_leaked_was_is_refused_with_its_new_value(old: bool, new: str) -> None:
    with pytest.raises(ValueError, match=f"{str(old).lower()} is called {new} now"):
        corpus_of(faulty(), drop_leaked=old)


def test_distinct_words_are_counted_before_any_are_left_out() -> None:
    client = RawClient("a", split("A b", "b c's 10", "d"), split("e B"))
    for options, counts in (
        ({"vocabulary": 1, "validation": 0.4}, (5, 7)),
        ({"text": {"words": {"letters": True}}}, (4, 5)),
        ({"text": {"hash": {"buckets": 2}}}, (4, 5)),
    ):
        corpus = encoded(corpus_of(client, **options))
        assert corpus.words == counts
        assert f"distinct words: {counts[0]} in train" in render(corpus)


def test_table_of_statistics_is_aligned_and_adds_up() -> None:
    other = RawClient("other", split(*["a b c"] * 1200), split("e"))
    lines = render(encoded(corpus_of(faulty(), other))).splitlines()
    table = [line for line in lines[: lines.index("")] if not line.startswith("-")]
    assert {len(line) for line in table} == {len(table[0])}
    assert [line.split() for line in table[1:]] == [
        ["f", "5", "0", "5", "1", "3", "2", "2", "3", "0", "1.0", "█·"],
        ["other", "1,200", "0", "1", "3", "3", "0", "1,199", "0", "0", "1.0", "█·"],
        ["total", "1,205", "0", "6", "3", "5", "2", "1,201", "3", "0", "1.0", "█·"],
    ]


# Held-out validation


def numbered(name: str, positive: int, negative: int) -> RawClient:
    texts = [f"{name}{i}" for i in range(positive + negative)]
    return RawClient(name, split(*texts, labels=[1] * positive + [0] * negative), split("t"))


def test_validation_takes_its_share_of_every_class() -> None:
    raw = numbered("a", 30, 10), numbered("b", 10, 50)
    corpus = encoded(corpus_of(*raw, validation=0.2))
    for client, (positive, negative) in zip(corpus.clients, [(6, 2), (2, 10)], strict=True):
        assert np.bincount(client.validation.labels_N).tolist() == [negative, positive]
    assert [(r.train, r.validation) for r in corpus.report] == [(32, 8), (48, 12)]
    vocabulary = set(corpus.vocabulary)
    assert len(vocabulary) == 2 + 32 + 48  # no word of a validation or test text
    for client in nonempty(corpus.clients):
        assert {text[0] for text in words(client, client.validation, corpus)} == {"<unk>"}


def test_validation_depends_on_seed_and_client_alone() -> None:
    def held(seed: int, *raw: RawClient) -> list[set[str]]:
        corpus = encoded(corpus_of(*raw, validation=0.25), seed)
        kept = set(corpus.vocabulary)
        return [{text for text in client.train.texts if text not in kept} for client in raw]

    a, b = numbered("a", 20, 20), numbered("b", 20, 20)
    assert held(1, a, b) == held(1, a, b)
    assert held(1, a, b)[0] == held(1, a)[0]
    assert held(1, a, b) != held(2, a, b)
    assert {int(t[1:]) for t in held(1, a, b)[0]} != {int(t[1:]) for t in held(1, a, b)[1]}


def test_copies_of_a_text_are_never_on_both_sides() -> None:
    texts = [f"w{i // 3}" for i in range(60)]
    corpus = encoded(corpus_of(RawClient("a", split(*texts), split("t")), validation=0.3))
    client = corpus.clients[0]
    assert len(client.validation) == 18
    assert {text[0] for text in words(client, client.validation, corpus)} == {"<unk>"}


@pytest.mark.parametrize(("share", "advice"), [(0.01, "raise it"), (0.99, "lower it")])
def test_a_share_that_leaves_a_side_empty_is_refused(share: float, advice: str) -> None:
    with pytest.raises(UserError, match=rf"corpus\.validation = {share} leaves no .* client 'a': {advice}"):
        encoded(corpus_of(numbered("a", 4, 4), validation=share))


def test_a_corpus_without_unlabeled_texts_says_so() -> None:
    with pytest.raises(UserError, match=r"corpus 'given' has no unlabeled texts"):
        prepare(corpus_of(faulty()), Embedding(init="word2vec"), 0, None)
