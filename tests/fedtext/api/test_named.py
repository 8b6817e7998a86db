"""Metrics by name: a wrong name is answered with the nearest ones, and all else is as of a dict."""

import copy
import json
import pickle

import pytest
import yaml

from fedtext.api.named import NamedDict
from fedtext.api.result import Result
from fedtext.records import RoundRecord
from fedtext.server.last import last_values
from tests import tiny
from tests.loops import nonempty

HISTORY = (
    RoundRecord(1, 0.0, {"Ag": 0.5, "loss": 2.0}, {"books": {"Ag": 0.5}, "dvd": {"Ag": 0.25}}),
    RoundRecord(2, 0.0, {"Ag": 0.75, "Ap": 0.8}, {"books": {"Ap": 1.0}}),
)


def result() -> Result:
    return Result(tiny.experiment(), HISTORY, [], None)  # type: ignore[arg-type]


def test_a_wrong_name_of_a_metric_or_client_is_answered_with_the_nearest() -> None:
    with pytest.raises(KeyError, match=r"no metric Agg in this run; did you mean Ag\?"):
        _ = result().metrics["Agg"]
    with pytest.raises(KeyError, match="no metric perplexity in this run; there are Ag, loss, Ap'"):
        _ = result().metrics["perplexity"]
    with pytest.raises(KeyError, match=r"no client book in this run; did you mean books\?"):
        _ = result().clients["book"]
    with pytest.raises(KeyError, match=r"no metric Agg of client books in this run; did you mean Ag\?"):
        _ = result().clients["books"]["Agg"]
    with pytest.raises(KeyError, match="no metric Ag in this run; there are none"):
        _ = NamedDict[float]({})["Ag"]
    with pytest.raises(KeyError, match="there are 0, 1, 2, 3, 4, 5, 6, 7 and 92 more"):
        _ = NamedDict({str(n): n for n in range(100)})["x"]


def test_otherwise_they_are_a_dict() -> None:
    metrics, plain = result().metrics, {"Ag": 0.75, "loss": 2.0, "Ap": 0.8}
    assert isinstance(metrics, dict)
    assert metrics == plain
    assert "Agg" not in metrics
    assert metrics.get("Agg") is None
    assert metrics | {"Ag": 1.0} == plain | {"Ag": 1.0}
    ways = (repr, json.dumps, yaml.safe_dump, yaml.dump)
    assert all(write(metrics) == write(plain) for write in nonempty(ways))
    for again in nonempty([pickle.loads(pickle.dumps(metrics)), copy.deepcopy(metrics)]):
        assert again == plain
        with pytest.raises(KeyError, match=r"did you mean Ag\?"):
            _ = again["Agg"]
    assert yaml.safe_dump(result().clients["dvd"]) == "Ag: 0.25\n"
    assert list(result().clients_to_pandas().columns) == ["Ag", "Ap"]


def test_what_the_last_evaluated_round_leaves_out_has_no_value() -> None:
    """An older rate would stand beside the area of another model and of other clients. Tables have none either."""
    rate = {"member_tpr_at_1pct_fpr": 0.0, "member_auc": 0.6}
    history = (RoundRecord(1, 0.0, {"Ag": 0.5, "Ap": 0.9} | rate), RoundRecord(2, 0.0, {"Ag": 0.6, "member_auc": 0.5}))
    found = Result(tiny.experiment(), history, [], None).metrics  # type: ignore[arg-type]
    assert found == last_values(history) == {"Ag": 0.6, "Ap": 0.9, "member_auc": 0.5}
