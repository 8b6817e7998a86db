"""FDU-MTL: reviews of 16 domains, one client each (Liu, Qiu, Huang: Adversarial multi-task learning for text
classification, ACL 2017; KTEPS paper, Table 1)."""

from collections.abc import Iterable
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from pydantic import Field

from fedtext.corpora.base import CorpusConfig, find
from fedtext.corpora.files import nearest, read_table
from fedtext.corpora.hub import load_dataset
from fedtext.corpora.types import RawClient, RawCorpus, Split
from fedtext.errors import UserError
from fedtext.runtime.folders import located
from fedtext.runtime.paths import is_uri
from fedtext.text.tokens import Unlabeled

DOMAINS = (
    *("apparel", "baby", "books", "camera_photo", "dvd", "electronics", "health_personal_care", "imdb"),
    *("kitchen_housewares", "magazines", "MR", "music", "software", "sports_outdoors", "toys_games", "video"),
)
CLASSES = 2  # 0 negative, 1 positive
# The unlabeled texts of these domains are tokenized, like all labelled texts; those of the other domains are raw.
_SEGMENTED = {"imdb", "MR"}
_LABELLED, _UNLABELED = "fdu_mtl.parquet", "fdu_mtl_unlabeled.parquet"


class Row(NamedTuple):
    """A review."""

    domain: str
    split: str  # train, test or unlabel(ed)
    label: int
    text: str


class FDUCorpus(CorpusConfig):
    """FDU-MTL: reviews of 16 domains, two classes; each client is a domain (KTEPS paper).

    Read from fdu_mtl.parquet (columns domain, split, label, text), or from the original files if ``source`` is given.
    Clients are the domains in alphabetical order.
    """

    name: Literal["fdu"] = "fdu"
    files = (_LABELLED, _UNLABELED)
    label_names = ("negative", "positive")
    segmented = True
    source: str | None = Field(None, description="folder or URL of the original *.task.train/test/unlabel files")
    clients: tuple[str, ...] | None = Field(None, min_length=1, description="names of the domains; null: all 16")

    def read(self, data: Path | None, seed: int) -> RawCorpus:
        if self.source is None:
            rows = _read_parquet(_find(_LABELLED, data))
        else:
            rows = _read_original(self.source, ("train", "test"), self.clients)
        splits: dict[str, dict[str, list[Row]]] = {}
        for row in rows:
            splits.setdefault(row.domain, {"train": [], "test": []})[row.split].append(row)
        return RawCorpus(
            self.name,
            CLASSES,
            [RawClient(name, *(_split(name, side, splits[name][side]) for side in ("train", "test")))
             for name in self._domains(splits)],
        )  # fmt: skip

    @property
    def unlabeled(self) -> Literal["none", "local", "remote"]:
        return "remote" if self.source is not None and "://" in self.source else "local"

    def read_unlabeled(self, data: Path | None, seed: int) -> list[Unlabeled]:
        """Read the unlabeled reviews of the clients' domains."""
        if self.source is None:
            rows = _read_parquet(_find(_UNLABELED, data), labelled=False)
        else:
            rows = _read_original(self.source, ("unlabel",), self.clients)
        rows = list(rows)
        taken = set(self._domains({row.domain for row in rows}))
        return [Unlabeled(row.text, row.domain not in _SEGMENTED) for row in rows if row.domain in taken]

    def _domains(self, present: Iterable[str]) -> list[str]:
        """Return the domains that are clients, in alphabetical order. Raises UserError for an unknown one."""
        known = sorted(present, key=str.casefold)
        for name in self.clients or ():
            if name not in known:
                raise UserError(f"corpus.clients: fdu has no domain {name!r}{nearest(name, known)}")
        return [name for name in known if self.clients is None or name in self.clients]


def _split(domain: str, side: str, rows: list[Row]) -> Split:
    if not rows:
        raise UserError(
            f"fdu's domain {domain!r} has no {side} texts in the files read: complete or leave out the domain"
        )
    return Split([row.text for row in rows], np.array([row.label for row in rows], np.int64))


def _find(file: str, data: Path | None) -> Path:
    return find("fdu", "fdu_mtl", file, data, ", or the original files with corpus.source")


def _read_parquet(path: Path, labelled: bool = True) -> Iterable[Row]:
    columns = {"domain": "string", "split": "string", **({"label": "int64"} if labelled else {}), "text": "string"}
    table = read_table(path, columns, nullable=columns).to_pydict()
    labels = table["label"] if labelled else [0] * len(table["text"])
    rows = zip(table["domain"], table["split"], labels, table["text"], strict=True)
    for number, (domain, split, label, text) in enumerate(rows, start=1):
        if label not in range(CLASSES) or domain is None or text is None:
            raise UserError(f"{path}, row {number}: label {label!r} or a missing domain or text: labels are 0 and 1")
        if not labelled or split in ("train", "test"):
            yield Row(domain, split, label, text)


def _read_original(source: str, sides: tuple[str, ...], clients: tuple[str, ...] | None) -> Iterable[Row]:
    """Read the original files ``<domain>.task.<side>``, one text per line, from a folder or URL with ``datasets``."""
    url = "://" in source and not is_uri(source)  # which ``datasets`` downloads
    folder = None if url else located(source, [], "corpus.source")
    if not url and (folder is None or not folder.is_dir()):
        raise UserError(f"corpus.source: no folder {source}: give the one that holds the *.task.train files, or a URL")
    base = source.rstrip("/") if folder is None else str(folder.resolve())
    domains = DOMAINS if folder is None else _domains_in(Path(base), sides)
    if clients and set(clients) <= set(domains):  # download only these; an unknown name is reported later
        domains = [domain for domain in domains if domain in clients]
    names = [(domain, side) for domain in domains for side in sides]
    files = [f"{base}/{domain}.task.{side}" for domain, side in names]
    for (domain, side), file, lines in zip(names, files, _load_lines(files, source), strict=True):
        for number, line in enumerate(lines, start=1):
            if line:
                where = f"{file}, line {number}"
                yield _parse(repair(line, where), domain, side, where)


def _domains_in(folder: Path, sides: tuple[str, ...]) -> list[str]:
    found = {path.name.split(".task.")[0] for side in sides for path in folder.glob(f"*.task.{side}")}
    if not found:
        raise UserError(f"corpus.source: no file named <domain>.task.{sides[0]} in {folder}: give another folder")
    for domain in sorted(found):
        for side in sides:
            if not (folder / f"{domain}.task.{side}").is_file():
                raise UserError(f"corpus.source: {domain}.task.{side} is missing in {folder}: add it")
    return sorted(found, key=str.casefold)


def _load_lines(files: list[str], source: str) -> list[list[str]]:
    """Return the lines of each file, decoded as Latin-1: each character is one byte (see ``repair``)."""
    names = {f"part{i}": file for i, file in enumerate(files)}
    loaded = load_dataset(
        "corpus.source", f"the files of {source}", "correct the address", "text", data_files=names, encoding="latin-1"
    )
    return [loaded[name]["text"] for name in names]


def repair(line: str, where: str) -> str:
    """Decode a line as UTF-8, or as Windows-1252 if it is not UTF-8 (some lines of MR and dvd).

    Args:
        line: The line, decoded as Latin-1.
        where: The file and line, for the message.

    Raises:
        UserError: The line is in neither encoding.
    """
    raw = line.encode("latin-1")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        try:
            return raw.decode("cp1252")
        except UnicodeDecodeError as error:
            raise UserError(
                f"{where}, byte {error.start + 1}: 0x{raw[error.start]:02x} is neither UTF-8 nor Windows-1252: repair "
                "or drop the line"
            ) from error


def _parse(line: str, domain: str, side: str, where: str) -> Row:
    label, tab, text = line.partition("\t")
    if side == "unlabel":  # some files contain a label column, which is ignored
        return Row(domain, side, 0, text if tab else line)
    if label.strip() not in ("0", "1"):
        raise UserError(f"{where}: {label[:20]!r} is not a label: each line must be 0 or 1, a tab, and the text")
    return Row(domain, side, int(label), text)
