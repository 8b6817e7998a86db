"""Inversion of gradients: what it recovers of texts, and how that is counted."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedtext.audits.decoding import decoded
from fedtext.audits.first_layer import everywhere
from fedtext.audits.gradient_inversion import FILE
from fedtext.audits.known import Words
from fedtext.errors import UserError
from fedtext.layout import TABLE
from fedtext.models.initial_table import source_of
from fedtext.text.vocabulary import bears_digit
from fedtext.training.batches import part
from tests import tiny
from tests.leaking import MODEL, ONE_STEP, VOCABULARY, corpus, figures, finished

ATTACK: dict[str, Any] = {"steps": 40, "restarts": 2}


@pytest.mark.parametrize("span", [True, False])
def test_the_true_table_names_the_words_and_an_unrelated_one_does_not(span: bool) -> None:
    texts, attack = corpus([4], seed=3), {"steps": 80, "restarts": 3, "span": span}
    made = finished(texts, [{"gradient_inversion": attack}])
    found = made.rows[-1].metrics
    for table in ("true", "public"):
        assert found[f"inversion_{table}_f1"] > 0.9
        assert found[f"inversion_{table}_exact"] > 0.9
        assert found[f"inversion_{table}_ptlr"] == 1
    assert found["inversion_unrelated_f1"] < 0.4
    assert found["inversion_distance"] < 1e-4
    data = texts.clients[0]
    names = [VOCABULARY[row] for row in data.rows_R[data.train.tokens_T]]
    text = made.rows[-1].files[FILE]
    assert f"| original | {' '.join(names)} |" in text
    assert f"| public | {' '.join(f'**{name}**' for name in names)} |" in text
    again = figures(texts, [{"gradient_inversion": attack}])
    assert {name: again[name] for name in found if name.startswith("inv")} == {
        name: value for name, value in found.items() if name.startswith("inv")
    }


def test_a_private_table_hides_nothing_unless_nobody_knows_where_it_began() -> None:
    """FedeVocab with the start that all share, and with one that each client draws for itself."""
    texts, attack = corpus([4], seed=3), {"steps": 80, "restarts": 3}
    for own, hidden in ((None, False), ({"words": "all"}, True)):
        model = MODEL | {"embedding": {"dim": 8, "own": own}}
        found = figures(texts, [{"gradient_inversion": attack}], method="fedevocab", model=model)
        assert found["inversion_true_f1"] > 0.9
        assert (found["inversion_public_f1"] < 0.4) == hidden
        assert (found["inversion_public_f1"] > 0.9) == (not hidden)


@pytest.mark.parametrize("method", ["fedrecon", "fedevocab"])
def test_digits_whose_rows_each_client_draws_are_hidden_and_all_other_words_are_not(method: str) -> None:
    """The attacker of the FedeVocab paper lacks the private rows of FedRecon, and has all others."""
    digits_V = np.array([bears_digit(word) for word in VOCABULARY])
    lengths = {"fedrecon": [6, 6], "fedevocab": [6]}[method]  # one text is behind either update
    texts = replace(corpus(lengths, clients=4, seed=3), digits_V=digits_V)
    for own, hidden in ((None, False), ({"words": "digits"}, True)):
        model = MODEL | {"embedding": {"dim": 16, "own": own}}
        found = figures(texts, [{"gradient_inversion": {"clients": 4, "steps": 1}}], method=method, model=model)
        assert found["inversion_public_ptlr"] < 0.2 if hidden else found["inversion_public_ptlr"] > 0.7
        assert found["inversion_true_ptlr"] > 0.7, "its own rows give the words away"
        assert found["inversion_public_recall"] >= 0.5


def test_of_several_sources_the_attacker_takes_the_one_that_the_vectors_come_from() -> None:
    sources = {"each": {"sources": [{"random": {"std": 1.0}}, {"random": {"std": 1.0}}]}}
    model = MODEL | {"embedding": {"dim": 8, "init": sources}}
    table_VD = np.random.default_rng(0).standard_normal((2, len(VOCABULARY), 8), np.float32)
    texts = replace(corpus([4], clients=4, seed=3), table_VD=table_VD)
    assert len({source_of(0, client, 2) for client in range(4)}) == 2
    attack = {"clients": 4}
    for steps in (1, 80):  # the bag is found by linear algebra
        found = figures(texts, [{"gradient_inversion": attack | {"steps": steps}}], method="fedevocab", model=model)
        assert found["inversion_public_f1"] > 0.9, steps


def test_a_row_of_zeros_is_not_what_is_near_to_all_that_is_small() -> None:
    """<unk> has one where nothing trains it."""
    table_VD = np.eye(4, 8, dtype=np.float32)
    table_VD[1] = 0
    small = [table_VD[[2, 3]] * 0.4, table_VD[[3]] * 0.4]
    words = Words(["<pad>", "<unk>", "a", "b"], {})
    found, (*_, far) = decoded(small, table_VD, words, everywhere(8), torch.tensor([2, 1]))
    assert [rows.tolist() for rows in found] == [[2, 3], [3]]
    assert far == pytest.approx(0.6)


CANDIDATES = {
    "fedavg": "the vocabulary that all clients share",
    "fedevocab": "the union of all clients' own vocabularies, which no party has: an upper bound on what is found",
}


@pytest.mark.parametrize("method", list(CANDIDATES))
def test_a_report_says_among_which_words_vectors_are_read(method: str) -> None:
    made = finished(corpus([4], seed=3), [{"gradient_inversion": {"steps": 1}}], method=method)
    entries = len(VOCABULARY) - 1  # all but <pad>
    assert made.rows[-1].metrics["inversion_candidates"] == entries
    assert f"Candidates for each vector: {entries} words, {CANDIDATES[method]}." in made.rows[-1].files[FILE]


def test_words_that_no_public_vectors_have_are_found_only_among_all_clients_words() -> None:
    texts, attack = corpus([4], seed=3), {"steps": 80, "restarts": 3}
    data = texts.clients[0]
    text_T = data.rows_R[data.train.tokens_T]
    public_V = ~np.isin(np.arange(len(VOCABULARY)), [0, text_T[0]])
    table_VD = np.random.default_rng(0).standard_normal((len(VOCABULARY), 8), np.float32)
    texts = replace(texts, public_SV=public_V[None], table_VD=table_VD)
    model = MODEL | {"embedding": {"dim": 8, "init": {"file": {"path": "vectors.txt"}}}}
    changes: dict[str, Any] = {"method": "fedevocab", "model": model}
    union, public = (
        finished(texts, [{"gradient_inversion": attack | {"candidates": which}}], **changes).rows[-1]
        for which in ("vocabulary", "public")
    )
    assert union.metrics["inversion_public_recall"] == 1
    assert public.metrics["inversion_public_recall"] == np.isin(text_T, text_T[0], invert=True).mean()
    assert public.metrics["inversion_candidates"] == public_V.sum()
    assert public.metrics["inversion_true_recall"] == 1
    assert "those of all clients' words that public vectors have" in public.files[FILE]
    asked = [{"gradient_inversion": {"candidates": "public"}}]
    for method, init in (("fedavg", {"file": {"path": "vectors.txt"}}), ("fedevocab", {"random": {}})):
        embedding = {"dim": 8, "init": init}
        with pytest.raises(ValueError, match="candidates: public is for own vocabularies"):
            tiny.experiment(method, model={"embedding": embedding}, audits=asked)


def test_an_attack_is_on_the_texts_that_made_the_update() -> None:
    """Of FedRecon these are one half, on which two texts of four are found; the other half sends nothing."""
    texts = corpus([4, 5, 3, 4])
    made = finished(texts, [{"gradient_inversion": {"steps": 5, "texts": 4}}], method="fedrecon")
    data, report = texts.clients[0], made.rows[-1].files[FILE]
    last = made.experiment.method.phases(1)[-1]
    names = [VOCABULARY[row] for row in data.rows_R[data.train.tokens_T]]
    sent = [names[data.train.offsets[n] : data.train.offsets[n + 1]] for n in part(4, last.texts, 0, 0)]
    assert [f"| original | {' '.join(text)} |" in report for text in sent] == [True, True]
    assert report.count("| original |") == 2


SHORT: dict[str, Any] = {"uplink": [{"clip": {"norm": 1e-3}}]}
SHORT_TEXT = {"training": ONE_STEP | {"dp_sgd": {"clip_norm": 1e-2, "multiplier": 1e-7}}}
SHORT_STEP = {"training": ONE_STEP | {"optimizer": {"lr": 0.1, "momentum": 0, "clip_norm": 1e-2}}}


@pytest.mark.slow
@pytest.mark.parametrize("clipped", [SHORT, SHORT_STEP, SHORT_TEXT], ids=["clip", "clip_norm", "texts"])
def test_a_clip_without_noise_protects_nothing(clipped: dict[str, Any]) -> None:
    """The search alone, since the linear algebra before it looks at directions anyway."""
    attack = [{"gradient_inversion": {"steps": 60, "restarts": 2, "span": False}}]
    names = [f"inversion_public_{name}" for name in ("f1", "ptlr")]
    as_sent, short = (figures(corpus([4], seed=3), attack, **changes) for changes in ({}, clipped))
    assert [short[name] for name in names] == [as_sent[name] for name in names] == [1, 1]
    assert short["inversion_distance"] < 1e-4


def test_noise_stands_between_all_and_nothing() -> None:
    def recovered(uplink: Any) -> float:
        return figures(corpus([5], seed=3), [{"gradient_inversion": ATTACK}], uplink=uplink)["inversion_public_f1"]

    slightly, hugely = (recovered([{"gaussian": {"sigma": sigma}}]) for sigma in (1e-4, 10))
    assert hugely < 0.4 < slightly


def test_the_unrelated_table_may_be_a_file(tmp_path: Path) -> None:
    """Of the public table's own rows: then it is not unrelated at all."""
    texts, path = corpus([4], seed=3), tmp_path / "vectors.npz"
    made = finished(texts, [{"gradient_inversion": ATTACK}])
    public = made.layout.views(made.before)[TABLE]
    np.savez(path, words=VOCABULARY, vectors=public)
    found = figures(texts, [{"gradient_inversion": ATTACK | {"unrelated": str(path)}}])
    assert found["inversion_unrelated_f1"] == found["inversion_public_f1"] > 0.9
    with pytest.raises(UserError, match="there is no file elsewhere"):
        figures(texts, [{"gradient_inversion": {"unrelated": "elsewhere"}}])


@pytest.mark.parametrize("how", [{"labels": "inferred"}, {"labels": "optimised"}, {"lengths": "longest"}])
def test_labels_and_lengths_need_not_be_known(how: Any) -> None:
    """The corpus's texts may have 9 words."""
    found = figures(corpus([8], seed=3), [{"gradient_inversion": {"steps": 40} | how}])
    assert found["inversion_public_recall"] > 0.4 > found["inversion_unrelated_recall"]


def test_an_attack_is_bounded_and_takes_the_rounds_and_clients_that_it_names() -> None:
    attack = {"steps": 2, "texts": 2, "clients": 2, "rounds": [2]}
    changes: dict[str, Any] = {"training": ONE_STEP | {"rounds": 3}, "participation": {"fraction": 0.6}}
    made = finished(corpus([3, 3, 3, 3], clients=5), [{"gradient_inversion": attack}], **changes)
    assert ["inversion_distance" in record.metrics for record in made.rows] == [False, True, False]
    attacked = [name for name, read in made.rows[1].clients.items() if "inversion_distance" in read]
    assert attacked == [f"client{client}" for client in made._sample(2).clients[:2]]
    assert made.rows[1].metrics["inversion_public_recall"] <= 0.75  # two of four texts, and words that they share
