"""No word of a client's texts is where the server's process can reach it, but in a vocabulary that all share.

For every method, mechanism, audit and attack of adversaries that can be combined. Where a word has to be is named.
"""

import gc
import types
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from fedtext.adversaries import ATTACKS
from fedtext.audits import AUDITS
from fedtext.config.compatibility import problems
from fedtext.corpora.prepare import prepare
from fedtext.corpora.types import Corpus
from fedtext.mechanisms import MECHANISMS
from fedtext.methods import METHODS
from fedtext.server.start import start
from fedtext.state.checkpoint import Checkpoints
from fedtext.testing.runs import Recording
from fedtext.testing.tiny import TRAINING
from tests import tiny
from tests.loops import nonempty

CANARY = "zqcanary"
VECTOR = np.array([0.101, -0.202, 0.303, -0.404, 0.505], np.float32)  # of each canary in a file of word vectors
ONE = TRAINING | {"rounds": 1}
CLIENTS = 3
UPLINKS: dict[str, list[Any]] = {
    "plain": [],
    "clip": [{"clip": {"norm": 1.0}}],
    "noise": [{"clip": {"norm": 1.0}}, {"gaussian": {"sigma": 0.1}}],
    "project": [{"project": {"d1": 1, "d2": 3}}],
    "quantize": [{"quantize": {"q": 0.01}}],
    "bits": [{"quantize": {"q": 0.01}}, {"randomized_response": {"epsilon": 1.0}}],
}
CHECKED: dict[str, Any] = {
    "word_relations": {"words": ["thing"], "top": 2},
    "gradient_inversion": {"steps": 2, "swaps": 2, "restarts": 1},
    "span_inversion": {"budget": 100},
    "embedding_rows": {},
    "label_leakage": {},
    "membership": {"attack": {"rmia": {"shadows": 2}}},
    "attribute_inference": {"words": ["good"], "shadows": 8},
}
# What the server holds by design: the words of a vocabulary that all clients share, which it has counted.
SHARED = "Corpus.vocabulary"
TRANSFORMER = {"name": "transformer", "embedding": {"dim": 8}, "layers": 1, "heads": 2, "intermediate": 8}
# What three audits are asked to show: texts and words of one client.
SHOWN = {f"RoundRecord.files[{file!r}]" for file in ("gradient_inversion.md", "span_inversion.md", "word_relations.md")}


def asked(method: str, uplink: str = "plain", audits: tuple[Any, ...] = (), attack: str = "") -> dict[str, Any]:
    """The sections of an experiment with these parts."""
    changes: dict[str, Any] = {"evaluation": {"personalize": None}, "training": ONE, "method": method}
    if method == "fedsgd":
        changes["training"] = ONE | {"optimizer": {"lr": 0.1, "momentum": 0}, "batch_size": {"steps": 1}}
    if UPLINKS[uplink]:
        changes["uplink"] = UPLINKS[uplink]
    if audits:
        changes["audits"] = list(audits)
    if any("span_inversion" in audit for audit in audits):
        changes["model"] = TRANSFORMER
    if attack:
        words = {"words": ["thing"]} if attack == "backdoor" else {}
        changes["adversaries"] = {"fraction": 0.4, "attack": {"name": attack} | words}
    return changes


def fits(**changes: Any) -> bool:
    """Whether an experiment with these parts is not refused."""
    try:
        return not list(problems(tiny.experiment(**changes)))
    except ValidationError:
        return False


def all_audits(method: str, uplink: str) -> tuple[Any, ...]:
    """The audits that can be combined with a method and an uplink. They observe the same update side by side."""
    each = [{name: keys} for name, keys in CHECKED.items() if name != "span_inversion"]
    return tuple(audit for audit in each if fits(**asked(method, uplink, (audit,))))


SPANS = ({"span_inversion": CHECKED["span_inversion"]},)  # of another model than the others


def case(method: str, uplink: str, audits: tuple[Any, ...], attack: str = "") -> Any:
    """A combination. Those of FedAvg, and each method without mechanisms and attacks, are tested always."""
    parts = [method, uplink, *(["audits"] if audits else []), *([attack] if attack else [])]
    always = method == "fedavg" or (uplink == "plain" and not attack)
    return pytest.param(
        asked(method, uplink, audits, attack), id="-".join(parts), marks=() if always else pytest.mark.slow
    )


# With audits a run sends and keeps what it does without them, and more.
CASES = [
    case(*parts)
    for parts in (
        *((m, u, ()) for m in METHODS for u in UPLINKS if u == "plain" or not all_audits(m, u)),
        *(c for m in METHODS for u in UPLINKS for c in [(m, u, all_audits(m, u))] if c[2]),
        *((m, u, SPANS) for m in METHODS for u in UPLINKS),
        *((m, "plain", (), a) for m in METHODS for a in ATTACKS),
        *(("fedavg", u, all_audits("fedavg", u), a) for u in UPLINKS for a in ATTACKS),
    )
    if parts[0] != "pooled" and fits(**asked(*parts))  # pooled has all texts in one place
]


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
        elif isinstance(found, np.ndarray | torch.Tensor):
            content = found.tobytes() if isinstance(found, np.ndarray) else found.detach().numpy().tobytes()
            if CANARY.encode() in content or VECTOR.tobytes() in content:
                yield place
        elif isinstance(found, dict):
            left += [(part, f"{place}[{key!r:.40}]") for key, value in found.items() for part in (key, value)]
        elif hasattr(found, "__dict__"):
            left += [(value, f"{type(found).__name__}.{name}") for name, value in vars(found).items()]
        else:
            left += [(part, place) for part in gc.get_referents(found)]


def places(changes: dict[str, Any], folder: Path) -> set[str]:
    """Run an experiment, and return where words are among all that its server has received, holds and has saved."""
    file = corpus_file(folder)
    texts = {"name": "table", "path": str(file), "client": "client", "split": "split", "max_length": 9}
    made = tiny.experiment(corpus=texts | changes.pop("corpus", {}), **changes)
    corpus = prepare(made.corpus, made.model.embedding, made.seed, None, made.own_vocabularies)
    header = corpus.header(made.own_vocabularies)
    assert sum(CANARY in word for word in corpus.vocabulary) == CLIENTS, "or there is nothing to find"
    federation = start(made, header, partial(_clients, made, corpus), folder / "run", len(corpus.clients))
    replies: list[Any] = []
    records = []
    for record in federation.run():
        replies += federation.fleet.received
        records.append(record)
    assert replies
    assert not made.audits or any(record.files for record in records) or made.method.name == "local_only"
    kept = Checkpoints(folder / "run", federation.checkpoints.fingerprint).load()  # type: ignore[union-attr]
    assert kept
    written = [kept.flat, kept.moments, kept.selected, kept.history]
    held = [header, federation, replies, records, federation.ledger(len(records)), written]
    saved = [path for path in (folder / "run").rglob("*") if path.is_file()]
    held += [path.read_bytes() for path in saved if not path.name.startswith("records-")]  # these are kept.history
    return set(reached(held, {id(federation.fleet), id(corpus)}))


@pytest.mark.parametrize("changes", CASES)
def test_no_text_is_in_what_the_server_holds_receives_and_writes(changes: dict[str, Any], tmp_path: Path) -> None:
    own = tiny.experiment(**changes).own_vocabularies
    asked_for = SHOWN if changes.get("audits") else set()
    found = places(changes, tmp_path)
    assert found - asked_for == (set() if own else {SHARED})


def test_every_part_is_among_the_cases_that_are_always_tested() -> None:
    given = [one.values[0] for one in CASES if not one.marks]
    assert {one["method"] for one in given} == set(METHODS) - {"pooled"}
    assert {name for one in given for step in one.get("uplink", []) for name in step} == set(MECHANISMS)
    assert {name for one in given for audit in one.get("audits", []) for name in audit} == set(AUDITS) - {"exposure"}
    assert {one["adversaries"]["attack"]["name"] for one in given if "adversaries" in one} == set(ATTACKS)


@pytest.mark.parametrize("method", ["fedevocab", "local_only"])
def test_no_word_vector_of_own_vocabularies_is_where_the_server_can_look_its_word_up(
    method: str, tmp_path: Path
) -> None:
    words = [*(f"{CANARY}{client}" for client in "abc"), "good"]
    vectors = tmp_path / "vectors.txt"
    vectors.write_text("".join(f"{word} {' '.join(map(str, VECTOR))}\n" for word in words))
    embedding = {"dim": 5, "init": {"file": {"path": str(vectors)}}}
    changes = asked(method) | {"model": {"embedding": embedding, "hidden": 4, "head": {"hidden": 3}}}
    changes["corpus"] = {"own_vocabularies": True}
    assert places(changes, tmp_path) == set()


def test_the_header_of_own_vocabularies_tells_no_words_apart() -> None:
    corpus = replace(tiny.corpus(), public_SV=np.ones((1, 40), bool), table_VD=np.ones((40, 5), np.float32))
    header = corpus.header(own_vocabularies=True)
    assert (header.public_SV, header.digits_V, header.table_VD) == (None, None, None)
    assert header.vocabulary[:3] == ["<pad>", "<unk>", "#2"]
    shared = corpus.header(own_vocabularies=False)
    assert shared.vocabulary == corpus.vocabulary
    assert shared.table_VD is corpus.table_VD
    assert not any((one.clients or one.tests or one.report) for one in nonempty([header, shared]))


def _clients(made: Any, corpus: Corpus, **given: Any) -> Recording:
    return Recording(made, corpus, **given)


def test_the_search_finds_what_is_hidden_in_objects() -> None:
    class Holder:
        def __init__(self) -> None:
            self.hidden = {"a": [(b"xx" + CANARY.encode(),)]}

    assert list(reached([Holder()], set())) == ["Holder.hidden['a']"]
    assert list(reached([np.frombuffer(CANARY.encode(), np.uint8)], set())) == ["list"]
    assert list(reached([torch.from_numpy(np.stack([VECTOR * 2, VECTOR]))], set())) == ["list"]
    holder = Holder()
    assert list(reached([holder], {id(holder)})) == []
