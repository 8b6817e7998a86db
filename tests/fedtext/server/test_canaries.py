"""No word of a client's texts is where the server's process can reach it, but in a vocabulary that all share."""

import gc
import types
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedtext.corpora.prepare import prepare
from fedtext.corpora.types import Corpus
from fedtext.methods import METHODS
from fedtext.server.start import start
from fedtext.state.checkpoint import Checkpoints
from fedtext.testing.runs import Recording
from fedtext.testing.tiny import TRAINING
from tests import tiny

CANARY = "zqcanary"
ONE = TRAINING | {"rounds": 1}
CLIENTS = 3
UPLINKS: dict[str, list[Any]] = {
    "plain": [],
    "noise": [{"clip": {"norm": 1.0}}, {"gaussian": {"sigma": 0.1}}],
    "bits": [{"quantize": {"q": 0.01}}, {"randomized_response": {"epsilon": 1.0}}],
}
# What the server holds by design: the words of a vocabulary that all clients share, which it has counted.
SHARED = "Corpus.vocabulary"


def corpus_file(folder: Path) -> Path:
    """Texts with a word of each client's own in every one, and with a number for methods that withhold some."""
    rows = [
        f"{CANARY}{'abc'[client]} {('good', 'bad')[number % 2]} thing 4711,{number % 2},shop{client},{split}"
        for client in range(CLIENTS)
        for split in ("train", "test")
        for number in range(6)
    ]
    file = folder / "texts.csv"
    file.write_text("\n".join(["text,label,client,split", *rows]) + "\n")
    return file


def reached(root: Any, without: set[int]) -> Iterator[str]:
    """Yield the places of canaries among the objects that can be reached from one, except for those by id."""
    seen, left = {*without}, [(root, type(root).__name__)]
    while left:
        found, place = left.pop()
        if id(found) in seen or isinstance(found, type | types.ModuleType | types.FunctionType | types.FrameType):
            continue
        seen.add(id(found))
        if isinstance(found, str | bytes | bytearray):
            text = found if isinstance(found, str) else bytes(found).decode("latin-1")
            if CANARY in text.lower():
                yield place
        elif isinstance(found, np.ndarray):
            if CANARY.encode() in found.tobytes():
                yield place
        elif isinstance(found, dict):
            left += [(part, f"{place}[{key!r:.40}]") for key, value in found.items() for part in (key, value)]
        elif hasattr(found, "__dict__"):
            left += [(value, f"{type(found).__name__}.{name}") for name, value in vars(found).items()]
        else:
            left += [(part, place) for part in gc.get_referents(found)]


@pytest.mark.parametrize(
    ("name", "uplink"),
    [
        (name, uplink)
        for name in METHODS
        for uplink, mechanisms in UPLINKS.items()
        if name != "pooled" and not (name == "asp_mtl" and mechanisms)  # texts in one place; takes no mechanism
    ],
)
def test_no_text_is_in_what_the_server_holds_receives_and_writes(name: str, uplink: str, tmp_path: Path) -> None:
    changes: dict[str, Any] = {"evaluation": {"personalize": None}, "training": ONE}
    if UPLINKS[uplink]:
        changes["uplink"] = UPLINKS[uplink]
    if name == "fedsgd":
        changes["training"] = ONE | {"optimizer": {"lr": 0.1, "momentum": 0}, "batch_size": {"steps": 1}}
    texts = {"name": "table", "path": str(corpus_file(tmp_path)), "client": "client", "split": "split", "max_length": 9}
    made = tiny.experiment(name, corpus=texts, **changes)
    corpus = prepare(made.corpus, made.model.embedding, made.seed, None, made.own_vocabularies)
    header = corpus.header(made.own_vocabularies)
    assert sum(CANARY in word for word in corpus.vocabulary) == CLIENTS, "or there is nothing to find"
    federation = start(made, header, partial(_clients, made, corpus), tmp_path / "run", len(corpus.clients))
    replies: list[Any] = []
    records = []
    for record in federation.run():
        replies += federation.fleet.received
        records.append(record)
    assert replies
    kept = Checkpoints(tmp_path / "run", federation.checkpoints.fingerprint).load()  # type: ignore[union-attr]
    written = [kept.flat, kept.moments, kept.selected, kept.history] if kept else []
    held = [header, federation, replies, records, federation.ledger(len(records)), written]
    places = set(reached(held, {id(federation.fleet), id(corpus)}))
    allowed = set() if made.own_vocabularies else {SHARED}
    assert places == allowed


def _clients(made: Any, corpus: Corpus, **given: Any) -> Recording:
    return Recording(made, corpus, **given)


def test_the_search_finds_what_is_hidden_in_objects() -> None:
    class Holder:
        def __init__(self) -> None:
            self.hidden = {"a": [(b"xx" + CANARY.encode(),)]}

    assert list(reached([Holder()], set())) == ["Holder.hidden['a']"]
    assert list(reached([np.frombuffer(CANARY.encode(), np.uint8)], set())) == ["list"]
    holder = Holder()
    assert list(reached([holder], {id(holder)})) == []
