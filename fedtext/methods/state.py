"""State of a method beside the parameters, and the arguments of its hooks: named tensors, and arithmetic on them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Self

import torch
from torch import Tensor

from fedtext.errors import UserError
from fedtext.layout import TABLE


class Tensors(dict[str, Tensor]):
    """Tensors by the names of parameters, with arithmetic name by name.

    The result of ``a + b`` and ``a - b`` has the names of ``a``. A name that ``b`` lacks counts as zeros in it.
    """

    def __add__(self, other: Mapping[str, Tensor]) -> Self:
        return type(self)({n: tensor + other[n] if n in other else tensor for n, tensor in self.items()})

    def __sub__(self, other: Mapping[str, Tensor]) -> Self:
        return type(self)({n: tensor - other[n] if n in other else tensor for n, tensor in self.items()})

    def __mul__(self, factor: float) -> Self:
        return type(self)({name: factor * tensor for name, tensor in self.items()})

    __rmul__ = __mul__

    def __truediv__(self, divisor: float) -> Self:
        return type(self)({name: tensor / divisor for name, tensor in self.items()})

    def __neg__(self) -> Self:
        return type(self)({name: -tensor for name, tensor in self.items()})

    def zeros(self) -> Self:
        """Return zeros of the same names and shapes."""
        return type(self)({name: torch.zeros_like(tensor) for name, tensor in self.items()})


State = Mapping[str, Tensors]  # groups of tensors, such as {"c": control variates by the names of parameters}


@dataclass(frozen=True)
class Local:
    """One client's local update, as an argument of a method's hooks.

    Tables have the rows of the client's own words, or all rows (``Method.whole_table``).

    Attributes:
        received: The shared parameters that the server sent, without those that clients do not move.
        state: The client's state after its last local update (``Method.client_state``).
        server: The server's state, if clients receive it (``Method.sends_state``).
        parameters: The client's parameters as they are now.
        samples: n_k, the client's number of train texts.
        lr_sums: For each shared parameter, how far a gradient of 1 in every step would have moved it. Empty before the
            end of an update, and if steps are not linear in gradients (adam).
        steps: Number of steps of the last phase. 0 before the end of an update.
        terms: Mean over the client's texts of each term of the loss in the last phase, without its weight. Empty before
            the end of an update, and with ``training.dp_sgd``: a guarantee by noise on gradients does not cover them.
    """

    received: Tensors
    state: State
    server: State
    parameters: Tensors
    samples: int
    lr_sums: Mapping[str, float]
    steps: int = 0
    terms: Mapping[str, float] = field(default_factory=dict)

    @property
    def delta(self) -> Tensors:
        """The client's update: its shared parameters minus the received ones."""
        return Tensors({name: self.parameters[name] for name in self.received}) - self.received

    @property
    def mean_gradient(self) -> Tensors:
        """The mean of the gradients of all steps, -delta / lr_sums; zeros for a parameter that does not move.

        With momentum it is weighted by the influence of each gradient on the update.
        """
        sums = {name: self.lr_sums[name] or 1.0 for name in self.received}
        return Tensors({name: -tensor / sums[name] for name, tensor in self.delta.items()})


def flat(state: State) -> dict[str, Tensor]:
    """Return the tensors of all groups by ``group/name``.

    Raises:
        UserError: The name of a group has a slash, so that a name in it cannot be told from the group's.
    """
    if slashed := [group for group in state if "/" in group]:
        raise UserError(f"a method's state has a group {slashed[0]!r}: choose a name without a slash")
    return {f"{group}/{name}": tensor for group, tensors in state.items() for name, tensor in tensors.items()}


def grouped(tensors: Mapping[str, Tensor]) -> dict[str, Tensors]:
    """Return the groups of tensors that are named ``group/name``."""
    state: dict[str, Tensors] = {}
    for key, tensor in tensors.items():
        group, _, name = key.partition("/")
        state.setdefault(group, Tensors())[name] = tensor
    return state


def shapes_of(declare: Callable[[Tensors], State], shared: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the tensors that a hook returns for shared parameters of these shapes, by ``group/name``.

    Raises:
        UserError: A tensor is called as the embedding table and has another shape.
    """
    empty = Tensors({name: torch.empty(shape, device="meta") for name, shape in shared.items()})
    shapes = {name: tuple(tensor.shape) for name, tensor in flat(declare(empty)).items()}
    for name, shape in shapes.items():
        if name.rpartition("/")[2] == TABLE and shape != shared.get(TABLE):
            raise UserError(
                f"a method's {name} is called as the embedding table, of whose rows clients have their own, and has "
                f"the shape {list(shape)}: give it another name, or the table's shape"
            )
    return shapes
