"""Results of runs."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedtext.accounting.entry import Entry
from fedtext.api.model import Model
from fedtext.api.named import NamedDict
from fedtext.config.experiment import Experiment
from fedtext.errors import UserError, writing
from fedtext.ledger import FILE, text
from fedtext.records import RoundRecord
from fedtext.runtime import durable
from fedtext.runtime.folders import written_to
from fedtext.server.last import last_values
from fedtext.state import model_folder
from fedtext.state.model_folder import RECORDS
from fedtext.state.trained import Trained

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True, eq=False, repr=False)
class Result:
    """The result of a run.

    Attributes:
        experiment: The experiment.
        history: The record of each round, in order.
        ledger: The privacy guarantees of the run. It has at least one entry, which says so if nothing is guaranteed.
        trained: The parameters of the model, with all that is needed to use them.
    """

    experiment: Experiment
    history: tuple[RoundRecord, ...]
    ledger: list[Entry]
    trained: Trained

    def __repr__(self) -> str:
        of, last = self.experiment, dict(list(self.metrics.items())[:6])
        shown = ", ".join(f"{name}={value:.4g}" for name, value in last.items())
        return f"Result({of.name}, method={of.method.name}, rounds={len(self.history)}, {shown}, ...)"

    @property
    def metrics(self) -> dict[str, float]:
        """The value of each metric after the last round, by name, as tables of sweeps have it (``last_values``).

        A metric of evaluated rounds that was left out in the last of them, as a rate with too few texts, has none:
        ``history`` has those of earlier rounds. A KeyError names the nearest metrics.
        """
        last = last_values(self.history)
        names = dict.fromkeys(name for record in self.history for name in record.metrics)
        return NamedDict({name: last[name] for name in names if name in last})

    @property
    def clients(self) -> dict[str, dict[str, float]]:
        """The last value of each client's metrics, by client and name."""
        found: dict[str, dict[str, float]] = {}
        for record in self.history:
            for client, metrics in record.clients.items():
                found.setdefault(client, {}).update(metrics)
        each = {
            client: NamedDict(metrics, where=f"of client {client} in this run") for client, metrics in found.items()
        }
        return NamedDict(each, "client")

    @property
    def state(self) -> Mapping[str, NDArray[np.float32]]:
        """The model's parameters that are not clients' own, by name; of a loaded one also those of its clients that the
        model fixes and that are the same for all."""
        return self.trained.shared

    @cached_property
    def model(self) -> Model:
        """The trained model. It has the private parts of clients with ``save.model=clients``."""
        return Model(self.trained)

    def to_pandas(self) -> "pandas.DataFrame":
        """Return the metrics as a data frame: a row for each round, a column for each metric.

        Raises:
            UserError: pandas is not installed.
        """
        rows: list[dict[str, Any]] = [{"round": record.round, **record.metrics} for record in self.history]
        return _pandas("to_pandas").DataFrame(rows).set_index("round")

    def clients_to_pandas(self) -> "pandas.DataFrame":
        """Return the clients' last metrics as a data frame: a row for each client, a column for each metric.

        Raises:
            UserError: pandas is not installed.
        """
        frame = _pandas("clients_to_pandas").DataFrame.from_dict(self.clients, orient="index")
        return frame.rename_axis("client")

    def save(self, folder: str | Path) -> None:
        """Write the model folder with the history (``rows.json``) and the ledger (``ledger.json``) in it.

        Raises:
            UserError: It cannot be written.
        """
        where = written_to(folder)
        model_folder.write(self.trained, where)
        self.write_records(where)
        with writing(where / FILE):
            durable.write(where / FILE, text(self.ledger))

    def write_records(self, folder: Path) -> None:
        """Write the history as ``rows.json``. Raises UserError if it cannot be written."""
        with writing(folder / RECORDS):
            durable.write(folder / RECORDS, json.dumps([record.to_json() for record in self.history], indent=1))


def _pandas(asking: str) -> Any:
    try:
        import pandas
    except ImportError as error:
        raise UserError(f"{asking} needs the package pandas: pip install pandas") from error
    return pandas
