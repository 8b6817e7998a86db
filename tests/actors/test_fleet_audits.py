"""Audits, and evaluations of clients' own models, are the same in actors as in one process."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from actors.patience import Measured
from fedtext.config.sections import Resources
from fedtext.server.sampling import sampled
from tests import tiny
from tests.actors.fleets import FEW, THREE, in_actors, local
from tests.outcomes import final


@pytest.mark.ray
@pytest.mark.usefixtures("started")
def test_audits_take_what_they_take() -> None:
    """Those of one round may be an attack of minutes, and those of the next one nothing: no actor is given up."""
    audits, hasty = [{"word_relations": {"words": ["w3", "w9", "w20"], "top": 4}}], Resources(hang_timeout_s=1e-9)
    experiment = tiny.experiment("fedavg", audits=audits, training=THREE).model_copy(update={"resources": hasty})
    federation = in_actors(experiment, FEW)
    run, fleet = federation.run(), federation.fleet
    next(run)
    fleet.measured = Measured(*(dict.fromkeys(each, 1e-9) for each in (fleet.measured.updates, fleet.measured.calls)))
    assert next(run).round == 2
    fleet.close(keep=True)


@pytest.mark.ray
@pytest.mark.usefixtures("started")
def test_what_is_read_of_clients_own_models_does_not_depend_on_where_they_live() -> None:
    """Embedding sources with words and rows of their own, and rows made anew: two actors, and one process. Membership
    reads test texts in the words of all clients, also where nothing else asks for these."""
    drawn = np.random.default_rng(0).standard_normal((2, len(FEW.vocabulary), 5), np.float32)
    sources = {"each": {"sources": ["random", {"random": {"std": 2.0}}]}}
    known_SV = np.arange(2 * len(FEW.vocabulary)).reshape(2, -1) % 3 == 0
    two = replace(FEW, table_VD=drawn, public_SV=known_SV)
    reading = {"personalize": None, "union": {"texts": 39, "best_round": True}}
    recon = {"name": "fedrecon", "reconstruction_epochs": 3, "reconstruction_lr": 30.0}
    for method, vectors, corpus, evaluation in (
        ("fedevocab", {"init": sources, "own": {"words": "digits", "std": 2.0}}, two, reading),
        (recon, {}, FEW, reading),
        ("fedevocab", {}, FEW, {"personalize": None}),
    ):
        model = {"name": "bag", "embedding": {"dim": 5} | vectors, "hidden": ()}
        made = tiny.experiment(method, model=model, evaluation=evaluation, audits=["membership"])
        expected = final(local(made, corpus))
        for metric in ("member_auc", "Global") if "union" in evaluation else ("member_auc",):
            assert len({figures[metric] for figures in expected[1][-1][0].values()}) > 1
        federation = in_actors(made, corpus)
        assert final(federation) == expected
        federation.fleet.close(keep=True)


@pytest.mark.ray
@pytest.mark.usefixtures("started")
def test_clients_that_are_not_evaluated_are_attacked_in_every_process_too() -> None:
    """Two of four take part in a round. One is evaluated, and is not among those of the last round."""
    changes: dict[str, Any] = {
        "audits": ["membership", "label_leakage"],
        "participation": {"fraction": 0.5},
        "evaluation": {"personalize": None, "clients": 1},
        "training": tiny.TRAINING | {"rounds": 2},
    }
    apart = False
    for seed in range(6):
        experiment = tiny.experiment(seed=seed, **changes)
        there = local(experiment, FEW)
        attacked = sampled(experiment, range(4), 2, there.fleet.noise)
        apart = not set(attacked) & set(there.fleet.clients.evaluated())
        if apart:
            break
    assert apart
    expected, federation = final(there), in_actors(experiment, FEW)
    assert "member_pooled_auc" in expected[1][-1][1]
    assert final(federation) == expected
    federation.fleet.close(keep=True)


@pytest.mark.ray
@pytest.mark.usefixtures("started")
def test_shadow_models_are_the_same_in_every_process() -> None:
    """They are trained on all clients' test texts, from the initial parameters: given word vectors, or drawn ones."""
    audits, training = [{"membership": {"attack": "rmia"}}], tiny.TRAINING | {"rounds": 2}
    drawn = np.random.default_rng(0).standard_normal((len(FEW.vocabulary), 5), np.float32)
    given = replace(FEW, table_VD=drawn, table_digest="drawn")
    for made, corpus in (
        (tiny.experiment(audits=audits, training=training), given),
        (tiny.language_model(audits=audits), tiny.language_corpus(clients=4)),
    ):
        expected, federation = final(local(made, corpus)), in_actors(made, corpus)
        assert "member_pooled_auc" in expected[1][-1][1]
        assert final(federation) == expected
        federation.fleet.close(keep=True)
