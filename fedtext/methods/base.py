"""What a federated method is: a few pure functions of its hyper-parameters.

A method says which network it trains, which of its parameters stay private, the local objective, and how the server
combines updates where that is not the weighted mean. It is written for one client and one batch; how that is made fast,
placed and sent is nobody's business here.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call

from fedtext.aggregation import Update, weighted_mean
from fedtext.models.recurrent import Parts
from fedtext.schema import Strict

Inference = Literal["both", "shared", "private"]
State = Mapping[str, NDArray[np.float32]]


@dataclass(frozen=True)
class Batch:
    """B texts: padded token ids, their true lengths, their classes."""

    tokens_BT: Tensor
    lengths_B: Tensor
    labels_B: Tensor


class Model:
    """A network bound to one client's parameters; calling it gives the network's outputs."""

    def __init__(self, network: nn.Module, parameters: Mapping[str, Tensor]) -> None:
        self.network, self.parameters = network, dict(parameters)

    def __call__(self, batch: Batch):  # type: ignore[no-untyped-def]  # a method knows what its own network returns
        return functional_call(self.network, self.parameters, (batch.tokens_BT, batch.lengths_B))


class Method(Strict, ABC):
    """Base of all methods. Subclasses are immutable; all state lives with the server and the clients."""

    name: str
    pooled: ClassVar[bool] = False  # one extra client holds everybody's training data, and it alone trains
    shares: ClassVar[bool] = True  # False: nothing leaves a client
    reads_table: ClassVar[bool] = False  # True: the loss uses the embedding table beyond the rows of the batch's tokens
    personalizes: ClassVar[bool] = True  # False: Ap is Ag, since no further training is meant

    @abstractmethod
    def network(self, parts: Parts) -> nn.Module:
        """The network, its parameters named so that ``private`` can tell them apart."""

    def private(self, parameter: str) -> bool:
        """Whether this parameter stays on the client, between rounds as well."""
        return False

    @abstractmethod
    def loss(self, model: Model, received: Mapping[str, Tensor], batch: Batch) -> dict[str, Tensor]:
        """The local objective on one batch, as named scalar terms that already carry their weights: the client
        minimises their sum. ``received`` holds the shared parameters as they came from the server this round."""

    @abstractmethod
    def probabilities(self, model: Model, batch: Batch, inference: Inference) -> Tensor:
        """Class probabilities_BC. ``inference`` chooses between the branches where a method has two."""

    def aggregate(self, state: State, updates: Iterable[Update], uniform: bool, holders_only: bool) -> State:
        """The server's next shared parameters from the clients' updates, which come in client order."""
        return weighted_mean(state, updates, uniform=uniform, holders_only=holders_only)
