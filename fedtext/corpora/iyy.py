"""IYY: reviews from IMDB, Yelp 2013 and Yelp 2014, one client each (KTEPS paper, section 5.1 and Table 1).

The texts are those of Tang, Qin, Liu: Document modeling with gated recurrent neural network for sentiment
classification, EMNLP 2015. Their archive (emnlp-2015-data) has three files of each source: <source>-train.txt.ss, -dev
and -test.
"""

from collections.abc import Container, Iterator
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from pydantic import Field

from fedtext.corpora.base import CorpusConfig, find
from fedtext.corpora.files import text_lines
from fedtext.corpora.types import RawClient, RawCorpus, Split
from fedtext.errors import UserError
from fedtext.seeding import generator

CLASSES = 5
MARK = "<sssss>"  # separates two sentences


class Source(NamedTuple):
    """A source of reviews, which is a client."""

    client: str
    files: str  # prefix of the files' names
    ratings: int  # the highest rating; the lowest is 1


SOURCES = (Source("Imdb", "imdb", 10), Source("Yelp13", "yelp-2013", 5), Source("Yelp14", "yelp-2014", 5))


class IYYCorpus(CorpusConfig):
    """IYY: reviews of IMDB, Yelp 2013 and Yelp 2014, five classes; each client is one of them (KTEPS paper).

    Read from the nine files (six without validation), in a folder ``iyy`` or directly in the data folder. Each line has
    a user, a product, a rating and a text, separated by two tabs; users and products are not used. Ratings become
    classes 0 to 4; pairs of IMDB's ten ratings are merged.

    The paper splits texts at blanks alone, so the separators of sentences remain as words. It does not use the dev
    files; here they serve as validation texts, so that train stays complete.
    """

    name: Literal["iyy"] = "iyy"
    files = ("*-train.txt.ss", "*-dev.txt.ss", "*-test.txt.ss")
    label_names = ("1", "2", "3", "4", "5")
    segmented = True
    max_length: int | None = Field(400, ge=1, description="words kept of each text, from its beginning; null: all")
    validation: float = Field(0.0, ge=0.0, le=1.0, description="share of each dev file used for selection")
    marks: bool = Field(True, description=f"keep {MARK} between sentences, as a word; false: drop it")
    brings_validation = True

    def read(self, data: Path | None, seed: int) -> RawCorpus:
        sides = ("train", "test", "dev") if self.validation else ("train", "test")
        files = {(source, side): _find(f"{source.files}-{side}.txt.ss", data) for source in SOURCES for side in sides}
        clients = []
        for number, source in enumerate(SOURCES):
            splits = [self._split(files[source, side], source) for side in sides]
            if self.validation:
                splits[2] = splits[2].sample(self.validation, generator(seed, "validation", client=number))
            clients.append(RawClient(source.client, *splits))
        return RawCorpus(self.name, CLASSES, clients)

    def _split(self, file: Path, source: Source) -> Split:
        pairs = list(_lines(file, source))
        if not pairs:
            raise UserError(f"corpus iyy: {file} holds no texts: fetch it again")
        return Split([self._marked(text) for _, text in pairs], np.array([label for label, _ in pairs], np.int64))

    def tokens_of(self, text: str, known: Container[str]) -> str:
        return super().tokens_of(self._marked(text), known)

    def _marked(self, text: str) -> str:
        return text if self.marks else text.replace(MARK, " ")


def _find(name: str, data: Path | None) -> Path:
    origin = " (the files are those of Tang, Qin and Liu's EMNLP 2015 paper, emnlp-2015-data)"
    return find("iyy", "iyy", name, data, origin)


def _lines(file: Path, source: Source) -> Iterator[tuple[int, str]]:
    """Return the (class, text) of each line. Raises UserError for a line of another form."""
    merged = source.ratings // CLASSES
    for number, line in enumerate(text_lines(file), start=1):
        if not line.strip():
            continue
        columns = line.rstrip("\r\n").split("\t\t", 3)
        if len(columns) != 4:
            raise UserError(
                f"{file}, line {number}: {len(columns)} columns, but a line is user, product, rating and text, "
                "separated by two tabs: repair or drop the line"
            )
        rating = columns[2].strip()
        if not rating.isdecimal() or not 1 <= int(rating) <= source.ratings:
            raise UserError(
                f"{file}, line {number}: {rating[:20]!r} is not a rating from 1 to {source.ratings}: repair or drop "
                "the line"
            )
        yield (int(rating) - 1) // merged, columns[3]
