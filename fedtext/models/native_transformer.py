"""Engine native: the library of transformers in C (models/transformer.c), and its structures."""

import ctypes
from functools import cache
from pathlib import Path
from typing import Any

import torch

from fedtext.runtime.compiled import compiled

SOURCE = Path(__file__).with_name("transformer.c")
LAYERS, PARTS = 6, 2  # of a block
KEEPING, ALONE, BACKWARD = range(3)  # calls: forward, with gradients to follow or not, and backward


def _fields(kind: Any, *names: str) -> list[tuple[str, Any]]:
    return [(name, kind) for name in names]


class Layout(ctypes.Structure):
    """``layout`` of models/attention.h."""

    _fields_ = [
        *_fields(ctypes.c_int64, "texts", "heads", "width", "causal"),
        ("starts", ctypes.c_void_p),
        *_fields(ctypes.c_double, "scale", "share"),
        *_fields(ctypes.c_uint64, "key", "limit"),
    ]


class Adapted(ctypes.Structure):
    """``adapted`` of models/adapted.h."""

    _fields_ = [
        *_fields(ctypes.c_int64, "rows", "inputs", "outputs", "rank"),
        ("scale", ctypes.c_double),
        *_fields(ctypes.c_void_p, "panels", "weight_OI", "bias_O", "a_RI", "b_OR", "back"),
        *_fields(ctypes.c_void_p, "grad_a", "grad_b"),
    ]


class Sum(ctypes.Structure):
    """``sum`` of models/transformer.c."""

    _fields_ = [
        *_fields(ctypes.c_void_p, "weight", "bias"),
        *_fields(ctypes.c_double, "least_variance", "share"),
        *_fields(ctypes.c_uint64, "key", "limit"),
    ]


class Block(ctypes.Structure):
    """``block`` of models/transformer.c."""

    _fields_ = [
        *_fields(ctypes.c_int64, "tokens", "first", "kind"),
        ("layers", LAYERS * Adapted),
        ("sums", PARTS * Sum),
        ("attention", Layout),
    ]


@cache
def library(dtype: torch.dtype) -> ctypes.CDLL:
    """Return the library for numbers of a type, one of ``fedtext.runtime.compiled.BITS``."""
    found, place, pointer = compiled(SOURCE, dtype), ctypes.c_int64, ctypes.c_void_p
    found.attend.argtypes, found.attend_back.argtypes = [pointer] * 6, [pointer] * 9
    found.adapted_outputs.argtypes, found.adapted_gradients.argtypes = [pointer] * 5, [pointer] * 8
    found.adapted_memory.argtypes, found.adapted_memory.restype = [pointer], place
    found.pack_halves.argtypes = [place, place, pointer, place, place, pointer, pointer]
    found.halves_of.argtypes, found.halves_of.restype = [place], place
    found.has_tiles.argtypes, found.has_tiles.restype = [], place
    found.attention_memory.argtypes, found.kept_size.argtypes = [pointer, place], [place, pointer]
    found.scratch_size.argtypes = [place, pointer, place]
    for size in (found.attention_memory, found.kept_size, found.scratch_size):
        size.restype = place
    found.blocks_outputs.argtypes = [place, *[pointer] * 5]
    found.blocks_gradients.argtypes = [place, pointer, pointer, pointer, place, pointer, pointer]
    return found


def in_tiles() -> bool:
    """Whether products in bfloat16 are summed in tile registers (models/tiles.h), and so in another order.

    Raises:
        UserError: There is no library (see ``fedtext.runtime.compiled.compiled``).
    """
    return bool(library(torch.float32).has_tiles())
