"""Initial embedding rows that a client has for itself: of its own source, or drawn by itself.

Legend: V vocabulary, D embedding, X some rows of a table.
"""

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedtext.client.load import Values, load_into
from fedtext.config.experiment import Experiment
from fedtext.models.initial_table import source_of
from fedtext.models.inits import EachInit, OwnStart
from fedtext.runtime.devices import to_device
from fedtext.state.noise_key import NoiseKey
from fedtext.text.tokens import UNK_ID


class OwnRows:
    """The initial rows of clients' tables.

    Args:
        experiment: The experiment.
        noise: The run's key, of which own rows are drawn.
        rows: The entries of the vocabulary that have rows.
        digits_V: Which of these are words with a digit; None if the corpus has no words.
    """

    def __init__(
        self, experiment: Experiment, noise: NoiseKey, rows: range, digits_V: NDArray[np.bool_] | None
    ) -> None:
        self.experiment, self.noise, self.rows, self.digits_V = experiment, noise, rows, digits_V

    def load(
        self,
        table_XD: Tensor,
        sources: Mapping[str, Values],
        client: int,
        name: str,
        rows_X: NDArray[np.int32],
    ) -> None:
        """Load some rows of a client's table.

        With a vocabulary of its own, the row of <unk> is initially 0: it may be untrained, and every fourth word of
        other clients may be <unk>.

        Args:
            table_XD: Where to load them.
            sources: Parameters of a client without private state, tables with V rows.
            client: Id of the client.
            name: Name of the table.
            rows_X: The rows.
        """
        load_into(table_XD, self._table(sources, client, name), rows_X)
        if own := self.experiment.model.embedding.own:
            self._redraw(own, client, name, table_XD, rows_X)
        if self.experiment.own_vocabularies:
            table_XD[torch.from_numpy(rows_X == UNK_ID - self.rows.start)] = 0

    def _table(self, sources: Mapping[str, Values], client: int, name: str) -> Values:
        """Return a table with V rows; of several sources the client's own."""
        found = sources[self.experiment.method.mirrors(name) or name]
        if not isinstance(self.experiment.model.embedding.init, EachInit):
            return found
        return found[source_of(self.experiment.seed, client, len(found))]

    def _redraw(self, own: OwnStart, client: int, name: str, table_XD: Tensor, rows_X: NDArray[np.int32]) -> None:
        """Draw the rows that a client has for itself (``model.embedding.own``)."""
        chosen_V = self.digits_V if own.words == "digits" else np.ones(len(self.rows), bool)
        assert chosen_V is not None, "a corpus with words has digits_V"
        draw = self.noise.paired(self.experiment.seed, f"own start/{name}", client=client)
        drawn = np.float32(own.std) * draw.standard_normal((int(chosen_V.sum()), table_XD.shape[1]), np.float32)
        place_V = np.cumsum(chosen_V) - 1
        chosen_X = chosen_V[rows_X]
        table_XD[torch.from_numpy(chosen_X)] = to_device(drawn[place_V[rows_X[chosen_X]]], table_XD.device)
