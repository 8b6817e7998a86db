"""Validation texts are a share of each class of each client's train texts."""

import numpy as np
import pytest

from fedtext.corpora.splits import held_out
from fedtext.corpora.types import RawClient
from fedtext.errors import UserError
from tests.fedtext.corpora.given import corpus_of, encoded, split, words
from tests.loops import nonempty


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


@pytest.mark.parametrize(("classes", "each", "share"), [(20, 3, 0.05), (20, 3, 0.2), (7, 5, 0.1), (3, 11, 0.25)])
def test_a_share_of_all_texts_is_held_out_however_few_a_class_has(classes: int, each: int, share: float) -> None:
    """Rounded class by class, 0.05 of three texts would be none, and 0.2 of them one: a third."""
    texts = [f"w{n}" for n in range(classes * each)]
    given = split(*texts, labels=[n % classes for n in range(classes * each)])
    for seed in range(5):
        held_N = held_out(given, share, np.random.default_rng(seed))
        assert held_N.sum() == round(share * classes * each)
        counts = np.bincount(given.labels[held_N], minlength=classes)
        assert set(counts - int(share * each)) <= {0, 1}


@pytest.mark.parametrize(
    ("sizes", "share"), [([4] * 5, 0.1), ([2] * 5, 0.2), ([10, 10], 0.05), ([8, 4], 0.1), ([1, 1, 1], 0.5)]
)
def test_over_many_clients_no_class_is_preferred(sizes: list[int], share: float) -> None:
    """Where each client has fewer than 1 / share texts of a class, which of them is held out is a draw."""
    labels = [label for label, size in enumerate(sizes) for _ in range(size)]
    given, counts = split(*[f"w{n}" for n in range(len(labels))], labels=labels), np.zeros(len(sizes))
    for seed in range(600):
        counts += np.bincount(given.labels[held_out(given, share, np.random.default_rng(seed))], minlength=len(sizes))
    expected = counts.sum() * np.array(sizes) / sum(sizes)
    assert np.abs(counts - expected).max() < 4 * np.sqrt(expected.max())


def test_labels_that_are_no_classes_are_not_looked_at() -> None:
    """In a corpus of instructions they are lengths of prompts: by these, validation would have the frequent ones."""
    lengths = split(*[f"w{n}" for n in range(40)], labels=list(range(20)) + [99] * 20)
    counts = [held_out(lengths, 0.25, np.random.default_rng(n), by_class=False)[:20].sum() for n in range(200)]
    assert np.mean(counts) == pytest.approx(5, abs=0.5)
    assert len(set(counts)) > 4
    assert {held_out(lengths, 0.25, np.random.default_rng(n))[20:].sum() for n in range(20)} == {5}


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


@pytest.mark.parametrize("share", [0.01, 0.99])
def test_a_client_with_one_train_text_is_not_told_of_another_share(share: float) -> None:
    with pytest.raises(UserError, match=r"client 'a' has 1 train text, and needs another one to hold out: add texts"):
        encoded(corpus_of(numbered("a", 1, 0), validation=share))


def test_copies_of_a_text_are_held_out_together() -> None:
    copies = split(*"aaabcd")
    sizes = set()
    for seed in range(20):
        held_N = held_out(copies, 0.01, np.random.default_rng(seed), least=2)
        held = [text for text, out in zip(copies.texts, held_N, strict=True) if out]
        assert "a" not in held
        sizes.add(len(held))
    assert max(sizes) == 2
    assert not held_out(copies, 0.01, np.random.default_rng(0)).any()


@pytest.mark.parametrize("texts", ["aab", "aabb", "aaabc", "aaaaab"])
def test_of_two_different_texts_one_is_held_out_however_many_copies_it_has(texts: str) -> None:
    for seed in range(20):
        held_N = held_out(split(*texts), 0.2, np.random.default_rng(seed), least=1)
        held, left = ({text for text, out in zip(texts, held_N, strict=True) if out == side} for side in (True, False))
        assert held
        assert left
        assert not held & left
    assert not held_out(split(*"aaa"), 0.2, np.random.default_rng(0), least=1).any(), "there is no other text"
