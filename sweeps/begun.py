"""How a run was begun: its experiment, its data and its command, as its plan.json has them."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedtext.config.differences import differences, flattened, listed
from fedtext.config.experiment import Experiment
from fedtext.config.files import Content, validate, with_plugins
from fedtext.config.packages import missing
from fedtext.errors import UserError, option, spelled
from fedtext.runtime.folders import check_folder, folder_of
from fedtext.runtime.paths import is_uri
from fedtext.state.fingerprint import SCIENCE
from sweeps.extension import OTHERWISE, not_extended
from sweeps.places import PLAN
from sweeps.stored import COPY, About, Plan, stored


@dataclass(frozen=True)
class Begun:
    """A run's folder, of which plan.json is read. ``again`` is the command that continues the run, for messages."""

    path: Path
    again: str = "the same command"

    @property
    def command(self) -> str | None:
        """The command that began the run; None if it cannot be continued from its folder alone."""
        return self._plan().get("command")

    @property
    def shared(self) -> bool:
        """Whether the folder is one of platform.reproduce, which has trials of several commands."""
        plan = self._plan()
        return "command" in plan and plan["command"] is None  # sweeps of earlier versions did not store theirs

    def begun_with(self) -> str | None:
        """Return the folder given with --data, if any."""
        return self._plan().get("data")

    def versions(self) -> list[dict[str, Any]]:
        """Return the versions of the software that worked on the run, in order."""
        return self._plan().get("versions", [])

    def trials(self) -> dict[str, About]:
        """Return what plan.json has of trials, by the id of their case."""
        return self._plan().get("trials") or {}

    def content(self) -> Content:
        """Return the content of the experiment that the run was begun with.

        Raises:
            UserError: The run cannot be continued from it alone: platform.reproduce derives its cases from a paper's
                file, and earlier versions did not store the rest.
        """
        plan = self._plan()
        if not plan.get("command"):
            raise UserError(
                f"{option('resume')}: {self.path.name} does not record how it was begun: name its experiment, "
                f"overrides and {option('data')} as well (what {spelled('reproduce')} began goes on when that command "
                "is given again)"
            )
        return self._content()

    def check(self, asked: Experiment) -> None:
        """Raise UserError if the run would be continued with another experiment. Its resources and tracking may
        change."""
        plan = self._plan()
        begun = validate(self._content(), str(self.path / PLAN))
        compared = SCIENCE | {"name", "space", "baselines", "tune", "seeds"}
        before, now = (
            flattened(one.model_dump(mode="json", include=compared))
            | {f"plugins.{plugin.name}": plugin.digest[:8] for plugin in one.plugins if plugin in one.training_plugins}
            for one in (begun, asked)
        )
        changed = differences(before, now)
        if not changed:
            return
        if not (why := not_extended(begun, asked, changed, self.path)):
            return
        if why != OTHERWISE:
            raise UserError(f"{option('resume')}: {self.path.name} cannot have more {why}; start a new run")
        how = f"by {self.again}" if plan.get("command") else "with the experiment it was begun with"
        raise UserError(
            f"{option('resume')}: {self.path.name} was begun otherwise ({listed(changed)}): continue it {how}, or "
            "start a new run"
        )

    def check_packages(self) -> None:
        """Raise UserError if a plug-in of the run is from a package that is not installed here."""
        for package in self._plan().get("packages", []):
            if problem := missing([package]):
                raise UserError(f"{self.path / PLAN}: {package.get('key', 'plugins')} needs {problem}")

    def longer(self, asked: Experiment) -> bool:
        """Whether the run was begun with fewer rounds than ``asked`` has, and its trials train on.

        Trials of platform.reproduce do not: commands with other settings share its folder, and have trials of their
        own there.
        """
        return not self.shared and self.rounds(asked) < asked.training.rounds

    def rounds(self, asked: Experiment) -> int:
        """Return the number of rounds that the run was begun with, or has been made longer to; of a new run those
        asked."""
        return validate(self._content()).training.rounds if self._plan() else asked.training.rounds

    def data(self, given: str | Path | None) -> Path | None:
        """Return the folder of corpora: ``given`` by --data, else the one that the run was begun with.

        Raises:
            UserError: It does not exist.
        """
        if given is not None:
            folder = folder_of(given, option("data"))
            check_folder(folder)
            return folder.resolve()
        begun = self._plan().get("data")
        if begun and not is_uri(begun) and not Path(begun).is_dir():
            raise UserError(
                f"{self.path.name} was begun with {option('data', begun)}, and there is no such folder now: say with "
                f"{option('data', 'FOLDER')} where it is"
            )
        return folder_of(begun, option("data")) if begun else None

    def _plan(self) -> Plan:
        file = self.path / PLAN
        return stored(file, Plan) if file.is_file() else {}

    def _content(self) -> Content:
        """Return the stored content of the experiment, with the plug-ins that are kept here.

        Raises:
            UserError: It is damaged, or needs a plug-in that does not exist here.
        """
        plan = self._plan()
        if "content" not in plan:
            raise UserError(f"{self.path / PLAN} is damaged (content is missing): {COPY}")
        self.check_packages()
        return with_plugins(plan["content"], self.path)
