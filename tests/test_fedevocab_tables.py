"""The tables of the FedeVocab paper, and its experiment: what stands behind their figures."""

import pytest

from fedtext.corpora.labelled import LabelledCorpus
from fedtext.corpora.partition import Dirichlet
from fedtext.methods.fedevocab import FedeVocab
from fedtext.methods.lg_fedavg import LGFedAvg
from fedtext.models.config import RecurrentClassifier, TransformerClassifier
from fedtext.training.config import Adam, AdamW
from tune_spaces import papers
from tune_spaces.cases import Case
from tune_spaces.cases import cases as cases_of
from tune_spaces.loader import load
from tune_spaces.papers import Scale

PAPER = papers.load("fedevocab")
THERE = [(number, scene) for number in PAPER.tables for scene in PAPER.scenes]
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
    "BiLSTM": (40.3, 58.6, 86.9, 92.8, 87.8, 92.1),
    "BiLSTM -adap": (37.1, 55.4, 86.3, 91.5, 85.1, 89.8),
    "DistilBERT": (75.2, 86.8, 87.8, 95.5, 92.5, 95.6),
    "DistilBERT -adap": (72.9, 78.7, 86.2, 93.3, 90.7, 94.3),
}


def _cases(number: str, scene: str) -> dict[str, Case]:
    table = papers.tables(PAPER, [number], scene)[number]
    return {name: case for name, (case,) in papers.cases(PAPER, table, scene, Scale(), 1, {})}


@pytest.mark.parametrize(("number", "scene"), THERE)
def test_behind_every_figure_stands_an_experiment(number: str, scene: str) -> None:
    table = papers.tables(PAPER, [number], scene)[number]
    for name, case in _cases(number, scene).items():
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


@pytest.mark.parametrize(("number", "printed"), [("3", DISTILBERT), ("4", BILSTM), ("5", ABLATION)])
def test_the_figures_are_those_the_paper_prints(number: str, printed: dict[str, tuple[float, ...]]) -> None:
    rows = PAPER.tables[number].rows
    found = {
        name: tuple(row.paper[scene][column] for scene in PAPER.scenes for column in ("Global", "Local"))
        for name, row in rows.items()
        if any(row.paper.values())
    }
    assert found == printed


def test_a_row_is_what_its_name_says() -> None:
    rows = _cases("4", "AG News") | _cases("5", "AG News")
    for name, case in rows.items():
        made = case.experiment
        bert = name.startswith("DistilBERT")
        assert isinstance(made.model, TransformerClassifier if bert else RecurrentClassifier)
        assert isinstance(made.training.optimizer, AdamW if bert else Adam)
        if isinstance(made.method, FedeVocab):
            assert made.method.adaptive != name.endswith("-adap")
            assert made.own_vocabularies != bert, "the pieces of a checkpoint are public"
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
