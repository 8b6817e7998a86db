"""An experiment: what would fail in a sweep of it, before anything is started."""

import os
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fedtext.client.audit_runner import check_words
from fedtext.config import files
from fedtext.config.experiment import Experiment
from fedtext.config.settings import Settings
from fedtext.corpora.prepare import prepare
from fedtext.corpora.totals import totals
from fedtext.corpora.types import Corpus
from fedtext.errors import UserError
from fedtext.models.base import Embedding
from fedtext.models.inits import CheckpointInit, FileInit, Word2VecInit
from fedtext.runtime.folders import folders
from fedtext.runtime.remote import Remote
from fedtext.server.fit import check_classes
from fedtext.state import noise_key
from fedtext.state.copy import Copy
from fedtext.text import pretrained
from fedtext.text.embeddings import find_file
from sweeps.doctor.asked import Asked
from sweeps.doctor.finding import About, Finding
from sweeps.doctor.storage import folder
from sweeps.doctor.tracking import reachable
from sweeps.folder import RunFolder
from sweeps.names import places
from sweeps.places import STORAGE, home

Nodes = Sequence[Mapping[str, float]]
_about = About("experiment")


def foreseen(asked: Asked, data: Path | None, nodes: Nodes | None) -> Iterator[Finding]:
    """Yield what would fail, or be worse than it could be, in a sweep of an experiment.

    Args:
        asked: The experiment.
        data: The local folder given with --data, if any.
        nodes: The resources of the cluster's nodes; None: of this machine alone.
    """
    assert asked.experiment is not None
    try:
        content, made = files.load(asked.experiment, asked.overrides, more=asked.plugins)
        local, remote = places(made.storage)
    except UserError as error:
        yield from (_about.problem(line) for line in str(error).splitlines())
        yield from _apart(asked, data)
        return
    yield _about.ok(f"{asked.experiment}: {made.name}, method {made.method.name}, {made.training.rounds} rounds")
    yield from _settings(made, local, remote, made.name)
    if find_spec("ray") is None:
        yield _about.warning(
            "its sweep needs Ray, which is not installed", f"python -m fedtext {asked.experiment} runs one case"
        )
        yield from _alone(made, data)
    else:
        yield from _sweep(asked, content, made, data, nodes)


def _apart(asked: Asked, data: Path | None) -> Iterator[Finding]:
    """Yield what is found of the valid keys of an experiment that is refused for others."""
    assert asked.experiment is not None
    try:
        made, wrong = files.valid_settings(asked.experiment, asked.overrides, more=asked.plugins)
    except UserError:
        return  # it cannot be read at all, which has been said
    try:
        local, remote = places(made.storage)
    except UserError:
        local, remote, made = *places(STORAGE), made.model_copy(update={"storage": STORAGE})
    yield from _settings(made, local, remote, None if "name" in wrong else made.name)
    if not wrong & {"corpus", "model", "seed"}:
        yield from _alone(made, data)


def _settings(made: Settings, local: Path, remote: Remote | None, name: str | None) -> Iterator[Finding]:
    """Yield what is found of the folders, the store and the packages that the experiment names.

    Args:
        made: The experiment.
        local: The local folder of runs.
        remote: Where their copies are, if anywhere.
        name: The experiment's name; None: it has none that is valid.
    """
    if made.storage != STORAGE:
        yield _of_here(folder(local, "storage", "or choose another one with storage=FOLDER"))
    if remote:
        try:
            Copy(local, remote).check_writable()
            yield _about.ok(f"storage: {remote} can be written")
        except UserError as error:
            yield _about.problem(str(error))
    registered = bool(made.tracking.register_as)
    if made.tracking.uri or registered:
        named = made.tracking.experiment or name
        yield from map(_of_here, reachable(made.tracking.uri, named, registered))
    if made.privacy.noise == "secret" and find_spec("randomgen") is None:
        yield _about.problem(noise_key.INSTALL)


def _of_here(finding: Finding) -> Finding:
    return Finding(_about.section, finding.status, finding.message, finding.remedy)


def _alone(made: Settings, data: Path | None) -> Iterator[Finding]:
    """Yield what is found of the corpus and vectors of a run in one process."""
    try:
        yield _about.ok(_described(prepared(made, data)))
    except UserError as error:
        yield _about.problem(str(error))
    yield from vectors(made.model.embedding, made, data)


def _sweep(
    asked: Asked, content: files.Content, made: Experiment, data: Path | None, nodes: Nodes | None
) -> Iterator[Finding]:
    """Yield what is found of the cases, their corpora and vectors, and their places on the cluster."""
    from sweeps.job import key  # with Ray
    from tune_spaces.cases import cases as make_cases
    from tune_spaces.search import first_points

    try:
        cases = make_cases(content, made, str(asked.experiment), first_points(made))
    except UserError as error:
        yield _about.problem(str(error))
        return
    found: dict[str, Corpus] = {}
    for one in {key(case.experiment): case.experiment for case in cases}.values():
        try:
            corpus = found[key(one)] = prepared(one, data)
            check_classes("tune.metric", made.tune.metric, corpus)
        except UserError as error:
            yield _about.problem(str(error))
            continue
        yield _about.ok(_described(corpus))
        yield from vectors(one.model.embedding, one, data)
    if len(found) < len({key(case.experiment) for case in cases}):
        return
    try:
        for case in cases:
            check_words(case.experiment, found[key(case.experiment)].vocabulary)
        yield from _places(made, cases, found, nodes if nodes is not None else [_this_machine(asked)])
    except UserError as error:
        yield _about.problem(str(error))


def _places(made: Experiment, cases: list[Any], corpora: dict[str, Corpus], nodes: Nodes) -> Iterator[Finding]:
    """Yield how the cases are placed. Raises UserError if they cannot be, or the disk is too small for their state."""
    from dashboards import store
    from sweeps.job import key
    from sweeps.prepare import arranged, state_bytes

    run = RunFolder.new(places(made.storage)[0], None, made.name, "sweep")
    run.check_space(sum(state_bytes(case.experiment, corpora[key(case.experiment)]) for case in cases))
    job = arranged(
        True, made, cases, corpora, [dict(node) for node in nodes], store.resolve(made.tracking.uri, home()), run
    )
    first = job.cases[-1]
    yield _about.ok(f"{len(cases)} trials; {job.plans[first.id].sentence(job.nodes)}")
    if made.training.engine == "auto":
        yield _about.ok(f"training.engine: {first.experiment.training.engine}")


def _this_machine(asked: Asked) -> dict[str, float]:
    """Return the resources that a Ray started here would have."""
    from sweeps.doctor.machine import driver

    gpus = len(driver()[0]) if asked.gpus is None else asked.gpus
    return {"CPU": float(asked.cpus or os.cpu_count() or 1), "GPU": float(gpus)}


def prepared(made: Settings, data: Path | None) -> Corpus:
    """Read and encode the experiment's corpus, without initial vectors, whose training may take minutes.

    Args:
        made: The experiment.
        data: The folder given with --data, if any.

    Raises:
        UserError: A file is missing or malformed, or a key does not fit it.
    """
    plain = made.model.embedding.model_copy(update={"init": type(made.model.embedding)().init})
    return prepare(made.corpus, plain, made.seed, data, made.own_vocabularies, audited=False)


def _described(corpus: Corpus) -> str:
    texts = totals(corpus)["train"]
    return f"corpus {corpus.name}: {len(corpus.clients)} clients, {texts:,} train texts, digest {corpus.digest[:12]}"


def vectors(embedding: Embedding, made: Settings, data: Path | None) -> Iterator[Finding]:
    """Yield what is found of the sources of initial word vectors.

    Args:
        embedding: The embedding.
        made: The experiment, for its corpus.
        data: The folder given with --data, if any.
    """
    for source in embedding.sources:
        try:
            if isinstance(source, FileInit):
                yield _about.ok(f"word vectors: {find_file(source.path, folders(data))}")
            elif isinstance(source, CheckpointInit):
                pretrained.settings(source.source)
                yield _about.ok(f"word vectors: of checkpoint {source.source}")
            elif isinstance(source, Word2VecInit):
                yield _word2vec(source, made, data)
        except UserError as error:
            yield _about.problem(str(error))


def _word2vec(source: Word2VecInit, made: Settings, data: Path | None) -> Finding:
    """Check that vectors can be trained. Raises UserError if the unlabeled texts cannot be read."""
    if find_spec("gensim") is None:
        install = 'pip install -c constraints.txt -e ".[word2vec]"'
        return _about.problem("model.embedding.init=word2vec needs gensim, which is not installed", install)
    texts = ""
    if source.corpus == "unlabeled" and made.corpus.unlabeled != "remote":
        texts = f" on {len(made.corpus.read_unlabeled(data, made.seed)):,} unlabeled texts"
    return _about.ok(f"word vectors: trained with gensim{texts}, once, and cached")
