"""Reports of a search: the direction of its metric, and the values of its keys."""

from dashboards.report.collect import Sweep
from dashboards.report.compare import best_rows, findings, measures
from dashboards.report.contents import clients, effects
from dashboards.trial import Outcome
from fedtext.config.files import validate
from fedtext.records import RoundRecord
from tune_spaces.cases import cases


def compared(mode: str, values: list[float], keys: list[float]) -> Sweep:
    """A sweep of FedProx whose trials ended with these values of Ag_val and Ag."""
    content = {
        "name": "x",
        "corpus": {"name": "demo", "validation": 0.2},
        "model": "bag",
        "method": "fedprox",
        "training": {"rounds": 1},
        "space": {"method.mu": {"grid": keys}},
        "tune": {"metric": "Ag_val", "mode": mode},
    }
    experiment = validate(content)
    made = cases(content, experiment, "x")
    ended = (Outcome("finished", (RoundRecord(1, 0.0, {"Ag_val": value, "Ag": value}),)) for value in values)
    return Sweep("x", experiment, made, dict(zip((case.id for case in made), ended, strict=True)), {})


def test_the_direction_of_the_metric_is_that_of_the_search() -> None:
    least = compared("min", [0.9, 0.2], [0.0, 0.1])
    assert findings(least)[0].startswith("fedprox mu=0.1 has the lowest Ag_val of the space: 20.0 %")
    assert "ahead of fedprox mu=0" in " ".join(findings(least))
    marked = {of.name: [row.label for row in best_rows(least.rows, of)] for of in measures(least)}
    assert marked["Ag_val"] == ["fedprox mu=0.1"]
    assert marked["Ag"] == ["fedprox mu=0"], "the search says nothing of it"
    most = compared("max", [0.9, 0.2], [0.0, 0.1])
    assert findings(most)[0].startswith("fedprox mu=0 has the highest Ag_val of the space: 90.0 %")


def test_values_of_a_key_that_agree_in_the_digits_shown_have_lines_of_their_own() -> None:
    close = effects(compared("max", [0.9, 0.2, 0.5], [0.012341, 0.012344, 0.5]))
    assert close is not None
    lines = [tuple(field.text for field in row[1:4]) for row in close.rows]
    assert lines == [("0.01234", "1", "90.0"), ("0.012344", "1", "20.0"), ("0.5", "1", "50.0")]
    also = effects(compared("max", [0.9, 0.2], [0.12345678, 0.1235]))
    assert also is not None
    assert [row[1].text for row in also.rows] == ["0.1235", "0.1235 (1)"]


def test_the_best_of_each_client_is_in_that_direction() -> None:
    least = compared("min", [0.9, 0.2], [0.0, 0.1])
    for case_id, value in zip(least.outcomes, (0.9, 0.2), strict=True):
        least.outcomes[case_id].rows[0].clients["dvd"] = {"Ag_val": value}
    (line,) = clients(least, "Ag_val").rows
    assert [field.strong for field in line[1:]] == [row.label == "fedprox mu=0.1" for row in least.rows]
