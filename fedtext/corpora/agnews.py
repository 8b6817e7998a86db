"""AG News: short news of four classes, World, Sports, Business and Sci/Tech (Zhang et al., NIPS 2015; FedeVocab paper,
Table 1)."""

import html
import re
from collections.abc import Container
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field, field_validator

from fedtext.corpora.files import read_table
from fedtext.corpora.hub import check_hub_allowed
from fedtext.corpora.labelled import COLUMNS, LabelledCorpus, Sides, file_sides, find_table, hub_sides, parted
from fedtext.corpora.types import RawCorpus, Split
from fedtext.errors import UserError, option
from fedtext.schema import Strict
from fedtext.text.representation import TextField, Words

FILES = ("ag_news.parquet", "ag_news_subset.parquet")
HUB = "fancyzhx/ag_news"
# HTML escapes have lost their & and have a blank in front of them: Haiti #39;s. So have $ and quotation marks.
_APOSTROPHE = re.compile(r" #39;(?=(?:s|t|d|m|ll|re|ve)\b|\W|$)")
_ESCAPE = re.compile(r"(?:&|(?<!\w))(#\d{2,5}|quot|amp|lt|gt|hellip|nbsp);")


class Auxiliary(Strict):
    """Short texts with several numbers, for attacks (FedeVocab paper, appendix A.3).

    The numbers represent private information. The paper asks for three in a text. Its published code takes the shortest
    texts instead of a sample, of at most 30 words. Words are separated by blanks, and a number consists of digits
    alone: 49, not 7-6.

    Of the 18,905 train texts of ag_news_subset.parquet 25 have at most 30 words and three numbers or more, 145 two or
    more, and 964 one or more.
    """

    texts: int = Field(ge=1, description="how many texts: the shortest by characters; the first of equally short ones")
    numbers: int = Field(3, ge=0, description="least number of numbers in a text")
    words: int = Field(30, ge=1, description="largest number of words in a text")
    test: int | None = Field(None, ge=1, description="how many test texts, the first ones; null: all")

    def of(self, train: Split) -> Split:
        """Select these texts, in the order of the corpus.

        Raises:
            UserError: Fewer texts than asked for meet the conditions.
        """
        words_N = [text.split() for text in train.texts]
        fit = [
            i
            for i, words in enumerate(words_N)
            if len(words) <= self.words and sum(word.isdecimal() for word in words) >= self.numbers
        ]
        if len(fit) < self.texts:
            raise UserError(
                f"corpus.auxiliary: {len(fit)} train texts have at least {self.numbers} numbers and at most "
                f"{self.words} words, and texts asks for {self.texts}: lower it or corpus.auxiliary.numbers, or give "
                f"the whole corpus as {FILES[0]}"
            )
        chosen = sorted(fit, key=lambda i: len(train.texts[i]))[: self.texts]
        return train.take(np.array(sorted(chosen), np.int64))


class AGNewsCorpus(LabelledCorpus):
    """AG News: news of four topics (FedeVocab paper).

    Read from ag_news.parquet, else ag_news_subset.parquet (columns split, label, text; also has_title and description
    if ``titles`` needs them), in a folder ``ag_news`` or directly in the data folder, else from fancyzhx/ag_news on the
    hub.

    A text is a title and a description. Some train texts of a file can lack the title; has_title is false for them.
    The column description then allows tests on descriptions alone, so that train and test texts are alike: FedNLP,
    which the FedeVocab paper follows, uses descriptions alone. A backslash marks the end of a line and becomes a blank;
    escapes such as `` #39;`` become the characters they encode.
    """

    name: Literal["agnews"] = "agnews"
    files = FILES
    labels = 4
    label_names = ("World", "Sports", "Business", "Sci/Tech")
    text: TextField = Field(
        Words(treebank=True), description="tokens of a text: its words, or buckets they are hashed to"
    )
    max_length: int | None = Field(128, ge=1, description="words kept of each text, from its beginning; null: all")
    titles: Literal["any", "always", "never"] = Field(
        "any",
        description="any: texts as they are in the file; always: only those with a title; never: descriptions alone, "
        "if the file has them",
    )
    auxiliary: Auxiliary | None = Field(
        None, description="train on this number of short texts with numbers, for attacks; null: on all texts"
    )

    @field_validator("auxiliary", mode="before")
    @classmethod
    def _so_many(cls, value: Any) -> Any:
        """``auxiliary: 128`` is ``auxiliary: {texts: 128}``."""
        return {"texts": value} if isinstance(value, int) else value

    def read(self, data: Path | None, seed: int) -> RawCorpus:
        path = find_table("ag_news", FILES, data)
        if path is None:
            check_hub_allowed("agnews", " or ".join(FILES), data, HUB)
            if self.titles == "never":
                raise UserError(
                    f"corpus.titles: {HUB} on the hub does not separate titles from descriptions: give the folder of "
                    f"{FILES[1]} with {option('data', 'FOLDER')}, or set it to always"
                )
            sides = hub_sides("agnews", HUB, self.labels, " or ".join(FILES), data, ("train", "test"), clean=repaired)
        else:
            sides = file_sides(path, self.labels, repaired) if self.titles == "any" else self._chosen(path)
        train, test = sides["train"], sides["test"]
        if self.auxiliary is not None:
            train, test = self.auxiliary.of(train), test.take(np.arange(len(test))[: self.auxiliary.test])
        return self.dealt(train, test, seed)

    def tokens_of(self, text: str, known: Container[str]) -> str:
        return repaired(text)

    def _chosen(self, path: Path) -> Sides:
        """Read the texts that have a title, or the descriptions without titles."""
        columns, never = COLUMNS | {"has_title": "bool"}, self.titles == "never"
        table = read_table(path, columns | ({"description": "string"} if never else {}), nullable=["description"])
        titled_N, texts = table["has_title"].to_numpy(), table["text"].to_pylist()
        kept_N = titled_N
        if never:
            alone = table["description"].to_pylist()
            kept_N = ~titled_N | np.array([text is not None for text in alone])
            texts = [own if titled else text for text, own, titled in zip(texts, alone, titled_N, strict=True)]
        kept = np.flatnonzero(kept_N)
        sides_N, labels_N = np.array(table["split"].to_pylist())[kept], table["label"].to_numpy()[kept]
        return parted(str(path), sides_N, [texts[i] for i in kept], labels_N, self.labels, repaired)


def repaired(text: str) -> str:
    """Replace backslashes and HTML escapes: `` #36;10 of Haiti #39;s\\isle`` becomes `` $10 of Haiti's isle``."""
    text = _APOSTROPHE.sub("'", text.replace("\\$", "$").replace("\\", " "))
    return _ESCAPE.sub(lambda found: html.unescape(f"&{found[1]};"), text)
