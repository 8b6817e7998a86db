"""Transformers without padding: the tokens of all texts lie end to end, and only attention sees texts of one length.

A padded batch computes all layers for padding too. Here the layers receive the S tokens that are there, and the
attention of the package transformers is replaced by a function that lays queries, keys and values out as a padded batch
and takes the outputs of the tokens. What a token receives is the same: rows of a product do not depend on each other.

On a CPU attention is computed in float32 even where products are in bfloat16: torch's attention takes 4 to 10 times as
long in bfloat16, while products of linear layers are faster.

Legend: B batch, T time, S tokens that are there, N heads, A width of a head, D embedding.
"""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import pad, scaled_dot_product_attention

from fedtext.models.native_attention import attend
from fedtext.runtime.devices import to_device
from fedtext.text import pretrained

NAME = "fedtext_unpadded"
ROWS = 16  # a multiple of what the tiles of a processor's bfloat16 instructions have


@dataclass(frozen=True)
class Places:
    """Where the tokens of a batch are.

    Attributes:
        flat_S: Index of each token among the B x T places, text by text.
        step_S: Its position in its text.
        there_BT: Whether a place has a token.
        padded: Whether there are places without a token.
        starts: Index of each text's first token among the S, and at the end S; None: attention is not computed in C.
    """

    flat_S: Tensor
    step_S: Tensor
    there_BT: Tensor
    padded: bool
    starts: Tensor | None = None

    @classmethod
    def of(cls, lengths_B: NDArray[np.int64], width: int, device: torch.device, in_c: bool = False) -> "Places":
        """Compute the places of the texts of a batch, without waiting for the device.

        Args:
            lengths_B: Number of tokens of each text.
            width: T, at least the largest of them.
            device: The device of the batch.
            in_c: Whether attention is computed in C.
        """
        there_BT = np.arange(width) < lengths_B[:, None]
        flat_S = np.flatnonzero(there_BT)
        flat, step, there = (to_device(values, device) for values in (flat_S, flat_S % width, there_BT))
        here = in_c and device.type == "cpu"
        starts = torch.from_numpy(np.concatenate([[0], np.cumsum(lengths_B)])) if here else None
        return cls(flat, step, there, len(flat_S) < there_BT.size, starts)

    def taken(self, values_BTD: Tensor) -> Tensor:
        """Return the values of the tokens, shape (S, D)."""
        return values_BTD.flatten(0, 1)[self.flat_S]

    def laid(self, values_SD: Tensor) -> Tensor:
        """Lay values of the tokens out as a padded batch of shape (B, T, D), with zeros where there is none."""
        empty_PD = values_SD.new_zeros(self.there_BT.numel(), values_SD.shape[1])
        return empty_PD.index_copy(0, self.flat_S, values_SD).unflatten(0, self.there_BT.shape)


def run_unpadded(
    run: Callable[..., Any], inputs_SD: Tensor, places: Places, whole: bool = False, **options: Any
) -> Tensor:
    """Run layers on the tokens alone.

    Where blocks are not computed in C as a whole, so that products in bfloat16 may be torch's, a text of zeros follows
    the others, and the number of rows is a multiple of ``ROWS``: for each new number of rows torch's library compiles a
    program, which takes longer than the product, and caches it.

    Args:
        run: The network of the package transformers, whose attention is ``implementation()``.
        inputs_SD: Its inputs.
        places: The places of the tokens.
        whole: Whether products are computed in C too.
        options: More arguments of the network.

    Returns:
        Its outputs, shape (B, T, D), which are 0 where there is no token.
    """
    tokens, steps_S, among = len(inputs_SD), places.step_S, places
    if places.starts is not None and not whole and (more := -tokens % ROWS) and _in_bfloat16():
        inputs_SD, steps_S = pad(inputs_SD, (0, 0, 0, more)), pad(steps_S, (0, more))
        among = replace(places, starts=torch.cat([places.starts, places.starts[-1:] + more]))
    found = run(inputs_embeds=inputs_SD[None], position_ids=steps_S[None], places=among, **options)
    return places.laid(found.last_hidden_state[0][:tokens])


def _in_bfloat16() -> bool:
    """Whether products on the CPU are in bfloat16."""
    return torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu") == torch.bfloat16


@lru_cache(maxsize=1)
def implementation() -> str:
    """Register ``attention`` with the package transformers; return its name there."""
    pretrained.library().AttentionInterface.register(NAME, attention)
    return NAME


def attention(
    module: Any,
    query_BNTA: Tensor,
    key_BNTA: Tensor,
    value_BNTA: Tensor,
    attention_mask: Tensor | None,
    *,
    places: Places | None = None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **more: Any,
) -> tuple[Tensor, None]:
    """Compute attention within each text. Its signature is that of the package's functions.

    Args:
        module: The layer.
        query_BNTA, key_BNTA, value_BNTA: Of all tokens, shape (1, N, S, A); without places, of a batch. Keys and values
            may have fewer heads, each for as many heads of the queries (grouped-query attention).
        attention_mask: None: padding, which is last in a text, follows from the places.
        places: The places of the tokens, which the network passes on; None: all texts of the batch have one length.
        dropout: Rate of dropout on the weights.
        scaling: Factor of the products.
        more: Other arguments of the package, which are not needed.

    Returns:
        The outputs, shape (1, S, N, A) or (B, T, N, A), and None for the weights, which are not kept.
    """
    if (shared := query_BNTA.shape[1] // key_BNTA.shape[1]) > 1:
        key_BNTA, value_BNTA = (part.repeat_interleave(shared, 1) for part in (key_BNTA, value_BNTA))
    parts, mask = (query_BNTA, key_BNTA, value_BNTA), attention_mask
    # Rotary positions make queries and keys float32 where products, and so values, are in bfloat16.
    heads, width, dtype = query_BNTA.shape[1], query_BNTA.shape[3], value_BNTA.dtype
    causal = getattr(module, "is_causal", False) and query_BNTA.shape[2] > 1  # one token, with those before it, is last
    wide = dtype == torch.bfloat16 and query_BNTA.device.type == "cpu"
    if wide:
        parts = query_BNTA.float(), key_BNTA.float(), value_BNTA.float()
    if places and places.starts is not None:
        rows = [part[0].transpose(0, 1).flatten(1) for part in parts]
        scale = width**-0.5 if scaling is None else scaling
        out_SD = attend(rows[0], rows[1], rows[2], places.starts, heads, scale, causal, dropout)
        return out_SD.to(dtype).unflatten(1, (heads, width))[None], None
    if places:
        all_SK = torch.cat([part[0].transpose(0, 1).flatten(1) for part in parts], 1)
        parts = places.laid(all_SK).unflatten(2, (3, heads, width)).permute(2, 0, 3, 1, 4).unbind()
        mask = places.there_BT[:, None, None] if places.padded and not causal else None  # padding is last
    with torch.autocast("cpu", enabled=False) if wide else nullcontext():  # which would make them bfloat16 again
        out_BNTA = scaled_dot_product_attention(
            *parts, attn_mask=mask, dropout_p=dropout, is_causal=causal, scale=scaling
        )
    out_BTNA = out_BNTA.transpose(1, 2).to(dtype)
    return (places.taken(out_BTNA.flatten(2)).unflatten(1, (heads, width))[None] if places else out_BTNA), None
