"""The tables of a report."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from dashboards.groups import Spread
from dashboards.paired import LEVEL, p_value
from dashboards.report.collect import Row, Sweep, told
from dashboards.report.compare import best_rows, measure_of, measures, paired
from dashboards.report.measures import COSTS, Measure, equal, measure
from dashboards.report.tables import Field, Table
from dashboards.table import notes, spread
from fedtext.metrics import column_order, find, of_evaluated_rounds, of_test, of_validation
from fedtext.server.last import last_evaluated

NONE = Field("-")


def results(sweep: Sweep) -> Table:
    """Return the main table: every row with its metrics, the best of each metric marked."""
    every, several = measures(sweep), len(sweep.seeds) > 1
    leaders = {one.name: {row.id for row in best_rows(sweep.rows, one)} for one in every}
    columns = {key: name for key, name in sweep.keys.items() if key != "method"}  # which has a column anyway
    heads = ["#", "method", *columns.values(), *(["seeds"] if several else []), *(one.head for one in every)]
    status = [text for row in sweep.rows if (text := _status(row)) not in ("", "finished")]
    heads += ["status"] if status else []
    rows = []
    for place, row in enumerate(sweep.rows, 1):
        keys = [Field(row.keys.get(key, "-"), _number(row.point.get(key))) for key in columns]
        seeds = [Field(str(row.ended), {"": float(row.ended)})] if several else []
        values = [value(row.spread(one.name), one, row.id in leaders[one.name], row.ended) for one in every]
        ends = [Field(_status(row) or "-")] if status else []
        rows.append([Field(str(place), {"": float(place)}), Field(_short(row)), *keys, *seeds, *values, *ends])
    said = notes(sweep.cases, sweep.outcomes, sweep.metric, sweep.experiment.tune.direction)
    if deltas := sorted({delta for row in sweep.rows for delta in row.by_seed("delta").values()}):
        said.append(f"epsilon: at delta = {', '.join(f'{delta:g}' for delta in deltas)}, over all rounds.")
    if any(leaders.values()):
        apart = "the table of differences says which ones can be told apart"
        best = f"Marked: the best mean of each column; {apart}." if several else "Marked: the best of each column."
        said.append(best)
    return Table("results", f"{sweep.name}: metrics of each method after its last round.", heads, rows, said)


def _short(row: Row) -> str:
    """Return the name of a row without the values of swept keys, which have columns."""
    name = told(row.point["method"]) if "method" in row.point else row.label if row.baseline else row.method
    return f"{name} (baseline)" if row.baseline else name


def _status(row: Row) -> str:
    if not any(sample.case_id for sample in row.samples):
        return ""
    counts = Counter({"left": "not ended"}.get(sample.status, sample.status) for sample in row.samples)
    return ", ".join(name if len(counts) == 1 else f"{count} {name}" for name, count in counts.items())


def _number(content: object) -> Mapping[str, float]:
    return {"": float(content)} if isinstance(content, int | float) and not isinstance(content, bool) else {}


def value(found: Spread | None, of: Measure, strong: bool = False, ended: int = 0, what: str = "seeds") -> Field:
    """Return the field of a mean with its deviation.

    Args:
        found: Mean and deviation, as in the records; None: there is no value.
        of: The measure.
        strong: Whether it is marked.
        ended: Number of seeds that could have a value. If some have none, the field has the number of the others.
        what: What is counted, if not seeds.
    """
    if found is None:
        return NONE
    numbers = {"": of.unit.factor * found.mean}
    if found.deviation is not None:
        numbers["sd"] = of.unit.factor * found.deviation
    same = found.deviation == 0 and of.name in (*COSTS, "epsilon")  # what a program decides has no spread to show
    text = of.write(found.mean) if same else spread(found, of.write)
    if found.count < ended:
        text, numbers[what] = f"{text} ({found.count} of {ended} {what})", float(found.count)
    return Field(text, numbers, strong)


def differences(sweep: Sweep) -> Table | None:
    """Return the paired differences of all rows and the winner; None if there is nothing to compare."""
    winner, every = sweep.winner, [one for one in measures(sweep) if one.ranked]
    if winner is None:
        return None
    found = {one.name: {pair.row.id: pair for pair in paired(sweep.rows, winner, one, chosen=True)} for one in every}
    every = [one for one in every if found[one.name]]
    others = [row for row in sweep.rows if any(row.id in found[one.name] for one in every)]
    if not others:
        return None
    tested = any(pair.seeds > 1 for pairs in found.values() for pair in pairs.values())
    names = [f"{one.name} (points)" if one.unit.name == "%" else one.head for one in every]
    heads = ["method", *(head for name in names for head in ([name, "p"] if tested else [name]))]
    rows = []
    for row in others:
        fields = [Field(row.name)]
        for one in every:
            pair = found[one.name].get(row.id)
            if pair is None:
                fields += [NONE, NONE] if tested else [NONE]
                continue
            apart = pair.difference
            error = "" if apart.error is None else f" ± {one.shown(apart.error)}"
            numbers = {"": apart.mean} | ({} if apart.error is None else {"se": apart.error})
            strong, count, fewer = apart.p is not None and apart.p < LEVEL, len(sweep.seeds), ""
            if pair.seeds < count:
                fewer, numbers["seeds"] = f" ({pair.seeds} of {count} seeds)", float(pair.seeds)
            fields.append(Field(f"{one.signed(apart.mean)}{error}{fewer}", numbers, strong))
            if tested:
                text = p_value(apart).removeprefix("p ").removeprefix("= ")
                fields.append(Field(text, {} if apart.p is None else {"": apart.p}))
        rows.append(fields)
    said = ["Each row less the best case of the space, within each seed that both have."]
    if tested:
        said.append(
            "Mean ± standard error; p: two-sided paired t test, corrected (Holm) for all pairs that the best case "
            f"could have been in, since it was chosen among these rows. Marked: p < {LEVEL}. Being chosen favours it."
        )
    else:
        said.append("One seed: no test is possible.")
    return Table("differences", f"{sweep.name}: differences from {winner.label}.", heads, rows, said)


def cost_table(sweep: Sweep) -> Table | None:
    """Return the costs of each row, as far as the records have them; None if there are none."""
    names = sweep.names()
    every = [one for one in COSTS.values() if one.name in names]
    every += [measure(name) for name in sorted(names, key=column_order) if _beside_costs(name)]
    rows = [
        [Field(row.name), *(value(row.spread(one.name), one, ended=row.ended) for one in every)]
        for row in sweep.rows
        if any(row.spread(one.name) for one in every)
    ]
    if not rows:
        return None
    said = [f"{one.name}: {one.summary}." for one in every if one.name not in ("rounds", "bytes up", "bytes down")]
    if any("_to_" in one.name for one in every):
        said.append("Means until a value was reached are of the seeds that have reached it.")
    said.append("Times depend on the machine and on what else it did, simulated times on the experiment alone.")
    if "GPU time" not in names:
        said.append("Records have no GPU time.")
    return Table("costs", f"{sweep.name}: cost of each method.", ["method", *(one.name for one in every)], rows, said)


def _beside_costs(name: str) -> bool:
    """Whether a metric stands in the table of costs: simulated time, and what it took to reach a value."""
    known = find(name)
    return known is not None and (known.when == "once" or name in ("simulated_seconds_total", "updates_begun_total"))


def client_metrics(sweep: Sweep) -> list[str]:
    """Return the metrics of single clients on test texts; on validation texts those without a test counterpart."""
    found = dict.fromkeys(
        name
        for row in sweep.rows
        for sample in row.samples
        if sample.values
        for record in sample.records
        for values in record.clients.values()
        for name in values
    )
    shown = [name for name in found if (known := find(name)) and known.kind == "evaluation"]
    return [name for name in shown if of_test(name) or name.removesuffix("_val") not in found]


def client_means(row: Row, name: str) -> dict[str, Spread]:
    """Return a metric of each client over seeds, after the last round as ``last_values`` has it."""
    found: dict[str, list[float]] = {}
    for sample in row.samples:
        last: dict[str, float] = {}
        records = sample.records if sample.values else ()
        if of_evaluated_rounds(name):
            records = (evaluated,) if (evaluated := last_evaluated(records)) else ()
        for record in records:
            last.update({c: values[name] for c, values in record.clients.items() if values.get(name) is not None})
        for client, number in last.items():
            if math.isfinite(number):
                found.setdefault(client, []).append(float(number))
    return {client: Spread.of(values) for client, values in found.items()}


def clients(sweep: Sweep, name: str) -> Table:
    """Return a table of clients by rows of a metric."""
    of, means = measure_of(sweep, name), {row.id: client_means(row, name) for row in sweep.rows}
    shown = [row for row in sweep.rows if means[row.id]]
    every = dict.fromkeys(client for row in shown for client in means[row.id])
    rows = []
    for client in every:
        found = {row.id: means[row.id].get(client) for row in shown}
        whole = {row.id: one.mean for row in shown if (one := found[row.id]) and of_every_seed(row, one)}
        first = (min if of.unit.less else max)(whole.values()) if whole and of.ranked and len(shown) > 1 else None
        best = {id_ for id_, mean in whole.items() if first is not None and equal(mean, first)}
        rows.append([Field(client), *(value(found[row.id], of, row.id in best, row.ended) for row in shown)])
    caption = f"{sweep.name}: {of.head} of each client after the last round."
    partial = any(not of_every_seed(row, one) for row in shown for one in means[row.id].values())
    said = [f"{name}: {of.summary}.", *([f"Marked: {best_of_each(partial)}"] if len(shown) > 1 else [])]
    return Table(f"clients-{name}", caption, ["client", *(row.name for row in shown)], rows, said)


def of_every_seed(row: Row, found: Spread) -> bool:
    """Whether a client's mean is over all seeds of a row: else it would be biased, and is not compared."""
    return found.count == len(row.samples)


def best_of_each(partial: bool) -> str:
    """Return what is marked in a table or heat map of clients.

    Args:
        partial: Whether some of its means lack a seed.
    """
    return f"the best of each client{', of the rows that have a value of every seed' if partial else ''}."


def points(sweep: Sweep, key: str) -> dict[str, list[Row]]:
    """Return the rows of the space for each value of a swept key: numbers in order, all else as in the space."""
    places = {case.group: place for place, case in enumerate(sweep.cases)}
    rows = sorted((row for row in sweep.rows if key in row.point), key=lambda row: places[row.id])
    rows.sort(key=lambda row: _number(row.point[key]).get("", math.inf))
    alike: dict[str, list[Row]] = {}  # by value
    for row in rows:
        alike.setdefault(repr(row.point[key]), []).append(row)
    found: dict[str, list[Row]] = {}
    for value, those in alike.items():
        text = those[0].keys[key] or "none"
        text = value if text in found else text  # equal in the digits that are shown
        found[text if text not in found else f"{text} ({len(found)})"] = those
    return found


def pooled(rows: Iterable[Row], name: str) -> Spread | None:
    """Return mean and deviation of a metric over all rows and seeds; None if there are no values."""
    values = [number for row in rows for number in row.by_seed(name).values()]
    return Spread.of(values) if values else None


def effects(sweep: Sweep) -> Table | None:
    """Return a line for each value of each swept key; None if no key has two values."""
    every = [one for one in measures(sweep) if one.name == sweep.metric or not of_validation(one.name)]
    rows = []
    for key in effective(sweep):
        for text, those in points(sweep, key).items():
            count = sum(row.ended for row in those)
            fields = [value(pooled(those, one.name), one, ended=count, what="trials") for one in every]
            rows.append([Field(key), Field(text), Field(str(count), {"": float(count)}), *fields])
    heads = ["key", "value", "trials", *(one.head for one in every)]
    said = ["Mean ± standard deviation over all trials with this value, whatever their other keys and seeds."]
    caption = f"{sweep.name}: metrics by the value of each swept key."
    return Table("effects", caption, heads, rows, said) if rows else None


def effective(sweep: Sweep) -> list[str]:
    """Return the swept keys of which at least two values have the metric of the sweep."""
    return [
        key
        for key in sweep.keys
        if sum(pooled(rows, sweep.metric) is not None for rows in points(sweep, key).values()) > 1
    ]


def curve(samples: Sequence[Mapping[int, float]]) -> dict[int, Spread]:
    """Return mean and deviation over seeds for each round, given the values of each seed by round."""
    rounds = sorted({round_ for one in samples for round_ in one})
    found = {round_: [one[round_] for one in samples if round_ in one] for round_ in rounds}
    most = max((len(values) for values in found.values()), default=0)
    # A mean of fewer seeds than the others would jump where a trial stopped.
    return {round_: Spread.of(values) for round_, values in found.items() if len(values) == most}


def tables(sweep: Sweep) -> list[Table]:
    """Return all tables of a report, without those that would be empty."""
    found = [results(sweep), differences(sweep), cost_table(sweep), effects(sweep)]
    return [table for table in found if table] + [clients(sweep, name) for name in client_metrics(sweep)]
