"""Requirements of models on the corpus and on the tokens of its texts."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from fedtext.layout import TABLE
from fedtext.models.inits import EachInit
from fedtext.models.transformer import TransformerClassifier
from fedtext.text.representation import Words

if TYPE_CHECKING:
    from fedtext.config.settings import Settings


_VECTORS_OF = {
    "hash": ("random",),
    "pieces": ("random", "checkpoint"),
    "bpe": ("random", "checkpoint"),
}  # possible sources of initial rows


def labels(e: "Settings") -> Iterator[str]:
    """Check that classifiers have labelled texts, and language models have sentences."""
    corpus, model = e.corpus, e.model
    if corpus.language and not e.language:
        yield f"model: corpus {corpus.name} is text without labels, for a language model: use model gru_lm or causal"
    if e.language and not corpus.language:
        yield (
            f"model: {model.name} predicts the next words of sentences, and corpus {corpus.name} has labelled texts: "
            "use a classifier, or a corpus for language models"
        )
    if e.evaluation.union and e.language:
        yield f"evaluation.union is for classifiers, and {model.name} predicts words: leave it out"


def word_vectors(e: "Settings") -> Iterator[str]:
    """Check that there are initial vectors for this kind of token."""
    corpus = e.corpus
    names = [source.name for source in e.model.embedding.sources]
    if not corpus.counts_words and (wrong := sorted(set(names) - set(_VECTORS_OF[corpus.text.name]))):
        yield (
            f"model.embedding.init: {wrong[0]} has vectors of words, but tokens of corpus.text are "
            f"{corpus.text.units}: use {' or '.join(_VECTORS_OF[corpus.text.name])}, or corpus.text=words"
        )


def order(e: "Settings") -> Iterator[str]:
    """Check the requirements of models that process texts token by token."""
    corpus, model = e.corpus, e.model
    if isinstance(model, TransformerClassifier) and model.pooling == "cls" and corpus.text.name != "pieces":
        yield (
            f"model.pooling: cls needs the special token [CLS], which corpus.text: {corpus.text.name} does not add: "
            "use mean, or corpus.text.pieces"
        )
    if corpus.text.name == "pieces" and corpus.max_length is not None and corpus.max_length < 3:
        yield (
            f"corpus.max_length: {corpus.max_length} leaves no room between the special tokens that enclose a text: "
            "set at least 3"
        )
    if model.in_order and corpus.max_length is None:
        yield (
            f"corpus.max_length: model {model.name} processes a text word by word: set a number of words (the RR-LDP "
            "paper: 300)"
        )
    if model.in_order and corpus.has_features:
        yield (
            f"corpus.features: model {model.name} uses words in their order and no features: set it to [], or use "
            "model bag or vectors"
        )


def own_embeddings(e: "Settings") -> Iterator[str]:
    """Check that rows with different initial values on clients are not shared, nor those of a model for all."""
    init, own, fixed = e.model.embedding.init, e.model.embedding.own, e.fixed(TABLE)
    if not (e.shares_table or fixed):
        return
    if own and e.method.withholds and own.words == "all":
        yield (
            f"model.embedding.own: {{words: all}} gives clients all rows of their own, and method {e.method.name} "
            "shares those of words without digits: use {words: digits}"
        )
    for key, asked in (("init: each", isinstance(init, EachInit)), ("own", own and not e.method.withholds)):
        if asked:
            told = f"model {e.model.name} leaves" if fixed else f"method {e.method.name} shares"
            what = "one for all as it is: leave it out" if fixed else "one: leave it out, or use fedevocab"
            yield f"model.embedding.{key} gives clients embeddings of their own, and {told} {what}"


def digits(e: "Settings") -> Iterator[str]:
    """Check that tokens are words if a method or an initialisation distinguishes words with digits."""
    key = e.digit_rows
    if key and e.language:
        yield f"{key} is for classifiers, and {e.model.name} predicts words: leave it out"
    if key and (e.corpus.text.name == "hash" or (isinstance(e.corpus.text, Words) and e.corpus.text.letters)):
        yield f"{key} needs the digits of words, which corpus.text removes: use other words, or pieces"


def own_vocabularies(e: "Settings") -> Iterator[str]:
    """Check that no embedding is shared by clients with vocabularies of their own."""
    if not e.own_vocabularies:
        return
    corpus, key = e.corpus, "corpus.own_vocabularies"
    if e.shares_table or e.method.pooled:
        yield (
            f"{key}: clients with vocabularies of their own have no common rows of an embedding, and method "
            f"{e.method.name} shares one: use fedevocab or local_only"
        )
    if not corpus.counts_words or e.language:
        what = "a language model needs a common vocabulary" if e.language else f"{corpus.text.units} are public"
        yield f"{key}: {what}: set it to false"
    if corpus.releases:
        yield f"{key}: clients keep their words, so that nothing is released: set corpus.vocabulary to a number"
    if corpus.has_features:
        yield f"{key}: corpus {corpus.name} has features, whose rows all clients know: set it to false"


def private_vocabulary(e: "Settings") -> Iterator[str]:
    """Check that the vocabulary is drawn from a key there is."""
    if e.corpus.releases and e.privacy.noise == "secret":
        yield (
            "corpus.vocabulary.private: it is released before a run has its key, by draws from the seed: set "
            "privacy.noise: reproducible"
        )


def on_disk(e: "Settings") -> Iterator[str]:
    """Check that nothing needs all clients' texts at the same time, if they are on disk."""
    if not e.corpus.on_disk:
        return
    where = "texts are on disk: set corpus.storage: memory, or lower corpus.clients"
    if e.method.pooled:
        yield f"method: {e.method.name} trains on all clients' texts together, and these {where}"
    if any(audit.simulates for audit in e.audits):
        yield f"audits: shadow models are trained on all clients' texts, and these {where}"
    if any(source.name == "word2vec" for source in e.model.embedding.sources):
        yield f"model.embedding.init: word2vec is trained on all clients' texts, and these {where}"
    if e.save.model == "clients":
        yield f"save.model: clients keeps a part of the model for each of many clients, whose {where}"


RULES = (private_vocabulary, labels, word_vectors, own_vocabularies, own_embeddings, digits, order, on_disk)
