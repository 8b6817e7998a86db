"""The tables of the FedeVocab paper, and its experiment: what stands behind their figures."""

from dataclasses import replace

import pytest

from dashboards.figures import Cell, Reproduction, unit
from dashboards.paired import order
from dashboards.reproduction import markdown
from fedtext.audits import gradient_inversion
from fedtext.audits.gradient_inversion import GradientInversion
from fedtext.audits.gradients import local_steps
from fedtext.config import files
from fedtext.config.files import load
from fedtext.config.overrides import override
from fedtext.corpora.agnews import AGNewsCorpus, Auxiliary
from fedtext.corpora.labelled import LabelledCorpus
from fedtext.corpora.partition import Dirichlet
from fedtext.methods.fedevocab import FedeVocab
from fedtext.methods.lg_fedavg import LGFedAvg
from fedtext.models.inits import EachInit
from fedtext.models.recurrent import RecurrentClassifier
from fedtext.models.transformer import TransformerClassifier
from fedtext.training.config import SGD, Adam, AdamW
from sweeps.results import check_columns, when
from tests.loops import nonempty
from tune_spaces import papers
from tune_spaces.cases import Case
from tune_spaces.cases import cases as cases_of
from tune_spaces.papers import Scale

PAPER = papers.load("fedevocab")
ATTACKED, ATTACKS = "AG News auxiliary", ("2", "7", "8", "fig3", "fig5")
SCENES = [scene for scene in PAPER.scenes if scene != ATTACKED]
THERE = [(number, scene) for number in PAPER.tables if number not in ATTACKS for scene in SCENES]
# Tables 4 and 3: Global and Local of 20News, AG News, SST-2
BILSTM = {
    "Local": (7.3, 42.2, 34.0, 64.6, 54.7, 83.7),
    "FedAvg": (35.4, 56.3, 84.1, 91.6, 83.0, 89.6),
    "FedProx": (35.6, 56.3, 84.3, 90.1, 82.8, 89.2),
    "LG-FedAvg": (14.4, 53.4, 48.1, 88.7, 59.1, 85.6),
    "FedRecon": (38.3, 57.3, 86.0, 92.0, 85.4, 90.2),
    "FedeVocab": (40.3, 58.6, 86.9, 92.8, 87.8, 92.1),
}
DISTILBERT = {
    "Local": (8.2, 59.4, 32.5, 77.8, 51.1, 82.5),
    "FedAvg": (73.6, 78.4, 87.2, 92.2, 92.3, 95.0),
    "FedProx": (73.5, 78.3, 88.4, 92.9, 92.2, 94.9),
    "LG-FedAvg": (53.5, 80.0, 63.2, 89.8, 63.8, 85.5),
    "FedRecon": (75.5, 82.0, 87.1, 94.1, 93.0, 95.8),
    "FedeVocab": (75.2, 86.8, 87.8, 95.5, 92.5, 95.6),
}
ABLATION = {
    "BiLSTM": BILSTM["FedeVocab"],
    "BiLSTM -adap": (37.1, 55.4, 86.3, 91.5, 85.1, 89.8),
    "DistilBERT": DISTILBERT["FedeVocab"],
    "DistilBERT -adap": (72.9, 78.7, 86.2, 93.3, 90.7, 94.3),
}


def _cases(number: str, scene: str) -> dict[str, Case]:
    table = papers.tables(PAPER, [number], scene)[number]
    return {name: case for name, (case,) in papers.cases(PAPER, table, scene, Scale(), 1, {})}


@pytest.mark.parametrize(("number", "scene"), THERE)
def test_behind_every_figure_stands_an_experiment(number: str, scene: str) -> None:
    table = papers.tables(PAPER, [number], scene)[number]
    check_columns(number, table, {name: [case] for name, case in _cases(number, scene).items()}, Scale())
    for name, case in nonempty(_cases(number, scene).items()):
        made = case.experiment
        assert set(table.rows[name].paper[scene]) <= set(table.read)
        assert isinstance(made.corpus, LabelledCorpus)
        assert made.corpus.clients == 100
        assert made.corpus.partition == Dirichlet(alpha=1.0)
        assert made.evaluation.union is not None
        alone = made.method.name == "local_only"
        passes = made.training.rounds * made.training.local_epochs
        assert passes == (1 if number == "fig4" else 10 if alone else 100)
        assert made.participation.fraction == (1.0 if alone else 0.1)
        assert made.method.name.split("_")[0] == table.rows[name].system.split("-")[0].split()[0].lower()


def test_it_is_said_that_test_texts_choose_the_best_round() -> None:
    said = "Test texts have chosen each client's round of Global and Local; other columns are of the last one."
    for number in ("4", "4-best"):
        rows = {name: [case] for name, case in _cases(number, "SST-2").items()}
        assert (when(PAPER.tables[number], rows) == said) == (number == "4-best")
        chosen = {case.experiment.evaluation.union.best_round for (case,) in rows.values()}
        assert chosen == {number == "4-best"}


@pytest.mark.parametrize(("number", "printed"), [("3", DISTILBERT), ("4", BILSTM), ("4-best", BILSTM), ("5", ABLATION)])
def test_the_figures_are_those_the_paper_prints(number: str, printed: dict[str, tuple[float, ...]]) -> None:
    rows = PAPER.tables[number].rows
    found = {
        name: tuple(row.paper[scene][column] for scene in SCENES for column in ("Global", "Local"))
        for name, row in rows.items()
        if any(row.paper.values())
    }
    assert found == printed


@pytest.mark.parametrize("number", ATTACKS)
def test_an_attacked_client_is_one_batch_and_its_update_a_gradient(number: str) -> None:
    table, cases = papers.tables(PAPER, [number], ATTACKED)[number], _cases(number, ATTACKED)
    for name, case in nonempty(cases.items()):
        made, row = case.experiment, table.rows[name]
        assert isinstance(made.corpus, AGNewsCorpus)
        assert made.corpus.auxiliary == Auxiliary(texts=128, test=128 if made.model.name == "transformer" else None)
        batch = int(name.split()[-1]) if number.startswith("fig") else 1
        assert made.corpus.clients * batch == 128
        assert (local_steps(made, batch), made.training.batch(batch)) == (1, batch)
        assert made.training.optimizer == SGD(lr=0.1, momentum=0)
        assert made.model.dropout == (0.1 if name.endswith("dropout") else 0)
        assert made.method.name == row.system.lower() == name.split()[0].lower()
        (audit,) = made.audits
        assert isinstance(audit, GradientInversion)
        assert audit.texts >= batch
        searched = number in ("2", "7", "8") and not any(part in name for part in ("span", "own start"))
        assert audit.span != searched, "the paper's attack is a search alone"
        assert set(row.paper[ATTACKED]) <= set(table.read)
        assert set(table.read.values()) <= set(audit.metrics)
        assert all(nonempty(unit(metric).less and unit(metric).name == "% leaked" for metric in table.read.values()))
    assert len({case.id for case in cases.values()}) == len(cases), "what is looked for otherwise is another trial"
    assert papers.first_scene(PAPER, [number]) == ATTACKED


@pytest.mark.parametrize(("number", "model"), [("7", "DistilBERT"), ("8", "BiLSTM")])
def test_examples_are_of_the_runs_whose_figures_are_in_table_2(number: str, model: str) -> None:
    beside = _cases("2", ATTACKED)
    assert PAPER.tables[number].shows == gradient_inversion.FILE
    for name, case in nonempty(_cases(number, ATTACKED).items()):
        assert case.id == beside[name if name in beside else f"{name} {model}"].id


def test_clients_start_from_one_source_or_from_different_ones() -> None:
    """Figure 6: nothing else differs."""
    cases = {name: case.experiment for name, case in _cases("fig6", "AG News").items()}
    assert len(cases) == 6
    for name, made in nonempty(cases.items()):
        assert isinstance(made.model.embedding.init, EachInit) == ("different" in name)
        same = cases[name.replace("different", "same")]
        dump, beside = (one.model_dump(exclude={"model": {"embedding": {"init"}}}) for one in (made, same))
        assert dump == beside


def test_the_attacks_figures_are_those_the_paper_prints() -> None:
    leaked = {name: row.paper[ATTACKED] for name, row in PAPER.tables["2"].rows.items()}
    for model, (fedavg, fedrecon, fedevocab) in {"DistilBERT": (88.2, 2.4, 1.3), "BiLSTM": (87.6, 2.1, 1.2)}.items():
        assert leaked[f"FedAvg {model}"] == {"public": fedavg}
        assert leaked[f"FedRecon {model}, own digits"] == {"public": fedrecon}, "its attacker lacks these rows"
        assert leaked[f"FedeVocab {model}"] == {"unrelated": fedevocab}
    rows = PAPER.tables["fig5"].rows.items()
    printed = {int(name.split()[-1]): row.paper[ATTACKED] for name, row in rows if "MiniLM" not in name}
    kinds = ("recall", "precision", "F1")
    assert {batch: tuple(found[f"unrelated {kind}"] for kind in kinds) for batch, found in printed.items()} == {
        **{1: (0.5, 1.2, 0.7), 2: (0.5, 0.5, 0.5), 4: (0.6, 1.6, 0.9), 8: (0.7, 2.0, 1.0)},
        **{16: (0.5, 1.5, 0.7), 32: (0.5, 1.8, 0.8), 64: (0.5, 1.9, 0.8)},
    }


def test_a_scene_whose_name_has_blanks_gives_a_run_its_name() -> None:
    for scene, content in nonempty(PAPER.scenes.items()):
        name = f"reproduce-{papers.stem('fedevocab', scene)}"
        assert files.validate(override(content, {"name": name})).name == name


def test_leaking_less_is_told_as_better() -> None:
    """FedeVocab leaks less than FedAvg in the paper and more here; of accuracies it would be the other way round."""
    metric = "inversion_public_ptlr"
    cells = [
        Cell("FedAvg", "public", 87.6, [10.0, 11.0], unit(metric)),
        Cell("FedeVocab", "public", 1.2, [90.0, 92.0], unit(metric)),
    ]
    made = Reproduction("", 1.0, cells, [], {}, ["what was run"])
    assert "Percent leaked, less is better" in markdown(made)
    assert any("FedeVocab - FedAvg (-86.4, here +80.5" in sentence for sentence in order(made, "public"))
    assert not unit("Local").less
    tied = [replace(cell, seeds=[90.0, 90.0]) for cell in cells]
    assert order(replace(made, cells=tied), "public") == [
        "public: of 1 pairs of rows that the paper orders, 0 in the paper's order (0 significant), 1 equal here, "
        "0 inverted."
    ]


def test_the_sweep_of_leaks_has_every_uplink_for_every_method() -> None:
    content, experiment = load("leakage.yaml", [])
    swept = [case.experiment for case in cases_of(content, experiment, "leakage.yaml") if not case.baseline]
    found = {(one.method.name, tuple(part.name for part in one.uplink), one.corpus.clients) for one in swept}  # type: ignore[attr-defined]
    assert len(swept) == len(found) == 36
    assert {uplink for _, uplink, _ in found} == {
        *((), ("clip",), ("clip", "gaussian"), ("quantize", "randomized_response"))
    }
    assert all(nonempty(local_steps(one, 256 // clients) == 1 for one in swept for clients in (256, 64, 16)))
    assert all(
        nonempty({audit.name for audit in one.audits} == {"gradient_inversion", "label_leakage"} for one in swept)
    )


def test_a_row_is_what_its_name_says() -> None:
    rows = _cases("4", "AG News") | _cases("5", "AG News")
    for name, case in nonempty(rows.items()):
        made = case.experiment
        bert = name.startswith("DistilBERT")
        assert isinstance(made.model, TransformerClassifier if bert else RecurrentClassifier)
        assert isinstance(made.training.optimizer, AdamW if bert else Adam)
        if isinstance(made.method, FedeVocab):
            assert made.method.adaptive == ("-adap" not in name)
            public = bert or "shared words" in name
            assert made.own_vocabularies != public, "the pieces of a checkpoint are public"
        if isinstance(made.method, LGFedAvg):
            assert made.method.shared == ("encoder" if name.endswith("encoder") else "head")
    assert isinstance(model := _cases("6", "SST-2")["FedAvg"].experiment.model, TransformerClassifier)
    assert model.checkpoint == "bert-base-uncased"


def test_the_experiment_is_compared_by_what_each_client_has() -> None:
    content, experiment = load("fedevocab.yaml", [])
    made = cases_of(content, experiment, "fedevocab.yaml")
    assert len([case for case in made if not case.baseline]) == 6
    assert {case.experiment.method.name for case in made if case.baseline} == {
        *("fedavg", "fedprox", "lg_fedavg", "fedrecon", "local_only")
    }
