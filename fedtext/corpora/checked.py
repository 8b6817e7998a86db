"""Checks of a corpus before it is encoded. Those of plug-ins can be anything."""

from collections import Counter
from itertools import chain

import numpy as np

from fedtext.corpora.base import CorpusConfig
from fedtext.corpora.types import RawClient, RawCorpus
from fedtext.errors import UserError
from fedtext.text.representation import Hash


def check_read(corpus: RawCorpus, config: CorpusConfig) -> None:
    """Check the clients of a corpus, their names, and their labels.

    Args:
        corpus: The corpus as ``config.read`` returned it.
        config: Keys of the corpus.

    Raises:
        UserError: It is no corpus, there are no clients, or one has no train text, something that is no text, no name
            or that of another one, or a label of no class.
    """
    if not isinstance(corpus, RawCorpus):
        raise UserError(f"corpus {config.name}: read returned {type(corpus).__name__}, and not a RawCorpus")
    if not corpus.clients:
        raise UserError(f"corpus {config.name} has no clients: see whether its files are those that it reads")
    for client in corpus.clients:
        if not isinstance(client.name, str) or not client.name or _not_unicode(client.name):
            raise UserError(f"corpus {config.name}: a client is called {client.name!r}, and names are texts: use str()")
    name, count = Counter(client.name for client in corpus.clients).most_common(1)[0]
    if count > 1:
        raise UserError(f"corpus {config.name} has {count} clients named {name!r}: give each a name of its own")
    if len(corpus.labels) not in (0, corpus.classes):
        raise UserError(f"corpus {config.name} has {corpus.classes} classes, and names of {len(corpus.labels)}")
    if wrong := [label for label in corpus.labels if not isinstance(label, str)]:
        raise UserError(f"corpus {config.name}: a class is called {wrong[0]!r}, and names are texts: use str()")
    for client in corpus.clients:
        if not len(client.train):
            raise UserError(f"corpus {config.name}: client {client.name!r} has no train text: leave the client out")
        for text in chain(client.train.texts, client.validation.texts, client.test.texts):
            if not isinstance(text, str):
                raise UserError(f"corpus {config.name}: client {client.name!r} has {text!r}, which is no text")
            if _not_unicode(text):
                raise UserError(
                    f"corpus {config.name}: client {client.name!r} has {text[:40]!r}, half of a character, which is no "
                    'Unicode: read its file with errors="replace"'
                )
        if not config.language:
            _check_labels(client, corpus.classes, config.name)


def check_cleaned(read: RawCorpus, cleaned: RawCorpus, config: CorpusConfig) -> None:
    """Check that ``corpus.text`` leaves words of train texts.

    Args:
        read: The corpus as ``config.read`` returned it.
        cleaned: The same with cleaned texts.
        config: Keys of the corpus.

    Raises:
        UserError: No train text has a word left, and one had some.
    """
    if cleaned.features or _has_words(cleaned) or not _has_words(read):
        return
    if isinstance(config.text, Hash) or getattr(config.text, "letters", False):
        advice = ", since it keeps the letters a to z alone: use bpe, or words of another script between blanks"
    elif getattr(config.text, "stopwords", "keep") == "drop":
        advice = ": set stopwords to keep"
    else:
        advice = ": write words into its texts"
    raise UserError(f"corpus.text: {config.text.name} leaves no word of any train text{advice}")


def cleared(read: RawCorpus, cleaned: RawCorpus) -> int:
    """Return the number of texts that have words, and none after cleaning.

    Args:
        read: The corpus as it was read.
        cleaned: The same with cleaned texts.
    """
    return _wordless(cleaned) - _wordless(read)


def _wordless(corpus: RawCorpus) -> int:
    splits = (split for client in corpus.clients for split in (client.train, client.validation, client.test))
    return sum(not text or text.isspace() for split in splits for text in split.texts)


def _has_words(corpus: RawCorpus) -> bool:
    return any(text and not text.isspace() for client in corpus.clients for text in client.train.texts)


def _not_unicode(text: str) -> bool:
    """Whether a text has a lone surrogate, which UTF-8 does not have: nothing could be written that has the text."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def _check_labels(client: RawClient, classes: int, corpus: str) -> None:
    for split in (client.train, client.validation, client.test):
        if not isinstance(split.labels, np.ndarray):
            raise UserError(
                f"corpus {corpus}: client {client.name!r} has labels as {type(split.labels).__name__}, and not as an "
                "array: use np.array(labels)"
            )
        labels_N = split.labels
        if labels_N.shape != (len(split),) or (len(split) and labels_N.dtype.kind not in "iu"):
            raise UserError(
                f"corpus {corpus}: client {client.name!r} has labels that are not one whole number for each text: "
                "number its classes from 0"
            )
        for label in (labels_N.min(initial=0), labels_N.max(initial=0)) if len(split) else ():
            if not 0 <= label < classes:
                raise UserError(
                    f"corpus {corpus}: client {client.name!r} has a text of class {label}, and the number of classes "
                    f"is {classes}: number them from 0"
                )
