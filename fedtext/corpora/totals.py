"""Numbers of texts of a whole corpus, in memory or on disk."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedtext.corpora.stored import StoredClients
from fedtext.corpora.types import Corpus
from fedtext.corpora.users import SIDES
from fedtext.text.tokens import UNK, UNK_ID

_FEW = 1.5  # words of a text: below it most texts have one
QUANTILES = (0, 10, 50, 90, 99, 100)  # percent


def totals(corpus: Corpus) -> dict[str, int]:
    """Return the number of texts of all clients, by the split: train, validation and test."""
    clients = corpus.clients
    if isinstance(clients, StoredClients):
        return dict(zip(SIDES, clients.texts_K3.sum(0, dtype=np.int64).tolist(), strict=True))
    return {side: sum(len(getattr(client, side)) for client in clients) for side in SIDES}


def unused(corpus: Corpus) -> list[str]:
    """Return a sentence on the validation rows of a table that are not used; none if there are none."""
    if not corpus.unused:
        return []
    rows = f"{corpus.unused:,} validation rows are" if corpus.unused > 1 else "1 validation row is"
    return [f"{rows} not used, since corpus.validation is 0: corpus.validation=1.0 uses all"]


def unsuited(corpus: Corpus) -> list[str]:
    """Return sentences on texts for which other tokens are better; none if there are none, or texts are on disk."""
    found = []
    pairs = "byte pairs (corpus.text={bpe: {}})"
    words = corpus.vocabulary[UNK_ID : UNK_ID + 1] == [UNK] and not corpus.tokenizer and not corpus.features
    if corpus.report and words:
        train = sum(report.train for report in corpus.report)
        length = sum(report.mean_length * report.train for report in corpus.report) / train
        if length < _FEW:
            found.append(
                f"train texts have {length:.1f} words between blanks on average: if their language has no blanks "
                f"between words, use {pairs}"
            )
        elif (share := _unknown_share(corpus)) > 0.5:
            found.append(
                f"{share:.0%} of the test tokens are {UNK}: use {pairs}, which know all characters, or raise "
                "corpus.vocabulary if it is small"
            )
    if corpus.cleared and not corpus.features:
        texts = f"{corpus.cleared:,} texts have" if corpus.cleared > 1 else "1 text has"
        found.append(f"{texts} no word after cleaning by corpus.text: use {pairs}, which keep all of a text")
    return found


def _unknown_share(corpus: Corpus) -> float:
    """Return the share of <unk> among the tokens of all test texts, with vocabularies of the clients' own if any."""
    unknown = total = 0
    for client in corpus.clients:
        rows_T = client.rows_R[client.test.tokens_T]
        unknown, total = unknown + int((rows_T == UNK_ID).sum()), total + len(rows_T)
    return unknown / max(1, total)


def quantiles(columns: Mapping[str, NDArray[Any]], whole: Sequence[str]) -> list[str]:
    """Return the lines of a table of quantiles and means over clients, with a row for each statistic.

    Args:
        columns: The values of all clients, by the name of the statistic.
        whole: The value of each statistic for all clients together.
    """
    heads = ["", *(f"{percent} %" for percent in QUANTILES), "mean", "all"]
    rows = []
    for (name, values), of_all in zip(columns.items(), whole, strict=True):
        digits = 0 if (values == np.round(values)).all() else 1
        shown = (f"{value:,.{digits}f}" for value in np.percentile(values, QUANTILES, method="nearest"))
        rows.append([name, *shown, f"{values.mean():,.1f}", of_all])
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in (heads, *rows)]
    return [line.rstrip() for line in lines]


def render_stored(corpus: Corpus, clients: StoredClients) -> str:
    """Render the statistics of a corpus on disk: quantiles over clients, since there may be very many.

    Args:
        corpus: The corpus.
        clients: Its clients.
    """
    columns = {side: clients.texts_K3[:, place] for place, side in enumerate(SIDES)}
    columns["train tokens"] = clients.train_tokens_K
    return "\n".join(
        [
            *quantiles(columns, [f"{values.sum(dtype=np.int64):,}" for values in columns.values()]),
            "",
            f"{corpus.name}: {len(clients):,} clients, {corpus.classes:,} candidates for the next word, digest "
            f"{corpus.digest}, on disk in {clients.folder}.",
            "Percentiles are over clients. train, validation, test: sentences; train tokens: with <s> and </s>.",
        ]
    )
