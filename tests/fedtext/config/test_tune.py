"""The section tune: objectives and directions, and keys that nothing would read."""

from typing import Any

import pytest
from pydantic import ValidationError

from fedtext.config.tune import Tune


def test_the_objectives_of_a_search_have_the_directions_of_their_metrics() -> None:
    assert Tune(metric="perplexity_val").objectives == {"perplexity_val": "min"}
    assert Tune(metric="loss", mode="max").objectives == {"loss": "max"}
    several = Tune(metric="Ap_val", metrics=("bytes_total", "Ap_val", "epsilon", "rows_recall"))
    assert several.objectives == {"bytes_total": "min", "Ap_val": "max", "epsilon": "min", "rows_recall": "min"}
    assert list(several.objectives) == ["bytes_total", "Ap_val", "epsilon", "rows_recall"]


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"startup": 3}, "tune.startup has no effect with search: random: set tune.search to tpe"),
        ({"pending": 2}, "tune.pending has no effect"),
        ({"seeds": "outside"}, "tune.seeds has no effect"),
        ({"grace_rounds": 2}, "tune.grace_rounds has no effect with scheduler: none: set tune.scheduler to asha or"),
        ({"reduction": 3, "scheduler": "median"}, "tune.reduction has no effect with scheduler: median"),
        ({"metrics": ["Ap_val"]}, "several different metrics"),
        ({"metrics": ["Ag_val", "epsilon"]}, r"tune.metric \(Ap_val\) among them"),
        ({"metrics": ["Ap_val", "epsilon", "epsilon"]}, "several different metrics"),
        ({"metrics": ["Ap_val", "epsilo"]}, "there is no metric epsilo"),
        ({"metrics": ["Ap_val", "delta"]}, "delta is nothing to optimise"),
        ({"metrics": ["Ap_val", "clients_trained"]}, "clients_trained is nothing to optimise"),
        ({"metrics": ["Ap_val", "train_cpu_seconds"]}, "train_cpu_seconds is nothing to optimise"),
        ({"metrics": ["Ap_val", "epsilon"], "scheduler": "asha"}, "asha compares by one metric"),
    ],
)
def test_what_would_have_no_effect_is_refused(keys: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        Tune.model_validate(keys)


def test_a_section_with_all_its_defaults_written_out_is_the_same() -> None:
    assert Tune.model_validate(Tune().model_dump()) == Tune()
