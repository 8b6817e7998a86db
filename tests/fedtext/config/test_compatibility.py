"""Rules on what does not go together in an experiment: each is tried alone, and each has a case."""

from typing import Any

import pytest

from fedtext.config import compatibility
from fedtext.config.compatibility import (
    adversaries,
    aggregation,
    audits,
    engine,
    evaluation,
    methods,
    privacy,
    size,
)
from fedtext.methods.fedsgd import FedSGD
from tests import tiny
from tests.fedtext.config.adapter_cases import ADAPTERS
from tests.fedtext.config.audit_cases import AUDITS
from tests.fedtext.config.buffer_cases import BUFFER
from tests.fedtext.config.privacy_cases import PRIVACY
from tests.fedtext.config.text_cases import BAG, LANGUAGE, TEXTS
from tests.loops import nonempty

BACKDOOR = {"fraction": 0.4, "attack": "backdoor"}
GAUSSIAN = {"gaussian": {"sigma": 0.1}}
CASES: list[tuple[compatibility.Rule, Any, dict[str, Any], str]] = [
    (size.bits, "fedavg", {"seed": 2**63}, "seed: whole numbers have at most 64 bits"),
    (
        size.amounts,
        "fedavg",
        {"training": {"rounds": 10**9}},
        r"training.rounds: 1,000,000,000 rounds, and at most 1,0",
    ),
    (
        size.amounts,
        "fedavg",
        {"corpus": {"name": "demo", "clients": 10**5}},
        "corpus.clients, corpus.train or corpus.test: 30,000,000 generated texts",
    ),
    (size.parameters, "fedavg", {"model": {"hidden": 10**9}}, "model.hidden: at least 100,000,000,000 parameters"),
    (size.parameters, "fedavg", {"model": {"hidden": 20_000}}, r"model.hidden: at least 2,426,800,394 parameters of"),
    (size.parameters, "fedavg", {"model": {"head": {"layers": 101}}}, "model.head.layers: 101 layers, and at most 100"),
    (
        size.parameters,
        "fedavg",
        {"corpus": {"name": "demo", "text": {"hash": {"buckets": 5_000_000}}}, "model": {"embedding": {"dim": 300}}},
        "corpus.text.hash.buckets or model.embedding.dim: at least 1,500,000,000 parameters",
    ),
    *TEXTS,
    (
        methods.embedding_lr,
        "fedevocab",
        {"training": tiny.TRAINING | {"optimizer": {"lr": 0.1, "embedding_lr": 0}}},
        "with 0 nothing moves in the adaptation of method fedevocab",
    ),
    (methods.language, "kteps", {"model": LANGUAGE}, "method kteps trains classifiers and no language models"),
    (methods.pooled, "pooled", {"uplink": [GAUSSIAN]}, "method pooled has all data in one place"),
    (
        methods.mean_gradient,
        "scaffold",
        {"training": tiny.TRAINING | {"optimizer": "adam"}},
        "training.optimizer: method scaffold computes the mean gradient from an update, which is not",
    ),
    (
        methods.whole_table,
        "scaffold",
        {"wire": {"rows": "own"}},
        "wire.rows: own leaves out the words that a client does not have, and method scaffold moves all",
    ),
    (
        methods.mean_of_updates,
        "feddyn",
        {"wire": {"rows": "own"}, "server": {"absent_rows": "holders_only"}},
        "server.absent_rows: holders_only averages an embedding row over those who have it, and method feddyn needs",
    ),
    (
        methods.mean_of_updates,
        "feddyn",
        {"server": {"aggregation": {"norm_bounded": {"norm": 1.0}}}},
        "server.aggregation: norm_bounded scales updates on the server, and clients of method feddyn, whose states",
    ),
    (
        methods.extras,
        "scaffold",
        {"server": {"aggregation": "median"}},
        "server.aggregation: median compares updates, and method scaffold sends delta_c beside them",
    ),
    (
        methods.extras,
        "scaffold",
        {"uplink": [{"project": {"d1": 1, "d2": 2}}]},
        "uplink: project changes only the embedding of an update, and method scaffold also sends delta_c",
    ),
    (
        audits.embedding_rows,
        "scaffold",
        {"audits": ["embedding_rows"]},
        "audits: embedding_rows searches for the rows that a client moved",
    ),
    (
        methods.fedsgd,
        FedSGD(),
        {},
        "method fedsgd is one pass over a client.s texts a round",
    ),
    (
        methods.fedevocab,
        {"name": "fedevocab", "keeps": "block"},
        {},
        "block is for transformers, and model bigru is not one",
    ),
    (
        methods.fedrecon,
        "fedrecon",
        {"training": tiny.TRAINING | {"optimizer": {"lr": 0.1, "persist": True}}},
        "clients of method fedrecon keep nothing between rounds",
    ),
    (methods.lg_fedavg, {"name": "lg_fedavg", "pretrain": 2}, {}, r"2 rounds of FedAvg leave none of training.rounds"),
    (
        evaluation.personalize,
        "fedavg",
        {"evaluation": {"personalize": {"steps": 5, "every": 2}}},
        r"steps \(5\) is not a multiple of every \(2\)",
    ),
    (
        evaluation.best_round,
        "pooled",
        {"evaluation": {"personalize": None, "union": {"best_round": True}}},
        "evaluates the clients that take part in a round, and in those of method pooled none does",
    ),
    (
        evaluation.best_round,
        "fedavg",
        {
            "corpus": {"name": "demo", "validation": 0.2},
            "evaluation": {"personalize": None, "select": "Ag_val", "union": {"best_round": True}},
        },
        "best_round evaluates test texts each round, and evaluation.select once: leave out one",
    ),
    (
        evaluation.select,
        "kteps",
        {"evaluation": {"select": "Ag_val"}},
        "needs a completely shared model, and method kteps keeps parts",
    ),
    (
        evaluation.generate,
        "fedavg",
        {"evaluation": {"generate": {"prompts": ["a"]}}},
        "evaluation.generate: model bigru is a classifier and continues no text",
    ),
    (
        evaluation.generate,
        "local_only",
        {
            "corpus": {"name": "ptb"},
            "model": LANGUAGE,
            "evaluation": {"personalize": None, "generate": {"prompts": ["a"]}},
        },
        "method local_only shares none that is complete",
    ),
    (
        evaluation.personalize,
        "fedavg",
        {"evaluation": {"personalize": None, "personalize_at": "evaluated"}},
        "personalize_at: evaluation.personalize is null, so that there is no Ap: leave out one of them",
    ),
    (
        evaluation.branches,
        "fedavg",
        {"evaluation": {"personalize": {"inference": "shared"}}},
        "inference: shared is for methods with two branches, and method fedavg has one: leave it out",
    ),
    (
        evaluation.branches,
        "local_only",
        {"evaluation": {"personalize": {"also": [{"inference": "private"}]}}},
        "also: inference is for methods with two branches, and method local_only has one: leave it out",
    ),
    (
        evaluation.registered,
        "fedavg",
        {"tracking": {"register": "reviews"}, "save": {"model": "clients"}},
        "needs the model in MLflow: set save.model to shared",
    ),
    (
        evaluation.validated,
        "fedavg",
        {"evaluation": {"select": "Ag_val"}},
        "need validation texts: set corpus.validation",
    ),
    (privacy.uplink, "fedavg", {"uplink": ["randomized_response"]}, "must directly follow quantize"),
    (
        privacy.frozen_embedding,
        "fedavg",
        {"uplink": [GAUSSIAN], "training": tiny.TRAINING | {"optimizer": {"embedding_lr": 0}}},
        "0 does not keep a shared embedding unchanged, since noise moves it",
    ),
    (privacy.needs_table, "lg_fedavg", {"audits": ["embedding_rows"]}, "embedding_rows needs a shared embedding"),
    (
        privacy.rows,
        "fedavg",
        {"wire": {"rows": "all"}, "server": {"absent_rows": "holders_only"}},
        "holders_only needs wire.rows: own",
    ),
    (
        privacy.rows,
        "fedevocab",
        {"server": {"absent_rows": "holders_only"}},
        "holders_only is about rows of a shared embedding, and method fedevocab shares none: leave it out",
    ),
    (
        privacy.rows,
        "fedevocab",
        {"wire": {"rows": "all"}},
        "all is about rows of a shared embedding, and method fedevocab",
    ),
    (privacy.rows, "local_only", {"wire": {"rows": "own"}}, "method local_only shares none: leave it out"),
    (privacy.rows, "pooled", {"wire": {"rows": "own"}}, "method pooled shares none: leave it out"),
    (privacy.server_noise, "local_only", {"server": {"noise": {"multiplier": 1.0}}}, "no updates that noise could"),
    (aggregation.nothing_sent, "local_only", {"uplink": [GAUSSIAN]}, "gaussian has nothing to change: leave it out"),
    (aggregation.nothing_sent, "local_only", {"server": {"optimizer": "adam"}}, "adam has no step to make: leave it"),
    (aggregation.nothing_sent, "local_only", {"server": {"weights": "uniform"}}, "there is nothing to weigh: leave"),
    (aggregation.nothing_sent, "pooled", {"server": {"weights": "uniform"}}, "there is nothing to weigh: leave it out"),
    (
        aggregation.nothing_sent,
        "pooled",
        {"wire": {"rows": "own"}, "server": {"absent_rows": "holders_only"}},
        "so that no client lacks a row: leave it out",
    ),
    (aggregation.nothing_combined, "local_only", {"server": {"aggregation": "median"}}, "so that median has nothing"),
    (aggregation.about_the_mean, "fedatt", {"server": {"weights": "uniform"}}, "uniform is for means of updates"),
    (
        aggregation.replaced,
        "fedatt",
        {"server": {"aggregation": "median"}},
        "method fedatt has an aggregation of its own, which median would replace: leave it out, or use method fedavg",
    ),
    *AUDITS,
    (adversaries.attack_by_updates, "local_only", {"adversaries": BACKDOOR}, "method local_only sends no updates"),
    (
        adversaries.attacked_labels,
        "fedavg",
        {"model": LANGUAGE, "adversaries": BACKDOOR},
        "is for classifiers, and gru",
    ),
    (
        adversaries.trigger_words,
        "fedavg",
        {"corpus": {"name": "demo", "text": {"hash": {"buckets": 9}}}, "model": BAG, "adversaries": BACKDOOR},
        "backdoor inserts words, and corpus.text: hash keeps none",
    ),
    (
        adversaries.collusion,
        "fedavg",
        {"uplink": [GAUSSIAN], "adversaries": {"fraction": 0.4, "attack": "little_is_enough"}},
        "which passes by gaussian",
    ),
    *ADAPTERS,
    *BUFFER,
    *PRIVACY,
    (engine.engine, "fedavg", {"model": BAG, "training": {"engine": "cells"}}, "has no recurrent layers for cells"),
    (engine.stack, "fedavg", {"model": BAG, "training": {"stack": 2}}, "clients with model bag are trained one by one"),
]


@pytest.mark.parametrize(
    ("rule", "method", "changes", "sentence"), CASES, ids=lambda value: getattr(value, "__name__", "")
)
def test_a_rule_alone_refuses_what_it_is_about(
    rule: compatibility.Rule, method: Any, changes: dict[str, Any], sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compatibility, "RULES", [])
    tiny.experiment(method, **changes)  # nothing else refuses it
    monkeypatch.setattr(compatibility, "RULES", [rule])
    with pytest.raises(ValueError, match=sentence):
        tiny.experiment(method, **changes)


def test_every_rule_has_a_case_and_is_found_by_its_name() -> None:
    assert {rule.__name__ for rule in compatibility.RULES} == {rule.__name__ for rule, *_ in CASES}
    assert all(nonempty(rule.__doc__ for rule in compatibility.RULES))
    assert list(compatibility.problems(tiny.experiment())) == []
