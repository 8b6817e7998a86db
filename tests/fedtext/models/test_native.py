"""The C files of engine native, at widths that fill vectors and panels and at those that do not."""

import os
import platform
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fedtext.config.engine import check_engine, choose_engine, engine_reason
from fedtext.errors import UserError
from fedtext.models import native, steps
from fedtext.models.packing import Packing
from fedtext.runtime import compiled
from fedtext.runtime.compiled import COMPILERS, compile_problem
from tests import tiny
from tests.loops import nonempty

CPU = torch.device("cpu")
pytestmark = pytest.mark.skipif(bool(compile_problem()), reason=compile_problem())


def layer(module: Any, lengths_CB: list[list[int]], width: int, gates: int, dtype: torch.dtype) -> list[Tensor]:
    """Return the states of a layer with two directions, and the gradients of a weighted sum of them."""
    packing, generator = Packing.of(np.array(lengths_CB), 2, CPU), torch.Generator().manual_seed(width)
    source_P = packing.deep_source

    def drawn(*shape: int) -> Tensor:
        return torch.randn(shape, dtype=dtype, generator=generator)

    inputs = [drawn(int(source_P.max()) + 1, gates * width), drawn(packing.lanes, gates * width, width) / width**0.5]
    inputs += [drawn(packing.lanes, width)] if gates == 3 else []
    leaves = [tensor.requires_grad_() for tensor in inputs]
    apply = getattr(module, "GRUSteps" if gates == 3 else "LSTMSteps").apply
    hidden_PH = apply(*leaves, source_P, packing)[0]
    return [hidden_PH.detach(), *torch.autograd.grad((hidden_PH * drawn(*hidden_PH.shape)).sum(), leaves)]


@pytest.mark.parametrize("gates", [3, 4], ids=["gru", "lstm"])
@pytest.mark.parametrize("width", [1, 8, 16, 40, 64, 70])
@pytest.mark.parametrize(("dtype", "most"), [(torch.float64, 1e-12), (torch.float32, 2e-5)])
def test_a_layer_has_the_states_and_gradients_of_cells(width: int, gates: int, dtype: torch.dtype, most: float) -> None:
    for lengths in nonempty([[[9, 30, 1, 17, 30, 4, 2, 8, 25]], [[3, 1], [2, 2], [1, 7]], [[1]]]):
        got, expected = (layer(module, lengths, width, gates, dtype) for module in (native, steps))
        for one, other in nonempty(zip(got, expected, strict=True)):
            assert (one - other).abs().max() <= most


@pytest.mark.parametrize("shape", [(1, 1, 1), (7, 3, 5), (13, 300, 64), (64, 513, 72), (100, 40, 200)])
@pytest.mark.parametrize(("dtype", "most"), [(torch.float64, 1e-11), (torch.float32, 2e-4)])
def test_a_product_has_torchs_sums_whatever_the_strides(
    shape: tuple[int, int, int], dtype: torch.dtype, most: float
) -> None:
    rows, depth, columns = shape
    generator = torch.Generator().manual_seed(depth)
    for transposed in nonempty([(False, False), (True, False), (False, True), (True, True)]):
        left, right = (
            torch.randn(*(reversed(of) if swap else of), dtype=dtype, generator=generator)
            for of, swap in zip(((rows, depth), (depth, columns)), transposed, strict=True)
        )
        left, right = (tensor.T if swap else tensor for tensor, swap in zip((left, right), transposed, strict=True))
        sums = torch.ones(rows + 1, columns, dtype=dtype)
        native.add_product(sums[:rows], left, right)
        assert (sums[:rows] - 1 - left @ right).abs().max() <= most
        assert (sums[rows] == 1).all(), "nothing is written beyond the last row"


@pytest.mark.parametrize("gates", [3, 4], ids=["gru", "lstm"])
def test_the_bits_of_a_text_do_not_depend_on_the_others(gates: int) -> None:
    """Tiles of rows have other sizes then, and other clients are lanes of the same loop."""
    together = layer(native, [[5] * 9, [5] * 9], 40, gates, torch.float32)[0]
    hidden_TLBH = together.view(5, 4, 9, 40)
    for texts in nonempty(range(1, 9)):
        packing, generator = Packing.of(np.array([[5] * 9] * 2), 2, CPU), torch.Generator().manual_seed(40)
        inputs = torch.randn(int(packing.deep_source.max()) + 1, gates * 40, generator=generator)
        weight = torch.randn(4, gates * 40, 40, generator=generator) / 40**0.5
        bias = [torch.randn(4, 40, generator=generator)] if gates == 3 else []
        few = Packing.of(np.array([[5] * texts]), 2, CPU)
        rows_TLB = packing.deep_source.view(5, 4, 9)[:, :2, :texts].contiguous()
        apply = (native.GRUSteps if gates == 3 else native.LSTMSteps).apply
        alone = apply(inputs, weight[:2], *[b[:2] for b in bias], rows_TLB.view(-1), few)[0]
        assert torch.equal(alone.view(5, 2, texts, 40), hidden_TLBH[:, :2, :texts])


ROWS_ALONE = """
import torch
from fedtext.models.native import add_product
for dtype in (torch.float32, torch.float64):
    for depth, columns in ((40, 3), (64, 40), (300, 120)):
        left, right = torch.randn(9, depth, dtype=dtype), torch.randn(depth, columns, dtype=dtype)
        whole = torch.zeros(9, columns, dtype=dtype)
        add_product(whole, left, right)
        for rows in range(1, 9):
            few = torch.zeros(rows, columns, dtype=dtype)
            add_product(few, left[:rows], right)
            assert torch.equal(few, whole[:rows]), (dtype, depth, columns, rows)
"""


@pytest.mark.parametrize("compiler", ["cc", "cc -mno-avx512f", "cc -mno-fma -mno-avx512f", "cc -mno-avx"])
def test_the_bits_of_a_row_do_not_depend_on_the_other_rows(compiler: str, tmp_path: Path) -> None:
    """Nor on the processor's vectors: a compiler rounds once or twice where it may choose, in each tile anew."""
    if compiler != "cc" and platform.machine() != "x86_64":
        pytest.skip("the instructions of an x86-64 are left out")
    environment = os.environ | {"CC": compiler, "XDG_CACHE_HOME": str(tmp_path)}
    subprocess.run([sys.executable, "-c", ROWS_ALONE], env=environment, check=True)


def test_not_a_number_comes_out_as_it_went_in() -> None:
    packing = Packing.of(np.array([[2, 2]]), 1, CPU)
    inputs = torch.zeros(4, 12)
    inputs[1] = float("nan")
    states = native.GRUSteps.apply(inputs, torch.ones(1, 12, 4), torch.ones(1, 4), torch.arange(4), packing)[0]
    assert states.isnan().any(1).tolist() == [False, True, False, True], "the second text, from its first token on"


def test_saturated_gates_are_those_of_torch() -> None:
    packing, inputs = Packing.of(np.array([[1]]), 1, CPU), torch.tensor([[-1e4, 1e4, 3e38, -3e38, 0.0, -100.0]])
    got, expected = (
        module.GRUSteps.apply(inputs, torch.zeros(1, 6, 2), torch.zeros(1, 2), torch.arange(1), packing)[0]
        for module in (native, steps)
    )
    assert torch.allclose(got, expected, atol=1e-6)


def test_auto_is_native_where_it_can_be_and_says_why_not(caplog: pytest.LogCaptureFixture) -> None:
    auto, bag, other = (tiny.experiment(model=model) for model in ("bigru", "bag", "transformer"))
    chosen = choose_engine(auto, gpu=False, problem="")
    assert chosen.engine == "native"
    assert engine_reason(chosen) == "engine native: the steps of a bigru in C, equal to torch's to rounding"
    assert choose_engine(auto, gpu=True, problem="no compiler").engine == "cells"
    assert choose_engine(auto, gpu=False, problem="no compiler", begun="native").engine == "native"
    assert choose_engine(auto, gpu=False, problem="", begun="cells").engine == "cells"
    assert engine_reason(choose_engine(bag, gpu=False, problem="")).startswith(
        "engine native: the first layer of a bag"
    )
    assert choose_engine(bag, gpu=True, problem="").engine == "reference"
    assert choose_engine(other, gpu=False, problem="") == other
    assert not caplog.messages
    assert choose_engine(auto, gpu=False, problem="no compiler").engine == "cells"
    assert caplog.messages == ["engine cells is used, since the faster native cannot be: no compiler"]
    assert choose_engine(bag, gpu=False, problem="none").engine == "reference"
    assert caplog.messages[1:] == ["engine reference is used, since the faster native cannot be: none"]
    asked = tiny.experiment(training={"engine": "cells"})
    assert choose_engine(asked, gpu=False, problem="") == asked


def test_native_on_a_gpu_is_refused() -> None:
    with pytest.raises(UserError, match="native is for CPUs, but clients would be trained on a GPU"):
        check_engine(tiny.experiment(training={"engine": "native"}), gpu=True)


@pytest.mark.parametrize(
    ("compiler", "sentence"),
    [
        ("", f"no C compiler was found ({', '.join(COMPILERS)}, or $CC)"),
        ("#!/bin/sh\necho no such option >&2\nexit 1\n", "cannot compile bag.c: no such option"),
    ],
    ids=["none", "broken"],
)
def test_a_machine_without_a_compiler_trains_with_cells_and_says_so(
    compiler: str, sentence: str, tmp_path: Path
) -> None:
    if compiler:
        (tmp_path / "cc").write_text(compiler)
        (tmp_path / "cc").chmod(0o755)
    environment = os.environ | {"PATH": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    run = [sys.executable, "-m", "fedtext", "demo.yaml", "training.rounds=1"]
    done = subprocess.run(run, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert "engine cells is used, since the faster native cannot be: " in done.stderr
    assert sentence in done.stderr
    refused = subprocess.run([*run, "training.engine=native"], env=environment, capture_output=True, text=True)
    assert refused.returncode == 2
    assert refused.stderr.startswith("error: training.engine: native cannot be used: ")


PROBLEM = [sys.executable, "-c", "from fedtext.runtime.compiled import compile_problem; print(compile_problem())"]


def found(environment: Mapping[str, str]) -> str:
    """Return the problem that a process with this environment has."""
    return subprocess.run(PROBLEM, env=environment, capture_output=True, text=True, check=True).stdout.strip()


def test_a_library_is_compiled_once_and_again_if_it_is_damaged(tmp_path: Path) -> None:
    environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path)}
    for _ in range(2):
        assert found(environment) == ""
        made = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "fedtext").iterdir()}
        assert len(made) == 6, "bag.c, native.c and rows.c, each for 32 and 64 bits; nothing else is left there"
        environment["PATH"] = os.environ["PATH"]
    again = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "fedtext").iterdir()}
    assert made == again
    damaged = next((tmp_path / "fedtext").glob("bag-32-*"))
    damaged.write_bytes(damaged.read_bytes()[:1000])
    assert found(environment) == ""
    assert damaged.stat().st_size > 1000


@pytest.mark.parametrize(
    ("compiler", "sentence"),
    [
        ("cc 'a", "$CC is not a command (No closing quotation): correct it, or leave it out"),
        ("no-such-compiler", f"no C compiler was found ({', '.join(COMPILERS)}, or $CC); install one, such as gcc"),
        ("true", "true cannot compile bag.c: no message"),
        ("{tmp}/text", "{tmp}/text cannot say its version (bag.c is to be compiled): Exec format error"),
    ],
)
def test_a_compiler_that_is_none_is_one_sentence(compiler: str, sentence: str, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("not a program")
    (tmp_path / "text").chmod(0o755)
    said = found(os.environ | {"XDG_CACHE_HOME": str(tmp_path), "CC": compiler.format(tmp=tmp_path)})
    assert said.endswith(sentence.format(tmp=tmp_path))


def test_a_compiler_that_does_not_end_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedtext.runtime.compiled.PATIENCE_S", 0.1)
    with pytest.raises(UserError, match=r"^sleep did not compile bag.c within 0.1 s$"):
        compiled._run(["sleep", "30"], "compile bag.c")


def test_a_cache_that_cannot_be_written_does_without(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for changes in nonempty([{"XDG_CACHE_HOME": str(tmp_path / "file")}, {"CC": "cc -DOPTION", "HOME": "/proc/none"}]):
        environment = {name: value for name, value in os.environ.items() if name != "XDG_CACHE_HOME"} | changes
        assert found(environment) == ""
