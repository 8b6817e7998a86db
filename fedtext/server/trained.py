"""The model of a finished run, to be saved."""

from fedtext.corpora.types import Corpus
from fedtext.server.federation import Federation
from fedtext.state.trained import ClientPart, Trained


def trained(federation: Federation, corpus: Corpus) -> Trained:
    """Return the final model: that of the last round, or of the round that ``evaluation.select`` chose.

    Args:
        federation: The server after its last round.
        corpus: Its corpus, with or without clients.
    """
    experiment, method = federation.experiment, federation.experiment.method
    clients = federation.fleet.clients[: -1 if method.pooled else None]
    flat = federation.final
    kept = experiment.save.model == "clients"
    names = tuple(client.name for client in clients) if kept or method.separates else ()
    last = federation.history[-1]
    parts: dict[str, ClientPart] = {}
    if kept:
        found = federation.fleet.parts(federation.fleet.broadcast(flat), last.round, [c.id for c in clients])
        parts = {clients[client].name: part for client, part in sorted(found.items()) if part.state}
    return Trained(
        experiment,
        int(last.metrics.get("selected_round", last.round)),
        corpus.classes,
        corpus.features,
        corpus.labels,
        len(clients),
        names,
        None if experiment.own_vocabularies else corpus.vocabulary,
        federation.whole(flat),
        parts,
        corpus.tokenizer,
    )
