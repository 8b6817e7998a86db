"""The sections of a report's page that compare rows: results, trade-offs, curves, clients, keys."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite

from dashboards.report.collect import Row, Sweep
from dashboards.report.compare import best_rows, measure_of, measures
from dashboards.report.contents import (
    NONE,
    best_of_each,
    client_means,
    client_metrics,
    clients,
    curve,
    differences,
    effective,
    of_every_seed,
    points,
    pooled,
    results,
    value,
)
from dashboards.report.curves import Line, curves, legend
from dashboards.report.dots import Dot, dots
from dashboards.report.front import front
from dashboards.report.heat import heat
from dashboards.report.html_tables import as_html, figure
from dashboards.report.influence import influence
from dashboards.report.measures import Measure, measure
from dashboards.report.svg import SERIES, Ids, clean
from dashboards.report.tables import Field, Table
from dashboards.report.tradeoff import axes, tradeoff
from dashboards.report.tradeoff import points as placed
from fedtext.metrics import of_validation

DOTS, PANELS, CLIENTS, NAMES = 14, 6, 40, 20  # maximum of rows in a plot, plots, clients, and labelled points


@dataclass(frozen=True)
class Section:
    """A part of the page: the end of its address, its title, its content as HTML."""

    id: str
    title: str
    content: str


def grid(plots: Sequence[str]) -> str:
    """Return plots side by side, as many as there is room for."""
    return f'<div class="plots">\n{"".join(plots)}</div>\n'


def said(sentence: str) -> str:
    """Return a sentence as a note."""
    return f'<p class="note">{clean(sentence)}</p>\n'


def series_of(sweep: Sweep) -> dict[str, int]:
    """Return the number of each method's colour and mark."""
    return {name: place for place, name in enumerate(dict.fromkeys(row.method for row in sweep.rows))}


def shown_metrics(sweep: Sweep) -> list[Measure]:
    """Return the metrics that are drawn: that of the sweep first, then those of test texts and attacks."""
    every = [one for one in measures(sweep) if one.ranked and one.name != "epsilon"]
    first = [one for one in every if one.name == sweep.metric]
    others = [one for one in every if one.name != sweep.metric]
    others.sort(key=lambda one: of_validation(one.name))
    return [*first, *others][:PANELS]


def kept(rows: Sequence[Row]) -> tuple[list[Row], str]:
    """Return the rows that a picture has room for, the best and the baselines, and a sentence on the others."""
    if len(rows) <= DOTS:
        return list(rows), ""
    first = [row for row in rows if not row.baseline][: max(DOTS - sum(row.baseline for row in rows), 2)]
    shown = [row for row in rows if row.baseline or row in first][:DOTS]
    return shown, f"{len(rows) - len(shown)} rows are in the table only."


def comparison(ids: Ids, sweep: Sweep) -> Section:
    """Return the main table, dot plots of the metrics, and the paired differences."""
    series, plots = series_of(sweep), []
    for of in shown_metrics(sweep):
        rows = [row for row in sweep.rows if row.spread(of.name)]
        shown, left = kept(rows)
        best = {row.id for row in best_rows(sweep.rows, of)}
        lines = [
            Dot(row.name, found, list(row.by_seed(of.name).values()), row.id in best, series[row.method])
            for row in shown
            if (found := row.spread(of.name))
        ]
        if len(lines) > 1:
            plots.append(figure(dots(ids, of, lines, f"{of.name} of each method"), _by_seed(sweep, rows, of), left))
    apart = differences(sweep)
    parts = [as_html(results(sweep)), grid(plots) if plots else ""]
    spread = "Dots: means; bars: standard deviation over seeds; small lines: seeds; * best mean."
    parts += [said(spread if len(sweep.seeds) > 1 else "Dots: values of the one seed; * best.")] if plots else []
    parts += [f"<h3>By how much</h3>\n{as_html(apart)}"] if apart else []
    title = "Which method wins" if len(sweep.rows) > 1 else "Result"
    return Section("results", title, "".join(parts))


def _by_seed(sweep: Sweep, rows: Sequence[Row], of: Measure) -> Table:
    lines = []
    for row in rows:
        found = row.by_seed(of.name)
        values = [Field(of.write(found[seed]), {"": found[seed]}) if seed in found else NONE for seed in sweep.seeds]
        lines.append([Field(row.name), *values, value(row.spread(of.name), of, ended=row.ended)])
    heads = ["method", *(f"seed {seed}" for seed in sweep.seeds), "mean"]
    return Table("seeds", f"{of.head} by seed.", heads, lines, [f"{of.name}: {of.summary}."])


def tradeoffs(ids: Ids, sweep: Sweep) -> Section | None:
    """Return scatter plots with Pareto fronts over axes that the reader can choose; None if no cost differs."""
    across, upward = axes(sweep)
    made = [(x, y, placed(sweep, x, y)) for x in across for y in upward if x.name != y.name]
    pairs = [one for one in made if len(one[2]) > 1 and any(not point.side for point in one[2])]
    if not pairs:
        return None
    used = {axis.name for x, y, _ in pairs for axis in (x, y)}
    across, upward = ([one for one in every if one.name in used] for every in (across, upward))
    chosen = [pair for pair in pairs if {pair[0].name, pair[1].name} <= set(sweep.experiment.tune.metrics)]
    series, default, plots = series_of(sweep), (chosen or pairs)[0], []
    for pair in pairs:
        x, y, found = pair
        drawn = figure(tradeoff(ids, found, x, y, series), _tradeoff_table(sweep, x, y))
        hidden = "" if pair is default else " hidden"
        plots.append(f'<div class="pair" data-x="{clean(x.name)}" data-y="{clean(y.name)}"{hidden}>{drawn}</div>\n')
    choice = (
        f'<form class="choice" hidden>{_select(ids, "across", across, default[0].name)} '
        f"{_select(ids, 'upwards', upward, default[1].name)}</form>\n"
        '<p class="same note" hidden>Choose two different axes.</p>\n'
    )
    those = [(place, row) for place, row in enumerate(sweep.rows, 1) if row.spread(sweep.metric)]
    names = [f"{place} {row.name}" for place, row in those[:NAMES]]
    kinds = [series[row.method] for _, row in those]
    more = f"<figcaption>The data of the plot name all {len(those)}.</figcaption>" if len(those) > NAMES else ""
    key = f"<figure>{legend(ids, names, False, 'Names of the points', kinds)}{more}</figure>\n"
    note = "Filled: on the Pareto front: no other row is at least as good in both, and better in one. Means over seeds."
    lacking = any(not point.whole for _, _, found in pairs for point in found)
    note += " Rows that lack a value for a seed are no candidates." if lacking else ""
    note += " epsilon is what the privacy ledger claims for the whole run." if "epsilon" in used else ""
    note += " Without a script the first pair of axes is shown."
    pareto = front(sweep)
    best = f"<h3>Pareto front of all objectives</h3>\n{as_html(pareto)}" if pareto else ""
    return Section("tradeoffs", "Utility against privacy and cost", choice + grid([*plots, key]) + said(note) + best)


def _select(ids: Ids, name: str, every: Sequence[Measure], chosen: str) -> str:
    options = "".join(
        f'<option value="{clean(one.name)}"{" selected" if one.name == chosen else ""}>{clean(one.name)}</option>'
        for one in every
    )
    made = ids(name)
    return f'<label for="{made}">{name} <select id="{made}">{options}</select></label>'


def _tradeoff_table(sweep: Sweep, across: Measure, up: Measure) -> Table:
    found = placed(sweep, across, up)
    rows = []
    for one in found:
        ended = one.row.ended
        x = Field(one.side) if one.side else value(one.row.spread(across.name), across, ended=ended)
        rows.append([Field(one.named), Field(one.row.name), x, value(one.row.spread(up.name), up, ended=ended)])
    return Table("tradeoff", f"{up.head} and {across.head} of each row.", ["#", "method", across.head, up.head], rows)


def learning(ids: Ids, sweep: Sweep) -> Section | None:
    """Return the curves of metrics over rounds; None if no metric has two rounds."""
    lasting = [row for row in sweep.rows if any(sample.records for sample in row.samples)]
    rows = lasting
    if len(lasting) > SERIES:
        first = {row.method: row for row in reversed(lasting)}
        rows = [row for row in lasting if first[row.method] is row][:SERIES]
        rows += [row for row in lasting if row not in rows][: SERIES - len(rows)]
        rows.sort(key=lasting.index)
    plots = []
    for of in [*shown_metrics(sweep), *([measure("loss")] if "loss" in sweep.names() else [])] or _of_records(rows):
        lines = [
            Line(row.label, found, place)
            for place, row in enumerate(rows)
            if len(found := curve(_rounds(row, of.name))) > 1
        ]
        if lines:
            drawn = curves(ids, of, lines, f"{of.name} by round")
            plots.append(figure(drawn, _curve_table(of, lines)))
    if not plots:
        return None
    left = "" if rows == lasting else f" Of {len(lasting)} rows these are the best of each method, and the next ones."
    key = f"<figure>{legend(ids, [row.name for row in rows], True, 'Names of the lines')}</figure>\n"
    bands = " Bands: one standard deviation over seeds." if len(sweep.seeds) > 1 else ""
    note = f"Lines: means.{bands} Metrics that are computed after the last round only have no curve.{left}"
    return Section("curves", "Learning curves", grid([*plots, key]) + said(note))


def _of_records(rows: Sequence[Row]) -> list[Measure]:
    """Return the metrics of trials none of which has ended."""
    names = {name for row in rows for sample in row.samples for record in sample.records for name in record.metrics}
    return [measure(name) for name in ("Ag", "Ag_val", "AUC", "perplexity", "loss") if name in names]


def _rounds(row: Row, name: str) -> list[Mapping[int, float]]:
    """Return a metric by round for each seed: of trials that ended well, if there are some."""
    those = [sample for sample in row.samples if sample.values] or list(row.samples)
    found = [
        {one.round: value for one in sample.records if (value := one.metrics.get(name)) is not None and isfinite(value)}
        for sample in those
    ]
    return [one for one in found if one]


def _curve_table(of: Measure, lines: Sequence[Line]) -> Table:
    rounds = sorted({round_ for line in lines for round_ in line.values})
    rows = [
        [Field(str(round_), {"": float(round_)}), *(value(line.values.get(round_), of) for line in lines)]
        for round_ in rounds
    ]
    return Table("curve", f"{of.head} by round.", ["round", *(line.label for line in lines)], rows)


def by_client(ids: Ids, sweep: Sweep) -> Section | None:
    """Return a heat map of clients and methods for each metric of single clients; None if there are none."""
    plots = []
    for name in client_metrics(sweep):
        table, of = clients(sweep, name), measure_of(sweep, name)
        rows, left = kept([row for row in sweep.rows if client_means(row, name)])
        columns = [f"{sweep.rows.index(row) + 1} {row.label}" for row in rows]
        values = {
            (c, label): one
            for row, label in zip(rows, columns, strict=True)
            for c, one in client_means(row, name).items()
        }
        of_column = dict(zip(columns, rows, strict=True))
        partial = {(c, label) for (c, label), one in values.items() if not of_every_seed(of_column[label], one)}
        names = list(dict.fromkeys(client for client, _ in values))
        outlined = f" Outlined: {best_of_each(bool(partial))}" if len(rows) > 1 else ""
        caption = f"{of.head} after the last round.{outlined} {left}".rstrip()
        if len(names) > CLIENTS:
            names = _worst(names, columns, values, of)
            caption += f" {CLIENTS} clients with the worst means; the table below and its CSV have all."
        shown = {key: one for key, one in values.items() if key[0] in set(names)}
        if shown:
            drawn = heat(ids, of, names, columns, shown, f"{name} of each client and method", partial)
            plots.append(figure(drawn, table, caption, wide=True))
    return Section("clients", "Client by client", f'<div class="heats">\n{"".join(plots)}</div>\n') if plots else None


def _worst(
    names: Sequence[str], columns: Sequence[str], values: Mapping[tuple[str, str], object], of: Measure
) -> list[str]:
    """Return the clients with the worst means over methods."""

    def mean(client: str) -> float:
        found = [getattr(values[client, one], "mean", 0.0) for one in columns if (client, one) in values]
        return sum(found) / len(found)

    return sorted(names, key=mean, reverse=of.unit.less)[:CLIENTS]


def influences(ids: Ids, sweep: Sweep) -> Section | None:
    """Return a plot for each swept key with two values; None if there is none."""
    of, plots = measure_of(sweep, sweep.metric), []
    for key in effective(sweep):
        rows = [
            [Field(told), Field(str(ended)), value(pooled(those, of.name), of, ended=ended, what="trials")]
            for told, those in points(sweep, key).items()
            for ended in [sum(row.ended for row in those)]
        ]
        table = Table("key", f"{of.head} by {key}.", [key, "trials", of.head], rows)
        plots.append(figure(influence(ids, sweep, key, of), table, head=key))
    shared = any(len(rows) > 1 for key in effective(sweep) for rows in points(sweep, key).values())
    note = "Means and standard deviations over all trials with a value, whatever their other keys"
    note += "; small marks: cases." if shared else "."
    return Section("keys", "Effects of the swept keys", grid(plots) + said(note)) if plots else None
