"""Engine native: the loss of a classifier and all its gradients as one function.

Autograd needs longer to record a step of a small network, and to go back, than the functions in C take for it.

Legend: C clients of a stack, B texts of a batch, N = C x B, F features, U distinct words of the batch.
"""

import ctypes
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor, nn

from fedtext.layout import TABLE
from fedtext.models.bag import BagEncoder, Dense
from fedtext.models.batch import Batch
from fedtext.models.cells import layer_parameters
from fedtext.models.native import layer_gradients, layer_states
from fedtext.models.native_bag import bag_loss
from fedtext.models.output import layers_between_relus
from fedtext.models.plain import is_plain, looks_up
from fedtext.models.recurrent import Encoder
from fedtext.runtime.compiled import addresses, compiled, places

SOURCE = Path(__file__).with_name("head.c")
Named = Mapping[str, Tensor]


class FusedLoss(Protocol):
    """The loss terms of one client's batch, or of those of a stack, with their gradients, without autograd."""

    def takes(self, batch: Batch) -> bool:
        """Whether it can be called with this batch."""

    def __call__(self, parameters: Named, batch: Batch, grads: Named) -> Sequence[Mapping[str, float]]:
        """Compute the terms, and add the gradients of their weighted sum to ``grads``.

        Args:
            parameters: All parameters, those of each client contiguous; the table has the rows of the batch's words.
                In a stack each has a leading axis of clients.
            batch: The batch.
            grads: Of the shapes of the parameters, those of each client contiguous.

        Returns:
            The terms of each client.
        """


@cache
def _library(dtype: torch.dtype) -> ctypes.CDLL:
    library, place, pointer = compiled(SOURCE, dtype), ctypes.c_int64, ctypes.c_void_p
    library.loss_memory.argtypes, library.loss_memory.restype = [place, place, pointer], place
    library.loss.argtypes, library.loss.restype = [place, place, *[pointer] * 7], ctypes.c_double
    return library


def names_of(network: nn.Module, tensors: Sequence[Tensor]) -> tuple[str, ...] | None:
    """Return the names of parameters of a network; None if a tensor is none of them, but computed from some."""
    names = {id(parameter): name for name, parameter in network.named_parameters()}
    found = tuple(names[id(tensor)] for tensor in tensors if id(tensor) in names)
    return found if len(found) == len(tensors) else None


def by_client(
    labels: Tensor, rows: Sequence[Tensor], parameters: Sequence[Sequence[Tensor]]
) -> Iterator[tuple[Tensor, Sequence[Tensor], Sequence[Sequence[Tensor]]]]:
    """Split a batch's labels, rows and parameters by client. All are views.

    Args:
        labels: labels_B of one client, or labels_CB of a stack.
        rows: Tensors of shape (N, ...) with rows for the texts of all clients.
        parameters: Lists of tensors, in a stack with a leading axis of clients.
    """
    if labels.dim() == 1:
        yield labels.contiguous(), rows, parameters
        return
    split = [each.split(labels.shape[1]) for each in rows]
    apart = [[tensor.detach().unbind() for tensor in tensors] for tensors in parameters]
    for client, labels_B in enumerate(labels.contiguous().unbind()):
        own = [[tensors[client] for tensors in each] for each in apart]
        yield labels_B, [each[client] for each in split], own


@dataclass(frozen=True)
class RecurrentPass:
    """A recurrent encoder of one layer, forward and back.

    Attributes:
        names: Names of the layer's parameters, in the order of ``layer_parameters``.
    """

    names: tuple[str, ...]

    @staticmethod
    def of(network: nn.Module, encoder: nn.Module) -> "RecurrentPass | None":
        """Return the pass of an encoder of this network; None: it has more layers, dropout, or other features, or hooks
        or classes of its own compute them."""
        if not is_plain(encoder, Encoder) or not (is_plain(encoder.rnn, nn.GRU) or is_plain(encoder.rnn, nn.LSTM)):
            return None
        if not looks_up(network.get_submodule("embedding")) or not is_plain(encoder.dropout, nn.Dropout):
            return None
        if encoder.rnn.num_layers > 1 or encoder.dropout.p or encoder.pooling == "last":
            return None
        names = names_of(network, layer_parameters(encoder.rnn, 0))
        return RecurrentPass(names) if names else None

    @staticmethod
    def takes(batch: Batch) -> bool:
        words = batch.words
        return batch.native and words is not None and words.rows_U is None

    def states(self, parameters: Named, batch: Batch) -> tuple[Tensor, ...]:
        """Return the features, shape (N, F), and what ``gradients`` needs."""
        assert batch.words is not None
        own = [parameters[name] for name in self.names]
        return layer_states(_rows(parameters[TABLE]), batch.words.source_P, batch.words.packing, True, own)

    def gradients(
        self, parameters: Named, batch: Batch, states: Sequence[Tensor], grad_NF: Tensor, grads: Named
    ) -> None:
        """Add the gradients of the encoder and of the table.

        Args:
            parameters, batch: As in ``states``.
            states: What that returned.
            grad_NF: The gradient of the features, contiguous.
            grads: The gradients of all parameters.
        """
        assert batch.words is not None
        own, found = ([named[name] for name in self.names] for named in (parameters, grads))
        given = _rows(parameters[TABLE]), batch.words.source_P, batch.words.packing, True, own, states[1:], grad_NF
        layer_gradients(*given, found, _rows(grads[TABLE]))


def _rows(table: Tensor) -> Tensor:
    """Return the rows of one client's table, or those of all clients of a stack, one after the other."""
    return table if table.dim() == 2 else table.detach().flatten(0, 1)


@dataclass(frozen=True)
class RecurrentLoss:
    """The cross-entropy ``ce`` of a recurrent encoder with dense layers.

    Attributes:
        encoder: The encoder.
        head: Names of the dense layers' weights and biases.
        widths: Widths of the features and of each layer.
    """

    encoder: RecurrentPass
    head: tuple[str, ...]
    widths: tuple[int, ...]

    def takes(self, batch: Batch) -> bool:
        return self.encoder.takes(batch) and batch.features_BK is None

    def __call__(self, parameters: Named, batch: Batch, grads: Named) -> list[dict[str, float]]:
        features_NF, *_ = states = self.encoder.states(parameters, batch)
        library, layout = _library(features_NF.dtype), (len(self.widths) - 1, places(*self.widths))
        memory = features_NF.new_empty(library.loss_memory(batch.labels_B.shape[-1], *layout))
        grad_NF, terms = torch.zeros_like(features_NF), []
        heads = [[named[name] for name in self.head] for named in (parameters, grads)]
        for labels_B, rows, (head, found) in by_client(batch.labels_B, (features_NF, grad_NF), heads):
            loss = library.loss(
                len(labels_B),
                *layout,
                rows[0].data_ptr(),
                addresses(head),
                labels_B.data_ptr(),
                memory.data_ptr(),
                rows[1].data_ptr(),
                addresses(found),
            )
            terms.append({"ce": loss})
        self.encoder.gradients(parameters, batch, states, grad_NF, grads)
        return terms


@dataclass(frozen=True)
class BagOfWordsLoss:
    """The cross-entropy ``ce`` of a classifier on bags of words.

    Attributes:
        relu: Whether there is a ReLU after the sums.
        bias: Name of their bias; empty if there is none.
        head: As in ``RecurrentLoss``.
    """

    relu: bool
    bias: str
    head: tuple[str, ...]

    def takes(self, batch: Batch) -> bool:
        return batch.native and batch.features_BK is None

    def __call__(self, parameters: Named, batch: Batch, grads: Named) -> list[dict[str, float]]:
        first, *layers = (parameters.get(name) for name in (self.bias, *self.head))
        table, found = parameters[TABLE], [grads.get(name) for name in (TABLE, self.bias, *self.head)]
        return [{"ce": bag_loss(batch, self.relu, table, first, [each for each in layers if each is not None], found)}]


def classifier_loss(network: nn.Module, encoder: nn.Module, head: nn.Module) -> FusedLoss | None:
    """Return the loss of a classifier; None: it is one that only autograd can train.

    Args:
        network: The classifier, with one embedding.
        encoder, head: Its other parts.
    """
    if is_plain(encoder, BagEncoder) and is_plain(head, Dense) and not encoder.dropout.p:
        if not head.scores(network.get_parameter(TABLE).shape[1]):
            return None
        first = names_of(network, [] if encoder.bias is None else [encoder.bias])
        names = names_of(network, head.parameters_in_order())
        return None if first is None or names is None else BagOfWordsLoss(encoder.relu, "".join(first), names)
    recurrent, layers = RecurrentPass.of(network, encoder), layers_between_relus(head)
    names = names_of(network, layers) if layers else None
    if recurrent is None or not layers or names is None or len(layers[-1]) == 1:  # C takes it for that of two classes
        return None
    assert isinstance(encoder, Encoder), "or it had no pass"
    if layers[0].shape[1] != encoder.rnn.hidden_size * (1 + encoder.rnn.bidirectional):  # torch says so
        return None
    return RecurrentLoss(recurrent, names, (layers[0].shape[1], *map(len, layers[1::2])))
