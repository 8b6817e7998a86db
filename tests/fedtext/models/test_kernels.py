"""The Triton kernels without a GPU: what they compute, that they compile, and where they are refused."""

import os
import subprocess
import sys
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from fedtext.config import engine
from fedtext.config.engine import check_engine, engine_reason, stack_size
from fedtext.errors import UserError
from fedtext.models.packing import Packing
from fedtext.models.recurrent import KERNEL_WIDTH
from tests import tiny
from tests.commands import ROOT

TRITON = pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed (it is for Linux on x86-64)")
# All four for a kind of GPU, with the least shared memory that a program has on any (48 KiB) as the limit; and nothing
# that a program keeps is moved out of its registers.
COMPILE = """
import subprocess
import sys
from pathlib import Path

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from fedtext.models import kernels

width, capability, folder = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
assembler = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "ptxas"
for kernel in (kernels._gru_forward, kernels._gru_backward, kernels._lstm_forward, kernels._lstm_backward):
    kinds = {name: "constexpr" if name.isupper() else "*fp32" for name in kernel.arg_names}
    kinds |= {"starts": "*i64", "depths": "*i64"}
    source = ASTSource(kernel, kinds, {"WIDTH": width, "PADDED": kernels.padded(width)})
    made = triton.compile(source, target=GPUTarget("cuda", capability, 32), options=kernels.OPTIONS)
    assert made.asm["cubin"] and made.metadata.shared <= 48 * 1024, (kernel.__name__, made.metadata.shared)
    (folder / "kernel.ptx").write_text(made.asm["ptx"])
    kind = f"sm_{capability}" + ("a" if capability == 90 else "")
    words = [assembler, "-v", f"-arch={kind}", folder / "kernel.ptx", "-o", folder / "kernel.cubin"]
    said = subprocess.run(words, check=True, capture_output=True, text=True).stderr
    assert " 0 bytes spill stores, 0 bytes spill loads" in said, (kernel.__name__, said)
"""


def python(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    without = {name: value for name, value in os.environ.items() if not name.startswith("TRITON_")}
    return subprocess.run(
        [sys.executable, *words], cwd=ROOT, env=without | variables, capture_output=True, text=True, timeout=500
    )


@pytest.mark.slow
@TRITON
def test_kernels_equal_the_loops_in_tritons_interpreter() -> None:
    done = python("-m", "pytest", "-q", "tests/interpreted.py", TRITON_INTERPRET="1", OMP_NUM_THREADS="1")
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]


@pytest.mark.slow
@TRITON
@pytest.mark.parametrize("capability", [80, 90], ids=["Ampere", "Hopper"])
def test_kernels_compile_for_a_gpu_up_to_the_widest(capability: int, tmp_path: Any) -> None:
    words = [str(KERNEL_WIDTH), str(capability), str(tmp_path)]
    done = python("-c", COMPILE, *words, TRITON_CACHE_DIR=str(tmp_path / "cache"))
    assert done.returncode == 0, done.stderr[-5000:]


def test_a_packing_says_where_steps_begin_and_where_blocks_end() -> None:
    packing = Packing.of(np.array([[1] * 20 + [3] * 17 + [4] * 3]), 2, torch.device("cpu"))
    assert packing.sizes_T == [40, 20, 20, 3]
    assert packing.starts.tolist() == [0, 40, 60, 80, 83]
    assert packing.depths.tolist() == [4, 3, 1]


def test_auto_does_not_take_them_and_stacks_are_those_of_cells() -> None:
    triton, auto = (tiny.configured("kteps", training={"engine": engine}) for engine in ("triton", "auto"))
    assert (triton.engine, auto.engine) == ("triton", "cells")
    assert engine_reason(triton) == "engine triton: the steps of a bigru in one kernel, equal to torch's to rounding"
    assert stack_size(triton, 1000) == stack_size(auto, 1000)
    assert tiny.experiment("kteps", training={"engine": "triton", "stack": 3}).training.stack == 3


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        ({"hidden": KERNEL_WIDTH + 1}, f"triton is for up to {KERNEL_WIDTH} hidden units; with {KERNEL_WIDTH + 1}"),
        ("bag", "model bag has no recurrent layers for triton"),
    ],
)
def test_a_model_they_are_not_for_is_refused(model: Any, sentence: str) -> None:
    with pytest.raises(ValidationError, match=sentence):
        tiny.experiment(model=model, training={"engine": "triton"})


def test_a_place_they_cannot_run_in_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    experiment = tiny.experiment(training={"engine": "triton"})
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    with pytest.raises(UserError, match="triton needs a GPU, but clients would be trained on the CPU"):
        check_engine(experiment, "cpu")
    monkeypatch.setattr(engine, "find_spec", lambda name: None)
    with pytest.raises(UserError, match="Triton is not installed here"):
        check_engine(experiment, "cuda")
    check_engine(tiny.configured(), "cpu")
    with pytest.raises(UserError, match="tf32 is about a GPU's products, but clients would be trained on the CPU"):
        check_engine(tiny.configured(training={"tf32": True}), "cpu")
    check_engine(tiny.configured(training={"tf32": True}), "cuda")
    with pytest.raises(UserError, match="tf32 is about a GPU's products, but clients would be trained on device mps"):
        check_engine(tiny.configured(training={"tf32": True}), "mps")
    with pytest.raises(UserError, match="triton needs a GPU, but clients would be trained on device mps"):
        check_engine(experiment, "mps")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (7, 5))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "Tesla T4")
    with pytest.raises(UserError, match=r"training\.tf32: Tesla T4 does not support it"):
        check_engine(tiny.configured(training={"tf32": True}), "cuda")
    with pytest.raises(ValueError, match="the engine triton does not use TF32"):
        tiny.experiment(training={"engine": "triton", "tf32": True})
