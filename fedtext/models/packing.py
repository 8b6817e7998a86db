"""The order of the tokens of a stack's batches in the recurrent loop.

Texts are sorted by length, so that step t has only texts with a t-th token. The reverse direction begins at the end of
each text, so both directions process the same texts at every step; a *lane* is one direction of one client. All lanes
are processed together, each step on one contiguous block of memory. If clients are stacked, a step is as wide as for
the client with the most texts of that length; the other clients have padding there, which is computed but never used,
and whose gradient is exactly zero.

Legend: C clients, B texts of a batch, T steps, S token places of a client (its tokens and padding), K directions,
L = C x K lanes, P = L x S rows, ordered by step, then lane, then text; U words that a client's batch touches.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedtext.runtime.devices import to_device

Ints = NDArray[np.int64]
BLOCK = 16  # texts of one program of a kernel: the smallest size of Triton's products


@dataclass(frozen=True)
class Places:
    """Where the tokens of a packing are.

    Attributes:
        step_S: Step of each token place.
        text_CS: Text of each token place; B for padding.
        place_LS: Token place, in the order of the text, that a lane processes there.
        rows_LS: Row of each lane's token places.
    """

    step_S: Ints
    text_CS: Ints
    place_LS: Ints
    rows_LS: Ints


@dataclass(frozen=True)
class Packing:
    """The packing of C batches. Row indices are into the rows of all clients together.

    Attributes:
        directions: K.
        lengths_CB: Length of each text.
        order_CB: The texts of each client, longest first.
        sizes_T: Number of texts in each step, for every lane.
        starts_T: The token place at which each step begins, and after the last one S: T + 1.
        device: Device of the index tensors.
        engine: The engine that computes the steps: ``cells`` (models/loops.py), ``triton`` (models/kernels.py) or
            ``native`` (models/native.py).
    """

    directions: int
    lengths_CB: Ints
    order_CB: Ints
    sizes_T: list[int]
    starts_T: Ints
    device: torch.device
    engine: str

    @staticmethod
    def of(lengths_CB: Ints, directions: int, device: torch.device, engine: str = "cells") -> "Packing":
        """Pack texts of these lengths (all at least 1).

        Args:
            lengths_CB: Lengths of each client's texts.
            directions: Number of directions.
            device: Device of the index tensors.
            engine: The engine that computes the steps.
        """
        order_CB = np.argsort(-lengths_CB, axis=1, kind="stable")
        widest_B = np.take_along_axis(lengths_CB, order_CB, 1).max(0)
        steps = int(widest_B[0])
        sizes_T = lengths_CB.shape[1] - np.cumsum(np.bincount(widest_B, minlength=steps + 1))[:steps]
        starts_T = np.append(0, np.cumsum(sizes_T))
        return Packing(directions, lengths_CB, order_CB, sizes_T.tolist(), starts_T, device, engine)

    @cached_property
    def places(self) -> "Places":
        """Where each token is. Engine ``native`` does without it."""
        sizes_T, starts_T, lanes = np.asarray(self.sizes_T), self.starts_T, self.lanes
        step_S = np.repeat(np.arange(len(sizes_T)), sizes_T)
        slot_S = np.arange(len(step_S)) - starts_T[step_S]
        sorted_CB = np.take_along_axis(self.lengths_CB, self.order_CB, 1)
        left_CS = sorted_CB[:, slot_S] - 1 - step_S  # tokens of the same text that are still to come
        padding_CS = left_CS < 0
        text_CS = np.where(padding_CS, self.texts, self.order_CB[:, slot_S])
        mirrored_CS = np.where(padding_CS, np.arange(len(step_S)), starts_T[left_CS] + slot_S)
        rows_LS = lanes * starts_T[step_S] + np.arange(lanes)[:, None] * sizes_T[step_S] + slot_S
        forward_CS = np.broadcast_to(np.arange(len(step_S)), mirrored_CS.shape)
        place_CKS = np.stack([forward_CS, mirrored_CS][: self.directions], 1)
        return Places(step_S, text_CS, place_CKS.reshape(lanes, -1), rows_LS)

    @property
    def texts(self) -> int:
        """B."""
        return self.lengths_CB.shape[1]

    @property
    def clients(self) -> int:
        """C."""
        return len(self.lengths_CB)

    @property
    def lanes(self) -> int:
        """L."""
        return self.clients * self.directions

    @cached_property
    def runs(self) -> list[tuple[int, int]]:
        """(steps, texts) of each run of consecutive steps of equal width."""
        sizes = np.asarray(self.sizes_T)
        ends = np.append(np.flatnonzero(np.diff(sizes)) + 1, len(sizes))
        return [(int(b - a), int(sizes[a])) for a, b in zip([0, *ends[:-1]], ends, strict=True)]

    def blocks(self, rows_PX: Tensor) -> list[Tensor]:
        """Split ``rows_PX`` into its runs, each of shape (steps, L, texts, X)."""
        spans = [steps * self.lanes * texts for steps, texts in self.runs]
        pieces = rows_PX.split(spans)
        return [p.unflatten(0, (steps, self.lanes, -1)) for p, (steps, _) in zip(pieces, self.runs, strict=True)]

    def steps(self, rows_PX: Tensor) -> list[Tensor]:
        """Split ``rows_PX`` into its steps, each of shape (L, texts, X).

        All of them at once: slicing one by one would take as long as the computation.
        """
        return [step for block in self.blocks(rows_PX) for step in block.unbind(0)]

    @cached_property
    def by_lane(self) -> Tensor:
        """All rows in lane order, L x S, flat."""
        return self._tensor(self.places.rows_LS)

    @cached_property
    def before(self) -> Tensor:
        """For all rows after the first step, the row of the step before."""
        first = self.lanes * self.texts
        earlier_S = (
            np.arange(self.texts, len(self.places.step_S))
            - np.asarray(self.sizes_T)[self.places.step_S[self.texts :] - 1]
        )
        ordered = np.empty(self.places.rows_LS.size - first, np.int64)
        ordered[self.places.rows_LS[:, self.texts :] - first] = self.places.rows_LS[:, earlier_S]
        return self._tensor(ordered)

    @cached_property
    def starts(self) -> Tensor:
        """``starts_T``, on the device."""
        return self._tensor(self.starts_T)

    @cached_property
    def order(self) -> Tensor:
        """``order_CB``, flat and on the device."""
        return self._tensor(self.order_CB)

    @cached_property
    def lengths(self) -> Tensor:
        """``lengths_CB``, flat and on the device."""
        return self._tensor(self.lengths_CB)

    @cached_property
    def depths(self) -> Tensor:
        """The steps of each block of texts."""
        firsts = np.arange(0, self.texts, BLOCK)
        return self._tensor((np.asarray(self.sizes_T) > firsts[:, None]).sum(1))

    def source(self, inputs_CS: Ints, rows: int) -> Tensor:
        """Return the index of the projected input of each row, shape (P,).

        Every client has ``rows`` inputs, with one projection for each direction. ``inputs_CS`` is the input at each
        token place.
        """
        lane_L1 = np.arange(self.lanes)[:, None]
        client_L1, direction_L1 = lane_L1 // self.directions, lane_L1 % self.directions
        taken_LS = (client_L1 * rows + inputs_CS[client_L1, self.places.place_LS]) * self.directions + direction_L1
        return self._in_row_order(taken_LS)

    @cached_property
    def deep_source(self) -> Tensor:
        """The same where there is one input per token place: every layer after the first."""
        places = self.places.text_CS.shape[1]
        return self.source(np.broadcast_to(np.arange(places), self.places.text_CS.shape), places)

    @cached_property
    def text_rows(self) -> Tensor:
        """For each row, P, lane x (B + 1) + text, for sums over texts; padding goes to text B."""
        lane_L1 = np.arange(self.lanes)[:, None]
        read_LS = self.places.text_CS[lane_L1 // self.directions, self.places.place_LS]
        return self._in_row_order(lane_L1 * (self.texts + 1) + read_LS)

    @cached_property
    def token_rows(self) -> Tensor:
        """Rows of all directions, side by side, for each client and token place: C x S x K, flat."""
        inverse_LS = np.empty_like(self.places.place_LS)  # mirroring undoes itself
        np.put_along_axis(inverse_LS, self.places.place_LS, self.places.rows_LS, 1)
        return self._tensor(inverse_LS.reshape(self.clients, self.directions, -1).transpose(0, 2, 1))

    @cached_property
    def last_rows(self) -> Tensor:
        """Rows of all directions after a text's last step, for each client and text: C x B x K, flat."""
        rows_CKS = self.places.rows_LS.reshape(self.clients, self.directions, -1)
        order_CB = self.places.text_CS[:, : self.texts]  # each text has a first step
        lengths_CB = np.stack([np.bincount(text_S, minlength=self.texts + 1) for text_S in self.places.text_CS])
        last_CB = np.empty_like(order_CB)
        ends_CB = self.starts_T[np.take_along_axis(lengths_CB, order_CB, 1) - 1] + np.arange(self.texts)
        np.put_along_axis(last_CB, order_CB, ends_CB, 1)
        rows_CKB = np.take_along_axis(rows_CKS, last_CB[:, None], 2)
        return self._tensor(rows_CKB.transpose(0, 2, 1))

    def _in_row_order(self, values_LS: Ints) -> Tensor:
        ordered_P = np.empty(self.places.rows_LS.size, np.int64)
        ordered_P[self.places.rows_LS] = values_LS
        return self._tensor(ordered_P)

    def _tensor(self, values: Ints) -> Tensor:
        return to_device(np.ascontiguousarray(values).reshape(-1), self.device)
