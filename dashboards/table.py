"""The final table of trials, sorted by the metric, and the notes below it."""

import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TextIO, cast

from rich.console import Console

from dashboards.columns import Line, aligned, fitting, rich_table
from dashboards.groups import Group, Spread, groups, metrics_of
from dashboards.trial import Case, Outcome, flatten, one_line, title
from fedtext.metrics import column_order, find, legend, of_test, of_validation
from fedtext.metrics.wording import data_size, decimal, format_epsilon, written
from fedtext.records import RoundRecord
from fedtext.server.last import last_values

Mode = Literal["max", "min"]
FIRST, LAST = ("#", "trial", "method"), ("loss", "bytes/client/round", "s/round", "rounds", "status")
LONG = 8  # characters of a swept number that is not rounded
UNIGRAM = "_unigram"  # in the names of metrics of the unigram model, which have a row of their own, not columns


def rank(cases: Sequence[Case], outcomes: Mapping[str, Outcome], metric: str, mode: Mode) -> list[Group]:
    """Return the groups with an outcome, sorted.

    First those with the metric for all of their seeds, by its mean, best first; then those that lack it for some; then
    those without it; then those of which every trial failed.

    Args:
        cases: The cases.
        outcomes: The outcomes, by id of the case.
        metric: The metric to sort by.
        mode: Whether the highest or the lowest value is best.
    """

    def key(group: Group) -> tuple[int, float]:
        value = metrics_of(group, outcomes).get(metric)
        if value is not None:
            return int(value.count < len(group.cases)), -value.mean if mode == "max" else value.mean
        return (3 if all(_failed(outcomes.get(case.id)) for case in group.cases) else 2), 0.0

    return sorted((group for group in groups(cases) if any(case.id in outcomes for case in group.cases)), key=key)


def best(cases: Sequence[Case], outcomes: Mapping[str, Outcome], metric: str, mode: Mode) -> Group | None:
    """Return the best case of the search; None if there is none.

    Baselines are no candidates, nor are cases that lack a finite value of the metric for a seed, as one that has failed
    or has not ended: the mean of the remaining seeds would be biased.

    Args:
        cases: The cases.
        outcomes: The outcomes, by id of the case.
        metric: The metric of the search.
        mode: Whether the highest or the lowest value is best.
    """
    for group in rank(cases, outcomes, metric, mode):
        value = metrics_of(group, outcomes).get(metric)
        if not group.case.baseline and value is not None and value.count == len(group.cases):
            return group
    return None


def _failed(outcome: Outcome | None) -> bool:
    return outcome is not None and outcome.status == "failed"


def print_table(
    cases: Sequence[Case],
    outcomes: Mapping[str, Outcome],
    metric: str,
    mode: Mode,
    stream: TextIO | None = None,
) -> None:
    """Print the table, the causes of failures and the notes; with colours on a terminal.

    Args:
        cases: The cases.
        outcomes: The outcomes, by id of the case.
        metric: The metric to sort by.
        mode: Whether the highest or the lowest value is best.
        stream: Where to print; None: the standard output.
    """
    stream = stream or sys.stdout
    ranked = rank(cases, outcomes, metric, mode)
    lines = [*_lines(ranked, outcomes, metric), *_unigrams(ranked, outcomes, metric)]
    if not lines:
        stream.write("No trial has ended.\n")
        return
    columns = list(dict.fromkeys(name for line in lines for name in line.cells))
    columns = [name for name in _column_order(columns, cases) if any(line.cells.get(name) for line in lines)]
    if stream.isatty():
        console = Console(file=stream)
        kept = fitting(lines, columns, console.width, {metric, *short_keys(cases).values()})
        console.print(rich_table(lines, kept, console.width, metric))
        if hidden := [name for name in columns if name not in kept]:
            stream.write(f"Not shown, the terminal being too narrow: {', '.join(hidden)}\n")
        columns = kept
    else:
        stream.write("\n".join(aligned(lines, columns)) + "\n")
    for case in cases:
        outcome = outcomes.get(case.id)
        if outcome and outcome.status == "failed":
            stream.write(f"{title(case)} failed: {one_line(outcome.error) or 'no cause was reported'}\n")
    for line in legend(columns):
        stream.write(f"{line}\n")
    for note in notes(cases, outcomes, metric, mode):
        stream.write(f"{note}\n")
    stream.flush()


def notes(cases: Sequence[Case], outcomes: Mapping[str, Outcome], metric: str, mode: Mode) -> list[str]:
    """Return sentences on how the table is sorted, and on whether that metric may be used to choose a trial.

    Args:
        cases: The cases.
        outcomes: The outcomes, by id of the case.
        metric: The metric that the table is sorted by.
        mode: Whether the highest or the lowest value is best.
    """
    found = {name for outcome in outcomes.values() for name in last_values(outcome.rows)}
    said = [f"Sorted by {metric} ({'highest' if mode == 'max' else 'lowest'} first) after each trial's last round."]
    several = [group for group in groups(cases) if len(group.cases) > 1]
    if several:
        said[0] += " Of several seeds: mean ± standard deviation."
    counts = [(metrics_of(group, outcomes).get(metric), len(group.cases)) for group in several]
    if any(value is not None and value.count < planned for value, planned in counts):
        said[0] += " Cases that lack it for a seed come after those with all."
    if metric not in found:
        said = [f"No trial reported {metric}, so the table is not sorted."]
    elif of_test(metric):
        remedy = (
            f"sort by {metric}_val (tune.metric={metric}_val), which was measured as well"
            if f"{metric}_val" in found
            else f"set aside validation data (corpus.validation) and sort by {metric}_val"
        )
        said.append(
            f"Note: {metric} is evaluated on the test split, so choosing a trial by it is selection on the test split, "
            f"and its {metric} is no longer an unbiased estimate: to choose, {remedy}."
        )
    if any(UNIGRAM in name for name in found):
        said.append(
            "unigram: the smoothed word counts of all train texts, without context or training. A model whose "
            "perplexity is not below it has not been shown to use context; do not compare methods by such models."
        )
    return said


def _lines(ranked: Sequence[Group], outcomes: Mapping[str, Outcome], metric: str) -> list[Line]:
    swept, several = short_keys([group.case for group in ranked]), any(len(group.cases) > 1 for group in ranked)
    lines = []
    for place, group in enumerate(ranked, 1):
        case, method = group.case, cast(Any, group.case.experiment.method)
        ended = [outcomes[case.id] for case in group.cases if case.id in outcomes]
        failed, values = all(map(_failed, ended)), metrics_of(group, outcomes)
        well = sum(not _failed(outcome) for outcome in ended)
        cells = {
            "#": "" if failed else str(place),
            "trial": f"{group.title} (baseline)" if case.baseline else group.id,
            "method": method.name,
        }
        overrides = flatten(dict(case.overrides))
        values_of = {short: _value(overrides, key) for key, short in swept.items()}
        cells |= {short: text for short, text in values_of.items() if text or short not in cells}
        cells |= {"seeds": str(well)} if several else {}
        for name in sorted(name for name in values if UNIGRAM not in name):
            if has_column(name, metric) and (wording := written(name)):
                cells[name] = spread(values[name], wording, well)
        if "epsilon" in values:  # meaningless without its delta
            claimed = values["epsilon"]
            alike = spread(claimed, format_epsilon, well) if claimed.deviation else format_epsilon(claimed.mean)
            cells |= {"epsilon": alike, "delta": f"{values['delta'].mean:g}"}
        if "epsilon_lower" in values:
            cells["epsilon_lower"] = spread(values["epsilon_lower"], format_epsilon, well)
        cells |= {"loss": spread(values["loss"], decimal, well)} if "loss" in values else {}
        # Seeds that failed have no part in the other numbers of the line.
        counted = [outcome for outcome in ended if failed or not _failed(outcome)]
        cells |= _costs([record for outcome in counted for record in outcome.rows])
        reached = min((outcome.rows[-1].round if outcome.rows else 0 for outcome in ended), default=0)
        cells["rounds"] = f"{reached}/{case.experiment.training.rounds}"
        counts = Counter(outcome.status for outcome in ended)
        cells["status"] = ", ".join(name if len(counts) == 1 else f"{count} {name}" for name, count in counts.items())
        lines.append(Line(group.id, cells, failed, case.baseline))
    return lines


def _unigrams(ranked: Sequence[Group], outcomes: Mapping[str, Outcome], metric: str) -> list[Line]:
    """Return the row of the unigram model, which is not trained; one for each of the trials' corpora."""
    found: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for group in ranked:
        values = {n.replace(UNIGRAM, ""): v for n, v in metrics_of(group, outcomes).items() if UNIGRAM in n}
        shown = {n: spread(v, as_text) for n, v in values.items() if has_column(n, metric) and (as_text := written(n))}
        if shown:
            found.setdefault(tuple(sorted(shown.items())), []).append(group.title)
    several = len(found) > 1
    return [
        Line("", {"trial": f"unigram ({', '.join(names) if several else 'baseline'})"} | dict(shown), False, True)
        for shown, names in found.items()
    ]


def has_column(name: str, metric: str) -> bool:
    """Whether a metric has a column in a table that is sorted by ``metric``, which has one itself."""
    found = find(name)
    return name == metric or (
        found is not None and found.columns in (("all",) if of_validation(name) else ("all", "test"))
    )


def spread(value: Spread, shown: Callable[[float], str], ended: int = 0) -> str:
    """Return ``85.3``, or with several seeds mean and standard deviation: ``85.3 ± 0.4``.

    Args:
        value: The value.
        shown: Formats a number.
        ended: Number of seeds that have ended well. If some of them lack the value, the text says how many have it:
            ``85.3 ± 0.4 (2 of 3 seeds)``.
    """
    text = shown(value.mean) if value.deviation is None else f"{shown(value.mean)} ± {shown(value.deviation)}"
    return text if value.count >= ended else f"{text} ({value.count} of {ended} seeds)"


def _value(overrides: Mapping[str, str], key: str) -> str:
    """Return the value of a swept key as text; a mapping or a list is written as its parts."""
    parts = {name: _rounded(text) for name, text in overrides.items() if name == key or name.startswith(f"{key}.")}
    return " ".join(text if name == key else f"{name[len(key) + 1 :]}={text}" for name, text in parts.items())


def _rounded(text: str) -> str:
    """Return a number that a search has suggested with four digits, and any other text as it is."""
    try:
        return f"{float(text):.4g}" if len(text) > LONG else text
    except ValueError:
        return text


def short_keys(cases: Sequence[Case]) -> dict[str, str]:
    """Return the swept keys with their shortest unambiguous names: ``method.lambda1`` -> ``lambda1``."""
    keys = list(dict.fromkeys(key for case in cases if not case.baseline for key in case.overrides))
    last = [key.rsplit(".", 1)[-1] for key in keys]
    taken = {*FIRST, *LAST, "seeds"}
    return {
        key: short if last.count(short) == 1 and short not in taken and find(short) is None else key
        for key, short in zip(keys, last, strict=True)
    }


def _costs(records: Sequence[RoundRecord]) -> dict[str, str]:
    """Return bytes per client and round, and seconds per round, as means over the rounds that report them."""
    per_client, seconds = [], []
    for record in records:
        metrics = record.metrics
        clients = metrics.get("clients_trained")
        if clients and ("bytes_up" in metrics or "bytes_down" in metrics):
            per_client.append((metrics.get("bytes_up", 0) + metrics.get("bytes_down", 0)) / clients)
        if metrics.get("round_seconds") is not None:
            seconds.append(metrics["round_seconds"])
    costs = {"bytes/client/round": data_size(sum(per_client) / len(per_client))} if per_client else {}
    return costs | ({"s/round": f"{sum(seconds) / len(seconds):.2f}"} if seconds else {})


def _column_order(columns: Sequence[str], cases: Sequence[Case]) -> list[str]:
    first = [*FIRST, *short_keys(cases).values(), "seeds"]
    metrics = sorted((name for name in columns if name not in {*first, *LAST}), key=column_order)
    return list(dict.fromkeys([*first, *metrics, *LAST]))  # the method may be a swept key
