"""A GPU to run code on where there is none: a tensor "there" has its numbers in the CPU's memory and computes what the
CPU would, but is held to what holds for a GPU's.

An operation on tensors of both places is refused, unless a GPU would take it. And whatever would make the CPU wait
until the GPU has done all it was asked for is counted: ``reads``, numbers that come back or that decide on a shape, and
``sends``, copies out of ordinary memory.
"""

from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing
from torch.utils._pytree import tree_leaves, tree_map

DEVICE = "meta"  # what torch keeps no numbers for: nothing can be computed there by accident

_COPIES = {"aten._to_copy.default", "aten.copy_.default"}
_READ = {f"aten.{name}.default" for name in ("_local_scalar_dense", "equal", "is_nonzero", "nonzero", "masked_select")}
_READ |= {"aten._unique2.default", "aten.bincount.default", "aten.repeat_interleave.Tensor"}
# Arguments that are the CPU's: lengths, and the sizes of steps.
_HERE = {"aten._pack_padded_sequence.default": 1, "aten._pad_packed_sequence.default": 1, "aten.gru.data": 1}
_HERE |= {"aten.lstm.data": 1, "aten._pack_padded_sequence_backward.default": 2}
_INDEXED = {"aten.index.Tensor", "aten.index_put_.default", "aten._index_put_impl_.default"}


class Far(Tensor):
    """A tensor there. ``here`` are its numbers."""

    here: Tensor

    @staticmethod
    def __new__(cls, here: Tensor) -> "Far":
        shape, stride, offset = here.shape, here.stride(), here.storage_offset()
        made = Tensor._make_wrapper_subclass(cls, shape, stride, offset, dtype=here.dtype, device=torch.device(DEVICE))
        made.here = here
        return made

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise AssertionError(f"{func} of a tensor that is elsewhere, outside of `with Elsewhere()`")


class Elsewhere(TorchDispatchMode):
    """While it lasts, ``DEVICE`` is such a GPU."""

    def __init__(self) -> None:
        super().__init__()
        self.reads, self.sends = 0, 0

    @property
    def waits(self) -> int:
        return self.reads + self.sends

    def _check(self, name: str, args: Any, tensors: list[Tensor]) -> None:
        """Raises RuntimeError where a GPU would: only single numbers, and indices, may be the CPU's."""
        exempt = [args[_HERE[name]]] if name in _HERE else []
        if name in _INDEXED and isinstance(args[0], Far):
            exempt = [index for index in args[1] if index is not None]
            self.reads += sum(isinstance(i, Far) and i.dtype in (torch.bool, torch.uint8) for i in exempt)
            self.sends += sum(not isinstance(i, Far) for i in exempt)
        for tensor in tensors:
            if tensor.dim() and not isinstance(tensor, Far) and not any(tensor is one for one in exempt):
                raise RuntimeError(f"{name}: some tensors are on the CPU, others are not")

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, kwargs = str(func), dict(kwargs or {})
        if name == "aten.is_pinned.default":
            return getattr(args[0], "locked", False)
        if name == "aten._pin_memory.default":
            copy = args[0].clone()
            copy.locked = True
            return copy
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        far = [tensor for tensor in tensors if isinstance(tensor, Far)]
        there = isinstance(args[0], Far) if name == "aten.copy_.default" else bool(far)
        if kwargs.get("device") is not None:
            there = torch.device(kwargs["device"]).type == DEVICE
            kwargs["device"] = torch.device("cpu")
        if name in _COPIES:
            source = args[1] if name == "aten.copy_.default" else args[0]
            if isinstance(source, Far) != there:
                awaited = not kwargs.get("non_blocking") or not getattr(source, "locked", False)
                self.sends += there and awaited
                self.reads += not there and awaited
        elif name in _READ:
            self.reads += bool(far)
        elif far:
            self._check(name, args, tensors)
        here_args, here_kwargs = tree_map(lambda leaf: leaf.here if isinstance(leaf, Far) else leaf, (args, kwargs))
        found = func(*here_args, **here_kwargs)
        if not there:
            return found
        if name == "aten._pack_padded_sequence.default":
            return Far(found[0]), found[1]  # the sizes of its steps stay on the CPU
        wrapped = tree_map(lambda leaf: Far(leaf) if isinstance(leaf, Tensor) else leaf, found)
        return return_and_correct_aliasing(func, args, kwargs, wrapped)
