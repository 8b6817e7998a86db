"""Results by name."""

import difflib
from collections.abc import Mapping
from itertools import islice
from typing import TypeVar

import yaml
from yaml.representer import Representer, SafeRepresenter

T = TypeVar("T")
_MOST = 8  # names in a message
_COMPARED = 1000  # names with which one is compared: each takes some 10 microseconds


class NamedDict(dict[str, T]):
    """A dict whose KeyError names the nearest keys.

    Args:
        values: The values by name.
        what: The kind of a value, for the message.
        where: Where the values are from, for the message.
    """

    def __init__(self, values: Mapping[str, T], what: str = "metric", where: str = "in this run") -> None:
        super().__init__(values)
        self.what, self.where = what, where

    def __missing__(self, name: str) -> T:
        near = difflib.get_close_matches(str(name), islice(self, _COMPARED), n=3, cutoff=0.5)
        others = f" and {len(self) - _MOST} more" if len(self) > _MOST else ""
        advice = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(list(self)[:_MOST])}{others}"
        raise KeyError(f"no {self.what} {name} {self.where}; {advice if self else 'there are none'}")


# Else YAML would take it for an object of Python. A dumper that has representers of its own does not see its base's.
for _representer in (SafeRepresenter, Representer, yaml.SafeDumper, yaml.Dumper):
    _representer.add_representer(NamedDict, SafeRepresenter.represent_dict)
