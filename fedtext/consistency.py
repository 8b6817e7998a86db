"""Parts of an experiment that do not go together: each fault is one sentence that says what to do.

``e`` is the experiment throughout.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, get_args

from fedtext.methods.base import Method
from fedtext.models.config import (
    KERNEL_WIDTH,
    TABLE,
    GRULanguageModel,
    Recurrent,
    RecurrentClassifier,
    TransformerClassifier,
)
from fedtext.models.inits import EachInit
from fedtext.selection import Validated, figures
from fedtext.server_noise import flaw
from fedtext.text.representation import Words
from fedtext.training.config import Steps

if TYPE_CHECKING:
    from fedtext.audits import Audit
    from fedtext.experiment import Experiment
    from fedtext.mechanisms import Mechanism


_VECTORS_OF = {"hash": ("random",), "pieces": ("random", "checkpoint")}  # what rows of these can start from


def faults(e: "Experiment") -> Iterator[str]:
    """All that is wrong."""
    yield from _texts(e)
    yield from _method(e)
    yield from _mechanisms(e)
    if fault := e.method.misfit(e):
        yield fault
    yield from _engine(e)


def _texts(e: "Experiment") -> Iterator[str]:
    """Whether the model can read what stands for the texts."""
    corpus, model = e.corpus, e.model
    if corpus.language and not e.language:
        yield f"model: corpus {corpus.name} is text without labels, for a language model: use model gru_lm"
    if e.language and not corpus.language:
        yield (
            f"model: {model.name} predicts the next words of sentences, and corpus {corpus.name} has labelled texts: "
            "use a classifier, or a corpus for language models"
        )
    names = [source.name for source in model.embedding.sources]
    if not corpus.counts_words and (wrong := sorted(set(names) - set(_VECTORS_OF[corpus.text.name]))):
        yield (
            f"model.embedding.init: {wrong[0]} vectors are of words, and corpus.text makes "
            f"{corpus.text.units} of these: use {' or '.join(_VECTORS_OF[corpus.text.name])}, or corpus.text=words"
        )
    if e.own_vocabularies:
        yield from _own_vocabularies(e)
    yield from _own_embeddings(e)
    if e.evaluation.union and e.language:
        yield f"evaluation.union is about classes, and {model.name} predicts words: leave it out"
    if e.method.withholds or (model.embedding.own and model.embedding.own.words == "digits"):
        yield from _digits(e)
    if isinstance(model, TransformerClassifier) and model.pooling == "cls" and corpus.text.name != "pieces":
        yield (
            f"model.pooling: cls reads the sign before a text, and corpus.text: {corpus.text.name} puts none there: "
            "use mean, or corpus.text.pieces"
        )
    if corpus.text.name == "pieces" and corpus.max_length is not None and corpus.max_length < 3:
        yield f"corpus.max_length: {corpus.max_length} leaves no room between the signs that frame a text: at least 3"
    if isinstance(model, RecurrentClassifier | TransformerClassifier) and corpus.max_length is None:
        yield (
            f"corpus.max_length: model {model.name} reads a text word by word: set how many words (the RR-LDP paper: "
            "300)"
        )
    if isinstance(model, RecurrentClassifier | TransformerClassifier) and corpus.has_features:
        yield (
            f"corpus.features: model {model.name} reads words in their order and no numbers beside them: set it to [], "
            "or use model bag or vectors"
        )


def _own_embeddings(e: "Experiment") -> Iterator[str]:
    """Rows that differ between clients must not be shared; a method that withholds digits' rows shares the others."""
    init, own = e.model.embedding.init, e.model.embedding.own
    if not e.shares_table:
        return
    if own and e.method.withholds and own.words == "all":
        yield (
            f"model.embedding.own: {{words: all}} gives clients all rows of their own, and method {e.method.name} "
            "shares those of words without digits: use {words: digits}"
        )
    for key, asked in (("init: each", isinstance(init, EachInit)), ("own", own and not e.method.withholds)):
        if asked:
            yield (
                f"model.embedding.{key} gives clients embeddings of their own, and method {e.method.name} shares one: "
                "leave it out, or use fedevocab"
            )


def _digits(e: "Experiment") -> Iterator[str]:
    key = f"method {e.method.name}" if e.method.withholds else "model.embedding.own: digits"
    if e.language:
        yield f"{key} is about classifiers, and {e.model.name} predicts words: leave it out"
    if e.corpus.text.name == "hash" or (isinstance(e.corpus.text, Words) and e.corpus.text.letters):
        yield f"{key} knows words by their digits, which corpus.text takes away: use other words, or pieces"


def _own_vocabularies(e: "Experiment") -> Iterator[str]:
    corpus, key = e.corpus, "corpus.own_vocabularies"
    if e.shares_table or e.method.pooled:
        yield (
            f"{key}: with vocabularies of their own clients have no rows of an embedding in common, and method "
            f"{e.method.name} shares one: use fedevocab or local_only"
        )
    if not corpus.counts_words or e.language:
        what = (
            "a language model predicts the words of a common one" if e.language else f"{corpus.text.units} are public"
        )
        yield f"{key}: {what}: set it to false"
    if corpus.has_features:
        yield f"{key}: corpus {corpus.name} has features, whose rows all clients know: set it to false"


def _method(e: "Experiment") -> Iterator[str]:
    method, personalize = e.method, e.evaluation.personalize
    for phase in (*method.phases(1), *method.before_reading()):
        table_alone = phase.rows == "digits" or (phase.moves(TABLE) and not phase.moves("head.weight"))
        if table_alone and e.training.optimizer.embedding_lr == 0:
            yield (
                f"training.optimizer.embedding_lr: with 0 nothing moves in the {phase.name} of method {method.name}: "
                "leave it out, or use another method"
            )
    if personalize and personalize.steps % personalize.every:
        yield (
            f"evaluation.personalize.steps ({personalize.steps}) is no multiple of every ({personalize.every}): Ap is "
            "read after every so many steps, the last time after all of them"
        )
    if e.language and not method.language:
        yield f"method {method.name} trains classifiers and no language models: use fedavg or fedatt"
    if e.evaluation.select != "last":
        key = f"evaluation.select: {e.evaluation.select}"
        if type(method).private is not Method.private:
            yield f"{key} needs a model that is shared whole, and method {method.name} keeps parts of it: leave it out"
        if e.audits:
            yield f"{key} and audits do not go together: these look at what the last round's model was made from"
    wanted = {*e.evaluation.thresholds, *([] if e.evaluation.select == "last" else [e.evaluation.select])}
    if wanted and not e.corpus.validation:
        yield "evaluation: select and thresholds need validation texts: set corpus.validation"
    if missing := sorted(wanted - figures(e)):
        there = " or ".join(sorted(figures(e) & set(get_args(Validated)))) or "none"
        yield f"evaluation: {missing[0]} is not read of {method.name} with {e.model.name}: take {there}"
    if isinstance(e.model, GRULanguageModel) and e.model.tied and not method.complete:
        yield (
            f"method {method.name} parts the output layer from the rest, and a tied model's is its embedding: set "
            "model.tied to false"
        )
    apart = e.participation.fraction < 1 or e.participation.dropout > 0
    if method.pooled and (e.uplink or e.audits or apart):
        yield (
            f"method {method.name} has all data in one place, so nothing is sent and nobody is away: leave out uplink, "
            "audits and participation"
        )
    if method.separates and isinstance(e.training.batch_size, Steps):
        yield (
            f"training.batch_size: method {method.name} makes batches of one client's texts each, which steps does not "
            "count: write a number"
        )


def _mechanisms(e: "Experiment") -> Iterator[str]:
    for place, mechanism in enumerate(e.uplink):
        fault = mechanism.misplaced(e.uplink[:place]) or mechanism.misfit(e.model.embedding.dim)
        if fault:
            yield f"uplink: {fault}"
    if e.server.noise and (reason := flaw(e)):
        yield f"server.noise: {reason}"
    noisy = e.server.noise or any(mechanism.randomises for mechanism in e.uplink)
    if noisy and e.shares_table and e.training.optimizer.embedding_lr == 0:
        yield (
            "training.optimizer.embedding_lr: 0 does not keep a shared embedding as it is, since noise moves it every "
            "round: leave out embedding_lr, or the noise in uplink and server"
        )
    names = [audit.name for audit in e.audits]
    if len(set(names)) < len(names):
        yield "audits: one of them stands there twice, and their figures would have the same names"
    parts: list[Mechanism | Audit] = [*e.uplink, *e.audits]
    for part in parts:
        if part.needs_table and not e.shares_table:
            yield f"{part.name} is about the embedding, and method {e.method.name} shares none: leave it out"
    for audit in e.audits:
        if fault := audit.misfit(e):
            yield f"audits: {fault}"
    if e.wire.rows == "own" and e.language:
        yield (
            "wire.rows: own leaves out the words that a client does not have, and a language model moves those of the "
            "whole vocabulary: leave rows at auto"
        )
    if e.server.absent_rows == "holders_only" and not e.own_rows:
        yield "server.absent_rows: holders_only needs wire.rows: own, so that the server knows holders"


def _engine(e: "Experiment") -> Iterator[str]:
    engine, model, method = e.training.engine, e.model, e.method
    if engine in ("cells", "triton") and not isinstance(model, Recurrent):
        yield f"training.engine: model {model.name} has no recurrent layers for {engine}; leave engine at auto"
    if engine == "triton" and isinstance(model, Recurrent) and model.hidden > KERNEL_WIDTH:
        yield (
            f"training.engine: triton is for up to {KERNEL_WIDTH} hidden units; with {model.hidden} the products of "
            "one step are large enough by themselves: use engine: cells"
        )
    if engine == "triton" and e.training.tf32:
        yield "training.tf32: the engine triton multiplies float32 numbers as they are; leave it out, or use cells"
    if e.training.stack in ("auto", 1):
        return
    if not isinstance(model, Recurrent):
        yield (
            f"training.stack: clients with model {model.name} are trained one by one, since each fills the caches by "
            "itself; leave stack at auto or 1"
        )
    elif e.engine == "reference":
        yield "training.stack: the engine reference trains clients one by one; use engine: cells"
    elif e.language:
        yield (
            f"training.stack: clients with model {model.name} are trained one by one, since its softmax over the "
            "vocabulary fills a core by itself; leave stack at auto or 1"
        )
    elif method.reads_table:
        yield (
            f"training.stack: the loss of {method.name} reads the whole embedding table, and its rows differ from "
            "client to client; leave stack at auto or 1"
        )
