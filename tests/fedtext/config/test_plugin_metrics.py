"""Metrics and files that parts of a plug-in report stand beside those of fedtext and of each other."""

import json
import re
from pathlib import Path

import pytest

import fedtext
from fedtext.errors import ClientError, UserError
from tests.fedtext.config.plugged import AUDIT, HALVED, MIDDLE, write
from tests.loops import nonempty


@pytest.mark.parametrize(
    ("metrics", "problem"),
    [
        ("{'Ag': 0.0}", "metric Ag, which fedtext computes itself: choose another name"),
        ("{'loss_ce': 0.0}", "metric loss_ce, which fedtext computes itself: choose another name"),
        ("{'other': 0.0}", "metric other, which looks does not declare: add it to metrics of the class"),
        ("{'seen: %': 0.0}", "metric 'seen: %', a name that MLflow does not accept: use letters, digits and _"),
    ],
)
def test_metrics_of_an_audit_are_checked(metrics: str, problem: str, tmp_path: Path) -> None:
    source = AUDIT.replace("METRICS", metrics).replace("REPORT", "{}")
    with pytest.raises(ClientError, match=re.escape(f"Seen: metrics returned {problem}")):
        fedtext.run(write(tmp_path, source, method="fedavg", audits=["looks"]))


@pytest.mark.parametrize("name", ["../page.md", "ledger.json", ".page.md", ""])
def test_files_of_an_audit_replace_none_of_the_run(name: str, tmp_path: Path) -> None:
    source = AUDIT.replace("METRICS", "{'seen': 1.0}").replace("REPORT", f"{{{name!r}: 'a page'}}")
    with pytest.raises(UserError, match=re.escape(f"Seen: report returned a file {name!r}: take a name without a")):
        fedtext.run(write(tmp_path, source, method="fedavg", audits=["looks"]))


@pytest.mark.parametrize("error", ["fail", "skip"])
def test_files_of_an_audit_are_checked_after_the_first_round_in_which_it_has_metrics(
    error: str, tmp_path: Path
) -> None:
    source = AUDIT.replace("METRICS", "{'seen': 1.0}").replace("REPORT", "{'page.json': 'a page'}")
    asked = {"training": {"rounds": 3}, "participation": {"on_client_error": error}}
    file = write(tmp_path, source, method="fedavg", audits=["looks"], **asked)
    with pytest.raises(UserError, match=r"Seen: report returned a file 'page\.json': take a name without a folder"):
        fedtext.run(file, out=tmp_path / "run")
    assert not list((tmp_path / "run").glob("round-*")), "no round has been completed"


def test_a_report_that_fails_before_the_last_round_ends_no_round(tmp_path: Path) -> None:
    """It may need what it has then only. Of the last round it ends the run, as before."""
    source = AUDIT.replace("METRICS", "{'seen': 1.0}").replace("REPORT", "{'page.md': 1 / 0}")
    file, rounds = write(tmp_path, source, method="fedavg", audits=["looks"], training={"rounds": 3}), list[int]()
    with pytest.raises(ZeroDivisionError):
        fedtext.run(file, on_round=lambda record: rounds.append(record.round))
    assert rounds == [1, 2]


@pytest.mark.parametrize("what", ["METRICS", "REPORT"])
def test_a_run_that_an_audit_ended_goes_on_with_the_mended_audit(what: str, tmp_path: Path) -> None:
    """With the noise that it would have had without any audit."""
    right = {"METRICS": "{'seen': 1.0}", "REPORT": "{'page.md': 'a page'}"}
    wrong = right | {what: {"METRICS": "{'sen': 1.0}", "REPORT": "{'page.json': 'a page'}"}[what]}
    sources = [AUDIT.replace("METRICS", made["METRICS"]).replace("REPORT", made["REPORT"]) for made in (wrong, right)]
    asked = {"training": {"rounds": 2}, "evaluation": {"personalize": None, "every": 2}}
    asked |= {"method": "fedavg", "uplink": [{"gaussian": {"sigma": 0.1}}]}
    with pytest.raises((ClientError, UserError), match=r"Seen: (metrics|report) returned"):
        fedtext.run(write(tmp_path, sources[0], audits=["looks"], **asked), out=tmp_path / "run")
    (kept,) = (tmp_path / "run").glob("round-*")
    written = kept.stat().st_mtime_ns
    mended = fedtext.run(write(tmp_path, sources[1], audits=["looks"], **asked), out=tmp_path / "run", resume=True)
    assert kept.stat().st_mtime_ns == written, "the first round is not computed again"
    assert (tmp_path / "run" / "page.md").read_text() == "a page"
    plain = fedtext.run(write(tmp_path, sources[1], **(asked | {"plugins": []})))
    assert mended.state["embedding.weight"].tobytes() == plain.state["embedding.weight"].tobytes()


@pytest.mark.parametrize(
    ("metrics", "other", "owner"), [('("seen", "Ag")', "Ag", "fedtext"), ('("rows_f1",)', "rows_f1", "embedding_rows")]
)
def test_a_metric_has_one_owner(metrics: str, other: str, owner: str, tmp_path: Path) -> None:
    source = AUDIT.replace('("seen",)', metrics)
    with pytest.raises(UserError, match=f"audits: looks has the metric {other}, which {owner} has already: give it"):
        fedtext.load(write(tmp_path, source, method="fedavg", audits=["embedding_rows", "looks"]))


@pytest.mark.parametrize(
    ("metrics", "problem"),
    [
        ("{'epsilon': 0.01}", "metric epsilon, which fedtext computes itself: choose another name"),
        ("{'loss': 0.0}", "metric loss, which fedtext computes itself: choose another name"),
        ("{'gpu_seconds': 0.0}", "metric gpu_seconds, which fedtext computes itself: choose another name"),
        ("{'half': 'all'}", "metric half as str, and not as a number"),
        ("None", "None, and not numbers by name"),
    ],
)
def test_metrics_of_a_mechanism_are_checked(metrics: str, problem: str, tmp_path: Path) -> None:
    source = HALVED + f"\n    def metrics(self, delta, received, sent):\n        return {metrics}\n"
    with pytest.raises(ClientError, match=f"mechanism halved: metrics returned {problem}"):
        fedtext.run(write(tmp_path, source, method="fedavg", uplink=["halved"]))


@pytest.mark.parametrize("base", ["IndividualAggregation", "SumAggregation"])
@pytest.mark.parametrize("name", ["bytes_up", "loss", "clients_trained", "Ag"])
def test_metrics_of_an_aggregation_replace_no_others(base: str, name: str, tmp_path: Path) -> None:
    hook = f"    def metrics(self, updates, scaled):\n        return {{'{name}': 0.0}}\n"
    each = MIDDLE.replace("    def aggregate", '    secure = "it does not"\n\n    def aggregate')
    each = each.replace("state, {}", f"state, {{'{name}': 0.0}}")
    summed = MIDDLE.partition("    def aggregate")[0].replace("IndividualAggregation", base) + hook
    source, called = (each, "aggregate") if base.startswith("I") else (summed, "metrics")
    file = write(tmp_path, source, method="fedavg", server={"aggregation": "middle"})
    with pytest.raises(UserError, match=f"aggregation middle: {called} returned metric {name}, which fedtext computes"):
        fedtext.run(file)


NUMPY = HALVED + "\n    def metrics(self, delta, received, sent):\n        return {'half': np.float32(0.5)}\n"


def test_metrics_may_be_numbers_of_numpy(tmp_path: Path) -> None:
    summed = MIDDLE.partition("    def aggregate")[0].replace("IndividualAggregation", "SumAggregation")
    summed += "    def metrics(self, updates, scaled):\n        return {'updates': np.int64(updates)}\n"
    audit = AUDIT.replace("METRICS", "{'seen': np.float32(0.25)}").replace("REPORT", "{'seen.md': '\\ud83d'}")
    source = "import numpy as np\n" + NUMPY + summed + audit
    parts = {"uplink": ["halved"], "server": {"aggregation": "middle"}, "audits": ["looks"]}
    result = fedtext.run(write(tmp_path, source, method="fedavg", **parts), out=tmp_path / "run")
    assert [result.metrics[name] for name in ("half", "updates", "seen")] == [0.5, 8, 0.25]
    assert json.loads((tmp_path / "run/rows.json").read_text())[0]["metrics"]["seen"] == 0.25
    assert (tmp_path / "run/seen.md").read_text() == "?"


def test_a_mechanism_that_stands_twice_in_an_uplink_has_its_metrics_twice(tmp_path: Path) -> None:
    source = HALVED + "\n    def metrics(self, delta, received, sent):\n        return {'half': 0.5}\n"
    for times, names in nonempty(((1, {"half"}), (3, {"half", "half_2", "half_3"}))):
        result = fedtext.run(write(tmp_path, source, method="fedavg", uplink=["halved"] * times))
        assert {name for name in result.metrics if name.startswith("half")} == names


def test_a_mechanism_beside_one_that_inherits_its_metrics_has_them_twice(tmp_path: Path) -> None:
    source = HALVED + "\n    def metrics(self, delta, received, sent):\n        return {'half': 0.5}\n"
    source += "\nclass Again(Halved):\n    name: Literal['again'] = 'again'\n"
    for uplink in nonempty((["halved", "again"], ["again", "halved"])):
        result = fedtext.run(write(tmp_path, source, method="fedavg", uplink=uplink))
        assert {name for name in result.metrics if name.startswith("half")} == {"half", "half_2"}
