"""The page of reports: well-formed, readable without a network, and with the numbers of the tables."""

import re
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from dashboards.report import write
from dashboards.report.collect import Row, Sweep
from dashboards.report.contents import tables
from dashboards.report.page import page, warnings
from dashboards.report.sections import kept, learning, tradeoffs
from dashboards.report.svg import Ids, clean
from dashboards.report.tables import as_csv
from dashboards.report.tradeoff import axes
from dashboards.trial import Outcome
from tests.loops import nonempty
from tests.reported import BASE, PRIVATE, read, trained

VOID = {"meta", "link", "br", "hr", "img", "input"}
RUNS = ("small", "private", "broken", "one")


class Page(HTMLParser):
    """The elements of a page, in order; what is not closed where it should be is an error."""

    def __init__(self, content: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.found: list[tuple[str, dict[str, str], tuple[str, ...]]] = []
        self.texts: list[tuple[str, str]] = []
        self.feed(content)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len({name for name, _ in attrs}) == len(attrs), tag
        self.found.append((tag, {name: value or "" for name, value in attrs}, tuple(self.open)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append((self.open[-1] if self.open else "", data))

    def attributes(self, tag: str) -> list[dict[str, str]]:
        return [values for name, values, _ in self.found if name == tag]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Sweep]:
    """Sweeps: whole, with mechanisms, broken off, and one that is a single run."""
    home = tmp_path_factory.mktemp("pages")
    left = ["03-kteps-seed0", "03-kteps-seed1"]
    trained(home / "small", BASE)
    trained(home / "private", PRIVATE)
    trained(home / "broken", BASE, failed=["01-fedavg-seed1"], left=left)
    alone = {key: value for key, value in BASE.items() if key not in ("space", "baselines", "seeds")}
    trained(home / "one", alone, command="run")
    return {name: read(home / name) for name in RUNS}


@pytest.fixture(scope="module")
def pages(made: dict[str, Sweep]) -> dict[str, str]:
    return {name: page(sweep) for name, sweep in made.items()}


@pytest.mark.parametrize("name", RUNS)
def test_pages_are_well_formed_and_open_without_a_network(pages: dict[str, str], name: str) -> None:
    content = pages[name]
    found = Page(content)
    ids = [values["id"] for _, values, _ in found.found if "id" in values]
    assert [one for one, count in Counter(ids).items() if count > 1] == []
    for _, values, _ in nonempty(found.found):
        assert not {"src", "srcset", "action", "data", "poster"} & set(values)
        assert values.get("href", "#").startswith("#")
        named = [*values.get("aria-labelledby", "").split(), *values.get("for", "").split()]
        assert set(named) <= set(ids)
        if values.get("href", "#") != "#":
            assert values["href"][1:] in ids
    assert not {"link", "img", "iframe", "object", "base", "image", "use"} & {tag for tag, _, _ in found.found}
    assert "url(" not in content
    assert "@import" not in content
    assert found.attributes("meta")[1]["content"].startswith("default-src 'none'")


@pytest.mark.parametrize("name", RUNS)
def test_every_drawing_has_a_title_a_description_and_its_data(pages: dict[str, str], name: str) -> None:
    content = pages[name]
    drawings = re.findall(r"<svg .*?</svg>", content, re.S)
    for drawing in nonempty(drawings):
        begin = re.match(r'<svg role="img" aria-labelledby="(\S+) (\S+)"[^>]*><title id="(\S+)">(.+?)</title>', drawing)
        assert begin is not None
        assert begin[1] == begin[3]
        assert f'<desc id="{begin[2]}">' in drawing
        assert "<desc" in drawing
        assert not re.search(r"\b(nan|inf|None)\b", re.sub(r"<(title|desc)[^>]*>.*?</\1>", "", drawing))
    for figure in nonempty(re.findall(r"<figure>.*?</figure>", content, re.S)):
        named = "Names of the" in figure
        assert named or ("<details>" in figure and "<table>" in figure)


def cells(content: str) -> list[list[str]]:
    """The texts of the first table."""
    table = re.search(r"<tbody>(.*?)</tbody>", content, re.S)
    assert table is not None
    rows = re.findall(r"<tr>(.*?)</tr>", table[1], re.S)
    return [[re.sub(r"<[^>]+>", "", cell) for cell in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row)] for row in rows]


def test_the_numbers_of_the_page_are_those_of_the_table_and_the_records(
    made: dict[str, Sweep], pages: dict[str, str]
) -> None:
    table = next(one for one in tables(made["small"]) if one.name == "results")
    assert cells(pages["small"]) == [[clean(field.text) for field in row] for row in table.rows]
    assert len(as_csv(table).splitlines()) == 5
    place = list(table.heads).index("Ag (%)")
    for row, line in nonempty(list(zip(made["small"].rows, cells(pages["small"]), strict=True))):
        found = [100 * sample.records[-1].metrics["Ag"] for sample in row.samples]
        assert line[place] == f"{sum(found) / 2:.1f} ± {abs(found[0] - found[1]) / 2**0.5:.1f}"


def headings(content: str) -> list[str]:
    return re.findall(r"<h2[^>]*>(.*?)</h2>", content)


def test_sections_come_in_order_and_none_is_empty(pages: dict[str, str]) -> None:
    every = [
        "Which method wins",
        "Utility against privacy and cost",
        "Learning curves",
        "Client by client",
        "Effects of the swept keys",
        "Cost",
        "What it guarantees",
        "What was run",
    ]
    assert headings(pages["private"]) == every
    assert headings(pages["one"]) == ["Result", *every[2:4], *every[5:]]
    for content in nonempty(pages.values()):
        assert [words for words in re.findall(r"</h2>(.*?)</section>", content, re.S) if not words.strip()] == []
    (keys,) = re.findall(r">Effects of the swept keys</h2>(.*?)</section>", pages["private"], re.S)
    assert "All metrics by the value of each swept key" in keys


def test_what_is_incomplete_is_said(made: dict[str, Sweep], pages: dict[str, str]) -> None:
    first, second = warnings(made["broken"])
    assert first.startswith("2 of 8 trials have not ended: python -m platform.sweep --resume ")
    assert second == "fedavg, seed 1, failed: client <films> failed: its loss is not finite."
    assert "client &lt;films&gt; failed" in pages["broken"]
    at_work = warnings(replace(made["broken"], running=True))
    assert at_work == ["2 of 8 trials have not ended: a command works on them.", second]
    assert 'class="warn"' not in pages["small"]
    hurt = replace(made["small"], problems=["The records of x cannot be read."])
    assert "The records of x cannot be read." in page(hurt)
    nothing = replace(made["small"], outcomes={}, left={})
    assert headings(page(nothing)) == ["Which method wins", "What was run"]
    assert "no round completed yet" in page(nothing)


def test_trials_that_have_not_ended_have_curves(made: dict[str, Sweep]) -> None:
    sweep = made["small"]
    running = replace(sweep, outcomes={}, left={case: outcome.rows for case, outcome in sweep.outcomes.items()})
    found = learning(Ids(), running)
    assert found is not None
    assert "Ag (%) by round" in found.content
    assert "Learning curves" in headings(page(running))


def test_hostile_names_are_text(made: dict[str, Sweep]) -> None:
    name = '"></script><script>alert(1)</script><b onload=x>&\x00\x1b'
    sweep = made["small"]
    outcomes = {
        case: replace(one, rows=tuple(replace(r, clients={name: next(iter(r.clients.values()))}) for r in one.rows))
        for case, one in sweep.outcomes.items()
    }
    found = page(replace(sweep, name=name, outcomes=outcomes, problems=[name], commands={name: name}))
    read = Page(found)
    assert len(read.attributes("script")) == 1
    assert read.attributes("b") == []
    assert "\x00" not in found
    assert clean(name) in found


def test_what_was_run_can_be_repeated(made: dict[str, Sweep], pages: dict[str, str]) -> None:
    said = pages["small"]
    assert "space:" in said
    assert "python -m platform.sweep --resume " in said
    assert f"torch {made['small'].versions[0]['version.torch']}" in said
    (machine,) = made["small"].machines
    assert f"Clients were trained on {clean(machine)}." in said
    assert "depend on the machines" not in said
    twice = page(replace(made["small"], machines=("A <1>", "B")))
    assert "Clients were trained on A &lt;1&gt;; B. The last digits of results depend on the machines." in twice
    assert "Seeds: 0, 1." in said
    experiment = made["small"].experiment
    tracking = experiment.tracking.model_copy(update={"uri": "http://me:hidden@host"})
    told = page(replace(made["small"], experiment=experiment.model_copy(update={"tracking": tracking})))
    assert "hidden@" not in told
    assert "@host" in told


def test_notes_are_about_the_seeds_axes_and_keys_that_there_are(pages: dict[str, str]) -> None:
    for name in RUNS:
        of_seeds, privacy = name != "one", name == "private"
        assert ("bars: standard deviation over seeds" in pages[name]) == of_seeds, name
        assert ("says which ones can be told apart" in pages[name]) == of_seeds, name
        assert ("epsilon: at delta = 1e-05, over all rounds." in pages[name]) == privacy, name
        assert ("epsilon is what the privacy ledger claims" in pages[name]) == privacy, name
        assert ("small marks: cases" in pages[name]) == privacy, name  # of two keys
        assert ("Ap (points)" in pages[name]) == of_seeds, "differences of percentages"


def test_the_ledger_s_sentences_are_said_of_the_methods_they_hold_for(pages: dict[str, str]) -> None:
    said = re.search(r'<h2 id="guarantees">(.*?)</section>', pages["private"], re.S)
    assert said is not None
    items = re.findall(r"<li>(.*?)</li>", said[1])
    (claimed,) = (one for one in items if "for the whole run" in one)
    assert "epsilon = 20.13 at delta = 1e-05" in claimed
    assert "sigma=0.5" in claimed
    assert "local_only" not in claimed
    assert any("none is sent" in one and "local_only" in one for one in items)


def test_axes_are_what_differs_and_the_first_pair_is_shown_without_a_script(
    made: dict[str, Sweep], pages: dict[str, str]
) -> None:
    across, upward = axes(made["private"])
    assert [one.name for one in across][:2] == ["epsilon", "member_auc"]
    assert upward[0].name == "Ap_val"
    assert "member_auc" in [one.name for one in upward]
    found = Page(pages["private"])
    pairs = [values for tag, values, _ in found.found if tag == "div" and values.get("class") == "pair"]
    assert len(pairs) > 4
    assert [(one["data-x"], one["data-y"]) for one in pairs if "hidden" not in one] == [("epsilon", "Ap_val")]
    assert len(found.attributes("select")) == 2
    assert found.attributes("form")[0].keys() >= {"hidden"}
    options = [values["value"] for values in found.attributes("option")]
    assert {one["data-x"] for one in pairs} | {one["data-y"] for one in pairs} == set(options)
    assert "nothing</text>" in pages["private"]
    assert tradeoffs(Ids(), made["one"]) is None


def test_values_that_are_not_finite_are_in_no_plot(made: dict[str, Sweep]) -> None:
    def odd(outcome: Outcome) -> Outcome:
        first, *others = outcome.rows
        metrics = first.metrics | {"Ag": float("nan"), "loss": float("inf")}
        clients = {name: {"Ag": float("nan")} for name in first.clients}
        last = replace(others[-1], clients=clients, metrics=others[-1].metrics | {"Ap": float("inf")})
        return replace(outcome, rows=(replace(first, metrics=metrics), *others[:-1], last))

    sweep = made["small"]
    content = page(replace(sweep, outcomes={case: odd(one) for case, one in sweep.outcomes.items()}))
    assert not re.search(r"\b(nan|inf)\b", content)
    assert "Ag (%) by round" in content


def test_trials_that_were_stopped_early_are_said(made: dict[str, Sweep]) -> None:
    sweep = made["small"]
    stopped = {"02-kteps-seed0": replace(sweep.outcomes["02-kteps-seed0"], status="stopped")}
    (said,) = warnings(replace(sweep, outcomes={**sweep.outcomes, **stopped}))
    assert said == "1 of 8 trials stopped early: the values are of the round that each reached."


def test_pictures_have_the_best_rows_and_the_baselines() -> None:
    def row(place: int, baseline: bool) -> Row:
        return Row(f"{place}", f"{place}", "m", baseline, {}, {}, ())

    rows = [row(place, place in (3, 28)) for place in range(30)]
    shown, said = kept(rows)
    assert [one.id for one in shown] == [*map(str, range(13)), "28"]
    assert said == "16 rows are in the table only."
    assert kept(rows[:14]) == (rows[:14], "")


def test_many_rows_are_drawn_as_the_best_of_each_method(made: dict[str, Sweep]) -> None:
    sweep = made["small"]
    found = learning(Ids(), sweep)
    assert found is not None
    assert "these are the best of each method" not in found.content
    many = ManyRows(**{name: getattr(sweep, name) for name in sweep.__dataclass_fields__})
    found = learning(Ids(), many)
    assert found is not None
    assert f"Of {3 * len(sweep.rows)} rows these are the best of each method" in found.content
    named = re.search(r"<desc[^>]*>7 names: (.*?)</desc>", found.content)
    assert named is not None
    assert {"local_only", "fedavg", "kteps"} <= {name.split()[0] for name in named[1].split("; ")}


class ManyRows(Sweep):
    """A sweep with three times its rows."""

    @property
    def rows(self) -> list[Row]:  # type: ignore[override]
        every = Sweep(**{name: getattr(self, name) for name in self.__dataclass_fields__}).rows
        return [replace(row, id=f"{row.id}{n}", label=f"{row.label} {n}") for row in every for n in range(3)]


def test_the_page_is_written_first_and_again_without_a_change(made: dict[str, Sweep], tmp_path: Path) -> None:
    files = write(made["small"], tmp_path)
    assert files[0] == tmp_path / "report" / "report.html"
    first = files[0].read_bytes()
    assert write(made["small"], tmp_path) == files
    assert files[0].read_bytes() == first
