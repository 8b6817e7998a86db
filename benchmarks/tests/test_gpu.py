"""The benchmark of a GPU, tried out on the CPU: what it counts, and how it ends, never how fast it is."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks import gpu, local_loop, synthetic, w6
from fedtext.layout import TABLE
from fedtext.methods import FedAvg
from fedtext.models.parts import Parts
from fedtext.training.stack import Stack
from tests.elsewhere import DEVICE, Elsewhere
from tests.loops import nonempty


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "VOCABULARY", 300)
    monkeypatch.setattr(gpu, "TEXTS", 40)
    monkeypatch.setattr(synthetic, "client", partial(synthetic.client, longest=20))
    monkeypatch.setattr(gpu, "SHAPES", {"W6": w6.Shape(2, 16, 2, 4, 5, 10)})
    monkeypatch.setattr(w6, "SHAPES", gpu.SHAPES)
    monkeypatch.setattr(w6, "TEXTS", 40)
    monkeypatch.setattr(w6, "PRECISIONS", ("float32", "tf32"))  # the pretended device has no autocast


def test_a_gpus_benchmark_tried_out_on_the_cpu(small: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It asks for the FLOP of the products that local_loop counts by hand, but for the small ones of the head, and no
    stack asks for more calls a client than its clients one by one."""
    words = ["W1", "--device", "cpu", "--stacks", "4", "--turns", "1", "--steps", "2", "--json", str(tmp_path / "g")]
    rows = {row["variant"]: row for row in gpu.main(words, size=(64, 1))}
    assert list(rows) == ["plain", "reference", "cells", "cells, stack 4"]
    client = synthetic.client(0, 40, 300)
    expected = 3 * sum(2 * m * k * n for m, k, n in local_loop.products(local_loop.TASKS["W1"], client))
    for row in nonempty(rows.values()):
        assert row["GFLOP / s"] * row["wall ms"]["median"] * 1e6 == pytest.approx(expected, rel=0.1)
    assert rows["cells, stack 4"]["calls"] < 0.5 * rows["cells"]["calls"]
    card = json.loads((tmp_path / "g").read_text())["figures"]["card"]
    assert card["name"] == "the CPU"
    assert min(card["float32 GFLOP / s"], card["bfloat16 GFLOP / s"], card["GB / s"]) > 0
    assert "% of the card's" in capsys.readouterr().out


def test_what_operations_have_to_read_and_write() -> None:
    """In numbers of 4 bytes; indices have 8."""
    table, rows, two = torch.zeros(1000, 3), torch.zeros(2, 3), torch.tensor([1, 5])
    flat, grad, memory = [torch.zeros(50)], [torch.zeros(50)], [torch.zeros(50)]

    def bytes_of(run: Any) -> int:
        with gpu.Counted(torch.device("cpu")) as counted:
            run()
        assert counted.calls == 1
        return counted.bytes

    indices, six = 2 * 8, 6 * 4
    assert bytes_of(lambda: table.index_select(0, two)) == indices + 2 * six
    assert bytes_of(lambda: table.index_copy_(0, two, rows)) == indices + 2 * six
    assert bytes_of(lambda: table.index_add_(0, two, rows)) == indices + 3 * six
    assert bytes_of(lambda: table.index_fill_(0, two, 0)) == indices + six
    into = torch.empty_like(rows)
    assert bytes_of(into.zero_) == six
    assert bytes_of(lambda: into.copy_(rows)) == 2 * six
    assert bytes_of(lambda: torch._foreach_copy_([into], [rows])) == 2 * six
    assert bytes_of(lambda: torch._foreach_add_([into], 1)) == 2 * six
    assert bytes_of(lambda: torch.add(rows, rows, out=into)) == 3 * six
    assert bytes_of(lambda: rows.view(6)[:2].mul_(2)) == 2 * 2 * 4
    sgd = {"lr": 0.1, "momentum": 0.5, "weight_decay": 0, "dampening": 0, "nesterov": False, "maximize": False}
    step = partial(torch._fused_sgd_, flat, grad, memory, **sgd, is_first_step=False)
    assert bytes_of(step) == 5 * 200  # parameters and momentum both ways, the gradient once
    with gpu.Counted(torch.device("cuda")) as counted:
        rows + rows
    assert counted.calls == 0  # that was not there


@pytest.mark.parametrize("workload", ["W1", "W2", "W3", "W4", "W6"])
def test_a_gpus_benchmark_keeps_to_the_gpu(workload: str, small: None) -> None:
    with Elsewhere():
        for name, (run, _) in gpu.variants(workload, torch.device(DEVICE), (2,)).items():
            if name.partition(",")[0] != "plain":  # which is not ours, and waits for the card
                run(1)


@pytest.mark.parametrize("device", ["cuda:99", "gpu"])
def test_a_device_that_is_not_there_is_said(device: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        gpu.main(["--device", device])
    message = capsys.readouterr().err
    assert end.value.code == 2
    assert message.startswith(f"error: --device: {device} is not available (")
    assert message.count("\n") == 1


def test_a_loop_of_ours_leaves_the_table_of_a_model_with_adapters_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Stack] = []
    monkeypatch.setattr(local_loop, "Stack", lambda *given: made.append(Stack(*given)) or made[-1])
    shape = w6.Shape(2, 16, 2, 4, 5, 10)
    run = w6.ours(shape, shape.client(8), torch.device("cpu"), "float32")
    before = {name: tensor.clone() for name, tensor in made[0].tensors(0).items()}
    run(2)
    moved = {name for name, tensor in made[0].tensors(0).items() if not torch.equal(tensor, before[name])}
    assert moved
    assert TABLE not in moved


def test_the_plain_transformer_has_the_weights_that_ours_has() -> None:
    pytest.importorskip("peft")
    shape = w6.Shape(2, 16, 2, 4, 5, 10)
    plain = {name: p.shape for name, p in w6.Plain(shape).named_parameters() if p.requires_grad}
    ours = FedAvg().network(Parts(shape.model("float32"), 2)).named_parameters()
    trained = [p.shape for name, p in ours if name != TABLE]
    assert sorted(plain.values()) == sorted(trained)
    assert len(plain) == 2 * 2 * 2 + 2, "two factors of queries and of values in two layers, and the output layer's"
