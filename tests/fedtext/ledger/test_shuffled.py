"""The ledger of shuffled bits."""

from typing import Any

import pytest

from fedtext.accounting.shuffle import shuffled
from fedtext.ledger import claimed, ledger, spent
from fedtext.testing.runs import final
from tests import tiny
from tests.fedtext.config.privacy_cases import SHUFFLED
from tests.loops import nonempty


def _made(**changes: Any) -> Any:
    return tiny.experiment(**(SHUFFLED | changes))


def test_a_run_of_all_clients_is_hidden_by_all_of_them() -> None:
    made = _made()
    entries = ledger(made, 100, 500, 2)
    expected = shuffled(0.3, 500, 200, 1e-5)
    assert spent(entries) == {"epsilon": pytest.approx(expected), "delta": 1e-5}
    (entry,) = [entry for entry in entries if entry.mechanism == "wire.shuffle"]
    assert entry.how == "privacy blanket of 500 clients, 100 coordinates and 2 rounds"
    assert "if 500 clients or more take part" in entry.assumptions
    assert "simulated: no shuffler runs here" in entry.assumptions
    local = claimed(entries)
    assert local is not None
    assert local.mechanism == "randomized_response"
    assert local.epsilon is not None
    assert local.epsilon > expected


def test_secure_sums_need_no_shuffler() -> None:
    made = _made(server={"weights": "uniform", "secure_aggregation": {}})
    (entry,) = [entry for entry in ledger(made, 100, 500, 2) if entry.mechanism == "wire.shuffle"]
    assert "no shuffler runs here" not in entry.assumptions
    assert "masks" not in entry.assumptions


def test_sums_without_masks_show_the_server_each_bit() -> None:
    made = _made(server={"weights": "uniform", "secure_aggregation": {"masks": False}})
    (entry,) = [entry for entry in ledger(made, 100, 500, 2) if entry.mechanism == "wire.shuffle"]
    assert "without them (masks: false) the server sees each update by itself" in entry.assumptions


@pytest.mark.parametrize(
    ("participation", "least"),
    [({"fraction": 0.5}, 1), ({"fraction": 0.5, "min_clients": 40}, 40), ({"dropout": 0.1, "min_clients": 30}, 30)],
)
def test_only_clients_that_are_sure_to_take_part_hide(participation: dict[str, Any], least: int) -> None:
    (entry,) = [e for e in ledger(_made(participation=participation), 10, 100, 2) if e.mechanism == "wire.shuffle"]
    assert entry.epsilon == pytest.approx(shuffled(0.3, least, 20, 1e-5))


def test_it_changes_no_result() -> None:
    plain = _made(wire={"shuffle": False})
    (*shuffled_bits, shuffled_metrics), (*bits, metrics) = final(_made(), tiny.TWO), final(plain, tiny.TWO)
    assert shuffled_bits == bits
    for shuffled_round, round_ in nonempty(zip(shuffled_metrics, metrics, strict=True)):
        assert {name for name in round_ if shuffled_round[name] != round_[name]} <= {"epsilon"}
    assert not [entry for entry in ledger(plain, 10, 100, 2) if entry.mechanism == "wire.shuffle"]
