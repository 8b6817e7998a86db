"""What training does to the process it runs in, and leaves as it was."""

import pytest
import torch

from fedtext.threads import one_torch_thread


def test_faded_numbers_are_zero_while_clients_train_and_only_then() -> None:
    if not torch.set_flush_denormal(False):
        pytest.skip("this processor cannot flush denormal numbers")
    faded, threads = torch.full((1000,), 1e-30), torch.get_num_threads()
    with one_torch_thread():
        assert torch.get_num_threads() == 1
        assert not (faded * 1e-10).any()
    assert torch.get_num_threads() == threads
    assert (faded * 1e-10).all()
