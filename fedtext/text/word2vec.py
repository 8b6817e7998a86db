"""Training of word vectors: skip-gram or CBOW (Mikolov et al. 2013) with gensim, on texts in one place.

A corpus's unlabeled texts count as public: they are pooled, and training on them costs no privacy. Its train and test
texts are not public: vectors trained on them are a baseline for comparison, without any privacy.
"""

import hashlib
import logging
import os
import tempfile
import time
import zipfile
import zlib
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np

from fedtext.errors import UserError
from fedtext.text.embeddings import WordVectors
from fedtext.text.tokens import SEGMENTATION, Unlabeled

_log = logging.getLogger(__name__)

# Not the experiment's seed: like a downloaded file, the vectors are the same for all seeds of a comparison.
_SEED = 1
_WORDS = 1  # to be increased if tokenization changes without a change of SEGMENTATION
_WORDS_PER_SECOND = 150_000  # estimate for one core and 200 dimensions, only for the message


class UntrainedError(Exception):
    """Word vectors are not in the cache, and are not to be trained now. The message is a sentence on their training."""


def train_vectors(
    texts: Sequence[Unlabeled],
    dim: int,
    epochs: int,
    window: int,
    cache: Path,
    min_count: int = 2,
    skip_gram: bool = True,
    train: bool = True,
) -> WordVectors:
    """Train word vectors, or load them from the cache if they have been trained before.

    Training uses one thread, so that it is reproducible.

    Args:
        texts: The texts.
        dim: Dimension of the vectors.
        epochs: Passes over the texts.
        window: Number of context words on each side of a word.
        cache: Folder in which vectors are stored.
        min_count: Least count of a word with a vector.
        skip_gram: Whether to use skip-gram; False: CBOW.
        train: Whether to train them if they are not in the cache.

    Raises:
        UntrainedError: They are not in the cache, and ``train`` is false.
        UserError: gensim is not installed, or the texts have too few words.
    """
    key = _key(texts, dim, epochs, window, min_count, skip_gram)
    cached = cache / f"word2vec-{key}.npz"
    if (found := _load(cached, dim)) is not None:
        return found
    sentences = [words for text in texts if (words := text.words())]
    parameters = {"vector_size": dim, "epochs": epochs, "window": window, "min_count": min_count, "sg": int(skip_gram)}
    if not train:
        _gensim()
        raise UntrainedError(f"word vectors are not trained yet ({_described(sentences, parameters)}, once)")
    vectors = _trained(sentences, parameters, cached)
    _save(cached, vectors)
    return vectors


def _trained(sentences: list[list[str]], parameters: dict[str, int], cached: Path) -> WordVectors:
    """Train word vectors with gensim's ``parameters``, and log how long it takes."""
    model_class, total = _gensim(), sum(map(len, sentences))
    _log.warning("training word vectors (%s, once), then cached in %s", _described(sentences, parameters), cached)
    started = time.perf_counter()
    try:
        model = model_class(sentences, **parameters, workers=1, seed=_SEED)
    except RuntimeError as error:  # gensim: no words to train on
        raise UserError(
            f"word vectors cannot be trained on {total} words ({error}): use model.embedding.init=random"
        ) from error
    _log.warning("word vectors trained in %.0f s", time.perf_counter() - started)
    return WordVectors(list(model.wv.index_to_key), np.asarray(model.wv.vectors, np.float32))


def _described(sentences: list[list[str]], parameters: dict[str, int]) -> str:
    """Return how vectors are trained with gensim's ``parameters``, and for how long."""
    total, epochs = sum(map(len, sentences)), parameters["epochs"]
    kind = "skip-gram" if parameters["sg"] else "CBOW"
    minutes = total * epochs / _WORDS_PER_SECOND / 60
    return (
        f"{kind}, {parameters['vector_size']} dimensions, {epochs} epochs on {total:,} words: "
        f"about {minutes:.1f} minutes"
    )


def _gensim() -> type:
    try:
        from gensim.models import Word2Vec
    except ImportError as error:
        raise UserError(
            "model.embedding.init=word2vec needs gensim, which is not installed: "
            'pip install -c constraints.txt "fedtext[word2vec]"'
        ) from error
    return Word2Vec


def _version() -> str:
    """Return gensim's version without importing it, which takes a second."""
    try:
        return version("gensim")
    except PackageNotFoundError:
        return "none"


def _key(texts: Sequence[Unlabeled], dim: int, epochs: int, window: int, min_count: int, skip_gram: bool) -> str:
    """Compute a digest of everything on which the vectors depend. Raw texts are not tokenized for it, which is slow."""
    hasher = hashlib.sha256(
        f"{dim}/{epochs}/{window}/{_SEED}/{min_count}/{_version()}/{_WORDS}/{SEGMENTATION}".encode()
    )
    if not skip_gram:
        hasher.update(b"CBOW")
    for text in texts:
        hasher.update(b"\0%d" % text.raw + text.text.encode())
    return hasher.hexdigest()[:32]


def _load(path: Path, dim: int) -> WordVectors | None:
    """Return the vectors of a file; None if there is no file, or it is damaged, so that they are trained anew."""
    if not path.is_file():
        return None
    try:
        with np.load(path, allow_pickle=False) as arrays:
            words, vectors_WD = arrays["words"].tolist(), arrays["vectors"]
    except (OSError, EOFError, LookupError, TypeError, ValueError, zipfile.BadZipFile, zlib.error) as error:
        damage = str(error).partition("\n")[0] or type(error).__name__
    else:
        if np.shape(vectors_WD) == (len(words), dim):
            return WordVectors(words, vectors_WD)
        damage = f"{len(words)} words with an array of {np.shape(vectors_WD)}"
    _log.warning("%s is damaged (%s): its word vectors are trained anew", path, damage)
    return None


def _save(path: Path, vectors: WordVectors) -> None:
    """Write to a temporary file and rename it, so that no process finds an incomplete file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=path.parent, suffix=".part")
    try:
        with os.fdopen(descriptor, "wb") as file:
            np.savez(file, words=np.array(vectors.words), vectors=vectors.vectors_WD)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise
