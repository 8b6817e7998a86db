"""Clients and batches that benchmarks make of real corpora."""

from pathlib import Path

import numpy as np

from benchmarks import real
from benchmarks.tests.tables import save
from fedtext.corpora.types import ClientData
from fedtext.text.hashing import buckets


def words(client: ClientData) -> list[list[int]]:
    """The rows of each text in the whole table."""
    parts = np.split(client.rows_R[client.train.tokens_T], client.train.offsets[1:-1])
    return [part.tolist() for part in parts]


def test_reviews_are_dealt_out_over_both_labels(data: Path) -> None:
    clients = real.reviews(data, 2, 10, 5_000)
    assert [len(client.train) for client in clients] == [10, 10]
    assert [client.train.labels_N.tolist() for client in clients] == [[0] * 5 + [1] * 5] * 2
    # every second review is taken: the first and third of four, which go to the two clients in turn
    dealt = [[1 + bucket for bucket in buckets(text, 5_000)] for text in ("dogs and cats dont", "cats")]
    assert [words(client) for client in clients] == [[dealt[0]] * 10, [dealt[1]] * 10]


def test_lines_become_batches_that_go_on_where_the_last_ended(data: Path) -> None:
    save(data, "ptb", [{"text": "b c"}, {"text": ""}, {"text": "c <unk> d c b e"}, {"text": "f"}])
    # b c <eos> <eos> c <unk> d c b e <eos> f <eos>; of 6 rows <pad>, <unk>, and then by frequency <eos>, c, b, d
    ids = [4, 3, 2, 2, 3, 1, 5, 3, 4, 1, 2, 1, 2]
    made = real.lines(data, 6, 2, 4)
    assert made.tolist() == [[ids[0:4], ids[6:10]], [ids[3:7], ids[9:13]]]


def test_wikitext_goes_before_penn_treebank(data: Path) -> None:
    save(data, "ptb", [{"text": "b " * 99}])
    expected = real.lines(data, 10, 2, 4)
    save(data, "wikitext2_valid_test", [{"text": "a b " * 99}])
    assert real.lines(data, 10, 2, 4).shape != expected.shape
