"""What a command says before the first trial starts: of its corpora, and of what is given away."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dashboards.store import Store
from fedtext.api.disclosed import disclosed
from fedtext.config.files import validate
from fedtext.corpora.movielens_files import GENRES
from fedtext.corpora.prepare import prepare
from fedtext.errors import UserError
from fedtext.ledger.report import reveals
from fedtext.parameters import initial
from fedtext.text.vocabulary import SPECIAL
from sweeps.folder import RunFolder
from sweeps.job import Job, key
from sweeps.summary import _ranges, repeated, summary
from tests import tiny
from tests.fedtext.corpora.tables import REVIEWS
from tests.fedtext.corpora.tables import write as written
from tests.fedtext.corpora.test_movielens import write_latest
from tests.loops import nonempty
from tune_spaces.cases import Case, cases
from tune_spaces.objectives import check_metric

MOVIES: dict[str, Any] = {"name": "movielens", "clients": 2, "test": 0.25}


def announced(data: Path, model: dict[str, Any], corpus: dict[str, Any], seeds: int = 1) -> str:
    content = {"model": model, "corpus": corpus if "name" in corpus else MOVIES | corpus}
    cases = [Case(f"{i}", "1", "one", False, {}, tiny.experiment(**content, seed=i)) for i in range(seeds)]
    made = [case.experiment for case in cases]
    corpora = {key(one): prepare(one.corpus, one.model.embedding, one.seed, data) for one in made}
    said = {case.id: disclosed(case.experiment, corpora[key(case.experiment)]) for case in cases}
    job = Job(False, made[0], cases, corpora, {}, said, [], Store("sqlite://"), RunFolder(data))
    return "".join(f"{line}\n" for line in summary(job))


@pytest.mark.parametrize(("missing", "said"), [("zero", "as zeros"), ("random", "at random")])
def test_what_words_without_a_vector_start_as(tmp_path: Path, missing: str, said: str) -> None:
    (tmp_path / "vectors.txt").write_text("caf 1 2 3 4\nwar -1 0.5 0 2\n")
    init = {"file": {"path": str(tmp_path / "vectors.txt"), "missing": missing}}
    model = {"name": "vectors", "embedding": {"dim": 4, "init": init}, "hidden": [5]}
    assert f"; the other words start {said}\n" in announced(write_latest(tmp_path, "csv"), model, {})


@pytest.mark.parametrize(
    ("corpus", "said"),
    [
        ({"text": {"hash": {"buckets": 100}}}, f"100 buckets, {2 + len(GENRES)} features"),
        ({"text": {"hash": {"buckets": 100}}, "features": []}, "100 buckets"),
        ({"side_text": False}, f"0 words, {2 + len(GENRES)} features"),
        ({"features": [], "vocabulary": 3}, "3 words"),
    ],
)
def test_padding_and_features_are_no_words(tmp_path: Path, corpus: dict[str, Any], said: str) -> None:
    out = announced(write_latest(tmp_path, "csv"), {"name": "bag"}, corpus)
    assert f" clients, 9 train texts, {said}\n" in out


def test_corpora_of_several_seeds_are_one_line_with_the_range_of_what_differs(tmp_path: Path) -> None:
    corpus = {"name": "demo", "clients": 4, "train": 10, "test": 5}
    sizes = [announced(tmp_path, {"name": "bag"}, corpus, seeds) for seeds in (1, 4)]
    one, several = ([line for line in out.splitlines() if "corpus demo" in line] for out in sizes)
    assert re.fullmatch(r"  corpus demo: 4 clients, 40 train texts, \d+ words", *one)
    found = re.fullmatch(r"  corpus demo: 4 clients, 40 train texts, (\d+) to (\d+) words, by seed", *several)
    assert found
    words = [
        len(prepare(experiment.corpus, experiment.model.embedding, seed, tmp_path).vocabulary) - len(SPECIAL)
        for seed in range(4)
        for experiment in [tiny.experiment(model="bag", corpus=corpus)]
    ]
    assert tuple(map(int, found.groups())) == (min(words), max(words))


def test_numbers_are_compared_as_such() -> None:
    seeds = [["a 9 b 99.5%", "c 1"], ["a 10 b 100.0%", "c 1"], ["a 1,000 b 3.1%", "d"]]
    assert list(_ranges(seeds)) == ["a 9 to 1,000 b 3.1% to 100.0%, by seed", "c 1", "d"]


def test_validation_rows_that_are_not_used_are_told(tmp_path: Path) -> None:
    path = str(written(tmp_path / "r.csv", REVIEWS))
    table = {"name": "table", "path": path, "label": "stars", "client": "shop", "split": "fold"}
    sentence = "  12 validation rows are not used, since corpus.validation is 0: corpus.validation=1.0 uses all\n"
    assert sentence in announced(tmp_path, {"name": "bag"}, table)
    assert "not used" not in announced(tmp_path, {"name": "bag"}, table | {"validation": 1.0})


def test_what_a_cut_model_reveals_and_by_what_it_can_be_chosen() -> None:
    assert any("no embedding table leaves a client" in said for said in reveals(tiny.experiment("lg_fedavg")))
    said = " ".join(reveals(tiny.experiment("fedrecon")))
    assert "words with a digit in them are neither sent nor asked for" in said
    assert "the server knows which of them occur at all" in said
    assert not any(nonempty("wire.rows" in said for said in reveals(tiny.experiment("lg_fedavg"))))
    assert any("wire.rows: own" in said for said in reveals(tiny.experiment("fedper")))
    assert any("asp_mtl: all training texts lie in one place" in said for said in reveals(tiny.experiment("asp_mtl")))
    with pytest.raises(UserError, match="what fedper shares is no complete model: sort by Ap"):
        check_metric(tiny.experiment("fedper", tune={"metric": "Ag"}))
    check_metric(tiny.experiment("fedper", tune={"metric": "Ag"}), baseline=True)


TIED, UNTIED, NONE = (
    "stand out, though the softmax moves all",
    "the embedding rows that changed name",
    "no embedding table",
)


@pytest.mark.parametrize(
    ("method", "tied", "expected"),
    [
        ("fedavg", True, {TIED, "(head.bias)"}),
        ("fedavg", False, {UNTIED, "(head.weight, head.bias)"}),
        ("fedper", False, {UNTIED}),
        ("lg_fedavg", False, {NONE, "(head.weight, head.bias)"}),
        ("local_only", False, set()),
    ],
)
def test_both_ends_of_a_language_model_reveal_words(method: str, tied: bool, expected: set[str]) -> None:
    def found(**changes: Any) -> set[str]:
        told = "\n".join(reveals(tiny.language_model(method, tied, **changes)))
        return {part for part in (TIED, UNTIED, NONE, "(head.bias)", "(head.weight, head.bias)") if part in told}

    assert found() == expected
    if method != "local_only":  # it has no uplink
        assert found(uplink=["clip", "gaussian"]) == expected & {NONE}


@pytest.mark.parametrize("tied", [True, False])
def test_an_update_of_a_language_model_tells_its_words_as_is_said(tied: bool) -> None:
    corpus, experiment = tiny.language_corpus(clients=1, words=80), tiny.language_model(tied=tied)
    before = initial(experiment, corpus)[0]
    made = tiny.federation(experiment, corpus)
    list(made.run())
    change = {name: now - before[name] for name, now in made.state.items()}
    train = corpus.clients[0].train
    read = np.delete(train.tokens_T, train.offsets[1:] - 1) - 1  # what ends a sentence is predicted only
    predicted = np.delete(train.tokens_T, train.offsets[:-1]) - 1
    rows = np.flatnonzero(change["embedding.weight"].any(1))
    assert rows.tolist() == (list(range(len(corpus.vocabulary) - 1)) if tied else np.unique(read).tolist())
    risen = np.flatnonzero(change["head.bias"] > 0)
    assert len(risen)
    assert set(risen) <= set(predicted), "those of all other words fall"


@pytest.mark.parametrize(
    ("space", "samples", "said"),
    [
        ({"method.mu": {"choice": [0.1, 0.2]}}, 6, "4 of 6 points were drawn before"),
        ({"method.mu": {"choice": [0.1]}}, 2, "1 of 2 points was drawn before"),
        ({"method.mu": {"uniform": [0.1, 0.2]}}, 6, ""),
        ({"method.mu": {"grid": [0.1, 0.2]}}, 1, ""),
    ],
)
def test_points_that_are_drawn_again_are_told(space: dict[str, Any], samples: int, said: str) -> None:
    content: dict[str, Any] = {
        **{"name": "x", "corpus": {"name": "demo", "validation": 0.2}, "model": "bag", "method": "fedprox"},
        **{
            "training": {"rounds": 1},
            "baselines": ["fedavg"],
            "seeds": 2,
            "space": space,
            "tune": {"samples": samples},
        },
    }
    made = cases(content, validate(content), "x")
    assert len(made) == 2 * (1 + samples * len(space["method.mu"].get("grid", [0])))
    lines = list(repeated(made))
    assert [line.strip().partition(":")[0] for line in lines] == ([said] if said else [])
