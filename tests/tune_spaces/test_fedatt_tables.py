"""The tables of the FedAtt paper: what stands behind their figures, and how perplexities and thresholds are shown."""

import math
import re
from pathlib import Path

import pytest

from dashboards.figures import PERPLEXITY, Cell, Origin, Reproduction
from dashboards.paired import order
from dashboards.reproduction import markdown
from dashboards.trial import Outcome
from fedtext.config.files import load
from fedtext.corpora.prepare import prepare
from fedtext.corpora.ptb import PTBCorpus
from fedtext.corpora.reddit import RedditCorpus
from fedtext.corpora.wikitext import WikiText2Corpus
from fedtext.errors import UserError
from fedtext.evaluation.unigram import unigram
from fedtext.ledger import ledger
from fedtext.methods.fedatt import FedAtt
from fedtext.models.base import Embedding
from sweeps.results import check_columns, named, reproduced, when
from tests import tiny
from tests.loops import nonempty
from tune_spaces import papers
from tune_spaces.cases import Case
from tune_spaces.cases import cases as cases_of
from tune_spaces.papers import Scale

FEDATT = papers.load("fedatt")
FEDATT_PTB = PTBCorpus(clients=4)
CORPORA = {"PTB": PTBCorpus, "WikiText-2": WikiText2Corpus, "Reddit": RedditCorpus}
THERE = [
    (number, scene)
    for number, table in FEDATT.tables.items()
    for scene in FEDATT.scenes
    if any(scene in row.paper for row in table.rows.values())
]
# Table II: WikiText-2, PTB, Reddit; tables III and IV: FedAvg, FedAtt, on WikiText-2
PRINTED = {
    "FedSGD": (112.45, 155.27, 128.61),
    "FedAvg C=0.1": (95.27, 138.13, 126.49),
    "FedAtt C=0.1": (91.82, 115.43, 120.25),
    "FedAvg C=0.5": (79.75, 128.24, 101.64),
    "FedAtt C=0.5": (69.38, 123.00, 99.04),
}
NOISE = {"0": (88.21, 77.66), "0.001": (88.17, 77.76), "0.005": (88.36, 78.59), "0.01": (89.74, 79.51),
         "0.05": (103.17, 101.82)}  # fmt: skip
SCALES = {"small tied": (88.21, 77.66), "small untied": (91.25, 81.31), "medium tied": (103.07, 77.41),
          "medium untied": (96.67, 96.71), "large tied": (77.51, 76.37), "large untied": (82.97, 83.40)}  # fmt: skip


@pytest.mark.parametrize(("number", "scene"), THERE)
def test_behind_every_figure_stands_an_experiment(number: str, scene: str) -> None:
    table = papers.tables(FEDATT, [number], scene, ())[number]
    for name, (case,) in nonempty(papers.cases(FEDATT, table, scene, Scale(), 1, {})):
        made = case.experiment
        assert set(table.rows[name].paper[scene]) <= set(table.read)
        assert isinstance(made.corpus, CORPORA[scene])
        assert made.language
        rounds = 25 if made.method.pooled else 50  # of all texts, once each: as many passes
        assert (made.corpus.clients, made.training.rounds, made.evaluation.select) == (100, rounds, "perplexity_val")
        assert made.method.name == table.rows[name].system.split()[0].lower()
        ends = {f"rounds_to_perplexity_val_{value:g}" for value in made.evaluation.thresholds["perplexity_val"]}
        assert set(table.read.values()) <= ends | {"perplexity", "perplexity_val", "perplexity_p90", "top1", "top3"}
        if made.method.name == "fedsgd":
            assert (made.training.local_epochs, made.training.batch_size) == (1, 10)


def test_the_figures_are_those_the_paper_prints() -> None:
    def printed(number: str, scene: str) -> dict[str, float]:
        rows = FEDATT.tables[number].rows.items()
        return {name: row.paper[scene]["perplexity"] for name, row in rows if row.paper.get(scene)}

    for place, scene in enumerate(("WikiText-2", "PTB", "Reddit")):
        assert printed("II", scene) == {row: figures[place] for row, figures in PRINTED.items()}
    both = ("FedAvg", "FedAtt")
    assert printed("III", "WikiText-2") == {
        f"{system} beta={beta}": value
        for beta, found in NOISE.items()
        for system, value in zip(both, found, strict=True)
    }
    assert printed("IV", "WikiText-2") == {
        f"{system} {size}": value for size, found in SCALES.items() for system, value in zip(both, found, strict=True)
    }
    assert printed("fig2", "WikiText-2") == {"FedAtt C=0.7": 67.59}
    assert not any(printed(number, "PTB") for number in ("III", "IV", "fig2", "fig3"))


def _cases(number: str) -> dict[str, list[Case]]:
    table = papers.tables(FEDATT, [number], "PTB", ())[number]
    return dict(papers.cases(FEDATT, table, "PTB", Scale(), 1, {}))


def test_a_row_is_what_its_name_says() -> None:
    rows = {name: case.experiment for number in FEDATT.tables for name, (case,) in _cases(number).items()}
    for name, made in nonempty(rows.items()):
        for word in nonempty(name.split()):
            key, _, value = word.partition("=")
            told = {"C": made.participation.fraction, "E": made.training.local_epochs, "B": made.training.batch_size}
            if key in told:
                assert told[key] == float(value)
            elif key == "beta":
                assert [part.sigma for part in made.uplink if part.name == "gaussian"] == [float(value)] * (
                    value != "0"
                )
    assert rows["FedAtt large untied"].model.embedding.dim == rows["FedAtt large untied"].model.hidden == 1500
    assert not rows["FedAtt large untied"].model.tied
    attention = {name: made.method for name, made in rows.items() if isinstance(made.method, FedAtt)}
    assert all(nonempty((method.attention == "uniform") == ("uniform" in name) for name, method in attention.items()))
    assert all(nonempty((method.norm == "spectral") == ("spectral" in name) for name, method in attention.items()))
    assert {method.step for method in attention.values()} == {1.2}


def test_beside_every_fedatt_stands_its_control_with_the_same_step() -> None:
    for number, table in nonempty(FEDATT.tables.items()):
        controlled = {name for name, row in table.rows.items() if row.system == "FedAtt"}
        pairs = papers.compared(FEDATT, table)
        assert {one for one, other in pairs if "uniform" in other} == controlled
        assert {one for one, other in pairs if one in controlled and "FedAvg" in other} == controlled
        assert len(pairs) == 3 * len(controlled)
        cases = _cases(number)
        for one, other in nonempty(pairs):
            left, right = (cases[name][0].experiment for name in (one, other))
            assert left.model_copy(update={"method": right.method}) == right


def test_a_clip_before_the_noise_gives_the_ledger_an_epsilon() -> None:
    made = {name: cases[0].experiment for name, cases in _cases("III").items() if name.startswith("FedAvg")}
    known = {name: [entry.epsilon for entry in ledger(one, 1000, 100, 50)] for name, one in made.items()}
    assert all(nonempty(any(found) == ("clip" in name) for name, found in known.items()))


def test_a_sweeps_control_is_told_from_what_it_controls() -> None:
    made = cases_of(*load("fedatt.yaml"), "fedatt.yaml")
    labels = [case.label for case in made]
    assert labels[:5] == ["fedavg", "fedatt attention=uniform", "pooled", "local_only", "step=1 fraction=0.1"]
    control, swept = made[1].experiment, [case.experiment for case in made[4:]]
    assert control.model_copy(update={"method": FedAtt(step=1.2)}) in swept


def test_a_fraction_that_stands_in_both_figures_is_run_once() -> None:
    two, three = _cases("fig2"), _cases("fig3")
    assert all(nonempty(two[name][0].id == three[name][0].id for name in two))
    assert three["FedAtt C=0.1"][0].id == three["FedAtt E=5"][0].id == three["FedAtt B=10"][0].id


def test_a_scale_leaves_selection_and_thresholds() -> None:
    table = papers.tables(FEDATT, ["fig3"], "PTB", ["FedAtt"])["fig3"]
    for (_, (whole,)), (_, (short,)) in nonempty(
        zip(
            papers.cases(FEDATT, table, "PTB", Scale(), 1, {}),
            papers.cases(FEDATT, table, "PTB", Scale(0.1), 1, {}),
            strict=True,
        )
    ):
        assert (short.experiment.training.rounds, short.experiment.corpus.share) == (5, 0.1)
        assert short.experiment.evaluation == whole.experiment.evaluation


def test_a_table_goes_by_the_papers_name() -> None:
    assert [papers.called(number) for number in ("2", "II", "fig2")] == ["table 2", "table II", "figure 2"]
    with pytest.raises(UserError, match="no figure 4 of results: choose II, II-rates, III, IV, fig2, fig3"):
        papers.tables(FEDATT, ["fig4"], "PTB", ())
    with pytest.raises(UserError, match="figure 2 has nothing about Reddit"):
        papers.tables(FEDATT, ["fig2"], "Reddit", ())
    with pytest.raises(UserError, match="table III and figure 2 has no FedSGD"):
        papers.tables(FEDATT, ["III", "fig2"], "PTB", ["FedSGD"])


def test_rows_are_chosen_by_name() -> None:
    chosen = papers.tables(FEDATT, ["fig2", "fig3"], "PTB", ["FedAtt"], ["* C=0.[13]", "*E=20"])
    assert list(chosen["fig2"].rows) == ["FedAtt C=0.1", "FedAtt C=0.3"]
    assert list(chosen["fig3"].rows) == ["FedAtt C=0.1", "FedAtt C=0.3", "FedAtt E=20"]
    with pytest.raises(UserError, match=r"--rows: table IV has none of tiny\*: leave it out"):
        papers.tables(FEDATT, ["IV"], "PTB", rows=["tiny*"])
    there = re.escape(", ".join(papers.tables(FEDATT, ["IV"], "PTB")["IV"].rows))
    with pytest.raises(UserError, match=rf"leave it out, or choose among {there}$"):
        papers.tables(FEDATT, ["IV"], "PTB", rows=["tiny*"])
    assert papers.first_scene(FEDATT, ["II", "fig3"]) == "PTB"


@pytest.mark.parametrize("metric", ["rounds_to_perplexity_val_2000", "Ag"])
def test_a_change_that_leaves_nothing_to_read_is_refused(metric: str) -> None:
    table = papers.tables(FEDATT, ["fig3"], "PTB", ["FedAtt"])["fig3"].model_copy(update={"read": {"one": metric}})
    with pytest.raises(UserError, match=f"figure 3 needs {metric}, which row FedAtt C=0.1 then does not have"):
        check_columns("fig3", table, dict(papers.cases(FEDATT, table, "PTB", Scale(), 1, {})), Scale())


def test_of_alternatives_the_best_on_validation_are_compared() -> None:
    """The paper's value stands beside these alone, so that no pair is counted for each learning rate."""
    origin = Origin("fedatt", "PTB", "II-rates", "command")
    values = {
        "FedAvg lr=0.1": ([310.0, 300.0], [200.0]),
        "FedAvg lr=0.3": ([250.0, 260.0], [210.0]),  # best on validation, not on test
        "FedAvg lr=1": ([math.nan], [math.nan]),
        "FedAtt lr=0.1": ([305.0], [190.0]),
        "FedAtt lr=0.3": ([240.0, 241.0], [205.0]),
        "FedAtt uniform lr=1": ([230.0, 231.0], [207.0]),
        "Pooled lr=1": ([150.0], [120.0]),
    }
    cells = [
        Cell(row, column, None, [PERPLEXITY.of(value) for value in seeds], PERPLEXITY)
        for row, (validation, test) in values.items()
        for column, seeds in (("perplexity", test), ("on validation", validation))
    ]
    made = named(Reproduction("", 0.0, cells, [], {}, ["Said."], origin=origin))
    avg, att, uniform, pooled = "FedAvg lr=0.3", "FedAtt lr=0.3", "FedAtt uniform lr=1", "Pooled lr=1"
    assert made.compare == [(att, avg), (att, uniform), (uniform, avg), (pooled, avg)]
    assert {cell.row for cell in made.cells if cell.paper is not None} == {avg, att}
    assert [said.partition(",")[0] for said in order(made, "perplexity")] == [
        "perplexity: of 1 pairs of rows that the paper orders"
    ]


def test_a_threshold_that_is_not_reached_is_no_failure(tmp_path: Path) -> None:
    """A row of each system, trained on a few sentences, from the paper's file to Markdown."""
    words = ("the cat sat on a mat", "a dog ran", "the dog sat", "a cat ran on the mat")
    for side, lines in (("train", 24), ("valid", 8), ("test", 8)):
        (tmp_path / f"ptb.{side}.txt").write_text("".join(f"{words[n % len(words)]}\n" for n in range(lines)))
    changes = {
        "corpus.clients": 4,
        "model": {"name": "gru_lm", "embedding": {"dim": 4}, "hidden": 4},
        "training.rounds": 2,
        "evaluation.thresholds": {"perplexity_val": [1000, 1]},
    }
    whole = papers.tables(FEDATT, ["fig3"], "PTB", ())["fig3"]
    read = {"perplexity": "perplexity", "top 3": "top3", "on validation": "perplexity_val"}
    read |= {f"to {value}": f"rounds_to_perplexity_val_{value}" for value in (1000, 1)}
    rows = {name: whole.rows[name] for name in ("FedAvg C=0.5", "FedAtt C=0.5", "FedAtt uniform C=0.5")}
    table = whole.model_copy(update={"read": read, "rows": rows})
    made = dict(papers.cases(FEDATT, table, "PTB", Scale(), 2, changes))
    check_columns("fig3", table, made, Scale())
    outcomes = {}
    for case in (case for found in made.values() for case in found):
        corpus = prepare(case.experiment.corpus, case.experiment.model.embedding, case.experiment.seed, tmp_path)
        history = tiny.federation(case.experiment, corpus).run()
        outcomes[case.id] = Outcome("finished", tuple(history))
    result = reproduced(Origin("fedatt", "PTB", "fig3", "command"), table, Scale(), made, outcomes, [when(table, made)])
    text = markdown(result)
    assert text.startswith("# FedAtt, Ji et al. 2019: figure 3, Rounds to a perplexity, PTB")
    assert "evaluated once, with the model of the round with the best perplexity_val." in text
    cells = {(cell.row, cell.column): cell for cell in result.cells}
    for name, cases in nonempty(made.items()):
        last = [outcomes[case.id].rows[-1].metrics for case in cases]
        assert cells[name, "perplexity"].seeds == [metrics["perplexity"] for metrics in last]
        best = [min(record.metrics["perplexity_val"] for record in outcomes[case.id].rows) for case in cases]
        assert cells[name, "on validation"].seeds == best  # of the round that is evaluated, not of the last
        assert cells[name, "top 3"].seeds == [100 * metrics["top3"] for metrics in last]
        assert cells[name, "to 1000"].seeds == [1.0, 1.0]
        assert cells[name, "to 1"].seeds == [None, None]
        (line,) = [line for line in text.splitlines() if line.startswith(f"| {name} |")]
        assert "| 1.0 ± 0.0 | not reached |" in line
    counted = [unigram(prepare(FEDATT_PTB, Embedding(dim=4), seed, tmp_path).clients) for seed in (0, 1)]
    assert cells["unigram", "perplexity"].seeds == [each["perplexity_unigram"] for each in counted]
    assert cells["unigram", "top 3"].seeds == [100 * each["top3_unigram"] for each in counted]
    assert cells["unigram", "to 1"].seeds == []
    assert "| unigram | " in text
    assert [line.split(" | ")[0].removeprefix("| ") for line in text.splitlines() if " C=0.5 - " in line] == [
        "FedAtt C=0.5 - FedAvg C=0.5",
        "FedAtt C=0.5 - FedAtt uniform C=0.5",
        "FedAtt uniform C=0.5 - FedAvg C=0.5",
        "FedAvg C=0.5 - unigram",
        "FedAtt C=0.5 - unigram",
        "FedAtt uniform C=0.5 - unigram",
    ]
