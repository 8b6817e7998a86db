"""Requirements of audits on the rest of an experiment."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from fedtext.audits.attribute_inference import AttributeInference
from fedtext.audits.base import Audit
from fedtext.audits.embedding_rows import EmbeddingRows
from fedtext.audits.exposure import Exposure
from fedtext.audits.gradient_inversion import GradientInversion
from fedtext.audits.label_leakage import LabelLeakage
from fedtext.audits.membership import Membership
from fedtext.audits.span_inversion import SpanInversion
from fedtext.methods.frozen import Frozen
from fedtext.metrics.reported import is_taken
from fedtext.models.inits import has_vectors
from fedtext.models.transformer import TransformerClassifier

if TYPE_CHECKING:
    from fedtext.config.settings import Settings


def names(e: "Settings") -> Iterator[str]:
    """Check that no audit is listed twice, and that none has a metric of another one or of fedtext's own."""
    found = [audit.name for audit in e.audits]
    if len(set(found)) < len(found):
        yield "audits: one of them is listed twice, and their metrics would have the same names"
    owners: dict[str, str] = {}
    for audit in e.audits:
        for name in audit.metrics:
            if is_taken(name) or owners.setdefault(name, audit.name) != audit.name:
                owner = owners.get(name, "fedtext")
                yield f"audits: {audit.name} has the metric {name}, which {owner} has already: give it another name"


def gradient_inversion(e: "Settings") -> Iterator[str]:
    """Check the requirements of gradient inversion."""
    for audit in e.audits:
        if isinstance(audit, GradientInversion):
            yield from (f"audits: gradient_inversion{problem}" for problem in _inversion(e, audit))


def _inversion(e: "Settings", audit: GradientInversion) -> Iterator[str]:
    model, method = e.model, e.method
    if not model.in_order:
        yield (
            f" searches for the vectors of a text whose class is predicted, and model {model.name} predicts words: use "
            "embedding_rows"
            if e.language
            else " searches for the vectors of a text that is processed word by word, which model "
            f"{model.name} does not do: use embedding_rows"
        )
    if not method.shares:
        yield f" needs updates, and method {method.name} sends none: leave it out"
    if audit.labels == "inferred" and (problem := _headless(e)):
        yield f".labels: inferred {problem}"
    if changed := _changed(e):
        yield f" {changed}"
    if isinstance(method, Frozen):
        yield (
            f": {method.name} uses features that are frozen, and dummies have no gradient through these, so that it "
            "would look safer than it is: leave it out"
        )
    if audit.candidates == "public" and not (e.own_vocabularies and has_vectors(model.embedding.sources)):
        yield (
            ".candidates: public is for own vocabularies with public initial vectors; a common "
            "vocabulary is known to all, and random vectors disclose no words: leave it at vocabulary"
        )
    if audit.labels == "optimised" and method.name == "pfl_da":
        yield ".labels: the loss of pfl_da does not accept probabilities as labels: use known"
    if audit.lengths == "longest" and e.corpus.max_length is None:
        yield ".lengths: longest needs corpus.max_length: set it, or use known"
    rounds = [] if audit.rounds == "last" else audit.rounds
    if missed := [str(round_) for round_ in rounds if not 1 <= round_ <= e.training.rounds]:
        yield f".rounds: there is no round {', '.join(missed)} in {e.training.rounds}"
    if missed := [str(round_) for round_ in rounds if not e.evaluates(round_)]:
        yield f".rounds: round {', '.join(missed)} is not evaluated: set evaluation.every so that it is"


def span_inversion(e: "Settings") -> Iterator[str]:
    """Check that updates have the weights of a transformer's first attention."""
    if not any(isinstance(audit, SpanInversion) for audit in e.audits):
        return
    if not isinstance(e.model, TransformerClassifier):
        yield (
            f"audits: span_inversion is for model transformer, and not for model {e.model.name}: use "
            f"{'' if e.language else 'gradient_inversion or '}embedding_rows"
        )
    elif e.model.adapter:
        yield (
            "audits: span_inversion reads the update of the attention's weights, and with model.adapter clients send "
            "factors of a low rank in their place: leave it out"
        )
    if not e.method.shares or e.method.private("encoder.layers.layer.0.attention.self.query.weight"):
        yield f"audits: span_inversion needs the encoder's update, and method {e.method.name} sends none: leave it out"
    if changed := _changed(e):
        yield f"audits: span_inversion {changed}"


def attribute_inference(e: "Settings") -> Iterator[str]:
    """Check that there are updates, which an attacker can simulate."""
    if any(isinstance(audit, AttributeInference) for audit in e.audits):
        if not e.method.shares:
            yield f"audits: attribute_inference needs updates, and method {e.method.name} sends none: leave it out"
        if changed := _changed(e):
            yield f"audits: attribute_inference {changed}"


def label_leakage(e: "Settings") -> Iterator[str]:
    """Check that labels can be inferred from the update of the output layer."""
    if any(isinstance(audit, LabelLeakage) for audit in e.audits) and (problem := _headless(e)):
        yield f"audits: label_leakage {problem}"
    if any(isinstance(audit, LabelLeakage) for audit in e.audits) and (changed := _changed(e)):
        yield f"audits: label_leakage {changed}"


def _changed(e: "Settings") -> str:
    """Return why an update of the method cannot be treated as the gradient of a loss; empty if it can."""
    what = "sends something else than the change of parameters" if e.method.changes_updates() else ""
    if e.method.derivatives:
        what = "has a loss that takes gradients itself"
    if e.method.reads_state:
        what = "has a loss of each client's state, which the attacker lacks"
    if e.method.changes_gradients():
        what = "changes the gradients of steps by state of clients and server"
    if not what:
        return ""
    return (
        f"treats an update as the gradient of a loss, and method {e.method.name} {what}, so that it would look safer "
        "than it is: leave it out"
    )


def embedding_rows(e: "Settings") -> Iterator[str]:
    """Check that only the rows of a client's words move, as embedding_rows assumes."""
    if e.whole_table and any(isinstance(audit, EmbeddingRows) for audit in e.audits):
        how = f"method {e.method.name}" if e.method.whole_table else "training.dp_sgd"
        yield (
            f"audits: embedding_rows searches for the rows that a client moved, and with {how} it "
            "moves all, so that it would look safer than it is: leave it out"
        )


def _headless(e: "Settings") -> str:
    """Return why labels cannot be inferred from the output layer of an experiment's updates; empty if they can."""
    if e.language:
        return f"is for classes of texts, and model {e.model.name} has none: leave it out"
    if not e.method.shares or e.private("head.bias"):
        return f"needs the output layer's update, and method {e.method.name} sends none: leave it out"
    return ""


def membership(e: "Settings") -> Iterator[str]:
    """Check that the server has a model, except for its word vectors, as membership needs."""
    if not any(isinstance(audit, Membership) for audit in e.audits):
        return
    private = e.private
    whole = e.complete or not (e.model.parted or private("encoder.layers.weight") or private("head.weight"))
    if not e.method.shares or not whole:
        whose = "model.adapter.lora.share: a" if e.model.parted else f"method {e.method.name}"
        yield (
            f"audits: membership uses the server's model, and {whose} shares no complete encoder and output layer: "
            "leave it out"
        )


def exposure(e: "Settings") -> Iterator[str]:
    """Check that there are secrets, and a shared language model that may know them."""
    if not any(isinstance(audit, Exposure) for audit in e.audits):
        return
    if not e.language:
        yield f"audits: exposure is for language models, and model {e.model.name} is none: leave it out"
    elif not e.corpus.planted:
        yield "audits: exposure measures secrets, and none are planted: set corpus.secrets ({}: as it is by default)"
    if not e.method.shares or not e.complete:
        yield f"audits: exposure uses the server's model, and method {e.method.name} shares none that is complete"


def sampled(e: "Settings") -> Iterator[str]:
    """Check that updates are of one round, as audits compare them."""
    if e.audits and e.server.buffer:
        yield "audits: they compare the updates of a round, which with server.buffer are not of one: leave out one"


def fits(e: "Settings", audit: Audit) -> bool:
    """Return whether an audit is compatible with an experiment, ignoring the experiment's own audits."""
    alone = e.model_copy(update={"audits": (audit,)})
    return not any(problem for rule in RULES for problem in rule(alone))


RULES = (
    gradient_inversion,
    span_inversion,
    attribute_inference,
    label_leakage,
    embedding_rows,
    membership,
    exposure,
    sampled,
)
