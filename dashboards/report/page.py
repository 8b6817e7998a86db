"""The page of a report: one HTML file that opens without a network."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from dashboards.paired import LEVEL
from dashboards.report.collect import Row, Sweep
from dashboards.report.compare import findings, measures
from dashboards.report.contents import cost_table, effects
from dashboards.report.html_tables import as_html
from dashboards.report.sections import Section, by_client, comparison, influences, learning, said, tradeoffs
from dashboards.report.svg import Ids, clean
from fedtext.evaluation.continuations import FILE as CONTINUATIONS
from fedtext.metrics import legend
from fedtext.runtime.markdown import unescaped

HERE = Path(__file__).parent
POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
)


def page(sweep: Sweep) -> str:
    """Return the page of a report."""
    ids = Ids()
    found = [
        comparison(ids, sweep),
        tradeoffs(ids, sweep),
        learning(ids, sweep),
        by_client(ids, sweep),
        _keys(ids, sweep),
        _continuations(sweep),
        _costs(sweep),
        _guarantees(sweep),
        _what_was_run(sweep),
    ]
    sections = [one for one in found if one]
    links = "".join(f'<a href="#{one.id}">{clean(one.title)}</a>\n' for one in sections)
    body = "".join(
        f'<section aria-labelledby="{one.id}"><h2 id="{one.id}">{clean(one.title)}</h2>\n{one.content}</section>\n'
        for one in sections
    )
    style, script = (HERE / "report.css").read_text(), (HERE / "report.js").read_text()
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{clean(sweep.name)}: report</title>\n<style>\n{style}</style>\n</head>\n<body>\n"
        f"<header><h1>{clean(sweep.name)}</h1>\n{_head(sweep)}<nav>{links}</nav></header>\n<main>\n{body}</main>\n"
        f"<script>\n{script}</script>\n</body>\n</html>\n"
    )


def _head(sweep: Sweep) -> str:
    """Return the findings, and what is incomplete."""
    corpus, every = sweep.experiment.corpus.name, dict.fromkeys(row.method for row in sweep.rows if not row.baseline)
    method = ", ".join(every) or sweep.experiment.method.name
    counts = f"{len(sweep.cases)} trials" if len(sweep.cases) > 1 else "one trial"
    seeds = f"seeds {', '.join(map(str, sweep.seeds))}" if len(sweep.seeds) > 1 else f"seed {sweep.seeds[0]}"
    about = f"{sweep.experiment.name}: {method} on the corpus {corpus}, {counts}, {seeds}, {_until(sweep)}."
    made = [f'<p class="soft">{clean(about)}</p>\n']
    made += [f'<p class="lead">{clean(sentence)}</p>\n' for sentence in findings(sweep)]
    made += [f'<p class="warn">{clean(sentence)}</p>\n' for sentence in warnings(sweep)]
    return "".join(made)


def _until(sweep: Sweep) -> str:
    times = [record.time for row in sweep.rows for sample in row.samples for record in sample.records]
    if not times:
        return "no round completed yet"
    return f"records until {datetime.fromtimestamp(max(times), UTC):%Y-%m-%d %H:%M} UTC"


def warnings(sweep: Sweep) -> list[str]:
    """Return sentences on trials that failed or have not ended, and on records that cannot be read."""
    every = [(row, sample) for row in sweep.rows for sample in row.samples]
    failed = [
        f"{row.label}, seed {sample.seed}, failed: {sample.error or 'no cause was reported'}."
        for row, sample in every
        if sample.status == "failed"
    ]
    left = [sample for _, sample in every if sample.status == "left"]
    again = sweep.commands.get("continue", "the same command")
    goes_on = "a command works on them" if sweep.running else f"{again} continues them"
    open_ = [f"{len(left)} of {len(sweep.cases)} trials have not ended: {goes_on}."] if left else []
    count = sum(sample.status == "stopped" for _, sample in every)
    early = (
        [f"{count} of {len(sweep.cases)} trials stopped early: the values are of the round that each reached."]
        if count
        else []
    )
    return [*open_, *early, *failed, *sweep.problems]


def _continuations(sweep: Sweep) -> Section | None:
    """Return what the models of trials have added to beginnings of texts; None if no trial has continued any."""
    made = []
    for row in sweep.rows:
        files = [record.files for sample in row.samples for record in sample.records if CONTINUATIONS in record.files]
        for found in files[:1]:  # of the first seed
            lines = [line.removeprefix("- ") for line in found[CONTINUATIONS].splitlines()[2:]]
            inner = "".join(f"<p>{clean(unescaped(line))}</p>\n" for line in lines if line)
            made.append(f"<details><summary>{clean(row.name)}</summary>{inner}</details>\n")
    return Section("continuations", "Texts that models continue", "".join(made)) if made else None


def _costs(sweep: Sweep) -> Section | None:
    table = cost_table(sweep)
    return Section("costs", "Cost", as_html(table)) if table else None


def _keys(ids: Ids, sweep: Sweep) -> Section | None:
    """Return the plots of the swept keys, with all metrics by their values; None if no key has two values."""
    found, table = influences(ids, sweep), effects(sweep)
    if found is None or table is None:
        return found
    more = f"<details><summary>All metrics by the value of each swept key</summary>{as_html(table)}</details>\n"
    return replace(found, content=found.content + more)


def _guarantees(sweep: Sweep) -> Section | None:
    """Return the ledgers' sentences, and what else runs reveal; None if no trial has a ledger."""
    rows = [row for row in sweep.rows if row.ledger]
    about: dict[str, list[Row]] = {}
    for row in rows:
        for sentence in row.reveals():
            about.setdefault(sentence, []).append(row)
    if not about:
        return None
    claims = [sentence for sentence in about if sentence.startswith("ledger: ")]
    others = [sentence for sentence in about if not sentence.startswith("ledger: ")]
    made = _list([(sentence.removeprefix("ledger: "), about[sentence]) for sentence in claims], rows)
    made += "".join(f"<p>{clean(sentence)}</p>\n" for sentence in sweep.guarantees())
    if others:
        inner = _list([(sentence, about[sentence]) for sentence in others], rows)
        made += f"<details><summary>What a run reveals</summary>{inner}</details>\n"
    return Section("guarantees", "What it guarantees", made)


def _list(sentences: Sequence[tuple[str, Sequence[Row]]], rows: Sequence[Row]) -> str:
    items = []
    for sentence, those in sentences:
        names = (
            ""
            if len(those) == len(rows)
            else f' <span class="soft">({clean("; ".join(one.label for one in those))})</span>'
        )
        items.append(f"<li>{clean(sentence)}{names}</li>\n")
    return f"<ul>\n{''.join(items)}</ul>\n"


def _what_was_run(sweep: Sweep) -> Section:
    commands = "\n".join(f"# {purpose}\n{words}" for purpose, words in sweep.commands.items())
    parts = [f'<pre class="words"><code>{clean(commands)}</code></pre>\n' if commands else ""]
    seeds = ", ".join(map(str, sweep.seeds))
    metric, direction = sweep.metric, "highest" if sweep.experiment.tune.direction == "max" else "lowest"
    parts.append(f"<p>Seeds: {seeds}. Trials are sorted by {clean(metric)}, the {direction} first.</p>\n")
    for one in sweep.versions:
        told = ", ".join(
            f"{name.removeprefix('version.')} {text}" for name, text in one.items() if name.startswith("version.")
        )
        commit = f", code {one['git.commit'][:12]}" if "git.commit" in one else ""
        changed = " with changes that are not committed" if one.get("git.dirty") == "true" else ""
        parts.append(f"<p>Versions: {clean(told + commit + changed)}.</p>\n")
    if not sweep.versions:
        parts.append(said("The run has not recorded the versions of its software."))
    if sweep.machines:
        several = " The last digits of results depend on the machines." if len(sweep.machines) > 1 else ""
        parts.append(f"<p>Clients were trained on {clean('; '.join(sweep.machines))}.{several}</p>\n")
    metrics = [one.name for one in measures(sweep)]
    meaning = "".join(f"<li>{clean(line)}</li>\n" for line in legend(metrics))
    parts.append(
        f"<details><summary>What the metrics mean</summary><ul>\n{meaning}</ul></details>\n" if meaning else ""
    )
    yaml = f"<pre><code>{clean(sweep.yaml)}</code></pre>"
    parts.append(f"<details><summary>The experiment, with all defaults (experiment.yaml)</summary>{yaml}</details>\n")
    corrected = "after Holm's correction for all pairs that the best case could have been in"
    parts.append(said(f"Tests: paired by seed, two-sided, significant below p = {LEVEL} {corrected}."))
    return Section("run", "What was run", "".join(parts))
