"""Clients on a real GPU: the CPU's results to rounding, the same bits each time, and no wait between two batches.

``FEDTEXT_TEST_DEVICE=cpu`` tries the tests themselves out where there is no GPU. They need no Ray and no MLflow.
"""

import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fedtext
from fedtext.client.worker import Worker
from fedtext.evaluation import classes, words
from fedtext.layout import Layout
from fedtext.models.recurrent import KERNEL_WIDTH
from fedtext.parameters import initial
from fedtext.runtime.devices import no_cuda
from tests import ROOT, tiny
from tests.fedtext.models.test_models import METHODS, MODELS, named
from tests.fedtext.runtime.test_devices import BIGRU, READ, run

CARD = os.environ.get("FEDTEXT_TEST_DEVICE", "cuda")
REAL = CARD.startswith("cuda")
pytestmark = pytest.mark.skipif(REAL and bool(no_cuda()), reason=f"there is no GPU: {no_cuda()}")
TRAINING = tiny.TRAINING | {"rounds": 2}
LORA = {"lora": {"rank": 2, "alpha": 4}}
BERT = MODELS[-1] | {"architecture": "bert", "dropout": 0.0}


def close(experiment: Any, corpus: Any, rtol: float = 1e-3) -> None:
    """The CPU's parameters to rounding, and the same bits in a second run."""
    expected, _ = run(experiment, corpus, "cpu")
    got, rows = run(experiment, corpus, CARD)
    np.testing.assert_allclose(got, expected, rtol=rtol, atol=rtol * float(np.abs(expected).max(initial=0.0)))
    again, rows_again = run(experiment, corpus, CARD)
    assert np.array_equal(got, again)
    assert rows == rows_again


@pytest.mark.parametrize("method", METHODS)
def test_every_method(method: str) -> None:
    stack = "auto" if tiny.experiment(method).reads_table else 2
    training = TRAINING | {"stack": stack}
    close(tiny.experiment(method, model=BIGRU, evaluation=READ, training=training), tiny.corpus(3, 7))


@pytest.mark.parametrize("model", [*MODELS, MODELS[-1] | {"attention": "eager"}, BERT | {"adapter": LORA}], ids=named)
def test_every_model(model: dict[str, Any]) -> None:
    model = model | ({"dropout": 0.0} if model["name"] == "transformer" else {})  # a card draws other masks
    close(tiny.experiment("fedprox", model=model, evaluation=READ, training=TRAINING), tiny.corpus(2, 7))


@pytest.mark.parametrize("tied", [True, False])
def test_a_language_model(tied: bool) -> None:
    close(tiny.language_model("fedatt", tied), tiny.language_corpus())


@pytest.mark.parametrize("adapter", [None, LORA], ids=["whole", "adapter"])
@pytest.mark.parametrize("architecture", ["gpt2", "llama"])
def test_a_causal_language_model(architecture: str, adapter: Any) -> None:
    sizes = {"embedding": {"dim": 8}, "layers": 2, "heads": 2, "positions": 100, "dropout": 0.0}
    model = {"name": "causal", "architecture": architecture, "adapter": adapter} | sizes
    close(tiny.language_model("fedavg", model=model), tiny.language_corpus())


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_dropout_and_adam_give_the_same_bits_each_time(dropout: float) -> None:
    training = TRAINING | {"optimizer": {"name": "adam", "lr": 0.01}}
    experiment = tiny.experiment(model=BERT | {"dropout": dropout}, training=training)
    first, second = (run(experiment, tiny.corpus(2, 7), CARD)[0] for _ in range(2))
    assert np.array_equal(first, second)


@pytest.mark.parametrize("layer", ["bigru", "bilstm"])
@pytest.mark.parametrize("engine", ["reference", "cells", "triton"])
@pytest.mark.parametrize("hidden", [5, KERNEL_WIDTH])
def test_every_engine(layer: str, engine: str, hidden: int) -> None:
    if engine == "triton" and not REAL:
        pytest.skip("triton needs a GPU")
    model, corpus = BIGRU | {"name": layer, "hidden": hidden}, tiny.corpus(3, 40)
    expected, _ = run(tiny.experiment("kteps", model=model, training=TRAINING | {"engine": "cells"}), corpus, "cpu")
    for stack in (1, 3) if engine != "reference" else (1,):
        training = TRAINING | {"engine": engine, "stack": stack}
        got, _ = run(tiny.experiment("kteps", model=model, training=training), corpus, CARD)
        np.testing.assert_allclose(got, expected, rtol=1e-3, atol=1e-5)


@pytest.mark.skipif(not REAL, reason="the kernels need a GPU")
def test_kernels_equal_the_loops_on_the_card() -> None:
    """The tests of Triton's interpreter, by the compiled kernels."""
    words_ = [sys.executable, "-m", "pytest", "-q", "--noconftest", "tests/interpreted.py"]
    done = subprocess.run(words_, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]


@pytest.mark.parametrize("changes", [{"training.tf32": True}, {"model.precision": "bfloat16"}], ids=str)
def test_a_lower_precision_is_near(changes: dict[str, Any]) -> None:
    """And is used: the bits differ from those of float32."""
    if "training.tf32" in changes and not REAL:
        pytest.skip("TF32 is of GPUs")
    corpus, model = tiny.corpus(2, 40), BERT | {"embedding": {"dim": 64}, "intermediate": 128}
    expected, _ = run(tiny.experiment(model=model, training=TRAINING), corpus, CARD)
    training = TRAINING | {"tf32": bool(changes.get("training.tf32"))}
    precise = model | {"precision": changes.get("model.precision", "float32")}
    got, _ = run(tiny.experiment(model=precise, training=training), corpus, CARD)
    assert 0 < np.abs(got - expected).max() < 0.05 * np.abs(expected).max()


@pytest.mark.skipif(not REAL, reason="a CPU waits for nothing")
@pytest.mark.parametrize("model", [BIGRU, *MODELS[:3], BERT, BERT | {"adapter": LORA}, "gru_lm"], ids=named)
def test_no_batch_waits_for_the_card(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three epochs wait as often as one, and many batches that are evaluated as often as few."""
    found = []
    for epochs, size in ((1, 100), (3, 2)):
        for module in (classes, words):
            monkeypatch.setattr(module, "BATCH", size)
        training = tiny.TRAINING | {"local_epochs": epochs}
        if model == "gru_lm":
            found.append(waits(tiny.language_model(training=training), tiny.language_corpus(2, 10)))
        else:
            experiment = tiny.experiment(model=model, training=training, evaluation={"personalize": None})
            found.append(waits(experiment, tiny.corpus(2)))
    assert found[0] == found[1]


def waits(experiment: Any, corpus: Any) -> list[int]:
    """How often torch waits for the card in a client's local update, and in its evaluation, once all is in place."""
    shared, private = initial(experiment, corpus)
    flat = Layout({name: tensor.shape for name, tensor in shared.items()}).pack(shared)
    worker = Worker(experiment, corpus, corpus.clients, private, CARD)
    calls: list[Callable[[], Any]] = [
        lambda: worker.train(flat, 1, [0]),
        lambda: worker.evaluate(flat, 1, [0], final=True),
    ]
    found = []
    for call in calls:
        call()
        torch.cuda.set_sync_debug_mode("warn")
        try:
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                call()
        finally:
            torch.cuda.set_sync_debug_mode("default")
        found.append(sum("called a synchronizing" in str(warning.message) for warning in said))
    assert found[0] > 0, "the update came back to the CPU"
    return found


def test_a_run_of_the_library_goes_on_to_the_same_bits(tmp_path: Path) -> None:
    changes = ["training.rounds=4", "corpus.train=8", "corpus.test=8", "corpus.clients=3"]
    fedtext.run("demo.yaml", *changes, device=CARD, out=tmp_path / "whole")
    fedtext.run("demo.yaml", *changes, "training.rounds=2", device=CARD, out=tmp_path / "parts")
    fedtext.run("demo.yaml", *changes, device=CARD, out=tmp_path / "parts", resume=True)
    for name in ("model/model.safetensors", "round-000004/server.f32"):
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "parts" / name).read_bytes()


def test_the_command_runs_without_ray(tmp_path: Path) -> None:
    words_ = [sys.executable, "-m", "fedtext", "run", "demo.yaml", "--no-ray", "--device", CARD, "training.rounds=1"]
    done = subprocess.run(
        words_, cwd=ROOT, env=os.environ | {"FEDTEXT_HOME": str(tmp_path)}, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "Ag" in done.stdout
