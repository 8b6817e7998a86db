"""Conformance checks of corpora and audits."""

import math
from pathlib import Path
from typing import Any

import numpy as np

from fedtext.audits import Audit
from fedtext.client.local_fleet import LocalFleet
from fedtext.config.experiment import Experiment
from fedtext.corpora.base import CorpusConfig
from fedtext.corpora.prepare import prepare
from fedtext.corpora.types import Corpus, RawCorpus, Split
from fedtext.errors import ClientError, UserError
from fedtext.models.base import Embedding
from fedtext.records import RoundRecord
from fedtext.testing.parts import check_declared, no_global_draws
from fedtext.testing.runs import check_run, corpus_for, expect, experiment_with, federated


def check_corpus(corpus: CorpusConfig, data: Path | str | None = None, seed: int = 0) -> None:
    """Check the properties of a corpus.

    It returns the same texts each time, its labels are valid, its clients have different names, and it can be encoded.

    Args:
        corpus: The corpus, with its keys.
        data: The folder of its files.
        seed: Seed of its draws.

    Raises:
        AssertionError: A property does not hold. The message is a sentence about the first one.
    """
    check_declared(corpus, CorpusConfig)
    data = None if data is None else Path(data)
    with no_global_draws(corpus.name):
        raw = corpus.read(data, seed)
    expect(_content(corpus.read(data, seed)) == _content(raw), f"{corpus.name} returns other texts the second time")
    expect(raw.name, f"{corpus.name} returns a corpus without a name")
    names = [client.name for client in raw.clients]
    expect(names and all(names) and len(set(names)) == len(names), f"clients of {corpus.name} need different names")
    expect((raw.classes == 0) == corpus.language, f"{corpus.name}: language corpora, and no others, have 0 classes")
    expect(len(raw.labels) in (0, raw.classes), f"{corpus.name} has {len(raw.labels)} labels of {raw.classes} classes")
    for client in raw.clients:
        expect(len(client.train), f"client {client.name} of {corpus.name} has no train text")
        for split in (client.train, client.validation, client.test):
            _check_split(split, raw, f"client {client.name} of {corpus.name}")
    try:
        made = prepare(corpus, Embedding(dim=4), seed, data)
    except UserError as error:
        raise AssertionError(str(error)) from error
    again = prepare(corpus, Embedding(dim=4), seed, data)
    expect(made.content == again.content, f"the encoding of {corpus.name} differs the second time")


def _content(raw: RawCorpus) -> Any:
    return [
        (
            client.name,
            [(s.identities(), np.asarray(s.labels).tolist()) for s in (client.train, client.validation, client.test)],
        )
        for client in raw.clients
    ]


def _check_split(split: Split, raw: RawCorpus, whose: str) -> None:
    expect(
        len(split.texts) == len(split.labels), f"{whose} has {len(split.texts)} texts and {len(split.labels)} labels"
    )
    expect(all(isinstance(text, str) for text in split.texts), f"a text of {whose} is not a str")
    kind = getattr(split.labels, "dtype", type(split.labels).__name__)
    expect(kind == np.int64, f"labels of {whose} are {kind}, and must be int64")
    if raw.classes and len(split):
        inside = split.labels.min() >= 0 and split.labels.max() < raw.classes
        expect(inside, f"a label of {whose} is not in 0 to {raw.classes - 1}")
    expect(
        (split.features is not None) == bool(raw.features) or not len(split), f"{whose} lacks features, or their names"
    )


def check_audit(audit: Audit, **sections: Any) -> None:
    """Check the properties of an audit.

    A run with it ends with the same bits as without it, it reports metrics that it declares, and it gives the same
    metrics each time.

    Args:
        audit: The audit, with its keys.
        sections: Sections of the experiment to replace, such as ``method="kteps"``.

    Raises:
        AssertionError: A property does not hold. The message is a sentence about the first one.
    """
    check_declared(audit, Audit)
    expect(audit.metrics, f"{audit.name} declares no metrics")
    plain, audited = experiment_with({}, sections), experiment_with({"audits": (audit,)}, sections)
    corpus = corpus_for(plain)
    without, _ = _run(plain, corpus)
    with no_global_draws(audit.name):
        try:
            bits, records = _run(audited, corpus)
        except (ClientError, UserError) as error:
            raise AssertionError(f"a run with {audit.name} fails: {error}") from error
    expect(bits == without, f"a run with {audit.name} ends with other bits: it changes its arguments or global state")
    known = {name for record in _run(plain, corpus)[1] for name in _reported(record)}
    found = {name for record in records for name in _reported(record)} - known
    expect(found, f"{audit.name} reports no metrics of the clients of this check")
    undeclared = sorted(name for name in found if not audit.declares(name))
    expect(not undeclared, f"{audit.name} does not declare {', '.join(undeclared)}")
    values = [value for record in records for metrics in record.clients.values() for value in metrics.values()]
    expect(all(map(math.isfinite, values)), f"a metric of {audit.name} is not finite")
    again = [record.clients for record in _run(audited, corpus)[1]]
    expect(again == [record.clients for record in records], f"{audit.name} gives other metrics the second time")
    check_run(audited, corpus)


def _reported(record: RoundRecord) -> set[str]:
    return {name for metrics in record.clients.values() for name in metrics}


def _run(experiment: Experiment, corpus: Corpus) -> tuple[Any, list[RoundRecord]]:
    federation = federated(experiment, corpus, LocalFleet)
    records = list(federation.run())
    return (federation.flat.tobytes(), federation.fleet.private_states()), records
