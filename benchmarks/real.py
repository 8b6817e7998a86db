"""Real texts for W2 and W3 of local_loop.py, from parquet files in the folder given with --data.

imdb/imdb.parquet                                    columns split, label (0 negative, 1 positive), text
wikitext2_valid_test/wikitext2_valid_test.parquet    column text, a line each; without this file
ptb/ptb.parquet                                      the same
"""

from collections import Counter
from itertools import chain
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet

from benchmarks import synthetic
from fedtext.corpora.types import ClientData, TokenSet
from fedtext.errors import UserError
from fedtext.text.hashing import buckets
from fedtext.text.tokens import split_words
from fedtext.text.vocabulary import WordIndex, build_vocabulary

END = "<eos>"  # after each line


def reviews(data: Path, clients: int, texts: int, count: int) -> list[ClientData]:
    """Return clients with IMDB's train reviews, assigned in turn; bucket b is row b + 1. Raises UserError."""
    path = _find(data, "imdb")
    table = _read(path, ["split", "label", "text"], [("split", "=", "train")])
    step = table.num_rows // (texts * clients)  # over the whole range, since the reviews are sorted by label
    if not step:
        raise UserError(f"{path} has {table.num_rows} reviews to train on, {texts * clients} are needed: replace it")
    chosen = table.take(list(range(0, step * texts * clients, step)))
    # A tag has no blank before it: without this it would join two words.
    rows = [[1 + found for found in buckets(text.replace("<br />", " "), count)] for text in chosen["text"].to_pylist()]
    labels_N = np.array(chosen["label"].to_pylist(), np.int64)
    made = []
    for client in range(clients):
        own = rows[client::clients]
        tokens_T, offsets = np.fromiter(chain.from_iterable(own), np.int32), np.cumsum([0, *map(len, own)])
        made.append(synthetic.holding(client, TokenSet(tokens_T, offsets, labels_N[client::clients])))
    return made


def lines(data: Path, vocabulary: int, size: int, tokens: int) -> np.ndarray:
    """Return a text as batches of word ids, batches x size x tokens. Raises UserError.

    All lines are concatenated and cut into ``size`` parts. A batch is the next piece of each part, and begins with the
    last target of the batch before. <pad> and <unk> are two of the vocabulary's ids.
    """
    path = _find(data, "wikitext2_valid_test", "ptb")
    words = [word for line in _read(path, ["text"])["text"].to_pylist() for word in [*split_words(line), END]]
    index = WordIndex(build_vocabulary([Counter(words)], vocabulary - 2))
    ids = np.array([index[word] for word in words], np.int64)
    batches = (len(ids) - 1) // (size * (tokens - 1))
    if not batches:
        raise UserError(f"{path} has {len(ids)} words, {size * (tokens - 1) + 1} are needed: replace it")
    pieces = np.lib.stride_tricks.sliding_window_view(ids, tokens)[:: tokens - 1][: size * batches]
    return np.ascontiguousarray(pieces.reshape(size, batches, tokens).swapaxes(0, 1))


def _find(data: Path, *names: str) -> Path:
    paths = [data / name / f"{name}.parquet" for name in names]
    for path in paths:
        if path.is_file():
            return path
    raise UserError(
        f"there is no {' or '.join(f'{path.parent.name}/{path.name}' for path in paths)} in {data}: give another "
        "folder with --data, or none to run on synthetic texts"
    )


def _read(path: Path, columns: list[str], only: list[tuple] | None = None) -> pyarrow.Table:
    try:
        return pyarrow.parquet.read_table(path, columns=columns, filters=only)
    except (OSError, pyarrow.ArrowException) as error:
        reason = str(error).partition("\n")[0]
        raise UserError(
            f"{path} cannot be read as parquet with columns {', '.join(columns)} ({reason}): replace it"
        ) from error
