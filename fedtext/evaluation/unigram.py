"""The unigram baseline of language models: perplexity from word frequencies alone, without context.

A word's probability is (n_w + alpha) / (N + alpha K), with n_w its count among the N tokens to predict in the train
splits of all clients, and K the number of words that can follow: the vocabulary without <pad> and <s>. The predicted
tokens are those on which a model is evaluated: all but the first of a sentence, including </s>.

Legend: S predicted tokens, V vocabulary.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fedtext.corpora.types import ClientData, TokenSet
from fedtext.evaluation.words import LIKELIEST, Predicted, together
from fedtext.text.tokens import BOS_ID, PAD_ID

ALPHAS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
UNCHOSEN = 1.0  # alpha without validation sentences: Laplace's


def counted(clients: Sequence[ClientData]) -> NDArray[np.int64]:
    """Count the tokens to predict in the train splits of clients, which share one vocabulary, shape (V,)."""
    counts_V = np.zeros(len(clients[0].rows_R), np.int64)
    for client in clients:
        counts_V += np.bincount(client.train.targets(), minlength=len(counts_V))
    return counts_V


def unigram(
    clients: Sequence[ClientData], alpha: float | None = None, counts_V: NDArray[np.int64] | None = None
) -> dict[str, float]:
    """Evaluate an additive-smoothing unigram model on the clients of a language corpus.

    Args:
        clients: They share one vocabulary (``rows_R`` is all of it).
        alpha: The count added to each word; None: the best of ``ALPHAS`` on the validation sentences of all clients,
            or 1 if there are none.
        counts_V: Counts of words in the train splits of all clients; None: of those of ``clients``.

    Returns:
        The metrics of a language model with ``_unigram`` before the split's suffix: ``perplexity_unigram``,
        ``perplexity_p90_unigram``, ``nats_per_token_unigram``, ``bits_per_byte_unigram``, ``top1_unigram`` and
        ``top3_unigram`` on test, and ``..._unigram_val``, each only if the split has sentences; and ``alpha_unigram``.
    """
    counts_V = counted(clients) if counts_V is None else counts_V
    held_out = [client.validation for client in clients if len(client.validation)]
    if alpha is None:
        alpha = min(ALPHAS, key=lambda each: _perplexity(counts_V, each, held_out)) if held_out else UNCHOSEN
    metrics = {"alpha_unigram": alpha}
    for suffix, splits in (("", [client.test for client in clients if len(client.test)]), ("_val", held_out)):
        if splits:
            found = _evaluate(counts_V, alpha, splits)
            metrics |= {f"{name}_unigram{suffix}": value for name, value in found.items()}
    return metrics


def _nats(counts_V: NDArray[np.int64], alpha: float) -> NDArray[np.float64]:
    """Compute -log p of each word; infinite for <pad> and <s>."""
    weights_V = counts_V + alpha
    weights_V[[PAD_ID, BOS_ID]] = 0.0
    with np.errstate(divide="ignore"):
        return np.log(weights_V.sum()) - np.log(weights_V)


def _perplexity(counts_V: NDArray[np.int64], alpha: float, splits: Sequence[TokenSet]) -> float:
    return _evaluate(counts_V, alpha, splits)["perplexity"]


def _evaluate(counts_V: NDArray[np.int64], alpha: float, splits: Sequence[TokenSet]) -> dict[str, float]:
    """Compute the metrics over all splits. Of equally probable words the first of the vocabulary has the lower rank."""
    nats_V = _nats(counts_V, alpha)
    ranks_V = np.empty(len(nats_V), np.int64)
    ranks_V[np.argsort(nats_V, kind="stable")] = np.arange(len(nats_V))
    found = []
    for split in splits:
        targets_S = split.targets()
        right = tuple(int((ranks_V[targets_S] < k).sum()) for k in LIKELIEST)
        assert split.bytes_N is not None, "a language corpus counts bytes"
        found.append(Predicted(len(targets_S), float(nats_V[targets_S].sum()), right, int(split.bytes_N.sum())))
    return together(found)
