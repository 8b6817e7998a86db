"""Requirements of adapters on the rest of an experiment."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from fedtext.adversaries import Collusion
from fedtext.aggregations.lora import LoRA
from fedtext.config.compatibility.methods import moves_table_alone
from fedtext.methods.base import Method
from fedtext.methods.copies import Copying
from fedtext.models.adapters import A, Adapter, B

if TYPE_CHECKING:
    from fedtext.config.settings import Settings


def _adapter(e: "Settings") -> Adapter | None:
    found = getattr(e.model, "adapter", None)
    return found if isinstance(found, Adapter) else None


def embedding(e: "Settings") -> Iterator[str]:
    """Check that nothing asks for a trained embedding, which an adapter leaves as it is."""
    if not _adapter(e):
        return
    if e.training.optimizer.embedding_lr is not None:
        yield "training.optimizer.embedding_lr: model.adapter leaves the embedding as it is: leave out one of them"
    trains = [phase for phase in e.method.phases(1) if moves_table_alone(phase)]
    if e.own_vocabularies or e.method.withholds or trains:
        yield (
            f"model.adapter leaves the embedding as it is, and method {e.method.name} trains it at each client by "
            "itself: leave it out, or choose another method"
        )


def _shares_factors(e: "Settings") -> bool:
    """Whether clients send factors of adapters in some round, as far as the method says."""
    place = "decoder" if e.language else "encoder"  # as parameters of adapted networks are named
    names = [name for name in (f"{place}.{A}", f"{place}.{B}") if not e.method.private(name)]
    if not e.method.shares or not names:
        return False
    if type(e.method).shared_in is Method.shared_in:  # it sends in each round what is not private
        return True
    return any(e.method.shared_in(name, round_) for round_ in range(1, e.training.rounds + 1) for name in names)


def factors(e: "Settings") -> Iterator[str]:
    """Check that server.aggregation: lora has factors to combine, and a place for what it computes."""
    adapter, aggregation = _adapter(e), e.aggregation
    lora = adapter.lora if adapter else None
    residual = lora is not None and lora.residual
    exact = isinstance(aggregation, LoRA) and aggregation.factors == "exact"
    if residual and not exact:
        yield (
            "model.adapter.lora.residual: only server.aggregation: {lora: {factors: exact}} changes it: leave out one "
            "or set the other"
        )
    if not isinstance(aggregation, LoRA):
        return
    key = "server.aggregation: lora"
    if lora is None:
        yield f"{key} combines the factors of adapters, and there are none: set model.adapter.lora, or leave it out"
        return
    if not _shares_factors(e):
        yield (
            f"{key} combines the factors of adapters, and method {e.method.name} keeps them at each client: leave it "
            "out, or choose another method"
        )
        return
    if lora.train == "b" or lora.share == "a":
        told = "train: b" if lora.train == "b" else "share: a"
        yield (
            f"{key}: with model.adapter.lora.{told} clients send one factor of a layer, and products do not have to be "
            "combined: leave it out"
        )
    if exact and not residual:
        yield f"{key} with factors: exact needs model.adapter.lora.residual: true, where the server keeps the residual"
    steps = type(e.method).server_step is not Method.server_step
    if aggregation.factors != "mean" and (steps or not e.server.optimizer.plain):
        other = f"the server's step of method {e.method.name}" if steps else "server.optimizer"
        yield (
            f"{key} with factors: {aggregation.factors} computes the factors themselves, and {other} would change "
            "them: leave out one of them"
        )
    if aggregation.factors == "svd":
        yield from _basis(e)


def _basis(e: "Settings") -> Iterator[str]:
    """Check that nothing of a client refers to the coordinates of factors, of which svd computes others each round."""
    why = "server.aggregation: {lora: {factors: svd}} computes factors with other coordinates in each round, and"
    if isinstance(e.method, Copying):
        yield (
            f"{why} method {e.method.name} compares or mixes them with a client's own number by number: set factors: "
            "mean or exact, or choose another method"
        )
    elif type(e.method).client_state is not Method.client_state:
        yield (
            f"{why} method {e.method.name} keeps a state of clients in those of the round before: set factors: mean or "
            "exact, or choose another method"
        )
    if e.training.optimizer.persist:
        yield (
            f"{why} training.optimizer.persist keeps the optimizer's state for those of the round before: leave one of "
            "them out"
        )


def ranks(e: "Settings") -> Iterator[str]:
    """Check that the server combines factors of unequal ranks, and that nothing else needs all of them."""
    adapter, aggregation = _adapter(e), e.aggregation
    if not adapter or not adapter.lora or not adapter.ranks:
        return
    key, lora, method = "model.adapter.lora.ranks", adapter.lora, e.method
    if lora.train == "b" or lora.share == "a":
        told = "train: b" if lora.train == "b" else "share: a"
        yield (
            f"{key}: a client has some rows of A and columns of B, and with {told} clients send one factor alone: "
            "leave out one of them"
        )
        return
    if method.pooled:
        yield f"{key}: method {method.name} trains one model on all texts, of one rank: set rank in their place"
    elif _shares_factors(e) and (not isinstance(aggregation, LoRA) or aggregation.factors == "exact"):
        yield (
            f"{key}: factors of unequal ranks are combined by server.aggregation: {{lora: {{factors: svd}}}}, or mean: "
            "set it"
        )
    if method.has_hooks() or method.sends_state or type(method).server_step is not Method.server_step:
        yield (f"{key}: method {method.name} has a state beside the parameters, of one rank: use another method")
    if e.training.dp_sgd:
        yield f"{key}: training.dp_sgd adds noise also to factors that a client does not have: leave out one of them"
    if e.adversaries and isinstance(e.adversaries.attack, Collusion):
        yield f"{key}: {e.adversaries.attack.name} computes with updates of one size: use another attack"
    if e.audits:
        yield f"{key}: audits compare updates of one size: leave out one of them"
    if e.privacy.canaries:
        yield f"{key}: privacy.canaries are clients beyond those that have ranks: leave out one of them"


def nothing(e: "Settings") -> Iterator[str]:
    """Check that clients share something of what an adapter leaves to train."""
    adapter = _adapter(e)
    if not (adapter and e.method.shares and not e.method.pooled and e.private("head.bias")):
        return
    kept = f"the output layer, which method {e.method.name} keeps at each client"
    if adapter.lora is None:
        yield (
            f"model.adapter.lora: null trains nothing but {kept}, so that nothing would be shared: set lora, or choose "
            "another method"
        )
    elif adapter.lora.train == "b" and adapter.lora.share == "a":
        yield (
            f"model.adapter.lora: {{train: b, share: a}} trains B, which is not shared, and {kept}, so that nothing "
            "would be: change one of them, or choose another method"
        )


RULES = (embedding, nothing, ranks, factors)
