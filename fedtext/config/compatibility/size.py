"""The size of an experiment, as far as its keys tell it (config/limits.py)."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from fedtext.config.limits import CLIENTS, LAYERS, PARAMETERS, ROUNDS, STEPS, TEXTS, WHOLE, excess
from fedtext.errors import UserError
from fedtext.models.parts import Parts
from fedtext.models.sizes import is_large, whole_numbers, widest, without_memory
from fedtext.text.representation import Hash

if TYPE_CHECKING:
    from fedtext.config.settings import Settings


def bits(e: "Settings") -> Iterator[str]:
    """Check that whole numbers have no more than 64 bits."""
    for key, value in whole_numbers(e.model_dump(mode="json", exclude={"space", "plugins"})):
        if abs(value) > WHOLE:
            yield f"{key}: whole numbers have at most 64 bits, which end at {WHOLE:,}: lower {key}"


def amounts(e: "Settings") -> Iterator[str]:
    """Check how many rounds, clients and texts there are."""
    personalize, clients = e.evaluation.personalize, getattr(e.corpus, "clients", None)
    found = [
        excess(ROUNDS, e.training.rounds, "training.rounds"),
        excess(CLIENTS, clients, "corpus.clients") if isinstance(clients, int) else "",
        excess(TEXTS, e.corpus.generated, "corpus.clients, corpus.train or corpus.test"),
        excess(STEPS, personalize.steps // personalize.every, "evaluation.personalize.steps") if personalize else "",
    ]
    yield from filter(None, found)


def parameters(e: "Settings") -> Iterator[str]:
    """Check how many layers and parameters the model has. Rows of words are counted once the corpus is read."""
    for key, value in whole_numbers(e.model.model_dump(mode="json"), "model."):
        if key.endswith("layers") and (sentence := excess(LAYERS, value, key)):
            yield sentence
            return
    key, width = widest(e.model)
    if width > PARAMETERS.most // 100:  # no module is made of it, not even one without memory
        yield excess(PARAMETERS, 100 * width, key, least=True)
        return
    table = e.corpus.text.buckets * e.model.embedding.dim if isinstance(e.corpus.text, Hash) else 0
    count = table + (_parameters(e) if is_large(e.model) else 0)
    if sentence := excess(PARAMETERS, count, f"corpus.text.hash.buckets or {key}" if table else key, least=True):
        yield sentence


def _parameters(e: "Settings") -> int:
    """Return the number of a network's parameters, with one row of each table. It is built without memory."""
    if getattr(e.model, "checkpoint", None):
        return 0  # of the sizes of the checkpoint
    try:
        with without_memory(e.model):
            network = e.method.network(Parts(e.model, 2, 1, 0, weights=False))
    except UserError:
        return 0  # of another corpus alone
    return sum(parameter.numel() for parameter in network.parameters())


RULES = [bits, amounts, parameters]
