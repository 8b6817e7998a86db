"""IMDB: 50,000 film reviews, positive or negative (Maas et al., ACL 2011), dealt out in equal shares (RR-LDP paper,
section 4)."""

from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import Field

from fedtext.corpora.base import CorpusConfig, find
from fedtext.corpora.files import read_table
from fedtext.corpora.shares import deal
from fedtext.corpora.types import RawCorpus, Split
from fedtext.errors import UserError
from fedtext.text.representation import TextField, Words

CLASSES = 2  # 0 negative, 1 positive


class IMDBCorpus(CorpusConfig):
    """Read from imdb.parquet (columns split, label, text), in the official split of 25,000 reviews to train on and
    25,000 to test. Each client has an equal share of both, so that all clients' test texts together are the official
    test split, each review once.

    Reviews are raw: with ``text: {words: {}}`` words keep capitals and punctuation.
    """

    name: Literal["imdb"] = "imdb"
    clients: int = Field(100, ge=1, description="how many share the reviews (RR-LDP paper: 10, 50, 100, 250)")
    text: TextField = Field(
        Words(letters=True), description="what stands for a text: its words, or buckets they are hashed to"
    )
    max_length: int | None = Field(
        None, ge=1, description="words kept of each text, from its beginning; null: all of them"
    )

    def read(self, data: Path | None, seed: int) -> RawCorpus:
        path = find("imdb", "imdb", "imdb.parquet", data, "")
        table = read_table(path, {"split": "string", "label": "int64", "text": "string"})
        labels_N = table["label"].to_numpy()
        if not np.isin(labels_N, range(CLASSES)).all():
            raise UserError(f"{path} has a label that is not 0 or 1: fetch it again")
        sides_N, texts = np.array(table["split"].to_pylist()), table["text"].to_pylist()
        # A tag has no blank before it: it would make one word of two.
        whole = Split([text.replace("<br />", " ") for text in texts], labels_N)
        train, test = (whole.take(np.flatnonzero(sides_N == side)) for side in ("train", "test"))
        return RawCorpus(self.name, CLASSES, deal(train, test, self.clients, seed))
