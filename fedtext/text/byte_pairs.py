"""Byte pairs (Sennrich et al. 2016), of bytes as in GPT-2 (Radford et al. 2019): no text has an unknown token.

A tokenizer is handled as its JSON, which is what the package tokenizers writes. It is imported on first use: it comes
with transformers.

Legend: N texts, T tokens of all texts laid end to end.
"""

import json
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedtext.errors import UserError
from fedtext.text import pretrained
from fedtext.text.tokens import BOS, BOS_ID, EOS, EOS_ID, PAD, PAD_ID, UNK, UNK_ID

BYTES = 256  # entries of every tokenizer that is trained here
FRAMED = (PAD, UNK, BOS, EOS)  # entries before those of the tokenizer, in a vocabulary of a language model
CHUNK = 1000  # texts that are encoded together
_BYTE, _BLANK = re.compile("<0x[0-9A-F]{2}>"), "▁"  # a byte, and a blank, where pairs are of characters


class Encoded(NamedTuple):
    """Encoded texts.

    Attributes:
        tokens_T: Their rows.
        offsets: Where each text begins, and where the last one ends, shape (N + 1,).
        bytes_N: Bytes of each text as far as it is kept and not given, in UTF-8, and one for </s>.
        given_N: Number of tokens after <s> of each text that are given.
    """

    tokens_T: NDArray[np.int32]
    offsets: NDArray[np.int64]
    bytes_N: NDArray[np.int64]
    given_N: NDArray[np.int64]


def trained(texts: Iterable[str], size: int) -> str:
    """Train a tokenizer. It depends on how often each word occurs, and not on the order of the texts.

    Args:
        texts: The texts.
        size: Number of its entries: 256 bytes, and pairs. There are fewer if the texts have no more pairs.

    Returns:
        The tokenizer.
    """
    made = _library().Tokenizer(_library().models.BPE())
    made.pre_tokenizer = _library().pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = _library().decoders.ByteLevel()
    alphabet = _library().pre_tokenizers.ByteLevel.alphabet()
    trainer = _library().trainers.BpeTrainer(vocab_size=size, initial_alphabet=sorted(alphabet), show_progress=False)
    made.train_from_iterator(texts, trainer)
    return str(made.to_str())


def of_checkpoint(checkpoint: str) -> str:
    """Return a checkpoint's tokenizer.

    Raises:
        UserError: It cannot be read, or is not one of byte pairs.
    """
    backend = getattr(pretrained.tokenizer(checkpoint), "backend_tokenizer", None)
    content = str(backend.to_str()) if backend is not None else "{}"
    if (json.loads(content).get("model") or {}).get("type") != "BPE":
        raise UserError(
            f"corpus.text.bpe: checkpoint {checkpoint} has a tokenizer of another kind than byte pairs: use "
            "corpus.text.pieces, or name another"
        )
    return content


def vocabulary(tokenizer: str, framed: bool) -> list[str]:
    """Return <pad>, in a language model also <unk>, <s> and </s>, and then the tokenizer's entries by id.

    Args:
        tokenizer: The tokenizer.
        framed: Whether it is for a language model.
    """
    ids: dict[str, int] = _loaded(tokenizer).get_vocab(with_added_tokens=True)
    entries = [f"#{number}" for number in range(1 + max(ids.values()))]
    for entry, number in ids.items():
        if entry not in FRAMED:
            entries[number] = entry
    return [*_before(framed), *entries]


def never(tokenizer: str) -> list[int]:
    """Return the rows of ``vocabulary`` of a language model that no text has: <pad>, <unk>, <s>, and entries of the
    tokenizer that it has for special tokens, or that are called as these."""
    content = json.loads(tokenizer)
    model, added = content["model"], content["added_tokens"]
    ids: dict[str, int] = {**model["vocab"], **{token["content"]: token["id"] for token in added}}
    inner = model.get("continuing_subword_prefix") or ""  # what begins an entry that begins no word
    pairs = (pair if isinstance(pair, list) else pair.split(" ", 1) for pair in model["merges"])
    joined = {first + second.removeprefix(inner) for first, second in pairs}
    whole = set(model["vocab"]) if model.get("ignore_merges") else set()  # a word that is an entry is not put together
    found = whole | joined | {token["content"] for token in added if not token["special"]}
    found -= set(FRAMED)
    if not model.get("byte_fallback"):  # what a text has for characters that are in no pair
        found.add(model.get("unk_token"))
    if model.get("byte_fallback"):  # bytes of characters that it does not know
        found |= {f"<0x{byte:02X}>" for byte in range(BYTES)}
    special = {token["content"] for token in added if token["special"]} | set(FRAMED)
    apart = sorted(ids[entry] for entry in special & set(ids) - found if len(entry) > 1)
    return [PAD_ID, UNK_ID, BOS_ID, *(len(FRAMED) + number for number in apart)]


def encode(
    tokenizer: str,
    texts: Sequence[str],
    max_length: int | None,
    framed: bool,
    given_N: NDArray[np.int64] | None = None,
) -> Encoded:
    """Encode texts as rows of ``vocabulary``. A text without a token becomes one <pad>, unless it is framed.

    Args:
        tokenizer: The tokenizer.
        texts: N texts. If they are framed, each is a sentence from <s> to </s>, which are rows of their own.
        max_length: Number of tokens that are kept of each text, with <s> and </s>; None: all.
        framed: Whether texts are for a language model.
        given_N: Number of words after <s> of each text that are given; None: none.
    """
    found, counts, first = [np.zeros(0, np.int32)], [0], len(_before(framed))
    sizes: list[int] = []
    given = np.zeros(len(texts), np.int64) if given_N is None else given_N.copy()
    for start in range(0, len(texts), CHUNK):
        part = [text[len(BOS) + 1 : -len(EOS) - 1] if framed else text for text in texts[start : start + CHUNK]]
        for text, pairs in zip(part, _loaded(tokenizer).encode_batch(part, add_special_tokens=False), strict=True):
            rows = [first + number for number in pairs.ids]
            kept = [BOS_ID, *rows, EOS_ID][:max_length] if framed else rows[:max_length] or [PAD_ID]
            inner = min(len(rows), len(kept) - framed)  # pairs that are kept
            size = _kept_bytes(tokenizer, text, pairs, inner)
            if count := int(given[len(sizes)]):
                prompt = " ".join(text.split(" ", count)[:count])
                given[len(sizes)] = sum(end <= len(prompt) for _, end in pairs.offsets)
                size = max(0, size - len(prompt.encode()))
            found.append(np.array(kept, np.int32))
            counts.append(len(kept))
            sizes.append(size + (framed and kept[-1] == EOS_ID))
    return Encoded(np.concatenate(found), np.cumsum(counts), np.array(sizes, np.int64), given)


def _kept_bytes(tokenizer: str, text: str, pairs: Any, inner: int) -> int:
    """Return how many bytes of a text are in its first pairs, also if the last of these ends within a character.

    Args:
        tokenizer: The tokenizer.
        text: The text.
        pairs: Its pairs, as the package returns them.
        inner: Number of the pairs that are kept.
    """
    if inner == len(pairs.ids):
        return len(text.encode())
    end = pairs.offsets[inner - 1][1] if inner else 0
    if not inner or (cut := pairs.offsets[inner][0]) >= end:
        return len(text[:end].encode())
    # The bytes of what is cut off: in front, a tokenizer may have put a blank that the text does not have.
    characters = _loaded(tokenizer).model.byte_fallback
    left = sum(_length(pair, characters) for pair in pairs.tokens[inner:])
    within = len(text[end:].encode()) < left <= len(text[cut:].encode())
    return len(text.encode()) - left if within else len(text[:end].encode())  # other pairs are not of these bytes


def _length(pair: str, characters: bool) -> int:
    """Return the number of bytes of a pair.

    Args:
        pair: The pair.
        characters: Whether pairs are of characters, and of bytes of those that are in none; else each character of a
            pair stands for one byte.
    """
    if not characters:
        return len(pair)
    return 1 if _BYTE.fullmatch(pair) else len(pair.replace(_BLANK, " ").encode())


def decode(tokenizer: str, rows: Iterable[int], framed: bool) -> str:
    """Return the text of rows. Those that are no entries of the tokenizer are left out.

    Args:
        tokenizer: The tokenizer.
        rows: Rows of ``vocabulary``.
        framed: Whether it is that of a language model.
    """
    first = len(_before(framed))
    return str(_loaded(tokenizer).decode([row - first for row in rows if row >= first], skip_special_tokens=False))


def _before(framed: bool) -> tuple[str, ...]:
    return FRAMED if framed else (PAD,)


@lru_cache(maxsize=4)
def _loaded(tokenizer: str) -> Any:
    made = _library().Tokenizer.from_str(tokenizer)
    made.encode_special_tokens = True  # what looks like a special token in a text is text
    made.no_truncation()
    made.no_padding()
    return made


def _library() -> Any:
    """Import the package tokenizers. Raises UserError if it is not installed."""
    if find_spec("tokenizers") is None:
        raise UserError("corpus.text.bpe needs the package tokenizers: pip install transformers")
    import tokenizers

    return tokenizers
