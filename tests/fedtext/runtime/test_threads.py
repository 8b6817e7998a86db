"""What training does to the process it runs in, and leaves as it was."""

from contextlib import suppress

import pytest
import torch

from fedtext.methods import FedAvg
from fedtext.runtime.precision import products
from fedtext.runtime.threads import one_torch_thread
from tests import tiny


def test_faded_numbers_are_zero_while_clients_train_and_only_then() -> None:
    if not torch.set_flush_denormal(False):
        pytest.skip("this processor cannot flush denormal numbers")
    faded, threads = torch.full((1000,), 1e-30), torch.get_num_threads()
    with one_torch_thread():
        assert torch.get_num_threads() == 1
        assert not (faded * 1e-10).any()
    assert torch.get_num_threads() == threads
    assert (faded * 1e-10).all()


@pytest.mark.parametrize("tf32", [True, False])
def test_tf32_is_as_asked_while_clients_train_and_only_then(tf32: bool) -> None:
    """cuDNN would have it unless told otherwise."""

    def allowed() -> tuple[bool, bool]:
        return torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32

    before = allowed()
    assert before == (False, True)
    with suppress(KeyError), products(tf32):
        assert allowed() == (tf32, tf32)
        raise KeyError("whatever a client's code raises")
    assert allowed() == before


def test_clients_train_and_are_read_with_what_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, set[bool]] = {"loss": set(), "probabilities": set()}

    def watched(name: str) -> None:
        of = getattr(FedAvg, name)

        def call(*arguments: object) -> object:
            seen[name].add(torch.backends.cudnn.allow_tf32)
            return of(*arguments)

        monkeypatch.setattr(FedAvg, name, call)

    for name in seen:
        watched(name)
    tiny.Finished("fedavg", training={"rounds": 1, "engine": "cells"})  # which asks for the loss
    assert seen == {"loss": {False}, "probabilities": {False}}
