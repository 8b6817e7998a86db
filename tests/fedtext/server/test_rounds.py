"""A round's row, number by number, of clients whose replies and readings are given in the test."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedtext.client.local_fleet import LocalFleet
from fedtext.config.experiment import Experiment
from fedtext.errors import ClientError, UserError
from fedtext.evaluation import Evaluated
from fedtext.messages import Reply
from fedtext.parameters import initial
from fedtext.server.federation import Federation
from fedtext.server.traffic import in_order
from fedtext.state.checkpoint import Checkpoints
from fedtext.state.fingerprint import fingerprint
from fedtext.wire import encoding
from tests import tiny
from tests.loops import nonempty

CORPUS = tiny.corpus(clients=3, texts=2)


class Clock:
    """Seconds that pass when the test says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def perf_counter(self) -> float:
        return self.now

    def time(self) -> float:
        return 1e9 + self.now


class Scripted(LocalFleet):
    """A fleet whose clients send nothing, and say what the test has given."""

    replies: Sequence[Reply] = ()
    readings: dict[int, Evaluated]
    clock: Clock
    asked: list[tuple[int, bool, tuple[str, ...]]]

    def broadcast(self, flat: Any) -> Any:
        self.clock.now += 1
        return flat

    def train(self, handle: Any, round_: int, cohort: Sequence[int]) -> Iterator[Reply]:
        self.clock.now += 10
        yield from self.replies

    def evaluate(
        self, handle: Any, round_: int, final: bool, splits: Sequence[str], attacked: Sequence[int] = ()
    ) -> dict[int, Evaluated]:
        self.clock.now += 3
        self.asked.append((round_, final, tuple(splits)))
        return self.readings


def said(client: int, samples: int, error: str = "", **figures: float) -> Reply:
    return Reply(client, bytes_up=100 * (client + 1), metrics={"samples": samples} | figures, error=error)


REPLIES = (
    said(2, 30, cpu_seconds=0.5, seconds=9.0, loss=1.0, loss_ce=0.5),
    said(0, 10, cpu_seconds=0.25, seconds=9.0, loss=3.0, loss_ce=0.25),
)


def scripted(
    experiment: Experiment,
    monkeypatch: pytest.MonkeyPatch,
    checkpoints: Checkpoints | None = None,
    replies: Sequence[Reply] = REPLIES,
    readings: dict[int, Evaluated] | None = None,
) -> Federation:
    shared, private = initial(experiment, CORPUS)
    fleet = Scripted(experiment, CORPUS, private)
    fleet.clock, fleet.replies, fleet.readings, fleet.asked = Clock(), replies, readings or {}, []
    monkeypatch.setattr("fedtext.server.federation.time", fleet.clock)
    return Federation(experiment, shared, fleet, checkpoints)


def test_time_on_gpus_is_summed_up_where_there_is_some(monkeypatch: pytest.MonkeyPatch) -> None:
    spent = {"cpu_seconds": 0.5, "seconds": 9.0, "loss": 1.0}
    replies = [said(0, 10, gpu_seconds=2.5, **spent), said(1, 10, **spent), said(2, 10, gpu_seconds=1.0, **spent)]
    row, *_ = scripted(tiny.experiment(), monkeypatch, replies=replies).run()
    assert (row.metrics["train_gpu_seconds"], row.metrics["train_cpu_seconds"]) == (3.5, 1.5)
    assert "gpu_seconds" not in row.metrics, "it is no mean over clients"
    row, *_ = scripted(tiny.experiment(), monkeypatch, replies=[said(2, 10, **spent)]).run()
    assert "train_gpu_seconds" not in row.metrics


def test_an_empty_sample_has_no_client_to_divide_by(monkeypatch: pytest.MonkeyPatch) -> None:
    participation = {"fraction": 1e-9, "sampling": "poisson"}
    experiment = tiny.experiment(participation=participation, training=tiny.TRAINING | {"rounds": 1})
    (row,) = scripted(experiment, monkeypatch, replies=[]).run()
    assert row.metrics["clients_trained"] == 0
    assert not {"bytes_per_client", "loss", "clients_failed"} & set(row.metrics)


def test_a_rounds_row_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of three clients come, with 30 and 10 texts. A round's training takes 10 s and its broadcast 1 s; its
    evaluation takes 3 s, in every second round. Each client receives all rows that it holds."""
    evaluation = {"every": 2, "personalize": None}
    experiment = tiny.experiment(
        participation={"on_client_error": "skip"}, training=tiny.TRAINING | {"rounds": 3}, evaluation=evaluation
    )
    away = said(1, 99, "OSError: no", cpu_seconds=7.0, loss=99.0)
    readings = {1: Evaluated({"Ag": 0.5, "Ag_val": 0.75}), 0: Evaluated({"Ag": 0.25})}
    made = scripted(experiment, monkeypatch, replies=(*REPLIES, away), readings=readings)
    before = made.flat.copy()
    rows = list(made.run())
    down = sum(encoding.encoded_size(made.layout.with_rows(len(c.rows_R)).shapes) for c in CORPUS.clients)
    expected = {
        **{"loss": (30 * 1.0 + 10 * 3.0) / 40, "loss_ce": (30 * 0.5 + 10 * 0.25) / 40},
        **{"clients_trained": 2.0, "clients_failed": 1.0, "train_cpu_seconds": 0.75},
        **{"bytes_up": 400.0, "bytes_down": float(down), "bytes_per_client": (400 + down) / 2},
    }
    for number, row in nonempty(enumerate(rows, 1)):
        read = number > 1  # the second, and the last
        totals = {"bytes_up_total": 400.0 * number, "bytes_down_total": float(down * number)}
        seconds = {"train_seconds": 11.0, "round_seconds": 14.0 if read else 11.0}
        figures = {"Ag": (0.5 + 0.25) / 2, "Ag_val": 0.75} if read else {}
        both = {"bytes_total": sum(totals.values())}
        assert row.metrics == pytest.approx(expected | totals | both | seconds | figures)
        assert row.round == number
    assert [row.time for row in rows] == [1e9 + 112, 1e9 + 126, 1e9 + 140]
    assert [row.clients for row in rows[:2]] == [{}, {"client0": {"Ag": 0.25}, "client1": readings[1].metrics}]
    assert list(rows[1].clients) == ["client0", "client1"], "in client order"
    assert made.fleet.asked == [(2, False, ("test", "validation")), (3, True, ("test", "validation"))]  # type: ignore[attr-defined]
    assert np.array_equal(made.flat, before), "nobody sent anything"


def test_a_round_that_no_client_completes_fails_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    experiment = tiny.experiment(participation={"on_client_error": "skip"}, training=tiny.TRAINING | {"rounds": 1})
    replies = [said(client, 5, "OSError: no") for client in range(3)]
    with pytest.raises(UserError, match=r"round 1: 0 of 3 clients .*; client client0: OSError: no:"):
        next(scripted(experiment, monkeypatch, replies=replies).run())
    with pytest.raises(ClientError, match="client client0 failed in round 1: OSError: no"):
        next(scripted(tiny.experiment(), monkeypatch, replies=replies).run())


@pytest.mark.parametrize("method", ["fedavg", "fedrecon", {"name": "lg_fedavg", "pretrain": 1}])
def test_a_resumed_run_continues_with_a_round_without_participants(
    method: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Rows that are never sent, and layers that are no longer sent, are given their former values in each round."""
    experiment = tiny.experiment(method, evaluation={"personalize": None})
    checkpoints = Checkpoints(tmp_path, "same")
    next(scripted(experiment, monkeypatch, checkpoints).run())
    resumed = scripted(experiment, monkeypatch, checkpoints, replies=())
    before = resumed.flat.copy()
    (row,) = resumed.run()
    assert row.round == 2
    assert np.array_equal(resumed.flat, before)


def test_replies_are_taken_in_the_order_of_the_cohort_as_soon_as_they_are_there() -> None:
    seen: list[int] = []

    def arriving() -> Iterator[Reply]:
        for client in (4, 1, 9, 2):
            seen.append(client)
            yield Reply(client)

    taken = in_order(arriving(), [1, 2, 4, 9])
    assert next(taken).client == 1
    assert seen == [4, 1], "it did not wait for the others"
    assert [reply.client for reply in taken] == [2, 4, 9]
    assert list(in_order([], [])) == []


SELECTING = {"corpus": {"name": "demo", "validation": 0.2}, "evaluation": {"select": "Ag_val", "personalize": None}}


def test_a_model_that_was_kept_is_not_selected_by_no_figure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Also of a run that was resumed, which has kept a model and none with a figure."""
    experiment = tiny.experiment(**SELECTING)
    without = {0: Evaluated({"Ag_val": float("nan")})}
    checkpoints = Checkpoints(tmp_path, "same")
    next(scripted(experiment, monkeypatch, checkpoints, readings=without).run())
    resumed = scripted(experiment, monkeypatch, checkpoints, readings=without)
    assert resumed.evaluation.selected is not None
    with pytest.raises(UserError, match="no round has a Ag_val"):
        list(resumed.run())


def test_the_selected_rounds_model_reads_test_texts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made = scripted(tiny.experiment(**SELECTING), monkeypatch, readings={0: Evaluated({"Ag_val": 0.5})})
    first, last = made.run()
    assert made.fleet.asked == [  # type: ignore[attr-defined]
        (1, False, ("validation",)),
        (2, False, ("validation",)),
        (2, True, ("test", "validation")),
    ]
    assert "selected_round" not in first.metrics
    assert last.metrics["selected_round"] == 1.0, "the first of equal ones"


def test_baselines_stand_in_the_rows_that_read_their_split(monkeypatch: pytest.MonkeyPatch) -> None:
    made = scripted(tiny.experiment(**SELECTING), monkeypatch, readings={0: Evaluated({"Ag_val": 0.5})})
    made.fleet.baselines = {"top1_unigram": 0.1, "top1_unigram_val": 0.2}
    first, last = (row.metrics for row in made.run())
    assert (first.get("top1_unigram"), first["top1_unigram_val"]) == (None, 0.2)
    assert (last["top1_unigram"], last["top1_unigram_val"]) == (0.1, 0.2)


def test_audits_show_the_first_client_of_which_they_found_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {client: Evaluated({"member_auc": 0.5} if client else {"Ag": 1.0}) for client in (2, 0, 1)}
    made = scripted(tiny.experiment(audits=["membership"]), monkeypatch, readings=found)
    monkeypatch.setattr(made.fleet, "report", lambda handle, client: {f"of-{client}": "text"})
    first, last = made.run()
    assert "of-1" not in first.files
    assert last.files["of-1"] == "text"
    made = scripted(tiny.experiment(audits=["membership"]), monkeypatch, readings={0: Evaluated({"Ag": 1.0})})
    monkeypatch.setattr(made.fleet, "report", lambda handle, client: {f"of-{client}": "text"})
    assert "of-0" not in list(made.run())[-1].files


def test_of_all_data_in_one_place_nothing_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    (row, _) = scripted(tiny.experiment("pooled"), monkeypatch, replies=[said(3, 6, cpu_seconds=1.0)]).run()
    assert {name: row.metrics[name] for name in ("bytes_up", "bytes_down", "bytes_total")} == dict.fromkeys(
        ("bytes_up", "bytes_down", "bytes_total"), 0.0
    )
    assert row.metrics["clients_trained"] == 1


def test_an_experiment_has_one_name_in_whichever_order_it_is_written() -> None:
    """Thresholds are a mapping, whose order says nothing."""
    values = {"Ag_val": [0.5], "AUC_val": [0.6]}
    names = {
        fingerprint(
            tiny.experiment(corpus={"name": "demo", "validation": 0.2}, evaluation={"thresholds": dict(order)}), "c", 3
        )
        for order in (values.items(), reversed(values.items()))
    }
    assert len(names) == 1
    assert len(names.pop()) == 16


def test_bytes_that_a_client_receives(monkeypatch: pytest.MonkeyPatch) -> None:
    """After two rounds of FedAvg a client receives the whole model once more, and from then on the head alone."""
    method = {"name": "lg_fedavg", "pretrain": 2}
    experiment = tiny.experiment(
        method, training=tiny.TRAINING | {"rounds": 5}, evaluation={"personalize": None}, wire={"rows": "all"}
    )
    made = scripted(experiment, monkeypatch)
    shapes = made.layout.shapes
    head = {name: shape for name, shape in shapes.items() if name.startswith("head.")}
    whole, part = 3 * encoding.encoded_size(shapes), 3 * encoding.encoded_size(head)
    assert [row.metrics["bytes_down"] for row in made.run()] == [whole, whole, whole, part, part]
