"""Parts with a mistake, and the sentence with which a check and a run tell it."""

from collections.abc import Mapping
from typing import Any, Literal

import pytest
from pydantic import Field
from torch import Tensor

from fedtext.aggregations import SumAggregation
from fedtext.errors import UserError
from fedtext.mechanisms.base import Mechanism
from fedtext.messages import Update
from fedtext.methods import FedAvg
from fedtext.methods.base import Model
from fedtext.models.batch import Batch
from fedtext.server.start import participant_count
from fedtext.testing import check_aggregation, check_mechanism, check_method
from tests import tiny
from tests.fedtext.client.hosting import hosting
from tests.loops import nonempty

Terms = dict[str, Tensor]


class Near(FedAvg):
    """A proximal term over all parameters."""

    name: Literal["near"] = "near"  # type: ignore[assignment]
    mu: float = Field(0.1, ge=0, description="weight of the distance")
    term: str = Field("near", description="the term that has this weight")

    def loss(self, model: Model, received: Mapping[str, Tensor], batch: Batch) -> Terms:
        parts = [(model.parameters[name] - received[name]).square().sum() for name in received]
        return {**super().loss(model, received, batch), "near": sum(parts)}  # type: ignore[dict-item]

    @property
    def weights(self) -> Mapping[str, float]:
        return {self.term: self.mu}


class NearReads(Near):
    name: Literal["near_reads"] = "near_reads"  # type: ignore[assignment]
    reads_table = True


class Scaled(SumAggregation):
    """Half of each update."""

    name: Literal["scaled"] = "scaled"

    def factor(self, update: Update) -> float:
        return 0.5


class Bare(FedAvg):
    name: Literal["bare"] = "bare"  # type: ignore[assignment]

    def loss(self, model: Model, received: Mapping[str, Tensor], batch: Batch) -> Any:
        return super().loss(model, received, batch)["ce"]


class Moved(Mechanism):
    """A tensor is sent under another name."""

    name: Literal["moved"] = "moved"
    of: str = Field("embedding.weight", description="the tensor")

    def apply(self, delta: Any, received: Any, rng: Any) -> Any:
        return {self._name(name): tensor.copy() for name, tensor in delta.items()}

    def restore(self, sent: Any, received: Any) -> Any:
        return {name: sent[self._name(name)] for name in received}

    def leaves(self, shapes: Any) -> Any:
        return {self._name(name): shape for name, shape in shapes.items()}

    def _name(self, tensor: str) -> str:
        return f"{tensor}.moved" if tensor == self.of else tensor


SENTENCE = r"the loss uses received\['embedding.weight'\].*write reads_table = True in the class of the method"


def test_a_loss_that_uses_the_table_says_so_in_its_class() -> None:
    with pytest.raises(AssertionError, match=f"the loss of near failed: {SENTENCE}"):
        check_method(Near())
    check_method(NearReads())


@pytest.mark.parametrize("engine", ["reference", "cells"])
def test_a_run_tells_it_too(engine: str) -> None:
    training = tiny.TRAINING | {"engine": engine}
    for method, wrong in nonempty(((Near(), True), (NearReads(), False))):
        made = tiny.experiment(training=training).model_copy(update={"method": method})
        worker, flat = hosting(made)
        (reply,) = worker.train(flat, 1, [0])
        assert ("write reads_table = True in the class of the method" in reply.error) == wrong


def test_weights_of_terms_that_there_are_not_are_refused() -> None:
    with pytest.raises(AssertionError, match="has no terms nearr, which its weights name: its terms are ce, near"):
        check_method(NearReads(term="nearr"))
    check_method(NearReads(term="nearr", mu=0.0))


@pytest.mark.parametrize("engine", ["reference", "native"])
def test_a_run_refuses_weights_of_terms_that_there_are_not(engine: str) -> None:
    """Its first round is not completed: no state of it is saved."""
    training = tiny.TRAINING | {"engine": engine}
    sentence = "the loss of near_reads has no terms nearr, which its weights name: its terms are ce, near"
    with pytest.raises(UserError, match=sentence):
        tiny.Finished(NearReads(term="nearr"), training=training)
    assert len(tiny.Finished(NearReads(term="nearr", mu=0.0), training=training).rows) == tiny.TRAINING["rounds"]


def test_a_term_may_be_left_out_of_batches_of_one_text() -> None:
    for method, size in nonempty((("kteps", 1), ("fedmmd", 1), ("kteps", {"steps": 100}), ("kteps", 7), ("fedmmd", 7))):
        training = tiny.TRAINING | {"batch_size": size}
        assert len(tiny.Finished(method, training=training).rows) == tiny.TRAINING["rounds"]
    few = tiny.corpus(clients=2, texts=3)  # two halves, of which one has one text
    assert len(tiny.Finished("kteps", few).rows) == tiny.TRAINING["rounds"]


def test_a_loss_returns_its_terms_by_name() -> None:
    with pytest.raises(AssertionError, match=r"the loss of bare must return its terms by name, as \{'ce': loss\}"):
        check_method(Bare())


def test_an_aggregation_that_scales_updates_says_whether_a_sum_is_enough() -> None:
    """``server.secure_aggregation`` refuses it with that sentence."""
    with pytest.raises(AssertionError, match="Scaled lacks secure"):
        check_aggregation(Scaled())


def test_own_rows_need_a_table_behind_each_mechanism() -> None:
    """A client names its rows of it; before, the server refused what it sent in the first round."""
    sentence = "uplink: moved leaves no tensor embedding.weight with all rows of the table .*: set wire.rows: all"
    with pytest.raises(AssertionError, match=f"^{sentence}"):
        check_mechanism(Moved())
    check_mechanism(Moved(), wire={"rows": "all"})
    check_mechanism(Moved(of="head.0.weight"))
    own = tiny.experiment().model_copy(update={"uplink": (Moved(),)})
    assert own.own_rows
    with pytest.raises(UserError, match=f"^{sentence}"):
        participant_count(own, tiny.TWO)
    for method in nonempty(("fedevocab", "local_only")):  # which share no table
        made = tiny.experiment(method).model_copy(update={"uplink": (Moved(),)})
        assert participant_count(made, tiny.TWO) == 2
