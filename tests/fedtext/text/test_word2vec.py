"""Word vectors that are trained on texts, and their cache."""

import logging
import sys
from pathlib import Path

import numpy as np
import pytest

from fedtext.corpora.demo import DemoCorpus
from fedtext.corpora.prepare import prepare
from fedtext.errors import UserError
from fedtext.models.base import Embedding
from fedtext.text.tokens import Unlabeled
from fedtext.text.word2vec import train_vectors


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FEDTEXT_CACHE", str(tmp_path))
    return tmp_path


def test_word2vec_on_the_demo_is_reproducible_and_cached(cache: Path, caplog: pytest.LogCaptureFixture) -> None:
    pytest.importorskip("gensim")
    config, embedding = DemoCorpus(clients=4, train=100), Embedding(dim=16, init={"word2vec": {"epochs": 3}})
    with caplog.at_level(logging.WARNING):
        first = prepare(config, embedding, 0, None)
    assert "training word vectors" in caplog.text
    assert "minutes" in caplog.text
    (file,) = cache.iterdir()
    caplog.clear()
    cached = prepare(config, embedding, 0, None)
    assert caplog.text == ""
    file.unlink()
    again = prepare(config, embedding, 0, None)
    for other in (cached, again):
        assert other.table_VD is not None
        assert first.table_VD is not None
        assert np.array_equal(first.table_VD, other.table_VD)
    assert first.coverage is not None
    assert first.coverage.tokens > 0.95


def test_word2vec_cache_tells_all_inputs_apart(cache: Path) -> None:
    pytest.importorskip("gensim")
    texts = [Unlabeled(text) for text in ["a b a b", "b a c c"] * 5]
    for dim, epochs, window, used in ((4, 1, 2, texts), (5, 1, 2, texts), (4, 2, 2, texts), (4, 1, 3, texts)):
        train_vectors(used, dim, epochs, window, cache)
    train_vectors([*texts, Unlabeled("a")], 4, 1, 2, cache)
    train_vectors([*texts, Unlabeled("a", raw=True)], 4, 1, 2, cache)
    assert len(list(cache.iterdir())) == 6  # and nothing half written
    assert train_vectors(texts, 4, 1, 2, cache).vectors_WD.shape == (3, 4)
    assert len(list(cache.iterdir())) == 6


@pytest.mark.parametrize("damage", ["cut", "empty", "text", "bits", "other", "short"])
def test_a_damaged_file_of_word_vectors_is_trained_anew(
    cache: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("gensim")
    texts = [Unlabeled(text) for text in ["a b a b", "b a c c"] * 5]
    whole = train_vectors(texts, 4, 1, 2, cache)
    (file,) = cache.iterdir()
    content = file.read_bytes()
    if damage == "short":
        np.savez(file, words=np.array(["a"]), vectors=whole.vectors_WD)
    elif damage == "other":
        np.savez(file, words=np.array(["a"]))
    else:
        place = content.index(whole.vectors_WD.tobytes())
        damaged = content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]
        file.write_bytes({"cut": content[:-40], "empty": b"", "text": b"vectors", "bits": damaged}[damage])
    caplog.clear()
    again = train_vectors(texts, 4, 1, 2, cache)
    assert f"{file} is damaged (" in caplog.text
    assert "its word vectors are trained anew" in caplog.text
    assert again.words == whole.words
    assert np.array_equal(again.vectors_WD, whole.vectors_WD)
    caplog.clear()
    train_vectors(texts, 4, 1, 2, cache)
    assert caplog.text == "", "it has taken the place of the damaged one"


def test_word2vec_without_enough_text_is_refused(cache: Path) -> None:
    pytest.importorskip("gensim")
    with pytest.raises(UserError, match="cannot be trained on 2 words"):
        train_vectors([Unlabeled("a b"), Unlabeled("")], 4, 1, 2, cache)


def test_word2vec_that_is_not_to_be_trained_checks_all_else(cache: Path) -> None:
    pytest.importorskip("gensim")
    own = {"word2vec": {"corpus": "train"}}
    given, missing = ({"file": {"path": str(cache / f"{name}.txt")}} for name in ("given", "missing"))
    (cache / "given.txt").write_text("a 1 2\n")
    both, broken = (Embedding(dim=2, init={"each": {"sources": [own, file]}}) for file in (given, missing))
    found = prepare(DemoCorpus(clients=4, train=100), both, 0, None, train=False)
    assert found.untrained.startswith("word vectors are not trained yet (skip-gram, 2 dimensions, 5 epochs on ")
    assert (found.table_VD, found.coverage) == (None, None)
    assert found.digest == prepare(DemoCorpus(clients=4, train=100), both, 0, None).digest
    with pytest.raises(UserError, match=r"missing\.txt"):
        prepare(DemoCorpus(clients=4, train=100), broken, 0, None, train=False)


def test_word2vec_without_gensim_says_how_to_install_it(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gensim.models", None)
    with pytest.raises(UserError, match=r'pip install -c constraints\.txt "fedtext\[word2vec\]"'):
        train_vectors([Unlabeled("a a")], 4, 1, 2, cache)
