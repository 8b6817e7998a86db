"""The state of an aggregation at the server over rounds."""

from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from fedtext.aggregations import Aggregation, IndividualAggregation
from fedtext.aggregations.base import Kept, State, Weight, problem_of, problem_of_kept
from fedtext.errors import UserError
from fedtext.messages import Update
from fedtext.metrics import reported

PREFIX = "#aggregation/"  # of its arrays among those of the server's optimizer, in a checkpoint


class AggregationState:
    """The state of an aggregation.

    Args:
        aggregation: The aggregation.
        shared: The shared parameters before the first round, tables with all rows.
        clients: Number of clients that can train.
        kept: The tensors that ``to_keep`` returned after an earlier round; None: the run begins.

    Attributes:
        arrays: What is kept, by name and in the order of names; empty for an aggregation that keeps nothing.

    Raises:
        UserError: What ``server_state`` returned is not as it has to be.
    """

    def __init__(
        self,
        aggregation: Aggregation,
        shared: State,
        clients: int,
        kept: Mapping[str, NDArray[np.float32]] | None = None,
    ) -> None:
        self.shapes = {name: tensor.shape for name, tensor in shared.items()}
        self.arrays: Kept = {}
        if kept is not None:
            self.arrays = _own({name.removeprefix(PREFIX): t for name, t in kept.items() if name.startswith(PREFIX)})
        elif isinstance(aggregation, IndividualAggregation) and aggregation.keeps_state():
            begun = aggregation.server_state(shared, clients)
            if problem := problem_of_kept(begun, None):
                raise UserError(f"aggregation {aggregation.name}: server_state returned {problem}")
            self.arrays = _own(begun)

    def aggregate(
        self, aggregation: IndividualAggregation, state: State, updates: Iterable[Update], weight: Weight
    ) -> tuple[dict[str, NDArray[np.float32]], Mapping[str, float], Kept]:
        """Combine the updates of a round.

        Args:
            aggregation: The aggregation.
            state, updates, weight: As in ``IndividualAggregation.aggregate``.

        Returns:
            The shared parameters, metrics, and what is to be kept if the round is complete.

        Raises:
            UserError: What the aggregation returned is not as it has to be.
        """
        hook, returned, following = "aggregate", None, self.arrays
        if aggregation.keeps_state():
            hook, whole = "server_step", aggregation.server_step(self.arrays, state, updates, weight)
            if not isinstance(whole, tuple) or len(whole) != 3:
                what = "and not three mappings: the parameters, metrics, and what is kept"
                raise UserError(f"aggregation {aggregation.name}: server_step returned {_form(whole)}, {what}")
            returned, following = whole[:2], whole[2]
        else:
            returned = aggregation.aggregate(state, updates, weight)
        problem = problem_of(returned, self.shapes)
        problem = problem or problem_of_kept(following, {name: array.shape for name, array in self.arrays.items()})
        if problem:
            raise UserError(f"aggregation {aggregation.name}: {hook} returned {problem}")
        return returned[0], reported.as_floats(returned[1]), following

    def keep(self, following: Kept) -> None:
        """Keep what ``aggregate`` returned."""
        self.arrays = _own(following)

    def to_keep(self) -> dict[str, NDArray[np.float32]]:
        """Return the tensors for a checkpoint."""
        return {PREFIX + name: array for name, array in self.arrays.items()}


def _own(arrays: Kept) -> Kept:
    """Return copies, which neither the aggregation nor the memory of an update can change, ordered by name: a
    checkpoint has another order than the aggregation."""
    copies = {name: np.array(arrays[name], order="C") for name in sorted(arrays)}
    for copy in copies.values():
        copy.setflags(write=False)
    return copies


def _form(returned: object) -> str:
    return f"{len(returned)} values" if isinstance(returned, tuple) else type(returned).__name__
