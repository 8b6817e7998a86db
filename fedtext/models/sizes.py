"""The sizes of networks, known without the memory that they take."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from fedtext.models.base import ModelConfig

SMALL = 10**8  # layers times the square of the largest width, up to which a network is built at once


def whole_numbers(part: Any, prefix: str = "") -> Iterator[tuple[str, int]]:
    """Yield the whole numbers of a content by dotted key.

    Args:
        part: Mappings, lists and values.
        prefix: The beginning of each key.
    """
    if isinstance(part, dict | list | tuple):
        for key, value in part.items() if isinstance(part, dict) else enumerate(part):
            yield from whole_numbers(value, f"{prefix}{key}.")
    elif isinstance(part, int) and not isinstance(part, bool):
        yield prefix.removesuffix("."), part


def widest(model: ModelConfig) -> tuple[str, int]:
    """Return the largest whole number of a model, which bounds the width of its layers, with its dotted key."""
    return max(whole_numbers(model.model_dump(mode="json"), "model."), key=lambda pair: pair[1])


def is_large(model: ModelConfig) -> bool:
    """Whether building a network of the model may take long, by its number of parameters."""
    found = list(whole_numbers(model.model_dump(mode="json")))
    layers = sum(value for key, value in found if key.endswith("layers")) + len(found)
    return layers * widest(model)[1] ** 2 > SMALL


def without_memory(model: ModelConfig) -> AbstractContextManager[Any]:
    """Return a context in which the modules of a large model are built without memory, and so without values.

    A small one is built as always: what is imported for this takes seconds.
    """
    return torch.device("meta") if is_large(model) else nullcontext()
