"""20 Newsgroups: messages of 1993 to twenty groups (Lang 1995; FedeVocab paper, Table 1). The split is by date: test
messages are later than train messages."""

import re
from collections.abc import Callable, Container
from pathlib import Path
from typing import Literal

from pydantic import Field

from fedtext.corpora.hub import check_hub_allowed
from fedtext.corpora.labelled import LabelledCorpus, file_sides, find_table, hub_sides
from fedtext.corpora.types import RawCorpus
from fedtext.errors import UserError, option
from fedtext.text.representation import TextField, Words

FILE = "newsgroups20.parquet"
HUB = "SetFit/20_newsgroups"
_QUOTED = ("In article", "Quoted from", "|", ">")  # beginnings of the lines of a quotation
_HEADERS = re.compile(r"(?:[A-Z][\w-]*:.*\n(?:[ \t]+\S.*\n)*){2,}\n")  # two lines or more, and an empty one behind
_QUOTING = ("writes in", "writes:", "wrote:", "says:", "said:")  # phrases in the line before a quotation

# fmt: off
GROUPS = (
    "alt.atheism", "comp.graphics", "comp.os.ms-windows.misc", "comp.sys.ibm.pc.hardware",
    "comp.sys.mac.hardware", "comp.windows.x", "misc.forsale", "rec.autos",
    "rec.motorcycles", "rec.sport.baseball", "rec.sport.hockey", "sci.crypt",
    "sci.electronics", "sci.med", "sci.space", "soc.religion.christian",
    "talk.politics.guns", "talk.politics.mideast", "talk.politics.misc", "talk.religion.misc",
)
# fmt: on

Part = Literal["headers", "footers", "quotes"]


class Newsgroups20Corpus(LabelledCorpus):
    """20 Newsgroups: messages of 20 groups (FedeVocab paper).

    Read from newsgroups20.parquet (columns split, label, text; labels in alphabetical order of the groups), in a
    folder ``newsgroups20`` or directly in the data folder, else from SetFit/20_newsgroups on the hub.

    Messages are complete, with their headers, as in FedNLP, which the FedeVocab paper follows. On the hub all parts
    that ``strip`` can remove are missing, by the same rules, which are scikit-learn's. An author's address or signature
    reveals the group, so stripped texts are much harder to classify. In predictions a text is a message, and stripped,
    if it begins with two or more header lines (``From: ...``) and an empty one. For the BiLSTM the paper drops
    stopwords and words rarer than 5 (``text: {words: {treebank: true, stopwords: drop}}``).
    """

    name: Literal["newsgroups20"] = "newsgroups20"
    files = (FILE,)
    labels = 20
    label_names = GROUPS
    text: TextField = Field(
        Words(treebank=True), description="tokens of a text: its words, or buckets they are hashed to"
    )
    max_length: int | None = Field(256, ge=1, description="words kept of each text, from its beginning; null: all")
    strip: tuple[Part, ...] = Field(
        (), description="parts to remove from each message: headers, footers (signatures), quotes"
    )

    def read(self, data: Path | None, seed: int) -> RawCorpus:
        path = find_table("newsgroups20", [FILE], data)
        if path is not None:
            sides = file_sides(path, self.labels, self._stripped)
        elif set(self.strip) == set(STRIP):
            sides = hub_sides("newsgroups20", HUB, self.labels, FILE, data, ("train", "test"))
        else:
            check_hub_allowed("newsgroups20", FILE, data, HUB)
            raise UserError(
                f"corpus newsgroups20: there is no {FILE}, and the texts of {HUB} on the hub have neither headers, "
                f"footers nor quotes: give the file's folder with {option('data', 'FOLDER')} or $FEDTEXT_DATA, or set "
                f"corpus.strip to [{', '.join(STRIP)}]"
            )
        return self.dealt(sides["train"], sides["test"], seed)

    def tokens_of(self, text: str, known: Container[str]) -> str:
        return super().tokens_of(self._stripped(text) if _HEADERS.match(text) else text, known)

    def _stripped(self, text: str) -> str:
        for part, without in STRIP.items():
            if part in self.strip:
                text = without(text)
        return text


def _without_headers(text: str) -> str:
    return text.partition("\n\n")[2]


def _without_footer(text: str) -> str:
    """Remove everything after the last line that is empty or consists of dashes."""
    lines = text.strip().split("\n")
    last = max((number for number, line in enumerate(lines) if not line.strip().strip("-")), default=0)
    return "\n".join(lines[:last]) if last else text


def _without_quotes(text: str) -> str:
    lines = text.split("\n")
    return "\n".join(
        line for line in lines if not line.startswith(_QUOTED) and not any(sign in line for sign in _QUOTING)
    )


STRIP: dict[Part, Callable[[str], str]] = {
    "headers": _without_headers,
    "footers": _without_footer,
    "quotes": _without_quotes,
}
