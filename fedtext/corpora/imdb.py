"""IMDB: 50,000 film reviews, positive or negative (Maas et al., ACL 2011), dealt out in equal shares (RR-LDP paper,
section 4) or by classes."""

from pathlib import Path
from typing import Literal

from pydantic import Field

from fedtext.corpora.base import find
from fedtext.corpora.labelled import LabelledCorpus, file_sides
from fedtext.corpora.types import RawCorpus
from fedtext.text.representation import TextField, Words


class IMDBCorpus(LabelledCorpus):
    """IMDB: 50,000 film reviews, two classes (RR-LDP paper).

    Read from imdb.parquet (columns split, label, text), in the official split of 25,000 reviews to train on and
    25,000 to test. All clients' test texts together are the official test split, each review once.

    Reviews are raw: with ``text: {words: {}}`` words keep capitals and punctuation.
    """

    name: Literal["imdb"] = "imdb"
    labels = 2  # 0 negative, 1 positive
    clients: int = Field(100, ge=1, description="how many share the reviews (RR-LDP paper: 10, 50, 100, 250)")
    text: TextField = Field(
        Words(letters=True), description="what stands for a text: its words, or buckets they are hashed to"
    )
    max_length: int | None = Field(
        None, ge=1, description="words kept of each text, from its beginning; null: all of them"
    )

    def read(self, data: Path | None, seed: int) -> RawCorpus:
        path = find("imdb", "imdb", "imdb.parquet", data, "")
        # A tag has no blank before it: it would make one word of two.
        sides = file_sides(path, self.labels, lambda text: text.replace("<br />", " "))
        return self.dealt(sides["train"], sides["test"], seed)
