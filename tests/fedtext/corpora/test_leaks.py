"""Test and validation texts that training has seen are counted, and dropped where that is asked for."""

from pathlib import Path
from typing import Any

import pytest

from fedtext.corpora import splits
from fedtext.corpora.base import CorpusConfig
from fedtext.corpora.splits import Leaking
from fedtext.corpora.statistics import render
from fedtext.corpora.types import Leaks, RawClient
from fedtext.errors import UserError
from fedtext.text.tokens import Unlabeled
from tests.fedtext.corpora.given import corpus_of, encoded, faulty, split, words


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
    assert leaked("cafe\u0301", "caf\u00e9"), "one character, or a letter and its accent"
    assert not leaked("की", "का"), "vowel signs tell words apart"
    assert leaked("fine ❤️", "Fine!")
    assert not leaked("❤️", "❤️")
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


@pytest.mark.parametrize(
    ("keys", "repeated"),
    [
        ({}, [[True, True, False, True, False], [True, True, False]]),
        ({"drop_leaked": "own"}, [[True, False, False], [True, False]]),
        ({"drop_leaked": "all"}, [[False], [False]]),
    ],
)
def test_a_corpus_says_which_test_texts_stand_in_any_train_split(keys: dict[str, Any], repeated: list[Any]) -> None:
    """Whether training has seen them as unlabeled texts does not count."""
    corpus = encoded(several(**keys))
    assert [repeated_N.tolist() for repeated_N in corpus.repeated] == repeated
    assert corpus.header(own_vocabularies=False).repeated == ()


def test_texts_that_are_held_out_of_train_or_not_drawn_are_in_no_train_split() -> None:
    texts = [f"text {number}" for number in range(40)]
    client = RawClient("a", split(*texts), split(*texts))
    for keys in ({"validation": 0.5}, {"share": 0.5}):
        corpus = encoded(corpus_of(client, **keys))
        trained = {" ".join(each) for each in words(corpus.clients[0], corpus.clients[0].train, corpus)}
        assert len(trained) == 20
        assert corpus.repeated[0].tolist() == [text in trained for text in texts]


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
