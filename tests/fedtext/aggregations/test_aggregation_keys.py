"""``server.aggregation``: what it goes with, how many clients it needs, and how it is written, swept and told."""

from typing import Any

import pytest

from fedtext.aggregations import AGGREGATIONS
from fedtext.aggregations.krum import Krum
from fedtext.client.local_fleet import LocalFleet
from fedtext.config.experiment import Experiment
from fedtext.config.keys import about
from fedtext.errors import UserError
from fedtext.ledger.report import reveals
from fedtext.parameters import initial
from tests import tiny
from tests.checkpoints import SCRATCH
from tests.fedtext.aggregations.test_aggregations import CONFIGURED, CORPUS, run
from tests.loops import nonempty
from tune_spaces.cases import cases

WRONG: dict[str, tuple[Any, dict[str, Any], str]] = {
    "unknown": ("fedavg", {"aggregation": "medan"}, "expected tags"),
    "weights": ("fedavg", {"aggregation": "median", "weights": "uniform"}, "means of updates, and aggregation median"),
    "rows": ("fedavg", {"aggregation": "krum", "absent_rows": "holders_only"}, "server.absent_rows: holders_only is"),
    "nothing sent": ("local_only", {"aggregation": "median"}, "method local_only sends no updates"),
    "pooled": ("pooled", {"aggregation": "mean"}, "method pooled has all data in one place"),
    "noise": ("fedavg", {"aggregation": CONFIGURED["norm_bounded"], "noise": {"multiplier": 1}}, "server.noise: it is"),
    "two": ({"name": "fedatt", "step": 2}, {"aggregation": "median"}, "method fedatt has an aggregation of its own"),
    "norm": ("fedavg", {"aggregation": "norm_bounded"}, "norm\n  Field required"),
    "half": ("fedavg", {"aggregation": {"trimmed_mean": {"share": 0.5}}}, "less than 0.5"),
}


@pytest.mark.parametrize(("method", "server", "message"), WRONG.values(), ids=list(WRONG))
def test_what_does_not_go_together_is_refused(method: Any, server: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        tiny.experiment(method, server=server)


@pytest.mark.parametrize(
    ("aggregation", "changes", "message"),
    [
        (
            {"krum": {"attackers": 2}},
            {},
            "server.aggregation.attackers: krum against 2 needs 7 updates in a round, and",
        ),
        ("krum", {"participation": {"fraction": 0.6}}, "needs 5 updates in a round, and there are 3"),
        ({"krum": {"keep": 6}}, {}, "server.aggregation.keep: 6 updates are needed, and there are 5"),
        ("trimmed_mean", {}, "server.aggregation.share: 0.1 of 5 updates is less than one at each end"),
    ],
)
def test_too_few_clients_are_refused_before_the_first_round(aggregation: Any, changes: Any, message: str) -> None:
    made = tiny.experiment(server={"aggregation": aggregation}, **changes)
    with pytest.raises(UserError, match=message):
        LocalFleet(made, CORPUS, initial(made, CORPUS)[1])


def test_too_few_updates_in_a_round_are_one_sentence() -> None:
    with pytest.raises(UserError, match=r"^server.aggregation.attackers: krum against 1 needs 5 updates in a round"):
        run("fedavg", "krum", participation={"dropout": 0.9}, training=tiny.TRAINING | {"rounds": 20})


def test_an_aggregation_is_written_swept_told_and_said_to_read_updates() -> None:
    made = tiny.experiment(server={"aggregation": {"name": "krum", "keep": 2}})
    assert (
        made.aggregation == Krum(keep=2) == tiny.experiment(server={"aggregation": {"krum": {"keep": 2}}}).aggregation
    )
    dump = made.model_dump(mode="json")
    assert Experiment.model_validate(dump) == made
    grid = {"space": {"server.aggregation": {"grid": ["mean", {"krum": {"keep": 2}}]}}, "tune": {"metric": "Ag"}}
    content = dump | grid | {"baselines": ["local_only", "pooled", "fedprox"]}
    named = [case.experiment.aggregation.name for case in cases(content, Experiment.model_validate(content), "test")]
    assert named == ["mean", "mean", "krum", "mean", "krum"]
    for name, cls in nonempty(AGGREGATIONS.items()):
        assert about(name).startswith(f"server.aggregation: {name}\n")
        adapted = {"model": SCRATCH | {"adapter": {}}} if name == "lora" else {}
        said = " ".join(reveals(tiny.experiment(server={"aggregation": CONFIGURED.get(name, name)}, **adapted)))
        assert ("the server reads each client's update by itself" in said) == (not cls.sums)
