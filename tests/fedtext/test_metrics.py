"""What a round's row says: bytes of all rounds, and the table in which every metric is described."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest

from fedtext.audits import AUDITS
from fedtext.config.selection import Sorting, Validated
from fedtext.methods import METHODS
from fedtext.metrics import METRICS, column_order, find, legend, meaning, of_test, of_validation, smaller_is_better
from fedtext.metrics.wording import told
from tests import tiny
from tests.loops import nonempty
from tests.runs.test_language_models import SELECTING, federation
from tests.sampled import slow_but


@pytest.mark.parametrize("stop", [None, 1, 3])
def test_bytes_are_added_up_over_rounds_also_of_a_run_that_was_resumed(stop: int | None, tmp_path: Path) -> None:
    corpus = tiny.corpus(clients=3)
    training, participation = tiny.TRAINING | {"rounds": 4}, {"fraction": 0.7, "dropout": 0.3}
    experiment = tiny.experiment("kteps", training=training, participation=participation)
    up = down = 0.0
    totals, expected = [], []
    for _ in range(2):
        made = tiny.federation(experiment, corpus, tiny.Recording, tmp_path)
        for record in made.run():
            metrics = record.metrics
            up += sum(len(reply.payload) for reply in made.fleet.received)
            down += metrics["bytes_down"]
            totals.append({name: metrics[name] for name in ("bytes_up_total", "bytes_down_total", "bytes_total")})
            expected.append({"bytes_up_total": up, "bytes_down_total": down, "bytes_total": up + down})
            if record.round == stop:
                break
    made = tiny.federation(experiment, corpus, tiny.Recording, tmp_path)
    assert len(made.history) == len(totals) == 4
    assert totals == expected
    assert up > 0
    assert down > 0


def logged(rows: list[dict[str, Any]]) -> set[str]:
    return {name for record in rows for found in (record.metrics, *record.clients.values()) for name in found}


EVALUATION = {
    "personalize": {"steps": 2, "also": [{"lr_multiplier": 1.0}]},
    "union": {},
}
BRANCHES = EVALUATION | {"personalize": {"steps": 2, "also": [{"lr_multiplier": 1.0}, {"inference": "shared"}]}}


@pytest.mark.parametrize("name", slow_but(METHODS, "fedavg", "kteps", "asp_mtl", "pfl_da", "scaffold"))
def test_every_metric_that_a_run_logs_is_in_the_table(name: str) -> None:
    clients = [replace(client, validation=client.test) for client in tiny.TWO.clients]
    asked = BRANCHES if METHODS[name].two_branches else EVALUATION
    made = tiny.Finished(name, replace(tiny.TWO, clients=clients), evaluation=asked)
    found = logged(made.rows)
    assert {metric for metric in found if find(metric) is None} == set()
    evaluated = {
        metric for metric in made.experiment.evaluated_metrics if METHODS[name].personalizes or "Ap_" not in metric
    }
    assert evaluated <= found
    assert {f"{metric}_val" for metric in evaluated if find(metric) and find(f"{metric}_val")} <= found


def test_every_metric_of_mechanisms_server_noise_and_language_models_is_in_the_table() -> None:
    project = [{"project": {"d1": 1, "d2": 3}}]
    noisy = {"weights": "uniform", "noise": {"multiplier": 1.0}}
    rows = [
        *tiny.Finished("fedavg", uplink=project).rows,
        *tiny.Finished("fedavg", uplink=["clip"], server=noisy, wire={"rows": "all"}).rows,
        *federation(tiny.language_model(evaluation=SELECTING | {"thresholds": {"perplexity_val": [1e6]}})).run(),
        *federation(tiny.language_model(evaluation={"personalize": {"steps": 2}})).run(),
    ]
    found = logged(rows)
    assert {
        "energy_kept",
        "epsilon",
        "delta",
        "selected_round",
        "perplexity_Ap",
        "bytes_to_perplexity_val_1000000",
    } <= found
    assert {metric for metric in found if find(metric) is None} == set()
    for record in nonempty(rows):
        assert ("epsilon" in record.metrics) == ("delta" in record.metrics)


def test_every_metric_of_an_audit_is_in_the_table() -> None:
    for audit in nonempty(AUDITS.values()):
        for name in nonempty(audit.metrics):
            metric = find(name)
            assert metric is not None, f"{name} of {audit.__name__}: describe it in fedtext/metrics/table.py"
            assert metric.kind == "attack", name


def test_a_name_has_one_place_in_the_table() -> None:
    names = [metric.name for metric in METRICS]
    assert len(set(names)) == len(names)
    for metric in nonempty(METRICS):
        assert find(metric.name) == metric, f"{metric.name} is hidden by one before it"
        if metric.validation:
            assert find(f"{metric.name}_val") == metric
    assert find("Ap_lr_multiplier_1_val") == find("Ap_<variation>")
    assert find("bytes_to_Ag_val_0.85") == find("bytes_to_<metric>_<value>")
    assert find("my_own") is None


def test_directions_and_splits_are_those_of_the_metrics_that_trials_are_sorted_by() -> None:
    sorting = get_args(Sorting)
    assert {name for name in sorting if smaller_is_better(name)} == {
        *("perplexity", "perplexity_val", "bits_per_byte", "bits_per_byte_val", "loss")
    }
    assert {name for name in sorting if of_test(name)} == {
        *("Ag", "Ap", "Local", "Global", "AUC", "perplexity", "bits_per_byte")
    }
    assert all(nonempty(not of_test(name) for name in get_args(Validated)))
    assert sorted(["delta", "Ap_val", "loss", "Ag", "epsilon", "Ap"], key=column_order) == [
        *("Ag", "Ap", "Ap_val", "epsilon", "delta", "loss")
    ]


def test_every_metric_has_a_name_a_legend_and_the_columns_that_tables_are_read_by() -> None:
    for metric in nonempty(METRICS):
        assert re.fullmatch(r"[\w<>./]+", metric.name), metric
        assert " " in metric.summary, metric
    columns = {kind: {m.name for m in METRICS if m.columns == kind} for kind in ("all", "test")}
    assert columns["all"] == {
        *("Ag", "Ap", "Ap_0", "Ap_<variation>", "Local", "Global", "Local_p10", "AUC", "AUC_0"),
        *("perplexity", "perplexity_<model>", "inversion_public_recall", "inversion_public_ptlr"),
        *("span_public_texts", "rows_recall", "label_top", "member_auc", "attribute_auc"),
    }
    assert columns["test"] == {
        *("backdoor_success", "perplexity_p90", "perplexity_p90_<model>", "top3", "top3_<model>"),
        *("bits_per_byte", "bits_per_byte_<model>"),
    }
    of_models = {"perplexity", "perplexity_p90", "nats_per_token", "bits_per_byte", "top1", "top3"}
    validated = {"Ag", "Ap", "Ap_0", "Ap_<variation>", "Local", "AUC", "AUC_0"}
    validated |= of_models | {f"{name}_<model>" for name in of_models}
    assert {m.name for m in METRICS if m.validation} == validated
    assert [m.split for m in map(find, ("Ag", "loss", "member_auc", "bytes_up")) if m] == [
        "test",
        "train",
        "train",
        "none",
    ]


def test_names_that_are_unknown_have_no_direction_and_the_last_columns() -> None:
    assert not smaller_is_better("my_own")
    assert not of_test("my_own")
    assert not of_validation("my_own_val")
    assert not of_validation("loss_val")
    assert [of_validation(name) for name in ("Ag", "Ag_val")] == [False, True]
    assert column_order("my_own") == (True, False, len(METRICS))
    assert column_order("Ag") == (False, False, 0)
    assert column_order("Ag_val") == (False, True, 0)
    assert column_order("<metric>.std") == (True, False, len(METRICS) - 1)


def test_a_legend_explains_a_name_once() -> None:
    lines = legend(["Ap_val", "Ag", "Ag_val", "trial", "epsilon"])
    assert [line.partition(":")[0] for line in lines] == ["Ap", "Ag", "epsilon", "..._val"]
    assert legend(["Ag", "my_own"]) == [
        "Ag: accuracy of the shared model on each client's own texts, mean over clients"
    ]


AREA = "area under the ROC curve of train against test texts"


def test_values_are_told_with_their_units_and_every_name_has_a_meaning() -> None:
    given = {
        "Ag_val": (0.5037, "50.4 %", "Ag of validation texts"),
        "perplexity": (61.24, "61.2", "exp(mean nats per predicted token)"),
        "norm_scaled": (0.25, "25.0 %", "share of updates"),
        "train_cpu_seconds": (0.0437, "0.0437 s", "CPU time of all clients"),
        "round_seconds": (185.0, "3 min 05 s", "wall time of a round"),
        "bytes_up": (12_100_000.0, "12.1 MB", "bytes sent by all clients"),
        "member_auc": (0.512, "51.2 %", f"membership: {AREA} by the attack's score; 0.5"),
        "clients_trained": (62_401.0, "62,401", "clients whose update"),
        "epsilon": (5_864_447.2, "5,864,447", "bound on the privacy loss"),
        "loss_near": (0.06154, "0.06154", ""),
        "krum_client": (float("nan"), "nan", "client, counted from 0"),
        "trimmed": (float("inf"), "inf", "number of updates"),
    }
    for name, (value, words, summary) in nonempty(given.items()):
        assert told(name, value) == words
        assert meaning(name).startswith(summary)
        assert bool(meaning(name)) == bool(summary)
