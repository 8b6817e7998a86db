"""Words, vocabularies and word vectors."""

import gzip
import logging
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from fedtext.corpora.demo import DemoCorpus
from fedtext.corpora.fdu import FDUCorpus
from fedtext.corpora.prepare import prepare
from fedtext.corpora.types import RawCorpus
from fedtext.corpora.vectors import texts_for_vectors
from fedtext.errors import UserError
from fedtext.models.base import Embedding
from fedtext.text.embeddings import WordVectors, read_vectors, table
from fedtext.text.tokens import Unlabeled, decode, encode, like_tokens, penn_tokens, sizes, split_words
from fedtext.text.vocabulary import WordIndex, build_vocabulary, count_words
from fedtext.text.word2vec import train_vectors
from tests.data import real_data

# Words and numbers


def test_words_are_what_stands_between_blanks() -> None:
    assert split_words(" it 's  a-ok,\tfine\n") == ["it", "'s", "a-ok,", "fine"]
    assert split_words("a b c", 2) == ["a", "b"]
    assert split_words("", 2) == []


def test_encode_and_decode_by_hand() -> None:
    vocabulary = ["<pad>", "<unk>", "a", "b"]
    tokens_T, offsets = encode(["b a b a", "", "x <pad> b"], WordIndex(vocabulary), max_length=3)
    assert tokens_T.tolist() == [3, 2, 3, 1, 1, 1, 3]
    assert offsets.tolist() == [0, 3, 4, 7]
    same = np.arange(4, dtype=np.int32)
    assert decode(tokens_T, offsets, same, vocabulary) == [["b", "a", "b"], ["<unk>"], ["<unk>", "<unk>", "b"]]


def test_the_bytes_of_a_sentence_are_its_words_the_blanks_between_and_one_for_its_end() -> None:
    sentences = ["<s> the café </s>", "<s> a </s>", "<s> </s>"]
    none = np.zeros(3, np.int64)
    assert sizes(sentences, None, none).tolist() == [len("the café\n".encode()), 2, 1]
    assert sizes(sentences, None, np.array([1, 0, 0])).tolist() == [len(" café\n".encode()), 2, 1]
    assert len("é".encode()) == 2
    assert sizes(sentences, 3, none).tolist() == [len("the café".encode()), 2, 1], "what is cut off is not counted"
    assert sizes([], None, none[:0]).tolist() == []


def test_vocabulary_sums_clients_and_breaks_ties_alphabetically() -> None:
    first, second = count_words(["b c c", "z"]), count_words(["b a y", "<unk> <unk> <unk> <pad> <pad> <pad>"])
    assert first == Counter(b=1, c=2, z=1)
    assert build_vocabulary([first, second], 10) == ["<pad>", "<unk>", "b", "c", "a", "y", "z"]
    assert build_vocabulary([second, first], 3) == ["<pad>", "<unk>", "b", "c", "a"]
    assert first == Counter(b=1, c=2, z=1)  # the client's own counts are left as they were


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        ("It's OK, isn't it?", "it 's ok , is n't it ?"),
        ('He said "Buy it!" twice.', "he said `` buy it ! '' twice ."),
        ("We'll see... I'd've gone", "we 'll see ... i'd 've gone"),
        ("Paid $1,200 (50% off) at 2:00.", "paid $ 1,200 ( 50 % off ) at 2:00 ."),
        ("I cannot -- and won't -- stop", "i can not -- and wo n't -- stop"),
        ("Mr. Smith of the U.S. army", "mr. smith of the u.s. army"),
        ("My friends' 2.5 inch TV.It broke", "my friends ' 2.5 inch tv.it broke"),
        ("You're gonna love it; well-made & solid", "you 're gon na love it ; well-made & solid"),
        ("  ", ""),
    ],
)
def test_raw_text_is_cut_like_the_labelled_reviews(raw: str, words: str) -> None:
    assert penn_tokens(raw) == words


def test_unlabeled_fdu_is_cut_like_labelled_fdu() -> None:
    """Labelled Amazon reviews, with their quotation marks made plain again, come out of the cutting as they were."""
    data = real_data("fdu_mtl/fdu_mtl.parquet")
    kept = total = 0
    for text in FDUCorpus(clients=("baby", "music")).read(data, 0).clients[0].train.texts[:300]:
        before = Counter(text.split())
        again = Counter(penn_tokens(text.replace("``", '"').replace("''", '"')).split())
        kept, total = kept + (before & again).total(), total + before.total()
    assert kept / total > 0.99


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ({}, ["it", "'s", "a", "great", "product", "."]),
        ({"stopwords": "drop"}, ["great", "product", "."]),
        ({"letters": True}, ["it", "s", "a", "great", "product"]),
    ],
)
def test_words_of_unlabeled_texts_are_those_of_labelled_ones(
    text: dict[str, Any], words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    config = FDUCorpus.model_validate({"text": {"words": text}})
    monkeypatch.setattr(FDUCorpus, "read_unlabeled", lambda *_: [Unlabeled("It's a Great product.", raw=True)])
    (found,) = texts_for_vectors(config, None, 0, RawCorpus("fdu", 2, []), "unlabeled")
    assert found.words() == words
    assert config.text.clean("it 's a great product .").split() == words


@pytest.mark.parametrize("text", ["\ue000", "a \ue000\ue000 b", "\ue000 a\ue000b \ue000\ue000\ue000"])
@pytest.mark.parametrize("known", [(), ("\ue000",), ("a", "b"), ("\ue000\ue000", "a")])
def test_a_private_character_is_a_word_in_predictions_as_in_training(text: str, known: tuple[str, ...]) -> None:
    assert like_tokens(text, known).split() == split_words(text)


# Word vectors from files

GLOVE = "a 1 2\n. . . 3 4\nb -0.5 1e-3\n"


def test_text_files_with_and_without_header_or_compression(tmp_path: Path) -> None:
    (tmp_path / "glove.txt").write_text(GLOVE)
    (tmp_path / "word2vec.vec").write_text("3 2\n" + GLOVE)
    (tmp_path / "packed.txt.gz").write_bytes(gzip.compress(GLOVE.encode()))
    (tmp_path / "marked.txt").write_text(GLOVE, encoding="utf-8-sig")
    (tmp_path / "marked.vec").write_text("3 2\n" + GLOVE, encoding="utf-8-sig")
    for name in ("glove.txt", "word2vec.vec", "packed.txt.gz", "marked.txt", "marked.vec"):
        vectors = read_vectors(tmp_path / name, 2, {"b", "a", "c", ". . ."})
        assert vectors.words == ["a", ". . .", "b"]
        assert vectors.vectors_WD.dtype == np.float32
        np.testing.assert_allclose(vectors.vectors_WD, [[1, 2], [3, 4], [-0.5, 1e-3]])
    assert read_vectors(tmp_path / "glove.txt", 2, {"b"}).words == ["b"]


def test_npz_files(tmp_path: Path) -> None:
    path = tmp_path / "vectors.npz"
    np.savez(path, words=np.array(["a", "b"]), vectors=np.array([[1.0, 2.0], [3.0, 4.0]], np.float16))
    vectors = read_vectors(path, 2, {"b"})
    assert vectors.words == ["b"]
    assert vectors.vectors_WD.tolist() == [[3.0, 4.0]]


def test_parquet_files(tmp_path: Path) -> None:
    def written(file: str, **columns: Any) -> Path:
        pyarrow.parquet.write_table(pyarrow.table(columns), tmp_path / file)
        return tmp_path / file

    halves = pyarrow.array([[1.0, 2.0], [3.0, 4.0]], pyarrow.list_(pyarrow.float16(), 2))
    vectors = read_vectors(written("v.parquet", word=["a", "b"], vector=halves), 2, {"b"})
    assert vectors.words == ["b"]
    assert vectors.vectors_WD.tolist() == [[3.0, 4.0]]
    with pytest.raises(UserError, match="must have columns 'word'"):
        read_vectors(written("w.parquet", name=["a"]), 2, {"a"})
    with pytest.raises(UserError, match="must have columns 'word'"):
        read_vectors(written("u.parquet", word=["a", "b"], vector=[[1.0], [1.0, 2.0]]), 2, {"a"})
    with pytest.raises(UserError, match="vectors of 2 numbers but"):
        read_vectors(tmp_path / "v.parquet", 3, {"a"})


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("a 1 2 3\n", r"v\.txt, line 1, has 3 numbers after the word but model\.embedding\.dim is 2: set it to 3"),
        ("9 300\na 1 2\n", r"v\.txt, line 1, has 300 numbers"),
        ("a 1 2\nb 1\n", r"v\.txt, line 2, has 1 numbers"),
        ("a 1 2\nb 1 2 3\n", r"v\.txt, line 2, has 3 numbers"),
        ("a 1 2\nb 1 x\n", r"v\.txt, line 2: not 2 finite numbers"),
        ("a 1 2\nb 1 nan\n", r"v\.txt, line 2: not 2 finite numbers"),
        ("a\t1\t2\n", r"v\.txt, line 1, is not a word and 2 numbers with single blanks between them"),
    ],
)
def test_malformed_text_files_name_the_line(tmp_path: Path, content: str, complaint: str) -> None:
    (tmp_path / "v.txt").write_text(content)
    with pytest.raises(UserError, match=complaint):
        read_vectors(tmp_path / "v.txt", 2, {"a", "b"})


@pytest.mark.parametrize(
    ("arrays", "complaint"),
    [
        ({"words": ["a"], "vectors": [[1.0, 2.0, 3.0]]}, "vectors of 3 numbers but .* is 2: set it to 3"),
        ({"words": ["a"]}, "must have arrays 'words'"),
        ({"words": ["a", "b"], "vectors": [[1.0, 2.0]]}, r"2 words but 'vectors' of shape \(1, 2\)"),
        ({"words": ["a"], "vectors": [["x", "y"]]}, "type <U1"),
        ({"words": ["a"], "vectors": [[1.0, np.inf]]}, "not finite"),
        ({"words": ["a"], "vectors": [[1.0, 1e300]]}, "not finite in float32"),
    ],
)
def test_malformed_npz_files_are_refused(tmp_path: Path, arrays: dict[str, list[object]], complaint: str) -> None:
    np.savez(tmp_path / "v.npz", **{name: np.array(values) for name, values in arrays.items()})
    with pytest.raises(UserError, match=complaint):
        read_vectors(tmp_path / "v.npz", 2, {"a", "b"})


@pytest.mark.parametrize("name", ["v.npz", "v.txt.gz", "v.parquet"])
def test_files_that_are_not_what_their_name_says_are_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("neither")
    with pytest.raises(UserError, match=name):
        read_vectors(tmp_path / name, 2, {"a"})


@pytest.mark.parametrize("suffix", [".npz", ".txt.gz"])
def test_files_whose_compression_is_damaged_are_refused(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"v{suffix}"
    with gzip.open(path, "wt") if suffix != ".npz" else path.open("wb") as file:
        if suffix == ".npz":
            np.savez_compressed(file, words=np.array(["a", "b"] * 200), vectors=np.arange(800.0).reshape(400, 2))
        else:
            file.write("a 1 2\nb 3 4\n" * 200)
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2 :: 3] = bytes(0xFF ^ byte for byte in raw[len(raw) // 2 :: 3])
    path.write_bytes(raw)
    with pytest.raises(UserError, match=r"word vectors in .* cannot be read"):
        read_vectors(path, 2, {"a"})


# The embedding table


def test_table_draws_missing_words_at_the_size_of_the_found_ones() -> None:
    vocabulary = ["<pad>", "<unk>", "known", *(f"w{i}" for i in range(400))]
    known = np.array([[3.0, -3.0] * 10, [9.0] * 20], np.float32)
    vectors = WordVectors(["known", "<pad>"], known)
    table_VD = table(vocabulary, vectors, seed=1)
    assert table_VD.shape == (403, 20)
    assert table_VD.dtype == np.float32
    assert not table_VD[0].any()
    assert table_VD[2].tolist() == known[0].tolist()
    assert table_VD[3:].std() == pytest.approx(3.0, rel=0.03)
    assert abs(table_VD[3:].mean()) < 0.1
    assert np.array_equal(table_VD, table(vocabulary, vectors, seed=1))
    assert not np.array_equal(table_VD[1], table(vocabulary, vectors, seed=2)[1])


def test_a_table_without_a_single_known_word_is_refused() -> None:
    with pytest.raises(UserError, match="none of the word vectors"):
        table(["<pad>", "<unk>", "a"], WordVectors(["b", "<pad>"], np.ones((2, 3), np.float32)), 0)


def test_prepare_reports_the_coverage_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = DemoCorpus(clients=2, train=20, test=5, vocabulary=20)
    plain = prepare(config, Embedding(), 0, None)
    assert plain.table_VD is None
    assert plain.coverage is None
    known = plain.vocabulary[2:7]
    (tmp_path / "v.txt").write_text("".join(f"{word} {i} 1\n" for i, word in enumerate(["zzz", *known])))
    corpus = prepare(config, Embedding(dim=2, init={"file": {"path": "v.txt"}}), 0, tmp_path)  # found under --data
    assert corpus.table_VD is not None
    assert corpus.table_VD[2:7].tolist() == [[i, 1] for i in range(1, 6)]
    assert corpus.coverage is not None
    assert corpus.coverage.vocabulary == 5 / 20
    all_words = [word for c in config.read(None, 0).clients for text in c.train.texts for word in text.split()]
    assert corpus.coverage.tokens == pytest.approx(sum(word in known for word in all_words) / len(all_words))
    assert corpus.digest == plain.digest == plain.content
    (tmp_path / "v.txt").write_text("".join(f"{word} {i} 2\n" for i, word in enumerate(known)))
    other = prepare(config, Embedding(dim=2, init={"file": {"path": "v.txt"}}), 0, tmp_path)
    assert other.digest == corpus.digest  # the same texts,
    assert len({plain.content, corpus.content, other.content}) == 3  # and a run with other vectors is another run
    with pytest.raises(UserError, match=r"no word vectors at v\.txt or .*v\.txt: correct"):
        prepare(config, Embedding(dim=2, init={"file": {"path": "v.txt"}}), 0, None)
    monkeypatch.setenv("FEDTEXT_DATA", str(tmp_path))  # as for the corpora themselves
    assert prepare(config, Embedding(dim=2, init={"file": {"path": "v.txt"}}), 0, None).content == other.content


# Word vectors trained here


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
