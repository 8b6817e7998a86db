"""A phase that trains the encoder with the embedding, and not the head, does not train the embedding alone."""

from collections.abc import Sequence
from typing import Any, Literal

import pytest

from fedtext.config.compatibility import methods, problems
from fedtext.methods import FedAvg
from fedtext.methods.base import Phase
from fedtext.methods.fedevocab import FedeVocab
from tests import tiny


class HeadFirst(FedAvg):
    """The private head is trained first, then the body with the head fixed (FedRep, Collins et al. 2021)."""

    name: Literal["head_first"] = "head_first"  # type: ignore[assignment]
    complete = False

    def private(self, parameter: str) -> bool:
        return parameter.startswith("head.")

    def phases(self, epochs: int) -> Sequence[Phase]:
        return Phase("head", 1, self.private), Phase("body", epochs, lambda name: not self.private(name))


def test_only_a_phase_without_an_encoder_moves_the_table_alone() -> None:
    assert [methods.moves_table_alone(phase) for phase in HeadFirst().phases(1)] == [False, False]
    assert [methods.moves_table_alone(phase) for phase in FedAvg().phases(1)] == [False]
    for keeps in ("words", "block"):
        found: Any = FedeVocab.model_validate({"keeps": keeps}).phases(1)
        assert [methods.moves_table_alone(phase) for phase in found] == [True, False]


@pytest.mark.parametrize("lr", [0, None])
def test_head_and_body_train_with_a_fixed_embedding(lr: float | None) -> None:
    optimizer = {"lr": 0.1} | ({} if lr is None else {"embedding_lr": lr})
    experiment = tiny.experiment("fedavg", training=tiny.TRAINING | {"optimizer": optimizer})
    assert not list(problems(experiment.model_copy(update={"method": HeadFirst()})))
