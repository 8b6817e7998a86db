"""Reports of language models: perplexities, smaller is better, beside the unigram row."""

from dataclasses import replace

import pytest

from dashboards.report.collect import Sweep
from dashboards.report.compare import best_rows, findings
from dashboards.report.contents import results
from dashboards.report.measures import measure
from dashboards.report.page import page
from dashboards.trial import Outcome
from fedtext.config.files import load
from fedtext.evaluation.continuations import FILE as CONTINUATIONS
from fedtext.records import RoundRecord
from fedtext.runtime.markdown import plain
from tune_spaces.cases import cases as make_cases


@pytest.fixture(scope="module")
def sweep() -> Sweep:
    """A sweep of FedAtt under two seeds, with records as a language model makes them."""
    changes = ["seeds=2", "baselines=[fedavg]", "space={training.local_epochs: {grid: [1, 2]}}", "training.rounds=2"]
    content, experiment = load("fedatt.yaml", changes)
    cases, outcomes = make_cases(content, experiment, "fedatt.yaml"), {}
    for place, case in enumerate(cases):
        values = [
            {f"perplexity{end}": 300.0 - 10 * place - 50 * round_ for end in ("", "_val")}
            | {f"perplexity{end}": 190.0 + case.experiment.seed for end in ("_unigram", "_unigram_val")}
            for round_ in (1, 2)
        ]
        records = tuple(RoundRecord(round_, 1e9, metrics) for round_, metrics in enumerate(values, 1))
        outcomes[case.id] = Outcome("finished", records)
    return Sweep("language", experiment, cases, outcomes, {})


def test_the_unigram_model_is_one_row_beside_all_that_have_its_corpus(sweep: Sweep) -> None:
    *rows, last = sweep.rows
    assert len(rows) == 3
    assert (last.label, last.baseline, last.by_seed("perplexity")) == ("unigram", True, {0: 190.0, 1: 191.0})
    assert rows[0].label.endswith("local_epochs=2"), "the smallest perplexity is the best"
    assert "perplexity_unigram" not in [head.split(" ")[0] for head in results(sweep).heads]


def test_rows_with_other_corpora_have_unigram_rows_of_their_own(sweep: Sweep) -> None:
    first = sweep.cases[0].group
    changed = {}
    for case in sweep.cases:
        if case.group == first:
            rows = sweep.outcomes[case.id].rows
            changed[case.id] = Outcome(
                "finished", tuple(replace(r, metrics=r.metrics | {"perplexity_unigram": 250.0}) for r in rows)
            )
    labels = [row.label for row in replace(sweep, outcomes={**sweep.outcomes, **changed}).rows]
    assert [label for label in labels if label.startswith("unigram of ")] == [
        "unigram of fedatt local_epochs=2",
        "unigram of fedavg",
    ]


def test_smaller_perplexities_win(sweep: Sweep) -> None:
    (best,) = best_rows(sweep.rows, measure("perplexity"))
    assert best is sweep.winner
    said = findings(sweep)
    assert said[0].startswith(f"{best.label} has the lowest {sweep.metric} of the space: ")
    assert any(f" in {sweep.metric} ahead of unigram (baseline)" in sentence for sentence in said)


def test_the_page_shows_them_and_leaves_out_what_they_lack(sweep: Sweep) -> None:
    content = page(sweep)
    assert "unigram (baseline)" in content
    assert "perplexity by round" in content
    assert "Client by client" not in content
    assert "Utility against" not in content


def test_texts_that_models_continue_are_on_the_page_as_they_are(sweep: Sweep) -> None:
    shown = "# Continuations\n\nGreedy.\n\n" + f"- {plain('a *b* <unk>')} **|** {plain('c & d')}\n"
    outcomes = {
        name: Outcome("finished", tuple(replace(r, files={CONTINUATIONS: shown}) for r in outcome.rows))
        for name, outcome in sweep.outcomes.items()
    }
    made = page(replace(sweep, outcomes=outcomes))
    assert made.count("<p>a *b* &lt;unk&gt; | c &amp; d</p>") == 3, "of the first seed of each row"
    assert "Texts that models continue" not in page(sweep)
