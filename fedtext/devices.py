"""How numbers come from the CPU to where clients are computed."""

import weakref

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


def to_device(values: NDArray, device: torch.device) -> Tensor:
    """A tensor of ``values``: on the CPU the same memory, elsewhere a copy that nobody waits for. (From ordinary memory
    it would first wait until the GPU has done all that it was asked for: a dozen times a batch.)"""
    if device.type == "cpu":
        return torch.from_numpy(values)
    tensor = torch.from_numpy(values) if values.flags.writeable else torch.tensor(values)
    return tensor.pin_memory().to(device, non_blocking=True)


class Resident:
    """Arrays on a device that are read there again and again, and that nobody changes. Each is sent once, and stays
    until another one comes under its name."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.kept: dict[str, tuple[weakref.ref[NDArray[np.float32]], Tensor]] = {}

    def of(self, name: str, array: NDArray[np.float32]) -> Tensor:
        if name not in self.kept or self.kept[name][0]() is not array:
            self.kept.pop(name, None)  # its memory is needed
            self.kept[name] = weakref.ref(array), torch.tensor(array, device=self.device)
        return self.kept[name][1]
