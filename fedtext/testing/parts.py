"""Checks of declarations, and of the use of random generators."""

import inspect
import pickle
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from fedtext.config.loading import lacking
from fedtext.schema import Strict, fields_of, names_of
from fedtext.testing.runs import expect


def check_declared(part: Strict, base: type) -> None:
    """Check that a part has a name, descriptions and a docstring, and that it can be written to YAML and pickled."""
    cls = type(part)
    expect(isinstance(part, base), f"{cls.__name__} is not a {base.__name__}: derive it from that")
    expect(names_of(cls), f'{cls.__name__} has no name for experiment files: name: Literal["mine"] = "mine"')
    name = getattr(part, "name", None)
    expect(name in names_of(cls), f"{cls.__name__}.name is {name!r}, which its type does not allow")
    expect(not lacking(cls), f"{cls.__name__} lacks {lacking(cls)}")
    expect((inspect.getdoc(cls) or "").strip(), f"{cls.__name__} has no docstring: --keys shows its first line")
    for key, field in fields_of(cls).items():
        told = key == "name" or field.description or hasattr(field.annotation, "model_fields")
        expect(told, f"key {key} of {name} has no description: Field(..., description=...)")
    written = part.model_dump(mode="json")
    expect(cls.model_validate(written) == part, f"{name} differs after it is written and loaded: {written}")
    expect(pickle.loads(pickle.dumps(part)) == part, f"{name} cannot be sent to another process")


@contextmanager
def no_global_draws(name: str) -> Iterator[None]:
    """Check that the block does not draw from a global generator."""

    def states() -> list[Any]:
        return [random.getstate(), repr(np.random.get_state(legacy=False)), torch.get_rng_state().tolist()]

    before = states()
    yield
    expect(states() == before, f"{name} draws from a global generator: use the one that is an argument")
