"""Torch devices, and copies from the CPU to them."""

import torch
from numpy.typing import NDArray
from torch import Tensor

from fedtext.errors import UserError, option

LOCKED = 4_000_000  # bytes: larger arrays do not use page-locked memory, which is never released


def device_of(name: str) -> torch.device:
    """Return the device of this name. Raises UserError if there is none, or one without memory (``meta``)."""
    problem, cause = "its tensors have no values", None
    try:
        if not (made := torch.zeros(1, device=name)).is_meta:
            return made.device
    except (RuntimeError, AssertionError) as error:
        problem, cause = str(error).splitlines()[0], error
    raise UserError(f"{option('device')}: {name} is not available ({problem})") from cause


def no_cuda() -> str:
    """Return why this process cannot use a GPU, as a clause; empty if it can."""
    if torch.cuda.is_available():
        return ""
    built = torch.version.cuda or torch.version.hip
    return f"torch {torch.__version__} " + ("finds no GPU there" if built else "has no CUDA")


def to_device(values: NDArray, device: torch.device) -> Tensor:
    """Return an array as a tensor on a device: on the CPU the same memory, on a GPU a copy.

    The copy is asynchronous unless the array is large. From memory that is not page-locked, it would first wait for all
    work of the GPU, about twelve times in a batch.
    """
    if device.type == "cpu":
        return torch.from_numpy(values)
    tensor = torch.from_numpy(values) if values.flags.writeable else torch.tensor(values)
    return tensor.to(device) if values.nbytes > LOCKED else tensor.pin_memory().to(device, non_blocking=True)
