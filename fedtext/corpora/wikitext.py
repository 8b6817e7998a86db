"""WikiText-2: articles of Wikipedia as tokens (Merity et al. 2016)."""

from pathlib import Path
from typing import Literal

from fedtext.corpora.hub import from_hub
from fedtext.corpora.language import LanguageCorpus, Side, find_lines
from fedtext.corpora.types import RawCorpus

TABLE, FILE = "wikitext2.parquet", "wiki.{}.tokens"
HUB = ("Salesforce/wikitext", "wikitext-2-v1")
_HUB_SIDES: dict[Side, str] = {"train": "train", "valid": "validation", "test": "test"}


class WikiText2Corpus(LanguageCorpus):
    """WikiText-2: paragraphs of Wikipedia for language models (FedAtt paper).

    Read from wikitext2.parquet (columns split, text), or from wiki.train.tokens, wiki.valid.tokens and
    wiki.test.tokens, in a folder ``wikitext2`` or ``wikitext-2`` or directly in the data folder, else from the hub.

    A line is a paragraph of up to some hundred words: with ``sentences: lines`` raise ``max_length``. Headings,
    `` = Title = ``, are lines like all others, as in the literature's counts.
    """

    name: Literal["wikitext2"] = "wikitext2"
    files = (TABLE, FILE.format("*"))

    def read(self, data: Path | None, seed: int) -> RawCorpus:
        lines = find_lines(self, ("wikitext2", "wikitext-2"), TABLE, FILE, data)
        if lines is None:
            loaded = from_hub("wikitext2", f"{TABLE} and no {FILE.format('train')}", data, *HUB)
            lines = {side: list(loaded[_HUB_SIDES[side]]["text"]) for side in self.sides}
        return self.dealt(lines, seed)
