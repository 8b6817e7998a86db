"""The processor and the software that a process computes with, on which the rounding of updates depends."""

import platform
import re
from functools import cache
from pathlib import Path

import torch

from fedtext.config.experiment import Experiment
from fedtext.errors import UserError
from fedtext.models.checkpointed import in_bfloat16
from fedtext.models.native_transformer import in_tiles
from fedtext.runtime.compiled import compiler_name

# Lines of /proc/cpuinfo on a processor's design, on x86 and on ARM. Its name is left out: a design has several names.
DESIGN = ("vendor_id", "cpu family", "model", "CPU implementer", "CPU architecture", "CPU variant", "CPU part")


def machine_of(experiment: Experiment, device: str) -> str:
    """Return the name (``machine``) of what an experiment's clients are trained with in this process.

    Args:
        experiment: The experiment.
        device: The torch device.
    """
    return machine(device, experiment.engine == "native", in_bfloat16(experiment.model))


def machine(device: str, native: bool, halves: bool = False) -> str:
    """Return the name of what this process computes with. Where two names differ, updates may have other bits.

    On CPUs those of equal names normally have the same, unless variables of the environment change what libraries
    compute, as ``MKL_CBWR`` does. Some operations on GPUs have no fixed order.

    Args:
        device: The torch device that clients train on.
        native: Whether they train with engine ``native``, which the machine's compiler has compiled.
        halves: Whether products are in bfloat16.

    Returns:
        Such as ``AuthenticAMD 25/17, AVX512, torch 2.13.0+cpu, gcc (Debian 12.2.0-14) 12.2.0``, with ``AMX`` where
        engine ``native`` computes products in bfloat16 in tile registers.
    """
    library = f"torch {torch.__version__}"
    kind = torch.device(device).type
    if kind == "cuda":
        return f"{torch.cuda.get_device_name(device)}, CUDA {torch.version.cuda}, {library}"
    if kind != "cpu":
        return f"{processor()}, {kind}, {library}"
    vectors = torch.backends.cpu.get_cpu_capability()
    tiles, compiler = _tiles() if native and halves else [], [_compiler()] if native else []
    return ", ".join([processor(), vectors, *tiles, library, *compiler])


@cache
def processor() -> str:
    """Return the design of this machine's processor: its vendor and numbers, or its name where Linux does not run."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    found = dict[str, str]()
    for name, value in (re.split(r"\s*:\s*", line, maxsplit=1) for line in lines if ":" in line):
        found.setdefault(name, value)
    known = [found[name] for name in DESIGN if found.get(name)]
    return f"{known[0]} {'/'.join(known[1:])}" if known else platform.processor() or platform.machine()


@cache
def _compiler() -> str:
    """Return the version of the compiler. The line of gcc begins with the name that it was called by."""
    try:
        return re.sub(r"^(cc|gcc)(-\d+)? \(", "gcc (", compiler_name())
    except UserError:  # it was removed after it had compiled
        return "no compiler"


def _tiles() -> list[str]:
    """Return the name of the processor's tile registers, if products in bfloat16 are summed in them."""
    try:
        return ["AMX"] if in_tiles() else []
    except UserError:
        return []
