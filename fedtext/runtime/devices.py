"""How numbers come from the CPU to where clients are computed."""

import torch
from numpy.typing import NDArray
from torch import Tensor

from fedtext.errors import UserError

LOCKED = 4_000_000  # bytes: page-locked memory is kept once it has been taken, and tables are too large for that


def device_of(name: str) -> torch.device:
    """The device of this name. Raises UserError where there is none."""
    try:
        return torch.zeros(1, device=name).device
    except (RuntimeError, AssertionError) as error:
        raise UserError(f"--device: {name} is not there ({str(error).splitlines()[0]})") from error


def no_cuda() -> str:
    """Why this process cannot compute on a GPU, as a clause; empty if it can."""
    if torch.cuda.is_available():
        return ""
    built = torch.version.cuda or torch.version.hip
    return f"torch {torch.__version__} " + ("finds no GPU there" if built else "has no CUDA")


def to_device(values: NDArray, device: torch.device) -> Tensor:
    """A tensor of ``values``: on the CPU the same memory, elsewhere a copy, which no one waits for unless it is large.
    (From ordinary memory it would first wait until the GPU has done all that it was asked for: a dozen times a
    batch.)"""
    if device.type == "cpu":
        return torch.from_numpy(values)
    tensor = torch.from_numpy(values) if values.flags.writeable else torch.tensor(values)
    return tensor.to(device) if values.nbytes > LOCKED else tensor.pin_memory().to(device, non_blocking=True)
