"""A trained model on disk, with all that is needed to classify new texts or to predict next words.

A folder has ``experiment.yaml``, ``model.json`` (classes, labels, clients, what the folder discloses),
``model.safetensors`` (the shared parameters by name, and those that never change; tables have a row for each entry of
the vocabulary), ``vocabulary.json``, ``tokenizer/`` if there is one, and with ``save.model: clients`` the private
parameters of each client in ``clients/``, but for those that are not trained and are the same for all, which are beside
the shared ones. ``plugins/`` has the files that are plug-ins of the experiment. ``adapter/`` has the shared
factors of an adapter in the format of the package peft, and ``initial_adapter/`` those that training began with, if
from a file.
"""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NotRequired

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file
from typing_extensions import TypedDict

from fedtext.config import files
from fedtext.config.experiment import Experiment
from fedtext.config.loading import FOLDER as PLUGINS
from fedtext.config.package import Package
from fedtext.config.packages import differing, missing, packages_of
from fedtext.errors import UserError, writing
from fedtext.ledger import FILE as LEDGER
from fedtext.runtime import tensor_files
from fedtext.runtime.json_files import read_json
from fedtext.runtime.paths import expanded
from fedtext.state.draft import check_others, replacement
from fedtext.state.model_adapter import ADAPTER, INITIAL_ADAPTER, save_adapter
from fedtext.state.model_checkpoint import relocated, save_checkpoint
from fedtext.state.trained import ClientPart, State, Trained
from fedtext.text import byte_pairs
from fedtext.text.representation import BPE

FORMAT = 1
FOLDER = "model"  # its name in the folder of a run
EXPERIMENT, ABOUT, SHARED, WORDS = "experiment.yaml", "model.json", "model.safetensors", "vocabulary.json"
TOKENIZER, PAIRS, CLIENTS = "tokenizer", "tokenizer.json", "clients"
RECORDS = "rows.json"  # the history, which a result saves beside the model, as its ledger
# All that it can have.
NAMES = (EXPERIMENT, ABOUT, SHARED, WORDS, TOKENIZER, CLIENTS, ADAPTER, INITIAL_ADAPTER, PLUGINS, RECORDS, LEDGER)
AGAIN = "copy it again, or train the model again"


class _About(TypedDict):
    """``model.json``, but for what it says to people."""

    round: int
    classes: int
    features: int
    labels: list[str]
    clients: int
    names: list[str]
    packages: NotRequired[list[Package]]  # of plug-ins that are installed modules


def _what_to_give(folder: Path) -> str:
    """Return what to do if a folder has no model: results may be in $FEDTEXT_HOME, not in the working folder."""
    results = os.environ.get("FEDTEXT_HOME")
    if not results or folder.is_absolute():
        return "give the folder of a model, such as runs/NAME/TRIAL/model"
    home = expanded(results, "$FEDTEXT_HOME")
    if (home / folder / ABOUT).is_file():
        return f"it is in $FEDTEXT_HOME: give {home / folder}"
    return f"give the folder of a model, such as {home}/runs/NAME/TRIAL/model (runs are in $FEDTEXT_HOME)"


def write(trained: Trained, folder: Path, own: bool = False) -> None:
    """Write a model folder. An existing one is replaced.

    Args:
        trained: The model.
        folder: The folder.
        own: Whether it is the folder of a run, in which files beside the model were made from it: they go with it.

    Raises:
        UserError: It cannot be written, or is a folder with something else. An existing folder is left unchanged.
    """
    folder = folder.absolute()
    if not own:
        check_place(folder)
    with writing(folder, "the model"), tensor_files.os_errors(), replacement(folder) as draft:
        _write(trained, draft)


def check_place(folder: Path) -> None:
    """Check that a model folder can be written without loss: there is none, or one that it replaces.

    Raises:
        UserError: There is a folder with something else or with files beside a model, or a file.
    """
    if folder.is_dir() and not (folder / ABOUT).is_file() and any(folder.iterdir()):
        raise UserError(
            f"{folder} is there and has something else than a model, which would be lost: name another folder"
        )
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is a file, and a model is a folder: name another folder")
    check_others(folder, NAMES)


def _write(trained: Trained, draft: Path) -> None:
    (draft / EXPERIMENT).write_text(files.resolved(trained.experiment), encoding="utf-8")
    files.keep_plugins(trained.experiment, draft)
    about = {
        "format": FORMAT,
        "round": trained.round,
        "classes": trained.classes,
        "features": trained.features,
        "labels": trained.labels,
        "clients": trained.clients,
        "names": trained.names,
        "packages": packages_of(trained.experiment.all_plugins),
        "gives_away": trained.gives_away(),
    }
    (draft / ABOUT).write_text(json.dumps(about, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    common = _common(trained)
    save_file(_contiguous({**trained.shared, **common}), draft / SHARED)
    save_checkpoint(trained.experiment, draft / TOKENIZER)
    save_adapter(trained.experiment, (trained.classes, trained.clients, trained.features), trained.shared, draft)
    if trained.tokenizer:
        (draft / TOKENIZER).mkdir(exist_ok=True)
        (draft / TOKENIZER / PAIRS).write_text(trained.tokenizer, encoding="utf-8")
    if trained.vocabulary is not None:
        (draft / WORDS).write_text(json.dumps(trained.vocabulary, ensure_ascii=False), encoding="utf-8")
    for name, part in trained.parts.items():
        where = draft / CLIENTS / f"{trained.names.index(name):05d}"
        where.mkdir(parents=True)
        own = {parameter: tensor for parameter, tensor in part.state.items() if parameter not in common}
        save_file(_contiguous(own), where / SHARED)
        if part.vocabulary is not None:
            (where / WORDS).write_text(json.dumps(part.vocabulary, ensure_ascii=False), encoding="utf-8")


def _common(trained: Trained) -> State:
    """Return what the model fixes of clients' parts, if it is the same for all: it is written once."""
    parts, fixes = list(trained.parts.values()), trained.experiment.model.fixes
    if not parts or any(part.vocabulary is not None for part in parts):
        return {}
    found = {name: tensor for name, tensor in parts[0].state.items() if fixes(name)}
    return {
        name: tensor
        for name, tensor in found.items()
        if all(name in part.state and np.array_equal(part.state[name], tensor) for part in parts)
    }


def read(folder: Path, trust_plugins: bool = False) -> Trained:
    """Read a model folder.

    Args:
        folder: Path of the folder.
        trust_plugins: Whether the plug-ins in it may run. They are programs. Those that this process has already loaded
            run in any case.

    Raises:
        UserError: It is not a model folder, is damaged, was written by a newer version, has plug-ins that are not
            trusted, or needs a package that is not installed.
    """
    if not (folder / ABOUT).is_file():
        raise UserError(f"{folder} has no {ABOUT}: {_what_to_give(folder)}")
    written = read_json(folder / ABOUT, dict[str, Any], AGAIN)
    if written.get("format") != FORMAT:
        raise UserError(
            f"{folder} has format {written.get('format')!r}, and this version reads {FORMAT}: use a newer one"
        )
    about = read_json(folder / ABOUT, _About, AGAIN)
    experiment = _experiment(folder, trust_plugins, about.get("packages", []))
    try:
        parts = {
            about["names"][int(where.name)]: ClientPart(load_file(where / SHARED), _words(where))
            for where in sorted((folder / CLIENTS).glob("*"))
        }
        shared = load_file(folder / SHARED)
    except (OSError, ValueError, IndexError, SafetensorError) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f"{folder} is damaged ({error}): {AGAIN}") from error
    facts = about["round"], about["classes"], about["features"], tuple(about["labels"]), about["clients"]
    pairs = _pairs(folder) if isinstance(experiment.corpus.text, BPE) else ""
    trained = Trained(experiment, *facts, tuple(about["names"]), _words(folder), shared, parts, pairs)
    if problem := _disagreement(trained):
        raise UserError(f"{folder} is damaged ({problem}): {AGAIN}")
    return trained


def _experiment(folder: Path, trust_plugins: bool, packages: Sequence[Package]) -> Experiment:
    """Return the experiment of a model folder.

    Raises:
        UserError: It needs a package that is not installed, has plug-ins that are not trusted, or is damaged.
    """
    if problem := missing(packages):
        raise UserError(f"{folder} needs {problem}")
    try:
        content = files.with_plugins(files.read(folder / EXPERIMENT), folder)
        unknown = [plugin.name for plugin in files.plugins_of(content) if not plugin.is_loaded]
        if unknown and not trust_plugins:
            raise UserError(
                f"{folder} needs the plug-in {' and '.join(unknown)}, a program: read it, and if you trust it, load "
                "the model with trust_plugins=True (predict --trust-plugins)"
            )
        if (folder / TOKENIZER).is_dir():
            content = relocated(content, str(folder / TOKENIZER))
        if (folder / INITIAL_ADAPTER).is_dir():
            content["model"]["adapter"]["lora"]["checkpoint"] = str(folder / INITIAL_ADAPTER)
        return files.validate(content, str(folder / EXPERIMENT))
    except UserError as error:
        if versions := differing(packages):
            raise UserError(f"{error}; the model was trained with the package {versions}") from error
        raise


def _disagreement(trained: Trained) -> str:
    """Return how the files of a model folder do not fit together; empty if they do. Shapes are compared with a network
    when one is built."""
    states = [trained.shared, *(part.state for part in trained.parts.values())]
    widest = max((size for state in states for tensor in state.values() for size in tensor.shape), default=0)
    if not 0 < trained.classes <= max(widest, 2) or len(trained.labels) not in (0, trained.classes):
        return f"{ABOUT} has {trained.classes} classes and {len(trained.labels)} labels, and no tensor is that wide"
    if trained.clients < 1 or len(trained.names) not in (0, trained.clients):
        return f"{ABOUT} has {trained.clients} clients and {len(trained.names)} names"
    if trained.vocabulary is None and any(part.vocabulary is None for part in trained.parts.values()):
        return f"{WORDS} is missing"
    if trained.vocabulary is None and not trained.experiment.own_vocabularies:
        return f"{WORDS} is missing"
    if trained.tokenizer and trained.vocabulary is not None:
        entries = byte_pairs.vocabulary(trained.tokenizer, trained.experiment.language)
        if trained.vocabulary[: len(trained.vocabulary) - trained.features] != entries:
            return f"{WORDS} has other entries than {TOKENIZER}/{PAIRS}"
    if any(tensor.dtype != np.float32 for state in states for tensor in state.values()):
        return f"{SHARED} has numbers of another type than float32"
    return ""


def _pairs(folder: Path) -> str:
    """Return the tokenizer of byte pairs. Raises UserError if it cannot be read."""
    path = folder / TOKENIZER / PAIRS
    try:
        content = path.read_text(encoding="utf-8")
        byte_pairs.vocabulary(content, framed=True)
    except Exception as error:  # of any type: the package raises Exception itself
        if isinstance(error, UserError):
            raise
        raise UserError(f"{path} is no tokenizer ({error}): {AGAIN}") from error
    return content


def _words(folder: Path) -> list[str] | None:
    path = folder / WORDS
    return read_json(path, list[str], AGAIN) if path.exists() else None


def _contiguous(state: State) -> dict[str, NDArray[np.float32]]:
    return {name: np.ascontiguousarray(tensor) for name, tensor in state.items()}
