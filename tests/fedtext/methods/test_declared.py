"""What methods declare of themselves: what they share, how they are read, and of which phases a turn consists."""

from typing import Any

import pytest

from fedtext.layout import TABLE
from fedtext.methods import (
    ASPMTL,
    KTEPS,
    METHODS,
    PFLDA,
    FedAvg,
    FedeVocab,
    FedFusion,
    FedMMD,
    FedPer,
    FedRecon,
    LGFedAvg,
    LocalOnly,
    Pooled,
)
from fedtext.methods.base import Method
from fedtext.models.parts import Parts
from fedtext.models.recurrent import RecurrentClassifier

# What a method is unless it says otherwise: clients share a whole model, and their copies of it are fine-tuned for Ap.
PLAIN = {
    "pooled": False,
    "shares": True,
    "reads_table": False,
    "whole_table": False,
    "sends_state": False,
    "takes_sgd": False,
    "separates": False,
    "two_branches": False,
    "personalizes": True,
    "complete": True,
    "own_vocabularies": False,
    "withholds": False,
    "language": False,
}
LANGUAGE = {"language": True}
APART: dict[str, dict[str, bool]] = {
    "fedavg": LANGUAGE,
    "fedsgd": LANGUAGE,
    "fedatt": LANGUAGE,
    "fedprox": LANGUAGE | {"reads_table": True},  # its distance is over all rows
    "scaffold": LANGUAGE | {"reads_table": True, "whole_table": True, "sends_state": True, "takes_sgd": True},
    "feddyn": LANGUAGE | {"reads_table": True},
    "ditto": {"two_branches": True, "reads_table": True},
    "apfl": {"two_branches": True},
    "kteps": {"two_branches": True},
    "fedper": LANGUAGE | {"complete": False},
    "fedevocab": {"complete": False, "own_vocabularies": True},  # words that are predicted have to be common ones
    "fedrecon": {"complete": False, "withholds": True},
    "lg_fedavg": LANGUAGE | {"complete": False},
    "fedfusion": {},
    "fedmmd": {},
    "pfl_da": {"two_branches": True},
    "asp_mtl": {"pooled": True, "separates": True},
    "local_only": LANGUAGE | {"shares": False, "personalizes": False},
    "pooled": LANGUAGE | {"pooled": True},
}


def test_what_each_method_is() -> None:
    assert {name: getattr(Method, name) for name in PLAIN} == PLAIN
    assert set(APART) == set(METHODS)
    for name, apart in APART.items():
        assert {flag: getattr(METHODS[name], flag) for flag in PLAIN} == PLAIN | apart, name


@pytest.mark.parametrize("name", METHODS)
def test_a_method_has_one_phase_unless_it_says_otherwise(name: str) -> None:
    method = METHODS[name]()
    last = method.phases(7)[-1]
    assert (last.epochs, last.lr, last.moves(TABLE), last.moves("head.weight")) == (7, 1.0, True, True)
    if name in ("fedevocab", "fedrecon"):
        return
    assert [phase.name for phase in method.phases(7)] == ["joint"]
    assert (last.rows, last.texts) == ("all", "all")
    assert method.before_evaluation() == ()


@pytest.mark.parametrize("name", METHODS)
def test_a_parameter_is_private_or_it_is_not(name: str) -> None:
    method = METHODS[name]()
    for parameter in (
        TABLE,
        "embedding_received.weight",
        "encoder_private.bias",
        "head.0.weight",
        "head_private.0.bias",
    ):
        assert type(method.private(parameter)) is bool
        assert type(method.shared_in(parameter, 1)) is bool
        mirrored = name in ("fedfusion", "fedmmd") and parameter == "embedding_received.weight"
        assert method.mirrors(parameter) == (TABLE if mirrored else "")


def parts(method: Method, epochs: int) -> list[tuple[Any, ...]]:
    return [
        (phase.name, phase.epochs, phase.moves(TABLE), phase.moves("head.0.weight"), phase.rows, phase.texts, phase.lr)
        for phase in method.phases(epochs)
    ]


def test_fedevocab_adapts_its_embedding_first_unless_it_is_told_not_to() -> None:
    joint = ("joint", 5, True, True, "all", "all", 1.0)
    assert parts(FedeVocab(), 5) == [("adaptation", 1, True, False, "all", "all", 1.0), joint]
    assert parts(FedeVocab(adaptation_epochs=3), 5) == [("adaptation", 3, True, False, "all", "all", 1.0), joint]
    assert parts(FedeVocab(adaptive=False), 5) == [joint]
    assert FedeVocab().before_evaluation() == ()


def test_of_a_transformer_fedevocab_keeps_the_words_vectors_or_the_whole_embedding_block() -> None:
    names = ("embedding.weight", "encoder.embeddings.position.weight", "encoder.layer.0.weight", "head.0.weight")
    assert [FedeVocab().private(name) for name in names] == [True, False, False, False]
    assert [FedeVocab(keeps="block").private(name) for name in names] == [True, True, False, False]


def test_fedrecon_makes_its_rows_on_one_half_and_trains_the_rest_on_the_other() -> None:
    def rows_alone(texts: str, epochs: int, lr: float) -> tuple[Any, ...]:
        return ("reconstruction", epochs, True, False, "digits", texts, lr)

    assert parts(FedRecon(), 5) == [rows_alone("support", 1, 1.0), ("query", 5, True, True, "others", "query", 1.0)]
    other = FedRecon(reconstruction_epochs=4, reconstruction_lr=0.5, joint=True)
    assert parts(other, 5) == [rows_alone("support", 4, 0.5), ("query", 5, True, True, "all", "query", 1.0)]
    (phase,) = other.before_evaluation()
    assert (phase.name, phase.epochs, phase.rows, phase.texts, phase.lr) == ("reconstruction", 4, "digits", "all", 0.5)
    assert (phase.moves(TABLE), phase.moves("head.0.weight")) == (True, False)


def test_what_is_shared_in_which_round() -> None:
    assert [FedAvg().shared_in(TABLE, round_) for round_ in (1, 2)] == [True, True]
    method = LGFedAvg(pretrain=2)
    for name, shared in (
        (TABLE, [True, True, False]),
        ("encoder.x", [True, True, False]),
        ("head.0.weight", [True] * 3),
    ):
        assert [method.shared_in(name, round_) for round_ in (1, 2, 3)] == shared
        assert not method.private(name)
    encoder = LGFedAvg(shared="encoder", pretrain=1)
    assert [encoder.shared_in("encoder.x", round_) for round_ in (1, 2)] == [True, True]
    assert [encoder.shared_in(TABLE, round_) for round_ in (1, 2)] == [True, False]
    assert LGFedAvg().private(TABLE)
    assert not LGFedAvg().private("head.0.weight")


@pytest.mark.parametrize(
    ("method", "private", "mirrors"),
    [
        (FedAvg(), set(), set()),
        (Pooled(), set(), set()),
        (LocalOnly(), {"embedding", "encoder", "head"}, set()),
        (FedPer(), {"head"}, set()),
        (LGFedAvg(), {"embedding", "encoder"}, set()),
        (LGFedAvg(shared="encoder"), {"embedding"}, set()),
        (PFLDA(), {"embedding_private", "encoder_private", "head_private", "gate_private"}, set()),
        (FedFusion(), set(), {"embedding", "encoder"}),
        (FedFusion(operator="conv"), set(), {"embedding", "encoder"}),
        (FedMMD(), set(), {"embedding", "encoder"}),
        (ASPMTL(), set(), set()),
        (KTEPS(), {"projection_private", "head_private"}, set()),
        (KTEPS(architecture="encoder"), {"projection_private", "head_private", "encoder_private"}, set()),
        (
            KTEPS(architecture="everything"),
            {"projection_private", "head_private", "encoder_private", "embedding_private"},
            set(),
        ),
        (KTEPS(lambda2=0, projection=False), {"head_private"}, set()),
        (KTEPS(architecture="encoder", projection=False), {"head_private", "encoder_private"}, set()),
    ],
)
def test_what_is_shared(method: Method, private: set[str], mirrors: set[str]) -> None:
    names = [name for name, _ in method.network(Parts(RecurrentClassifier(), 2)).named_parameters()]
    kept = {name.partition(".")[0] for name in names if method.private(name) and not method.mirrors(name)}
    mirrored = {method.mirrors(name) for name in names if method.mirrors(name)}
    assert kept == private
    assert {name.partition(".")[0] for name in mirrored} == mirrors
    assert mirrored <= {name for name in names if not method.private(name)}
