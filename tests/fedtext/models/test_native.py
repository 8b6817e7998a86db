"""The C files of engine native, at widths that fill vectors and panels and at those that do not."""

import os
import platform
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from fedtext.config.engine import check_engine, choose_engine, engine_reason
from fedtext.errors import UserError
from fedtext.models import cells
from fedtext.models.native_attention import attend
from fedtext.models.native_products import write_product
from fedtext.models.packing import Packing
from fedtext.runtime import compiled
from fedtext.runtime.compiled import COMPILERS, PACKAGE, compile_problem
from tests import tiny
from tests.checkpoints import SCRATCH
from tests.loops import nonempty

CPU = torch.device("cpu")
pytestmark = pytest.mark.skipif(bool(compile_problem()), reason=compile_problem())


INPUTS = 11


def drawn(clients: int, places: int, width: int, gates: int, dtype: torch.dtype) -> list[Tensor]:
    """Draw the inputs of a layer with two directions, one for each token place, and its parameters, for each client."""
    generator, rows = torch.Generator().manual_seed(width), gates * width
    shapes = [(places, INPUTS), *2 * [(rows, INPUTS)], *2 * [(rows, width)], *4 * [(rows,)]]
    scales = [1, *2 * [INPUTS**-0.5], *2 * [width**-0.5], *4 * [1]]
    return [
        torch.randn(clients, *shape, dtype=dtype, generator=generator) * scale
        for shape, scale in zip(shapes, scales, strict=True)
    ]


def states(packing: Packing, tensors: list[Tensor], means: bool = False) -> Tensor:
    """Return the states of a layer, or their means, of all clients in one call."""

    def one(inputs: Tensor, *parameters: Tensor) -> Tensor:
        return cells.outputs(list(parameters), inputs, packing.deep_source, packing, means)

    return torch.vmap(one)(*tensors)


@pytest.mark.parametrize("gates", [3, 4], ids=["gru", "lstm"])
@pytest.mark.parametrize("width", [1, 8, 16, 40, 64, 70])
@pytest.mark.parametrize(("dtype", "most"), [(torch.float64, 1e-11), (torch.float32, 5e-5)])
def test_a_layer_has_the_states_and_gradients_of_cells(width: int, gates: int, dtype: torch.dtype, most: float) -> None:
    for lengths in nonempty([[[9, 30, 1, 17, 30, 4, 2, 8, 25]], [[3, 1], [2, 2], [1, 7]], [[1]]]):
        lengths_CB = np.array(lengths)
        cell, fast = (Packing.of(lengths_CB, 2, CPU, engine) for engine in ("cells", "native"))
        clients, places = cell.places.text_CS.shape
        tensors = [tensor.requires_grad_() for tensor in drawn(clients, places, width, gates, dtype)]
        pairs = [(states(packing, tensors), packing) for packing in (cell, fast)]
        factors = torch.randn(pairs[0][0].shape, dtype=dtype)
        by_state = [[hidden, *torch.autograd.grad((hidden * factors).sum(), tensors)] for hidden, _ in pairs]
        sums = torch.vmap(cells.summed, in_dims=(0, None))(states(cell, tensors), cell)
        pooled = sums / torch.from_numpy(lengths_CB)[..., None], states(fast, tensors, means=True)
        by_mean = [[means, *torch.autograd.grad(means.square().sum(), tensors)] for means in pooled]
        for got, expected in nonempty(zip(by_state[1] + by_mean[1], by_state[0] + by_mean[0], strict=True)):
            assert got.shape == expected.shape
            assert (got - expected).abs().max() <= most * max(1, expected.abs().max())


@pytest.mark.parametrize(
    "shape", [(1, 1, 1), (7, 3, 5), (13, 300, 64), (64, 513, 72), (100, 40, 200), (600, 270, 1032)]
)
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
        write_product(sums[:rows], sums[:rows], left, right)
        assert (sums[:rows] - 1 - left @ right).abs().max() <= most
        assert (sums[rows] == 1).all(), "nothing is written beyond the last row"


@pytest.mark.parametrize("gates", [3, 4], ids=["gru", "lstm"])
def test_the_bits_of_a_text_do_not_depend_on_the_others(gates: int) -> None:
    """Tiles of rows have other sizes then, and other clients are lanes of the same loop."""
    tensors = drawn(2, 45, 40, gates, torch.float32)
    hidden_TLBH = states(Packing.of(np.array([[5] * 9] * 2), 2, CPU, "native"), tensors).view(5, 4, 9, 40)
    for texts in nonempty(range(1, 9)):
        inputs_PI, *parameters = (tensor[0] for tensor in tensors)
        few, packing = inputs_PI.view(5, 9, -1)[:, :texts].flatten(0, 1), Packing.of(np.array([[5] * texts]), 2, CPU)
        packing = replace(packing, engine="native")
        alone = cells.outputs(parameters, few, packing.deep_source, packing, means=False)
        assert torch.equal(alone.view(5, 2, texts, 40), hidden_TLBH[:, :2, :texts])


ROWS_ALONE = """
import torch
from fedtext.models.native_attention import attend
from fedtext.models.native_products import write_product
for dtype in (torch.float32, torch.float64):
    for depth, columns in ((40, 3), (64, 40), (300, 120), (300, 1040)):
        left, right = torch.randn(700, depth, dtype=dtype), torch.randn(depth, columns, dtype=dtype)
        whole = torch.zeros(700, columns, dtype=dtype)
        write_product(whole, whole, left, right)
        for rows in (*range(1, 10), 23, 24, 97, 600):
            for one in (left[:rows], left.t().contiguous().t()[:rows]):  # read where it is, and copied
                few = torch.zeros(rows, columns, dtype=dtype)
                write_product(few, few, one, right)
                assert torch.equal(few, whole[:rows]), (dtype, depth, columns, rows)
"""


@pytest.mark.slow
@pytest.mark.parametrize("compiler", ["cc", "cc -mno-avx512f", "cc -mno-fma -mno-avx512f", "cc -mno-avx"])
def test_the_bits_of_a_row_do_not_depend_on_the_other_rows(compiler: str, tmp_path: Path) -> None:
    """Nor on the processor's vectors: a compiler rounds once or twice where it may choose, in each tile anew."""
    if compiler != "cc" and platform.machine() != "x86_64":
        pytest.skip("the instructions of an x86-64 are left out")
    environment = os.environ | {"CC": compiler, "XDG_CACHE_HOME": str(tmp_path)}
    subprocess.run([sys.executable, "-c", ROWS_ALONE], env=environment, check=True)


# With a payload, and a sign, too: torch's, two with all bits set, one with the last, and of float64.
NANS = [(torch.float32, bits) for bits in (0x7FC00000, 0x7FFFFFFF, -1, 0x7FC00001, 0x7F800001)]
NANS += [(torch.float64, bits) for bits in (0x7FF8000000000000, 0x7FFFFFFFFFFFFFFF, -1, 0x7FF8000000000001)]


@pytest.mark.parametrize("gates", [3, 4], ids=["gru", "lstm"])
@pytest.mark.parametrize(("dtype", "bits"), NANS)
def test_not_a_number_comes_out_as_it_went_in(dtype: torch.dtype, bits: int, gates: int) -> None:
    packing = Packing.of(np.array([[2, 2]]), 1, CPU, "native")
    size, integers = 4 * gates, torch.int32 if dtype == torch.float32 else torch.int64
    inputs = torch.zeros(4, size, dtype=dtype)
    inputs[1] = torch.tensor(bits, dtype=integers).view(dtype)
    parameters = [torch.eye(size), torch.ones(size, 4), torch.zeros(size), torch.ones(size)]
    own = [parameter.to(dtype) for parameter in parameters]
    hidden_PH = cells.outputs(own, inputs, torch.arange(4), packing, means=False)
    assert hidden_PH.isnan().any(1).tolist() == [False, True, False, True], "the second text, from its first token on"
    assert hidden_PH[1].isnan().all()


@pytest.mark.parametrize(("dtype", "bits"), NANS)
@pytest.mark.parametrize("token", [0, 1])
def test_attention_to_what_is_not_a_number_is_none_either(dtype: torch.dtype, bits: int, token: int) -> None:
    integers = torch.int32 if dtype == torch.float32 else torch.int64
    query_SD, key_SD, value_SD = torch.ones(3, 3, 4, dtype=dtype)
    key_SD[token, 0] = torch.tensor(bits, dtype=integers).view(dtype)
    found_SD = attend(query_SD, key_SD, value_SD, torch.tensor([0, 2, 3]), 1, 0.5)
    assert found_SD.isnan().all(1).tolist() == [True, True, False]


def test_saturated_gates_are_those_of_torch() -> None:
    inputs = torch.tensor([[-1e4, 1e4, 3e38, -3e38, 0.0, -100.0]])
    parameters = [torch.eye(6), torch.zeros(6, 2), torch.zeros(6), torch.zeros(6)]
    got, expected = (
        cells.outputs(parameters, inputs, torch.arange(1), Packing.of(np.array([[1]]), 1, CPU, engine), means=False)
        for engine in ("native", "cells")
    )
    assert torch.allclose(got, expected, atol=1e-6)


def test_auto_is_native_where_it_can_be_and_says_why_not(caplog: pytest.LogCaptureFixture) -> None:
    auto, bag, other = (tiny.configured(model=model) for model in ("bigru", "bag", SCRATCH | {"attention": "eager"}))
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


@pytest.mark.parametrize(("device", "where"), [("cuda", "a GPU"), ("mps", "device mps")])
def test_native_on_another_device_than_the_cpu_is_refused(device: str, where: str) -> None:
    with pytest.raises(UserError, match=f"native is for CPUs, but clients would be trained on {where}"):
        check_engine(tiny.experiment(training={"engine": "native"}), device)


@pytest.mark.slow
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


FEW = PACKAGE / "training"  # compiling every file takes several seconds
COMPILE = f"""
import pathlib
from fedtext.runtime import compiled
compiled.PACKAGE = pathlib.Path({str(FEW)!r})
print(compiled.compile_problem())
"""
PROBLEM = [sys.executable, "-c", COMPILE]


def found(environment: Mapping[str, str]) -> str:
    """Return the problem that a process with this environment has with the files in ``FEW``."""
    return subprocess.run(PROBLEM, env=environment, capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.slow
def test_a_library_is_compiled_once_and_again_if_it_is_damaged(tmp_path: Path) -> None:
    environment, sources = os.environ | {"XDG_CACHE_HOME": str(tmp_path)}, list(FEW.rglob("*.c"))
    for _ in range(2):
        assert found(environment) == ""
        made = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "fedtext").iterdir()}
        assert len(made) == len(sources), "nothing else is left there"
        environment["PATH"] = os.environ["PATH"]
    again = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "fedtext").iterdir()}
    assert made == again
    damaged = next((tmp_path / "fedtext").glob("rows-32-*"))
    damaged.write_bytes(damaged.read_bytes()[:1000])
    assert found(environment) == ""
    assert damaged.stat().st_size > 1000


@pytest.mark.parametrize(
    ("compiler", "sentence"),
    [
        ("cc 'a", "$CC is not a command (No closing quotation): correct it, or leave it out"),
        ("no-such-compiler", "$CC is no-such-compiler, which is no command here: correct it, or leave it out"),
        ("true", "true cannot compile batches.c: no message"),
        ("cc -include {tmp}/outer.h", "not for this machine"),  # and not the line that names what includes it
        ("{tmp}/text", "{tmp}/text cannot say its version (batches.c is to be compiled): Exec format error"),
    ],
)
def test_a_compiler_that_is_none_is_one_sentence(compiler: str, sentence: str, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("not a program")
    (tmp_path / "outer.h").write_text('#include "inner.h"\n')
    (tmp_path / "inner.h").write_text("#error not for this machine\n")
    (tmp_path / "text").chmod(0o755)
    said = found(os.environ | {"XDG_CACHE_HOME": str(tmp_path), "CC": compiler.format(tmp=tmp_path)})
    assert said.endswith(sentence.format(tmp=tmp_path))


def test_a_compiler_that_does_not_end_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedtext.runtime.compiled.PATIENCE_S", 0.1)
    with pytest.raises(UserError, match=r"^sleep did not compile bag.c within 0.1 s$"):
        compiled._run(["sleep", "30"], "compile bag.c")


@pytest.mark.slow
def test_a_cache_that_cannot_be_written_does_without(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for changes in nonempty([{"XDG_CACHE_HOME": str(tmp_path / "file")}, {"CC": "cc -DOPTION", "HOME": "/proc/none"}]):
        environment = {name: value for name, value in os.environ.items() if name != "XDG_CACHE_HOME"} | changes
        assert found(environment) == ""
