"""Secret sharing, graphs, keys and messages of secure aggregation."""

import secrets
import subprocess
import sys
from collections import deque
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

from fedtext.accounting.masks import HIDDEN, OPENED, counted, graph, needed
from fedtext.config.experiment import Experiment
from fedtext.errors import UserError
from fedtext.secure import records, shamir
from fedtext.secure.graph import check_late, neighbors_of, withstands
from fedtext.secure.keys import KeyPair, add_mask, seal, unseal
from fedtext.state.fingerprint import fingerprint
from fedtext.state.versions import VERSIONS
from tests import tiny
from tests.loops import nonempty


def test_any_threshold_of_shares_gives_the_secret_back() -> None:
    secret = secrets.token_bytes(32)
    shares = dict(zip([2, 3, 7, 11, 100], shamir.split(secret, 3, [2, 3, 7, 11, 100]), strict=True))
    for chosen in nonempty(combinations(shares, 3)):
        assert shamir.combine({point: shares[point] for point in chosen}) == secret
    assert shamir.combine(shares) == secret


@pytest.mark.parametrize("secret", [bytes(32), b"\xff" * 32], ids=["zero", "largest"])
def test_secrets_at_the_ends_of_the_field_come_back(secret: bytes) -> None:
    assert shamir.combine(dict(enumerate(shamir.split(secret, 2, [1, 2, 3]), 1))) == secret


def test_fewer_shares_fit_every_secret() -> None:
    """For any secret there is a third share with which the two that are known give it."""
    first, second, _ = shamir.split(secrets.token_bytes(32), 3, [1, 2, 3])
    one, two = int.from_bytes(first, "big"), int.from_bytes(second, "big")
    for wanted in nonempty((bytes(32), b"\x01" * 32, secrets.token_bytes(32))):
        # secret = 3 f(1) - 3 f(2) + f(3)
        third = (int.from_bytes(wanted, "big") - 3 * one + 3 * two) % shamir.PRIME
        assert shamir.combine({1: first, 2: second, 3: third.to_bytes(33, "big")}) == wanted


def test_shares_are_uniform() -> None:
    """The leading bytes of shares of one secret take all values alike."""
    found = [share[1] for _ in range(1024) for share in shamir.split(bytes(32), 2, [1, 2])]
    counts = np.bincount(found, minlength=256)
    assert ((counts - 8.0) ** 2 / 8.0).sum() < 400  # chi-squared with 255 degrees of freedom: 1e-8


def test_shares_of_other_secrets_are_refused_or_give_another() -> None:
    secret = secrets.token_bytes(32)
    mixed = {1: shamir.split(secret, 2, [1, 2])[0], 2: shamir.split(secrets.token_bytes(32), 2, [1, 2])[1]}
    try:
        assert shamir.combine(mixed) != secret
    except ValueError as refused:
        assert "not of one secret" in str(refused)  # noqa: PT017
    with pytest.raises(ValueError, match="2 of 1 shares"):
        shamir.split(secret, 2, [1])


@pytest.mark.parametrize(("clients", "degree"), [(3, 2), (7, 4), (20, 6), (6, 9)])
def test_the_graph_is_regular_symmetric_and_connected(clients: int, degree: int) -> None:
    members = [10 * client + 3 for client in range(clients)]
    around = neighbors_of(members, degree, np.random.default_rng(1))
    assert sorted(around) == members
    for client, peers in nonempty(around.items()):
        assert len(set(peers)) == min(degree, clients - 1)
        assert client not in peers
        assert client in set.intersection(*(set(around[peer]) for peer in peers))
    seen, left = {members[0]}, deque(members[:1])
    while left:
        new = set(around[left.popleft()]) - seen
        seen |= new
        left.extend(new)
    assert seen == set(members)


def test_the_graph_follows_the_generator() -> None:
    members = list(range(30))
    first, again, other = (neighbors_of(members, 4, np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert first == again != other


@pytest.mark.parametrize("clients", [10, 100, 1000, 10_000])
def test_as_few_neighbours_are_chosen_as_keep_both_chances(clients: int) -> None:
    made = graph(clients, None, 0.6, 0.1, 0.1)
    assert made.unopened <= OPENED
    assert made.uncovered <= HIDDEN
    assert made.threshold == needed(0.6, made.neighbors)
    if clients >= 100:
        fewer = graph(clients, made.neighbors - 2, 0.6, 0.1, 0.1)
        assert fewer.unopened > OPENED or fewer.uncovered > HIDDEN
    assert made.neighbors < 120


def test_chances_are_those_of_drawn_graphs() -> None:
    """The bound of unopened rounds is at least their rate, and no more than the number of clients times it."""
    clients, degree, away = 60, 6, 18
    made, rng, unopened = graph(clients, degree, 0.6, 0.0, away / clients), np.random.default_rng(5), 0
    for _ in range(400):
        around = neighbors_of(range(clients), degree, rng)
        gone = set(rng.choice(clients, away, replace=False).tolist())
        unopened += any(len(set(peers) - gone) < made.threshold for peers in around.values())
    alone = 1 - float(binom.cdf(degree - made.threshold, degree, away / clients))
    assert unopened / 400 <= made.unopened
    assert made.unopened <= min(1.0, 2 * clients * alone)


def test_clients_that_a_round_does_not_wait_for_are_away_too() -> None:
    plain, more = (graph(130, None, 0.6, 0.1, 0.1, left) for left in (0, 30))
    assert plain.neighbors < more.neighbors
    assert more.unopened <= OPENED
    assert more == graph(130, more.neighbors, 0.6, 0.1, 43 / 130)
    assert graph(130, plain.neighbors, 0.6, 0.1, 0.1, 30).unopened > 1e-2
    assert graph(130, plain.neighbors, 0.6, 0.1, 0.1, 30).uncovered > plain.uncovered


def test_a_share_of_the_clients_is_not_rounded_up_for_an_error_of_rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    """0.07 * 100 is more than 7 in floating point."""
    assert [counted(0.07, number) for number in (99, 100, 101)] == [7, 7, 8]
    for neighbors in nonempty((None, 14)):
        assert graph(100, neighbors, 0.6, 0.07, 0.14) == graph(100, neighbors, 0.6, 0.065, 0.135)
    cases: list[tuple[dict[str, Any], int]] = [
        ({}, 100),
        ({"colluding": 0.07}, 100),
        ({"dropping": 0.07}, 100),
        ({"dropping": 0.07}, 99),
        ({"dropping": 0.07, "neighbors": 14}, 100),
    ]
    made = [(tiny.experiment("fedavg", server={"secure_aggregation": keys}), number) for keys, number in cases]
    found = [fingerprint(experiment, "", number) for experiment, number in made]
    monkeypatch.setitem(VERSIONS, "counted", 2)
    again = [fingerprint(experiment, "", number) for experiment, number in made]
    assert [one != other for one, other in zip(found, again, strict=True)] == [False, True, True, False, False]


def test_rounds_that_nothing_opens_are_refused() -> None:
    def made(**keys: Any) -> Experiment:
        paced = {"fraction": 0.5, "over_selection": 2.0, "pace": {}}
        return tiny.experiment("fedavg", server={"secure_aggregation": keys}, participation=paced)

    with pytest.raises(
        UserError, match=r"waits for 100 of 200 clients, .* 120 of the 199 others of each: lower over_s"
    ):
        check_late(made(), 200)
    check_late(made(masks=False), 200)
    fewer = {"fraction": 0.5, "over_selection": 1.5, "pace": {}}
    check_late(tiny.experiment("fedavg", server={"secure_aggregation": {}}, participation=fewer), 20)


def test_two_runs_of_bad_neighbours_part_the_graph() -> None:
    """With as many bad clients as two runs need there is a chance, and with one fewer there is none."""
    clients, degree = 100, 10
    assert graph(clients, degree, 1.0, 0.09, 0.0).uncovered == 0
    assert graph(clients, degree, 1.0, 0.10, 0.0).uncovered > 0
    assert graph(clients, degree, 1.0, 0.05, 0.05).uncovered > 0


def test_two_sets_of_answering_neighbours_always_meet() -> None:
    """A share of a hair above one half is more than half of them, or a server could have both secrets of a client."""
    for neighbors in nonempty(range(1, 60)):
        assert 2 * needed(0.5 + 1e-12, neighbors) > neighbors
    assert [needed(0.6, neighbors) for neighbors in (2, 4, 5, 10)] == [2, 3, 3, 6]


def said(clients: int, participation: dict[str, Any] | None = None, **keys: Any) -> str:
    experiment = tiny.experiment("fedavg", server={"secure_aggregation": keys}, participation=participation or {})
    return withstands(experiment, clients).removeprefix("server.secure_aggregation: ")


def test_the_sentence_of_small_rounds_is_exact_and_says_what_they_lack() -> None:
    """With all others as neighbours the chance is 0 or 1. Of three clients none may be away, of four one may."""
    assert said(3) == (
        "of 3 clients each shares its keys with 2, of whom 2 have to answer; if 10% do not, no round is opened: it "
        "takes rounds of 4 clients; if 10% show the server all they have as well, it sees the sum alone"
    )
    assert "if 10% do not, every round is opened; if 10%" in said(4)
    assert "if 40% do not, no round is opened: lower threshold or dropping; if" in said(10, threshold=1.0, dropping=0.4)
    assert "a round may not be opened" in said(40, neighbors=4, dropping=0.3)
    assert "it may see more than the sum: raise neighbors or threshold" in said(40, neighbors=4, colluding=0.5)
    assert "a round is not opened with a chance of at most 8.4e-07" in said(1000)
    assert "more than the sum with a chance of at most" in said(1000)
    assert said(12, masks=False) == ""


def test_the_sentence_is_of_all_clients_that_share_keys() -> None:
    paced = {"fraction": 0.5, "over_selection": 1.5, "pace": {}}
    assert said(20, paced).startswith("of 15 clients each")
    assert "if 5 are late and 10% drop out, no round is opened: lower threshold, over_selection or dro" in said(
        20, paced
    )
    fewer = {"fraction": 0.2, "over_selection": 1.3, "pace": {}}
    assert said(500, fewer).startswith(
        "of 130 clients each shares its keys with 108, of whom 65 have to answer; if 30 are"
    )
    assert "if 30 are late and 10% drop out, every round is opened; if 10% show" in said(500, fewer)
    assert said(20, {"fraction": 0.5, "sampling": "poisson"}).startswith("of about 10 clients each")
    assert said(20, {"fraction": 0.5, "over_selection": 9, "pace": {}}).startswith("of 20 clients each")


@pytest.mark.parametrize("missing", ["scipy", "cryptography"])
def test_the_library_is_used_without_what_only_secure_aggregation_needs(missing: str) -> None:
    code = f"import sys; sys.modules['{missing}'] = None; import fedtext.client.local_fleet, fedtext.server.federation"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_keys_agree_by_purpose() -> None:
    one, two, three = KeyPair(), KeyPair(), KeyPair()
    assert one.agreed(two.public, b"masks") == two.agreed(one.public, b"masks")
    assert one.agreed(two.public, b"masks") != one.agreed(two.public, b"shares")
    assert one.agreed(two.public, b"masks") != one.agreed(three.public, b"masks")
    assert KeyPair(one.private).public == one.public


def test_a_sealed_share_is_for_one_way_and_unchanged() -> None:
    key = secrets.token_bytes(32)
    sealed = seal(key, b"share", b"1 to 2")
    assert unseal(key, sealed, b"1 to 2") == b"share"
    assert b"share" not in sealed
    changed = sealed[:-1] + bytes([sealed[-1] ^ 1])
    for wrong in nonempty([(key, sealed, b"2 to 1"), (bytes(32), sealed, b"1 to 2"), (key, changed, b"1 to 2")]):
        with pytest.raises(ValueError, match="another key, or has changed"):
            unseal(*wrong)


@pytest.mark.parametrize("size", [0, 1, 65_536, 150_001])
def test_a_mask_is_a_key_stream_and_cancels(size: int) -> None:
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    key, before = secrets.token_bytes(32), np.arange(size, dtype=np.uint32)
    masked = before.copy()
    add_mask(masked, key)
    stream = Cipher(algorithms.AES(key[:16]), modes.CTR(bytes(16))).encryptor().update(bytes(4 * size))
    assert (masked - before).tobytes() == stream
    add_mask(masked, key, negative=True)
    assert masked.tobytes() == before.tobytes()


def test_messages_come_back_or_are_refused() -> None:
    packed = records.pack({7: b"", 2: b"abc"})
    assert records.unpack(packed) == {7: b"", 2: b"abc"}
    assert records.unpack(b"") == {}
    assert records.unpack_ids(records.pack_ids([5, 1])) == [5, 1]
    for wrong in nonempty((packed[:-1], packed + b"x", packed + records.pack({2: b"d"}))):
        with pytest.raises(ValueError, match="truncated"):
            records.unpack(wrong)
    with pytest.raises(ValueError, match="truncated"):
        records.unpack_ids(b"abc")
