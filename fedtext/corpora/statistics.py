"""Statistics of a corpus before training (KTEPS paper, Table 1), with its empty, repeated and leaked texts."""

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from fedtext.corpora.skew import Skew, effective
from fedtext.corpora.stored import StoredClients
from fedtext.corpora.totals import quantiles, render_stored, unsuited, unused
from fedtext.corpora.types import ClientData, ClientReport, Corpus, Leaks, RawClient
from fedtext.errors import escaped, option
from fedtext.text.tokens import BOS, EOS, EOS_ID, UNK, UNK_ID

LISTED = 50  # clients of which each has a line
_COLUMNS = ("train", "val", "test", "avg len", "vocab", "empty", "dup train")
_LEAKS = ("leaked: own", "others")  # and unlabeled, if such texts were read
_SKEW = ("classes", "")
_LANGUAGE = (
    *("train", "val", "test", "train tok", "val tok", "test tok", "avg len", "vocab", "cut", "dup train"),
    "leaked test",
)


def describe(
    read: RawClient, used: RawClient, counts: Counter[str], leaks: Leaks, language: ClientData | None = None
) -> ClientReport:
    """Compute the statistics of one client.

    Args:
        read: The client as the corpus reads it. Duplicates and empty texts are counted here.
        used: The client after validation texts were held out and leaked texts dropped.
        counts: Counts of its train words.
        leaks: Numbers of its leaked test texts, in ``read``.
        language: The encoded client of a language corpus; None in other corpora.
    """
    sets = (language.train, language.validation, language.test) if language else ()
    every = (*read.train.texts, *read.validation.texts, *read.test.texts)
    return ClientReport(
        name=read.name,
        train=len(used.train),
        validation=len(used.validation),
        test=len(used.test),
        mean_length=counts.total() / len(used.train),
        vocabulary=len(counts),
        empty=sum(not text or text.isspace() for text in every),
        duplicates=len(read.train) - len(set(read.train.identities())),
        leaks=leaks,
        tokens=tuple(len(split.tokens_T) - len(split) - int(split.labels_N.sum()) for split in sets),
        unknown=tuple(int((split.targets() == UNK_ID).sum()) for split in sets),
        cut=sum(int((split.tokens_T[split.offsets[1:] - 1] != EOS_ID).sum()) for split in sets),
    )


def render(corpus: Corpus, each: bool = False) -> str:
    """Render the reports of all clients as a table: one line for each client, totals, and notes on the columns.

    Of more than ``LISTED`` clients, and of a corpus on disk, there are quantiles over clients instead.

    Args:
        corpus: The corpus.
        each: Whether each client of a corpus in memory has a line, however many there are.
    """
    if isinstance(corpus.clients, StoredClients):
        return render_stored(corpus, corpus.clients)
    if len(corpus.clients) > LISTED and not each:
        more = f"Percentiles are over {len(corpus.clients):,} clients; {option('each')} prints a line for each of them."
        return "\n".join([*_quantiles(corpus), "", more, *_notes(corpus, listed=False)])
    cells = [*map(_cells, corpus.report), _total(corpus)]
    rows = [("client", *_heads(corpus)), *cells]
    if not _is_language(corpus):
        more_cells = [_SKEW, *Skew.of(corpus).cells()]
        rows = [(*row, *more) for row, more in zip(rows, more_cells, strict=True)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(_align(cell, width, i) for i, (cell, width) in enumerate(zip(row, widths, strict=True)))
        for row in rows
    ]
    rule = "-" * len(lines[0])
    return "\n".join([lines[0], rule, *lines[1:-1], rule, lines[-1], "", *_notes(corpus, listed=True)])


def _heads(corpus: Corpus) -> tuple[str, ...]:
    """Return the names of the statistics that ``_numbers`` returns."""
    if _is_language(corpus):
        return _LANGUAGE
    return (*_COLUMNS, *_LEAKS, *(["unlabeled"] if _has_unlabeled(corpus) else []))


def _quantiles(corpus: Corpus) -> list[str]:
    """Return the lines of a table of quantiles over clients."""
    names = [f"leaked: {head}" if head in ("others", "unlabeled") else head for head in _heads(corpus)]
    columns = dict(zip(names, np.array([_numbers(report) for report in corpus.report]).T, strict=True))
    whole = list(_total(corpus)[1:])
    if not _is_language(corpus):
        skew = Skew.of(corpus)
        columns["classes"] = effective(skew.train_KC)
        whole.append(skew.cells()[-1][0])
    return quantiles(columns, whole)


def _is_language(corpus: Corpus) -> bool:
    return any(report.tokens for report in corpus.report)


def _has_unlabeled(corpus: Corpus) -> bool:
    return any(report.leaks.unlabeled is not None for report in corpus.report)


def _cells(report: ClientReport) -> tuple[str, ...]:
    return (escaped(report.name), *(f"{number:,.0f}" for number in _numbers(report)))


def _numbers(report: ClientReport) -> tuple[float, ...]:
    leaks = report.leaks
    return (
        report.train,
        report.validation,
        report.test,
        *report.tokens,
        report.mean_length,
        report.vocabulary,
        report.cut if report.tokens else report.empty,  # sentences are never empty
        report.duplicates,
        leaks.own,
        *(() if report.tokens else (leaks.others,)),
        *(() if leaks.unlabeled is None else (leaks.unlabeled,)),
    )


def _total(corpus: Corpus) -> tuple[str, ...]:
    """Return the last line: sums, but the mean length over all train texts, and the size of the whole vocabulary."""
    reports = corpus.report
    train = sum(report.train for report in reports)
    total = ClientReport(
        name="total",
        train=train,
        validation=sum(report.validation for report in reports),
        test=sum(report.test for report in reports),
        mean_length=sum(report.mean_length * report.train for report in reports) / train,
        vocabulary=len(corpus.vocabulary),
        empty=sum(report.empty for report in reports),
        duplicates=sum(report.duplicates for report in reports),
        leaks=_all_leaks(reports),
        tokens=_sums(report.tokens for report in reports),
        cut=sum(report.cut for report in reports),
    )
    return _cells(total)


def _all_leaks(reports: Sequence[ClientReport]) -> Leaks:
    unlabeled = [report.leaks.unlabeled for report in reports if report.leaks.unlabeled is not None]
    return Leaks(
        sum(report.leaks.own for report in reports),
        sum(report.leaks.others for report in reports),
        sum(unlabeled) if unlabeled else None,
        sum(report.leaks.unlabeled_only for report in reports),
    )


def _sums(rows: Iterable[tuple[int, ...]]) -> tuple[int, ...]:
    return tuple(map(sum, zip(*rows, strict=True)))


def _align(cell: str, width: int, column: int) -> str:
    return cell.ljust(width) if column == 0 else cell.rjust(width)


def _notes(corpus: Corpus, listed: bool) -> Sequence[str]:
    """Return sentences on the statistics, of a table with or without a line for each client."""
    notes = (_language_notes if _is_language(corpus) else _text_notes)(corpus, listed)
    notes += [f"{sentence}." for sentence in (*unused(corpus), *unsuited(corpus))]
    if corpus.coverage:
        notes.append(
            f"word vectors: known for {corpus.coverage.vocabulary:.1%} of the vocabulary, {corpus.coverage.tokens:.1%} "
            f"of the train words; {corpus.coverage.missing:,} words have none."
        )
    return notes


def _text_notes(corpus: Corpus, listed: bool) -> list[str]:
    return [
        f"{corpus.name}: {len(corpus.clients)} clients, {corpus.classes} classes, digest {corpus.digest}.",
        "avg len: words per train text before clipping. vocab: distinct train words, buckets or pieces; "
        f"{_whole(listed)}: kept in the vocabulary, with <pad> and <unk>, or all buckets or pieces with <pad>, and "
        "features.",
        "empty: texts without a word, encoded as one <unk>, or as <pad> if words are hashed. dup train: texts that "
        "repeat an earlier one of the client's train split.",
        *([f"labels: {', '.join(f'{i} is {name}' for i, name in enumerate(corpus.labels))}."] if corpus.labels else []),
        _leaked(_all_leaks(corpus.report)),
        *([_distinct(*corpus.words)] if corpus.words else []),
        *Skew.of(corpus).sentences(bars=listed),
    ]


def _whole(listed: bool) -> str:
    """Return the name of the line, or of the column of quantiles, with the numbers of all clients together."""
    return "total" if listed else "all"


def _leaked(leaks: Leaks) -> str:
    found = f"{leaks.own:,} test texts are also in the client's own train split, {leaks.others:,} more in another's"
    whole = leaks.own + leaks.others + leaks.unlabeled_only
    if leaks.unlabeled is not None:
        found += (
            f", {leaks.unlabeled:,} in the unlabeled texts ({leaks.unlabeled_only:,} of them in no train split): "
            f"{whole:,} in all"
        )
    return (
        f"leaked: {found}. Texts are the same if all letters and digits are. These are the counts before any are left "
        "out: corpus.drop_leaked=own leaves out those in the client's own train split, =all leaves out all; the "
        "default, =none, keeps them."
    )


def _distinct(train: int, all_texts: int) -> str:
    return (
        f"distinct words: {train:,} in train (including validation texts held out of it), {all_texts:,} in all splits, "
        "after cleaning by corpus.text and before rare words are left out or words are hashed."
    )


def _language_notes(corpus: Corpus, listed: bool) -> list[str]:
    special = ", ".join(corpus.vocabulary[: EOS_ID + 1])
    return [
        f"{corpus.name}: {len(corpus.clients)} clients, {corpus.classes:,} candidates for the next word (including "
        f"{BOS}, which never comes next), digest {corpus.digest}.",
        f"train, val, test: sentences. tok: tokens to predict, all but the first of each sentence, with {EOS}. avg "
        "len: words per train sentence before clipping, without special tokens. vocab: distinct train words; "
        f"{_whole(listed)}: kept in the vocabulary, with {special}.",
        _unknown(corpus.report),
        f"cut: sentences longer than corpus.max_length, which have no {EOS}. dup train: sentences that repeat an "
        "earlier one of the client's train split. leaked test: test sentences that are also there, word for word.",
    ]


def _unknown(reports: Sequence[ClientReport]) -> str:
    sides = ("train", "val", "test")
    tokens, unknown = _sums(report.tokens for report in reports), _sums(report.unknown for report in reports)
    shares = [f"{n / of:.1%} of {side} tok" for side, of, n in zip(sides, tokens, unknown, strict=True) if of]
    return (
        f"{UNK}: {', '.join(shares)}, predicted as one word"
        + ("" if unknown[0] else ", which is not learned since train has none")
        + ". A smaller vocabulary, also by corpus.share, has more of them: perplexities of different vocabularies "
        "cannot be compared."
    )
