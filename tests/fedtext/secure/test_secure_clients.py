"""The clients' part of the protocol: their masks, their shares, and what they refuse to do."""

from typing import Any

import numpy as np
import pytest

from fedtext.secure import records, shamir
from fedtext.secure.client import SecureClients
from fedtext.secure.keys import add_mask
from fedtext.secure.ring import Ring
from tests import tiny


def clients(count: int = 3, **keys: Any) -> SecureClients:
    """Clients who have shared keys, each with all others."""
    experiment = tiny.experiment("fedavg", server={"secure_aggregation": keys})
    made = SecureClients(Ring(experiment, [5] * count))
    everyone = range(count)
    public = made.answer("keys", dict.fromkeys(everyone, b""))
    peers = {k: records.pack({other: public[other] for other in everyone if other != k}) for k in everyone}
    sealed = {k: records.unpack(answer) for k, answer in made.answer("shares", peers).items()}
    boxes = {k: records.pack({other: sealed[other][k] for other in everyone if other != k}) for k in everyone}
    made.answer("receive", boxes)
    return made


def test_all_masks_together_are_the_masks_of_the_seeds() -> None:
    made, total = clients(4), np.zeros(1000, np.uint32)
    for client in range(4):
        made.mask(client, total)
    seeds = np.zeros(1000, np.uint32)
    for session in made.sessions.values():
        add_mask(seeds, session.seed)
    assert total.tobytes() == seeds.tobytes()
    assert np.count_nonzero(total) > 990


def test_a_client_opens_a_sum_once_and_only_one_that_it_is_in() -> None:
    made = clients()
    with pytest.raises(ValueError, match="a sum that it is not in"):
        made.answer("open", {0: records.pack_ids([1, 2])})
    with pytest.raises(ValueError, match="opened the sum of this round already"):
        made.answer("open", {0: records.pack_ids([0, 1, 2])})
    seeds = {client: session.seed for client, session in made.sessions.items()}
    answer = records.unpack(made.answer("open", {1: records.pack_ids([1, 2])})[1])
    assert answer[0][:1] == b"k"
    assert answer[2][:1] == b"s"
    with pytest.raises(ValueError, match="opened the sum of this round already"):
        made.answer("open", {1: records.pack_ids([0, 1, 2])})
    # both shares of a threshold of two are needed: one of them alone is another number
    assert shamir.combine({2: answer[2][1:]}) != seeds[2]


def test_shares_that_were_changed_on_the_way_are_refused() -> None:
    made = clients()
    made.sessions[0].boxes[1] = made.sessions[0].boxes[2]
    with pytest.raises(ValueError, match="a share was encrypted with another key, or has changed"):
        made.answer("open", {0: records.pack_ids([0, 1, 2])})


def test_a_client_does_not_mask_what_cannot_be_opened() -> None:
    made = clients(4)
    with pytest.raises(ValueError, match="too few neighbours have shares of its secrets"):
        made.answer("receive", {0: records.pack({1: made.sessions[0].boxes[1]})})
    with pytest.raises(ValueError, match=r"clients that are no neighbours: \[9\]"):
        made.answer("receive", {0: records.pack({9: b""})})
