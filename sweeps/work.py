"""The trials and tables of a request for tables of a paper."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import takewhile
from pathlib import Path

from dashboards.figures import Origin, Reproduction
from dashboards.reproduction import markdown
from dashboards.reproduction_csv import read_csv
from dashboards.trial import Outcome
from fedtext.config import files
from fedtext.config.experiment import Experiment
from fedtext.config.overrides import override
from fedtext.errors import UserError
from fedtext.state.checkpoint import history
from sweeps.asked import Asked, command, extent, mark
from sweeps.coverage import update
from sweeps.folder import RunFolder
from sweeps.kept import alone, merged, seeds_of, write
from sweeps.names import places
from sweeps.places import home
from sweeps.results import Rows, check_columns, named, reproduced, when
from sweeps.sources import commits, data_of
from tune_spaces import papers
from tune_spaces.cases import Case
from tune_spaces.papers import Paper, Scale, Table
from tune_spaces.papers.notes import personalization_notes, training_notes, vector_notes


@dataclass(frozen=True)
class Work:
    """The trials and tables of a request.

    Attributes:
        asked: The request.
        paper: The paper.
        scene: The paper's data set.
        scale: Share of the paper's rounds and of the train texts.
        changes: Changes to every experiment, by dotted key.
        tables: The tables by number, with the selected rows.
        content: The content of the scene's experiment.
        experiment: The scene's experiment.
        folder: The folder of the trials.
        out: The folder of the results.
    """

    asked: Asked
    paper: Paper
    scene: str
    scale: Scale
    changes: Mapping[str, object]
    tables: Mapping[str, Table]
    content: files.Content
    experiment: Experiment
    folder: RunFolder
    out: Path

    @staticmethod
    def of(asked: Asked) -> "Work":
        """Return the work for ``asked``. Raises UserError for tables, rows or changes that cannot be."""
        paper, scale, changes = papers.load(asked.paper), Scale(asked.scale), papers.changes(asked.changes)
        scene = asked.scene or papers.first_scene(paper, asked.tables)
        tables = papers.tables(paper, asked.tables, scene, asked.methods, asked.rows)
        name = f"reproduce-{papers.stem(asked.paper, scene)}" + ("" if scale.share == 1 else f"-{scale.share:g}")
        content = scale.applied(override(paper.scenes[scene], changes | {"name": name}))
        experiment = files.validate(content, f"{asked.paper}, scene {scene}")
        storage, remote = places(experiment.storage)
        if remote:
            raise UserError(f"storage: tables are reproduced in a local folder, not at {remote}: leave it out")
        folder = RunFolder((storage / name).resolve())
        out = _folder(asked.out or home() / "docs" / "reproductions" / "tables")
        return Work(asked, paper, scene, scale, changes, tables, content, experiment, folder, out)

    def stem(self, number: str) -> Path:
        """Return the path of a table's files, without their endings."""
        what = number if number.startswith("fig") else f"table{number}"
        return self.out / f"{papers.stem(self.asked.paper, self.scene)}-{what}{mark(self.scale, self.asked)}"

    def kept(self, number: str) -> Reproduction | None:
        """Return the table as it was written before; None if it was not."""
        file = self.out / f"{self.stem(number).name}.csv"
        return read_csv(file) if file.is_file() else None

    def left(self, say: Callable[[str], object]) -> dict[str, Rows]:
        """Return the rows of each table that are to be run, with the cases of the seeds that are not kept."""
        found = {}
        for number, table in self.tables.items():
            rows = dict(papers.cases(self.paper, table, self.scene, self.scale, self.asked.seeds, self.changes))
            check_columns(number, table, rows, self.scale)
            before = self.kept(number)
            there = {row: seeds_of(before, row, table.read) for row in rows} if before else {}
            if self.asked.again:  # a row is not replaced by one of fewer seeds
                there = {row: seeds for row, seeds in there.items() if seeds > self.asked.seeds}
            left = {row: cases[there.get(row, 0) :] for row, cases in rows.items()}
            found[number] = {row: cases for row, cases in left.items() if cases}
            part = {row: f" ({there[row]} of its seeds)" for row in found[number] if row in there}
            if kept := [f"{row}{part.get(row, '')}" for row, of in there.items() if of]:
                say(f"  {papers.called(number)}: {', '.join(kept)} kept ({self.stem(number).name}.csv)")
        return found

    def finished(self, rows: Mapping[str, Rows], say: Callable[[str], object]) -> dict[str, Outcome]:
        """Return the outcomes of those trials of ``rows`` that have finished, whose checkpoints have all rounds.

        Args:
            rows: The rows of each table, with their cases.
            say: Called with a line for each trial that has finished and whose checkpoint was removed or is older.
        """
        cases = {case.id: case.experiment for of in rows.values() for row in of.values() for case in row}
        ended, found = self.folder.ended(), dict[str, Outcome]()
        for case, experiment in cases.items():
            if ended.get(case) != "finished":
                continue
            records, rounds = tuple(history(self.folder.case(case) / "checkpoint")), experiment.training.rounds
            if (reached := records[-1].round if records else 0) >= rounds:
                found[case] = Outcome("finished", records)
            else:
                have = f"its checkpoint has {reached} of {rounds} rounds"
                say(f"  {case} is left out: {have}: without --finished the same command runs it again")
        return found

    def write(self, rows: Mapping[str, Rows], outcomes: Mapping[str, Outcome]) -> tuple[list[Path], list[str]]:
        """Write the tables with the rows whose first seeds have finished.

        Args:
            rows: The rows that were run, by table, with their cases.
            outcomes: The outcomes of trials that have finished.

        Returns:
            The files, and each table as Markdown.

        Raises:
            UserError: They cannot be written, or a row would have seeds of different data.
        """
        wrote, tables = list[Path](), list[str]()
        for number, cases in rows.items():
            with alone(self.out):  # from here on the table is read, and written with more rows
                following = {row: self.following(number, row, of) for row, of in cases.items()}
                ran = {row: [*takewhile(lambda case: case.id in outcomes, of)] for row, of in following.items()}
                if ran := {row: of for row, of in ran.items() if of}:
                    self.check_data({number: ran}, partial(data_of, self.folder))
                    result = self.table(number, ran, outcomes)
                    wrote += write(result, self.stem(number))
                    tables.append(f"\n{markdown(result)}")
        with alone(self.out):
            update(self.out)
        return wrote, tables

    def check_data(self, rows: Mapping[str, Rows], data: Callable[[Sequence[Case]], Sequence[str]]) -> None:
        """Check that all seeds of a row are of the same data, as far as they are known.

        Args:
            rows: The rows that each table gets, with their cases.
            data: Returns the data of cases, each once (``sweeps.sources``).

        Raises:
            UserError: They are of different data, or of other data than the seeds that the table has.
        """
        for number, of in rows.items():
            kept = self.kept(number)
            for row, cases in of.items():
                later = kept and cases[0].experiment.seed > self.experiment.seed
                before = [kept.data[row]] if kept and later and row in kept.data else []
                if len({*before, *data(cases)}) > 1:
                    raise UserError(
                        f"{papers.called(number)}: row {row} would have seeds of different data, or of data that "
                        "another version of this code read otherwise: give the --data of its first seeds, or write the "
                        "table to another --out"
                    )

    def following(self, number: str, row: str, cases: Sequence[Case]) -> Sequence[Case]:
        """Return those of the cases of a row whose seeds follow the ones that its table has by now.

        Another command may have written some of them since this one began, or have removed the table.

        Args:
            number: The number of the table.
            row: The row.
            cases: Its cases, of seeds one after the other. From the first seed on, they are the whole row.
        """
        first, kept = cases[0].experiment.seed - self.experiment.seed, self.kept(number)
        there = seeds_of(kept, row, self.paper.tables[number].read) if kept else 0
        if not first:
            return cases
        return cases[there - first :] if there >= first else ()

    def table(self, number: str, ran: Rows, outcomes: Mapping[str, Outcome]) -> Reproduction:
        """Return a table of the outcomes, with the rows that are kept, and notes on all of them.

        Args:
            number: The number of the table.
            ran: The rows that were run, with the cases of their seeds.
            outcomes: The outcomes of these cases.
        """
        whole, kept = self.paper.tables[number], self.kept(number)
        table = whole.model_copy(update={"rows": {row: whole.rows[row] for row in ran}})
        origin = Origin(self.asked.paper, self.scene, number, command(self.asked, self.scene))
        new = replace(
            reproduced(origin, table, self.scale, ran, outcomes, []),
            commits={row: made_by for row, of in ran.items() if (made_by := commits(self.folder, of))},
            data={row: found[0] for row, of in ran.items() if (found := data_of(self.folder, of))},
        )
        later = [row for row, (first, *_) in ran.items() if first.experiment.seed > self.experiment.seed]
        result = merged(kept, new, later) if kept else new
        return named(replace(result, about=self.about(number, result)))

    def about(self, number: str, made: Reproduction) -> list[str]:
        """Return notes on a table with the rows of ``made``."""
        whole = self.paper.tables[number]
        there = dict.fromkeys(cell.row for cell in made.cells if cell.row in whole.rows)
        table = whole.model_copy(update={"rows": {row: whole.rows[row] for row in there}})
        rows = dict(papers.cases(self.paper, table, self.scene, self.scale, 1, self.changes))
        return [
            extent(self.scale, self.changes),
            f"{_spread(made)} {when(table, rows)}",
            *training_notes(rows),
            *vector_notes(rows),
            *personalization_notes(table, rows),
            *self.paper.departures.get(self.scene, ()),
            *table.departures,
        ]


def _spread(made: Reproduction) -> str:
    if made.seeds == 1:
        return "One seed: no spread is known, and nothing can be tested."
    if made.fewest_seeds == made.seeds:
        return f"Mean and standard deviation over {made.seeds} seeds."
    rows = dict.fromkeys(cell.row for cell in made.cells if 0 < len(cell.seeds) < made.seeds)
    return f"Mean and standard deviation over {made.seeds} seeds; fewer of {', '.join(rows)}."


def _folder(path: Path) -> Path:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"--out: {path} cannot be made a folder ({error.strerror}): name another") from error
    return path
