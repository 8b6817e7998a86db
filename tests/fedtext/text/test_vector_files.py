"""Word vectors from files, and the tables that are made of them."""

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from fedtext.corpora.demo import DemoCorpus
from fedtext.corpora.prepare import prepare
from fedtext.errors import UserError
from fedtext.models.base import Embedding
from fedtext.text.embeddings import WordVectors, read_vectors, table

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
