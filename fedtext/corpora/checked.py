"""What a corpus has to be before it is encoded. Those of plug-ins can be anything."""

from collections import Counter

from fedtext.corpora.base import CorpusConfig
from fedtext.corpora.types import RawClient, RawCorpus
from fedtext.errors import UserError


def check_read(corpus: RawCorpus, config: CorpusConfig) -> None:
    """Check the clients of a corpus, their names, and their labels.

    Args:
        corpus: The corpus as ``config.read`` returned it.
        config: Keys of the corpus.

    Raises:
        UserError: There are no clients, or one has no train text, the name of another one, or a label of no class.
    """
    if not corpus.clients:
        raise UserError(f"corpus {config.name} has no clients: see whether its files are those that it reads")
    name, count = Counter(client.name for client in corpus.clients).most_common(1)[0]
    if count > 1:
        raise UserError(f"corpus {config.name} has {count} clients named {name!r}: give each a name of its own")
    if corpus.labels and len(corpus.labels) != corpus.classes:
        raise UserError(f"corpus {config.name} has {corpus.classes} classes, and names of {len(corpus.labels)}")
    for client in corpus.clients:
        if not len(client.train):
            raise UserError(f"corpus {config.name}: client {client.name!r} has no train text: leave the client out")
        if not config.language:
            _check_labels(client, corpus.classes, config.name)


def _check_labels(client: RawClient, classes: int, corpus: str) -> None:
    for split in (client.train, client.validation, client.test):
        for label in (min(split.labels, default=0), max(split.labels, default=0)):
            if not 0 <= label < classes:
                raise UserError(
                    f"corpus {corpus}: client {client.name!r} has a text of class {label}, and there are {classes} "
                    f"classes, 0 to {classes - 1}: number them so"
                )
