"""The data and the code that trials of a reproduction were made with, as plan.json of their folder has them."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from dashboards.figures import VECTORS
from fedtext.config.experiment import Experiment
from fedtext.corpora.prepare import prepare
from fedtext.corpora.types import Corpus
from fedtext.errors import UserError
from fedtext.models.inits import FileInit
from fedtext.runtime.folders import folders
from fedtext.state.checkpoint import recorded
from fedtext.text.embeddings import find_file
from fedtext.text.pretrained import identity
from sweeps.folder import RunFolder
from sweeps.job import key
from sweeps.stored import About
from tune_spaces.cases import Case

COMMIT = "git.commit"


def data_digest(scene: Experiment, data: Path | None, corpora: Mapping[str, Corpus]) -> str:
    """Return a digest by which trials on other data are told from those on ``data``.

    It is that of the corpus of the scene's own experiment under its first seed, with the word vectors if they are those
    of a file, and with the folders of checkpoints. It is the same for all rows and seeds, whatever they change of the
    corpus and the model.

    Args:
        scene: The scene's experiment.
        data: The folder given with --data, if any.
        corpora: Corpora that have been prepared, by ``key``.

    Returns:
        12 hexadecimal digits; empty if these data fit the rows alone, and not the scene's own experiment.
    """
    embedding = scene.model.embedding
    try:
        corpus = corpora.get(key(scene))
        if corpus is None:
            corpus = prepare(scene.corpus, embedding, scene.seed, data, scene.own_vocabularies, train=False)
    except UserError:
        return ""
    vectors = corpus.table_digest if isinstance(embedding.init, FileInit) else ""
    return hashlib.sha256(" ".join([corpus.digest, vectors, *_folders(scene).values()]).encode()).hexdigest()[:12]


def data_digests(
    scene: Experiment, cases: Iterable[Case], data: Path | None, corpora: Mapping[str, Corpus]
) -> dict[str, str]:
    """Return a digest for each case, by its id, by which it is told from one of the same row on other data.

    It is ``data_digest``, and behind a + that of the files of word vectors and the folders of checkpoints that the case
    reads and the scene does not.

    Args:
        scene: As in ``data_digest``.
        cases: The cases.
        data, corpora: As in ``data_digest``.

    Raises:
        UserError: A file of word vectors does not exist.
    """
    common, own, known = data_digest(scene, data, corpora), scene.model.embedding.init, dict[Path, str]()
    shared = _folders(scene)
    found = dict[str, str]()
    for case in cases:
        inits = [init for init in case.experiment.model.embedding.sources if isinstance(init, FileInit)]
        paths = [find_file(init.path, folders(data)) for init in inits if init != own]
        for path in set(paths) - set(known):
            with open(path, "rb") as stream:
                known[path] = hashlib.file_digest(stream, "sha256").hexdigest()
        checkpoints = [each for name, each in _folders(case.experiment).items() if name not in shared]
        digests = [*(known[path] for path in paths), *checkpoints]
        more = hashlib.sha256(" ".join(digests).encode()).hexdigest()[:12]
        found[case.id] = f"{common}{VECTORS}{more}" if common and digests else common
    return found


def _folders(experiment: Experiment) -> dict[str, str]:
    """Return the digests of the checkpoints of a model and a tokenizer that are folders, by their paths in the keys.

    A checkpoint that has a name, on the hub or of a package, is told from another one by the name.
    """
    parts = [part.model_dump(mode="json") for part in (experiment.model, experiment.corpus.text)]
    return {name: identity(name) for name in _checkpoints(parts) if Path(name).is_dir()}


def _checkpoints(content: Any) -> Iterator[str]:
    """Yield the values of the keys of checkpoints in some content, as they come."""
    if isinstance(content, list):
        for each in content:
            yield from _checkpoints(each)
    elif isinstance(content, dict):
        for key_, value in content.items():
            if key_ in ("checkpoint", "source") and isinstance(value, str):
                yield value
            else:
                yield from _checkpoints(value)


def noted(folder: RunFolder, cases: Sequence[Case], done: Iterable[str], data: Mapping[str, str]) -> dict[str, About]:
    """Return what is to be noted of the trials of a command that begins.

    Args:
        folder: Their folder, whose last version is that of this command.
        cases: The cases.
        done: Ids of those that have finished: they are not trained again.
        data: The data of each case, by its id (``data_digests``).
    """
    known, every, done = folder.trials(), commits_of(folder), set(done)
    now = folder.versions()[-1:]
    found = dict[str, About]()
    for case in cases:
        found[case.id] = About(data=data[case.id]) if data[case.id] else About()
        if case.id not in done and now and COMMIT in now[0]:
            begun = recorded(folder.case(case.id) / "checkpoint") is not None
            before = known.get(case.id, About()).get("commits", every if begun else [])
            found[case.id]["commits"] = [*dict.fromkeys([*(before if begun else ()), now[0][COMMIT][:7]])]
    return found


def commits_of(folder: RunFolder) -> list[str]:
    """Return the commits of all commands that have worked on a folder, in order."""
    return list(dict.fromkeys(one[COMMIT][:7] for one in folder.versions() if COMMIT in one))


def commits(folder: RunFolder, cases: Iterable[Case]) -> str:
    """Return the commits of the code that trained these cases; of those that do not say it, all of the folder's."""
    known, every = folder.trials(), commits_of(folder)
    return ", ".join(dict.fromkeys(one for case in cases for one in known.get(case.id, About()).get("commits", every)))


def data_of(folder: RunFolder, cases: Iterable[Case]) -> list[str]:
    """Return the data of these cases, each once; those that do not say them are left out."""
    known = folder.trials()
    return list(dict.fromkeys(data for case in cases if (data := known.get(case.id, About()).get("data"))))
