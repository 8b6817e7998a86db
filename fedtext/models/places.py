"""Where a network has its parameters, so that it can be given others for a call."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from torch import Tensor, nn


@dataclass(frozen=True)
class Places:
    """The places of a network's parameters.

    Attributes:
        of: The place of each name: a module's dict, and the name in it.
        tied: The names under which ``named_parameters`` leaves a parameter out because it has it under another name,
            which is the value: two layers may have one weight.
    """

    of: Mapping[str, tuple[dict[str, Any], str]]
    tied: Mapping[str, str]

    def everywhere(self, parameters: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return the parameters, those that are in several places under the names of all of these."""
        if not self.tied:
            return parameters
        return {again: parameters[name] for again, name in self.tied.items() if name in parameters} | parameters


_KNOWN: WeakKeyDictionary[nn.Module, Places] = WeakKeyDictionary()


def places_of(network: nn.Module) -> Places:
    """Return the places of a network's parameters. It must have its own ones in the first call."""
    if network not in _KNOWN:
        of: dict[str, tuple[dict[str, Any], str]] = {}
        tied: dict[str, str] = {}
        first: dict[int, str] = {}
        for path, module in network.named_modules():
            for leaf, parameter in module._parameters.items():
                name = f"{path}.{leaf}" if path else leaf
                of[name] = module._parameters, leaf
                if parameter is not None and first.setdefault(id(parameter), name) != name:
                    tied[name] = first[id(parameter)]
        _KNOWN[network] = Places(of, tied)
    return _KNOWN[network]
