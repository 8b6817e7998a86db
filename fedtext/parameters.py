"""The network of an experiment and its initial parameters."""

from collections.abc import Iterable, Mapping
from math import prod

import numpy as np
import torch
from numpy.typing import NDArray

from fedtext.config.experiment import Experiment
from fedtext.corpora.types import Corpus
from fedtext.errors import UserError
from fedtext.layout import TABLE, Layout, is_table
from fedtext.methods import layouts
from fedtext.models.inits import RandomInit
from fedtext.models.language import OUTPUT, LanguageConfig, LanguageModel
from fedtext.models.parts import Parts
from fedtext.models.ranks import Ranks
from fedtext.models.sizes import without_memory
from fedtext.models.trainable import check_parameters
from fedtext.schema import watched
from fedtext.seeding import generator, torch_scope
from fedtext.text.embeddings import table
from fedtext.text.pretrained import output_vectors

MOST_KNOWN = 1000  # shapes that are kept
Shapes = Mapping[str, tuple[int, ...]]
# By what a network depends on but the keys of its method: the values of those of them that it has read, and its shapes.
_KNOWN: dict[tuple[object, ...], list[tuple[Mapping[str, object], Shapes]]] = {}


def build_network(
    experiment: Experiment,
    classes: int,
    clients: int,
    features: int = 0,
    weights: bool | None = None,
    tokenizer: str = "",
) -> torch.nn.Module:
    """Build the method's network. Its embedding tables have one placeholder row.

    Args:
        experiment: The experiment.
        classes: Number of classes.
        clients: Number of clients.
        features: Number of features of a text beside its words.
        weights: Whether its parameters are the initial ones, drawn from the experiment's seed or those of a checkpoint.
            They need not be if the network is given other parameters with every call. None: if it has weights that are
            no parameters.
        tokenizer: The corpus's tokenizer of byte pairs, for a network that is to predict; empty: there is none.
    """
    weights = experiment.model.drawn if weights is None else weights
    parts = Parts(experiment.model, classes, clients, features, weights)
    with torch_scope(experiment.seed, "init"):
        network = experiment.method.network(parts).train()
    for module in network.modules():
        if isinstance(module, LanguageModel):
            module.bar(tokenizer)
    return network


def shared_numbers(experiment: Experiment, classes: int, clients: int, vocabulary: int, features: int = 0) -> int:
    """Return the number of coordinates that a client of the largest rank sends, with the tensors that its method sends
    beside an update.

    It is computed without making a table.

    Args:
        experiment: The experiment.
        classes: Number of classes.
        clients: Number of the corpus's clients.
        vocabulary: Number of entries of the vocabulary, with <pad> and features.
        features: Number of features of a text beside its words.
    """
    shared = _shared(experiment, classes, clients, vocabulary, features)
    return layouts.sent(experiment.method, shared, experiment.model.fixes, experiment.uplink).numbers


def check_own_rows(experiment: Experiment, corpus: Corpus, clients: int) -> None:
    """Check that behind each mechanism there is a table whose rows a client can name, if it sends its own alone.

    Args:
        experiment: The experiment.
        corpus: The corpus.
        clients: Number of its clients.

    Raises:
        UserError: A mechanism leaves no such table.
    """
    if not (experiment.uplink and experiment.shares_table and experiment.own_rows):
        return
    shared = _shared(experiment, corpus.classes, clients, len(corpus.vocabulary), corpus.features)
    rows, extras = shared.shapes[TABLE][0], layouts.extras(experiment.method, shared, experiment.model.fixes)
    shapes: Shapes = shared.shapes | extras
    for mechanism in experiment.uplink:
        shapes = mechanism.leaves(shapes)
        if TABLE not in shapes or shapes[TABLE][:1] != (rows,):
            raise UserError(
                f"uplink: {mechanism.name} leaves no tensor {TABLE} with all rows of the table (its leaves), and "
                "clients name those that they send, which are of their own words: set wire.rows: all"
            )


def _shared(experiment: Experiment, classes: int, clients: int, vocabulary: int, features: int) -> Layout:
    """Return the layout of the parameters that clients send. The arguments are those of ``shared_numbers``."""
    table = (len(table_rows(experiment, vocabulary, features)), experiment.model.embedding.dim)
    found = _shapes(experiment, classes, clients, features)
    shapes = {name: table if is_table(name) else shape for name, shape in found.items()}
    apart = {name for name in shapes if experiment.private(name) or experiment.model.fixes(name)}
    return Layout({name: shape for name, shape in shapes.items() if name not in apart})


def changed_numbers(experiment: Experiment, classes: int, clients: int, features: int = 0) -> int:
    """Return the number of coordinates that no client sends, and that the server's aggregation changes.

    Args:
        experiment, classes, clients, features: As in ``shared_numbers``.
    """
    found, changes = _shapes(experiment, classes, clients, features), experiment.aggregation.changes
    return sum(prod(shape) for name, shape in found.items() if changes(name))


def lacking_numbers(experiment: Experiment, classes: int, clients: int, features: int = 0) -> float:
    """Return the number of shared coordinates that a client lacks for its rank, mean over clients.

    Args:
        experiment, classes, clients, features: As in ``shared_numbers``.
    """
    found = _shapes(experiment, classes, clients, features)
    shared = {name: shape for name, shape in found.items() if experiment.shared(name)}
    return Ranks.of(experiment.model, experiment.seed, clients).lacking(shared)


def _shapes(experiment: Experiment, classes: int, clients: int, features: int) -> Shapes:
    """Return the shapes of a network's parameters, by name.

    The cases of a sweep often differ in keys that no network depends on: one is built for all of them. A method's keys
    are those that it has read while its network was built.

    Args:
        experiment: The experiment.
        classes, clients, features: As in ``shared_numbers``.
    """
    model, method = experiment.model, experiment.method
    place = type(model), model.model_dump_json(), type(method), classes, clients, features
    known = _KNOWN.get(place, ())
    for values, shapes in known:
        if all(getattr(method, name) == value for name, value in values.items()):
            return shapes
    watching, read = watched(method)
    with without_memory(model):
        made = build_network(experiment.model_copy(update={"method": watching}), classes, clients, features, False)
    check_parameters(made, model.fixes)
    shapes = {name: tuple(parameter.shape) for name, parameter in made.named_parameters()}
    if sum(map(len, _KNOWN.values())) >= MOST_KNOWN:
        _KNOWN.clear()
    _KNOWN.setdefault(place, []).append(({name: getattr(method, name) for name in read}, shapes))
    return shapes


def initial(
    experiment: Experiment, corpus: Corpus, clients: int | None = None
) -> tuple[dict[str, NDArray[np.float32]], ...]:
    """Return the initial parameters by name: those that server and clients exchange, and the others, which are private
    or fixed. They are the same for every client.

    Tables have V rows. Private parameters that mirror a shared one are left out, and so are private tables of which
    only the clients have the initial values (``with_tables``).

    Args:
        experiment: The experiment.
        corpus: The corpus.
        clients: Number of its clients; None: that of its list.

    Raises:
        NetworkError: A parameter cannot be trained.
        UserError: The checkpoint whose output layer the network begins with cannot be read.
    """
    clients = len(corpus.clients) if clients is None else clients
    assert clients, "a network may depend on the number of clients"
    method = experiment.method
    network = build_network(experiment, corpus.classes, clients, corpus.features, weights=True)
    check_parameters(network, experiment.model.fixes)
    drawn = dict(network.named_parameters())
    table_VD = _table(experiment, corpus) if corpus.has_table else None
    found = ((name, table_VD if is_table(name) else tensor.detach().float().numpy()) for name, tensor in drawn.items())
    tensors = {name: tensor for name, tensor in found if tensor is not None}
    source = experiment.model.output_source if isinstance(experiment.model, LanguageConfig) else None
    if source and OUTPUT in tensors:
        tensors[OUTPUT] = _output_layer(experiment, corpus, source)
    shared = {name: tensor for name, tensor in tensors.items() if experiment.shared(name)}
    unshared = {name: t for name, t in tensors.items() if name not in shared and not method.mirrors(name)}
    return shared, unshared


def needs_table(experiment: Experiment, corpus: Corpus) -> bool:
    """Return whether clients need the corpus's initial word vectors, for a table that the server does not send."""
    shapes = _shapes(experiment, corpus.classes, len(corpus.clients), corpus.features)
    return bool(_own_tables(experiment, shapes))


def without_tables(unshared: Mapping[str, NDArray[np.float32]], corpus: Corpus) -> dict[str, NDArray[np.float32]]:
    """Return the initial parameters that are not exchanged, without the tables that clients have with their corpus."""
    return {name: tensor for name, tensor in unshared.items() if corpus.table_VD is None or not is_table(name)}


def with_tables(
    experiment: Experiment, corpus: Corpus, unshared: Mapping[str, NDArray[np.float32]], names: Iterable[str]
) -> dict[str, NDArray[np.float32]]:
    """Return the initial parameters that are not exchanged with the tables that a client has to make itself.

    Args:
        experiment: The experiment.
        corpus: The corpus as its clients have it.
        unshared: The initial parameters that are not exchanged.
        names: Names of all parameters of the network.
    """
    missing = [name for name in _own_tables(experiment, names) if name not in unshared]
    return dict(unshared) | (dict.fromkeys(missing, _table(experiment, corpus)) if missing else {})


def _own_tables(experiment: Experiment, names: Iterable[str]) -> list[str]:
    """Return the names of tables that clients have from the beginning, and not from the server or another table."""
    return [n for n in names if is_table(n) and not (experiment.shared(n) or experiment.method.mirrors(n))]


def table_rows(experiment: Experiment, vocabulary: int, features: int) -> range:
    """Return the entries of a vocabulary that have rows in a table. <pad> is the first entry, and features are last.

    Args:
        experiment: The experiment.
        vocabulary: Number of entries of the vocabulary.
        features: Number of features of a text beside its words.
    """
    model = experiment.model
    return range(0 if model.padding else 1, vocabulary - (features if model.joins else 0))


def withheld(experiment: Experiment, corpus: Corpus) -> NDArray[np.int64] | None:
    """Return the rows of the table that no client sends; None if each may be sent."""
    if not experiment.method.withholds or corpus.digits_V is None:
        return None
    rows = table_rows(experiment, len(corpus.vocabulary), corpus.features)
    return np.flatnonzero(corpus.digits_V[rows.start : rows.stop])


def _table(experiment: Experiment, corpus: Corpus) -> NDArray[np.float32]:
    table_VD = _whole_table(experiment, corpus)
    rows = table_rows(experiment, table_VD.shape[-2], corpus.features)
    return table_VD[..., rows.start : rows.stop, :]


def _whole_table(experiment: Experiment, corpus: Corpus) -> NDArray[np.float32]:
    if corpus.table_VD is not None:
        return corpus.table_VD
    embedding = experiment.model.embedding
    assert isinstance(embedding.init, RandomInit), "other initialisations come with the corpus"
    rng = generator(experiment.seed, "embedding")
    return np.float32(embedding.init.std) * rng.standard_normal(
        (len(corpus.vocabulary), embedding.dim), dtype=np.float32
    )


def _output_layer(experiment: Experiment, corpus: Corpus, checkpoint: str) -> NDArray[np.float32]:
    """Return the weights of a checkpoint's output layer for a vocabulary. Those of words that it lacks are 0."""
    rows = table_rows(experiment, len(corpus.vocabulary), corpus.features)
    return table(corpus.vocabulary, output_vectors(checkpoint), experiment.seed, zero=True)[rows.start : rows.stop]
