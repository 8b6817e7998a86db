"""Requirements of methods on the rest of an experiment."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from fedtext.aggregations import SumAggregation
from fedtext.layout import TABLE
from fedtext.methods.base import Method, Phase
from fedtext.methods.fedevocab import FedeVocab
from fedtext.methods.fedrecon import FedRecon
from fedtext.methods.fedsgd import FedSGD
from fedtext.methods.lg_fedavg import LGFedAvg
from fedtext.methods.state import Tensors
from fedtext.models.language import OUTPUT, LanguageConfig
from fedtext.training.config import SGD, AdamW, Steps

if TYPE_CHECKING:
    from fedtext.config.settings import Settings


def moves_table_alone(phase: Phase) -> bool:
    """Return whether a phase moves the embedding, and neither the other layers of an encoder nor a head."""
    return phase.moves(TABLE) and not any(map(phase.moves, ("encoder.weight", "head.weight", "head.bias")))


def embedding_lr(e: "Settings") -> Iterator[str]:
    """Check that the embedding has a learning rate if a phase trains it alone."""
    for phase in (*e.method.phases(1), *e.method.before_evaluation()):
        if (phase.rows == "digits" or moves_table_alone(phase)) and e.training.optimizer.embedding_lr == 0:
            yield (
                f"training.optimizer.embedding_lr: with 0 nothing moves in the {phase.name} of method "
                f"{e.method.name}: leave it out, or use another method"
            )


def language(e: "Settings") -> Iterator[str]:
    """Check that the method trains language models, and with this output layer."""
    if e.language and not e.method.language:
        yield f"method {e.method.name} trains classifiers and no language models: use fedavg or fedatt"
    if isinstance(e.model, LanguageConfig) and e.model.tied and not e.method.complete:
        yield (
            f"method {e.method.name} separates the output layer from the rest, but a tied model's is its embedding: "
            "set model.tied to false"
        )
    elif isinstance(e.model, LanguageConfig) and e.model.fixes(OUTPUT) and not e.method.complete:
        yield (
            f"method {e.method.name} separates the output layer from the rest, and with model.adapter.lora a "
            "checkpoint's does not change: leave out one of them"
        )


def pooled(e: "Settings") -> Iterator[str]:
    """Check that there are no mechanisms, audits and absent clients if all data are in one place."""
    method = e.method
    apart = not e.participation.complete
    if method.pooled and (e.uplink or e.audits or apart):
        yield (
            f"method {method.name} has all data in one place, so nothing is sent and no client is absent: leave out "
            "uplink, audits and participation"
        )
    if method.separates and isinstance(e.training.batch_size, Steps):
        yield (
            f"training.batch_size: method {method.name} makes batches of one client's texts each, for which steps is "
            "not defined: write a number"
        )


def fedsgd(e: "Settings") -> Iterator[str]:
    """Check that all clients make one pass with FedSGD."""
    if not isinstance(e.method, FedSGD):
        return
    if e.training.local_epochs != 1:
        yield "training.local_epochs: method fedsgd is one pass over a client's texts a round: set it to 1"
    if not e.participation.complete:
        yield (
            "participation: method fedsgd has all clients in every round: set fraction to 1, and leave out dropout, "
            "availability, deadline_s and over_selection"
        )


def fedevocab(e: "Settings") -> Iterator[str]:
    """Check that the model has an embedding block, as only transformers do."""
    if isinstance(e.method, FedeVocab) and e.method.keeps == "block" and e.model.name != "transformer":
        yield f"method.keeps: block is for transformers, and model {e.model.name} is not one: leave it out"


def fedrecon(e: "Settings") -> Iterator[str]:
    """Check that no weight decay moves fixed rows, and that no optimizer state is kept between rounds."""
    if not isinstance(e.method, FedRecon):
        return
    optimizer = e.training.optimizer
    if isinstance(optimizer, AdamW) and optimizer.weight_decay:
        yield (
            "training.optimizer.weight_decay moves every row, and method fedrecon keeps some rows fixed in each phase: "
            "set it to 0"
        )
    if optimizer.persist:
        yield "training.optimizer.persist: clients of method fedrecon keep nothing between rounds: leave it out"


def lg_fedavg(e: "Settings") -> Iterator[str]:
    """Check mechanisms and audits with ``pretrain``, under which the coordinates sent depend on the round."""
    if not isinstance(e.method, LGFedAvg) or not e.method.pretrain:
        return
    pretrain, rounds = e.method.pretrain, e.training.rounds
    if pretrain >= rounds:
        yield (
            f"method.pretrain: {pretrain} rounds of FedAvg leave none of training.rounds ({rounds}) for "
            "lg_fedavg: set fewer, or use method fedavg"
        )
    for mechanism in e.uplink:
        if mechanism.needs_table or mechanism.bits:
            yield (
                f"method.pretrain: {mechanism.name} is for updates of the same coordinates in every round: leave "
                "out one of them"
            )
    if e.audits:
        yield "method.pretrain: audits need updates of the same coordinates in every round: leave out one of them"


def mean_gradient(e: "Settings") -> Iterator[str]:
    """Check that the mean gradient can be computed from an update: only with sgd without earlier momentum."""
    if not e.method.takes_sgd:
        return
    optimizer = e.training.optimizer
    if not isinstance(optimizer, SGD):
        yield (
            f"training.optimizer: method {e.method.name} computes the mean gradient from an update, which is not "
            f"possible with {optimizer.name}: use sgd"
        )
    elif optimizer.persist and optimizer.momentum:
        yield (
            f"training.optimizer.persist: method {e.method.name} computes the mean gradient from an update, which must "
            "not have momentum of earlier rounds: leave it out, or set momentum to 0"
        )
    if optimizer.clip_norm is not None:
        yield (
            f"training.optimizer.clip_norm: method {e.method.name} computes the mean gradient from an update, which "
            "must not be made of clipped gradients: leave it out"
        )


def mean_of_updates(e: "Settings") -> Iterator[str]:
    """Check that a server step of the method gets the mean of what all participants sent, also of embedding rows."""
    if type(e.method).server_step is Method.server_step:
        return
    if e.server.absent_rows == "holders_only":
        yield (
            f"server.absent_rows: holders_only averages an embedding row over those who have it, and method "
            f"{e.method.name} needs the mean over all participants: use unchanged"
        )
    aggregation, stateful = e.aggregation, type(e.method).client_state is not Method.client_state
    if isinstance(aggregation, SumAggregation) and aggregation.scales():
        if stateful:
            yield (
                f"server.aggregation: {aggregation.name} scales updates on the server, and clients of method "
                f"{e.method.name}, whose states follow what they sent, cannot know by how much: use mean, and clip in "
                "uplink"
            )
        elif sent := ", ".join(e.method.extras(Tensors())):
            yield (
                f"server.aggregation: {aggregation.name} scales updates by their length, and with them {sent}, which "
                f"method {e.method.name} sends beside them: use mean, and clip in uplink"
            )


def whole_table(e: "Settings") -> Iterator[str]:
    """Check that a method that moves all rows of the embedding has a common vocabulary and sends all rows."""
    if not e.whole_table:
        return
    how = f"method {e.method.name}" if e.method.whole_table else "training.dp_sgd"
    if e.own_vocabularies:
        yield (
            f"corpus.own_vocabularies: {how} moves the rows of all words, and a client would not know "
            "those of others: leave it out"
        )
    if e.wire.rows == "own":
        yield (
            f"wire.rows: own leaves out the words that a client does not have, and {how} moves all: leave rows at auto"
        )


def extras(e: "Settings") -> Iterator[str]:
    """Check that tensors sent beside an update can be averaged."""
    sent = ", ".join(e.method.extras(Tensors()))
    if sent and not e.aggregation.sums:
        yield (
            f"server.aggregation: {e.aggregation.name} compares updates, and method {e.method.name} sends {sent} "
            "beside them, whose mean is needed: use mean"
        )
    for mechanism in e.uplink if sent else ():
        if mechanism.needs_table:
            yield (
                f"uplink: {mechanism.name} changes only the embedding of an update, and method {e.method.name} also "
                f"sends {sent}, with unchanged rows for it: leave out one of them"
            )


RULES = (embedding_lr, language, pooled)
OF_ONE_METHOD = (fedsgd, fedevocab, fedrecon, lg_fedavg, mean_gradient, mean_of_updates, whole_table, extras)
