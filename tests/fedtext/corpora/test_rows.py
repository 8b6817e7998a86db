"""A client in the rows of a table that lacks some of the vocabulary's entries."""

from typing import Any

import numpy as np
import pytest

from fedtext.corpora.rows import within
from fedtext.corpora.types import ClientData, TokenSet
from fedtext.layout import TABLE
from tests import tiny
from tests.loops import nonempty

WORDS, FEATURES = 5, 3  # entries of the vocabulary below, <pad> among the words; features follow
NOTHING = TokenSet(np.zeros(0, np.int32), np.zeros(1, np.int64), np.zeros(0, np.int64))
# Rows are <pad>, words 4 and 2, features 1 and 2 (entries 6 and 7), and of test word 1 and feature 0.
CLIENT = ClientData(
    0,
    "one",
    np.array([0, 4, 2, 6, 7, 1, 5], np.int32),
    5,
    TokenSet(
        np.array([2, 1, 2, 3, 1, 4, 3], np.int32),
        np.array([0, 4, 5, 7]),
        np.array([0, 1, 1]),
        values_T=np.array([1, 1, 1, 0.5, 1, 2, 0.25], np.float32),
    ),
    NOTHING,
    TokenSet(np.array([5, 6], np.int32), np.array([0, 2]), np.array([1]), values_T=np.array([1, -3], np.float32)),
)
KNOWN = np.array([[0, 0.5, 0], [0, 0, 0], [0, 0.25, 2]], np.float32)  # of the train texts: w2 w4 w2, w4, none


def test_features_stand_apart_from_a_clients_words() -> None:
    client = within(CLIENT, range(WORDS), FEATURES)
    assert client.rows_R.tolist() == [0, 4, 2, 1]
    assert client.train_rows == 3
    assert client.train.tokens_T.tolist() == [2, 1, 2, 1]
    assert client.train.offsets.tolist() == [0, 3, 4, 4]
    assert client.train.values_T is None
    assert np.array_equal(client.train.features_NK, KNOWN)
    assert client.train.labels_N.tolist() == [0, 1, 1]
    assert client.test.tokens_T.tolist() == [3]
    assert client.test.features_NK.tolist() == [[-3, 0, 0]]
    assert client.validation.features_NK.shape == (0, FEATURES)
    bare = within(CLIENT, range(1, WORDS), FEATURES)
    assert bare.rows_R.tolist() == [3, 1, 0]
    assert bare.train_rows == 2
    assert bare.train.tokens_T.tolist() == [1, 0, 1, 0]
    assert np.array_equal(bare.train.features_NK, KNOWN)


def test_a_text_of_padding_alone_has_no_token_and_others_keep_their_values() -> None:
    padded = TokenSet(np.array([1, 0, 3], np.int32), np.array([0, 1, 2, 3]), np.zeros(3, np.int64),
                      values_T=np.array([1, 1, 0.5], np.float32))  # fmt: skip
    client = within(ClientData(0, "one", CLIENT.rows_R, 5, padded, NOTHING, NOTHING), range(1, WORDS + FEATURES), 0)
    assert client.rows_R.tolist() == [3, 1, 5, 6, 0, 4]
    assert client.train_rows == 4
    assert client.train.tokens_T.tolist() == [0, 2]
    assert client.train.offsets.tolist() == [0, 1, 1, 2]
    assert client.train.values_T is not None
    assert client.train.values_T.tolist() == [1, 0.5]
    assert client.train.features_NK is None


@pytest.mark.parametrize(
    ("method", "table"),
    [
        ("lg_fedavg", TABLE),
        ("pfl_da", "embedding_private.weight"),
        ({"name": "kteps", "architecture": "everything"}, "embedding_private.weight"),
    ],
)
def test_a_private_table_has_a_clients_own_rows_and_begins_as_the_common_one(method: Any, table: str) -> None:
    made = tiny.Finished(method)
    common = made.layout.views(made.before).get(TABLE, made.private.get(TABLE))
    assert np.array_equal(made.private[table], common)
    for client in nonempty(tiny.TWO.clients):
        own = made.worker.private[client.id][table]
        assert own.shape == (len(client.rows_R), 5)
        assert not np.array_equal(own[: client.train_rows], common[client.rows_R[: client.train_rows]])
        assert np.array_equal(own[client.train_rows :], common[client.rows_R[client.train_rows :]])
