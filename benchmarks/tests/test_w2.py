"""Both loops of W2 read the same words, from the first bucket to the last."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks import real, synthetic, w2
from benchmarks.tests.tables import REVIEWS
from fedtext.text.hashing import buckets


def test_both_loops_of_w2_read_the_same_words(data: Path) -> None:
    client = real.reviews(data, 1, 40, w2.BUCKETS)[0]
    vectors, labels = w2.dense(client).tensors
    assert [np.flatnonzero(vector).tolist() for vector in vectors.numpy()] == [
        buckets(REVIEWS[at % 4].replace("<br />", " "), w2.BUCKETS) for at in range(40)
    ]
    assert labels.tolist() == [0] * 20 + [1] * 20


@pytest.mark.parametrize("bucket", [0, w2.BUCKETS - 1])
def test_the_first_and_the_last_bucket_have_a_row(bucket: int) -> None:
    client = synthetic.holding(0, synthetic.TokenSet(np.array([1 + bucket]), np.array([0, 1]), np.array([1])))
    assert np.flatnonzero(w2.dense(client).tensors[0].numpy()).tolist() == [bucket]
    assert client.rows_R.tolist() == [0, 1 + bucket]  # row 0 is <pad>, which is no bucket's
    assert client.rows_R.max() < w2.ROWS
