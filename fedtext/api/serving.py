"""Trained models behind a model server: a table of texts in, a table of predictions out.

MLflow calls ``_load_pyfunc`` of the module that a model names. dashboards/packaging.py makes model folders that name
this one.
"""

import numbers
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedtext.api.model import Model, checked
from fedtext.api.predictions import NextWords, Prediction
from fedtext.errors import UserError

if TYPE_CHECKING:
    import pandas

TEXT, CLIENT = "text", "client"  # columns of a request
TRUST = "FEDTEXT_TRUST_PLUGINS"


class Server:
    """A trained model that answers tables of texts."""

    def __init__(self, model: Model) -> None:
        self.model = model

    def predict(self, table: "pandas.DataFrame", params: Mapping[str, Any] | None = None) -> "pandas.DataFrame":
        """Predict every row of a table.

        Args:
            table: A column ``text``, and if some rows are predicted by personal models a column ``client`` with the
                client's name; a missing or empty one is the shared model.
            params: Not used; model servers pass it.

        Returns:
            A row for each text. Of a classifier: ``label``, its ``probability``, and the ``probabilities`` of all
            classes by name. Of a language model: the most probable ``next_words``, their ``probabilities``, and the
            ``perplexity`` of the text.

        Raises:
            UserError: There is no such column, or the model refuses a text or client as ``Model.predict`` does.
        """
        try:
            return self._predict(table)
        except UserError as error:
            refused = _passed_on(error)
            raise refused from error

    def _predict(self, table: "pandas.DataFrame") -> "pandas.DataFrame":
        import pandas

        if TEXT not in table.columns:
            given = ", ".join(map(str, table.columns))
            raise UserError(f"the table needs a column {TEXT}, and has {given or 'none'}")
        names = list(table[CLIENT]) if CLIENT in table.columns else [None] * len(table)
        clients = [_client(name) for name in names]
        texts = checked(table[TEXT])  # here, where their numbers are those of the rows
        rows: dict[int, dict[str, Any]] = {}
        for client in dict.fromkeys(clients):
            places = [place for place, name in enumerate(clients) if name == client]
            found = self.model.predict([texts[place] for place in places], client)
            rows.update(zip(places, _rows(found), strict=True))
        return pandas.DataFrame([rows[place] for place in range(len(texts))], index=table.index)


def _passed_on(error: UserError) -> UserError:
    """Return an error that is also one of MLflow's, if that is in use: its server replaces the message of others."""
    if (known := sys.modules.get("mlflow.exceptions")) is None:
        return error
    both = type("RefusedError", (known.MlflowException, UserError), {})
    refused: UserError = both.invalid_parameter_value(str(error))  # type: ignore[attr-defined]
    return refused


def _client(name: Any) -> str | None:
    """Return the name of a row's client; None for the shared model. A name of digits may come as a number."""
    import pandas

    if isinstance(name, str):
        return name or None
    if pandas.api.types.is_scalar(name) and pandas.isna(name):
        return None
    if isinstance(name, numbers.Real) and not isinstance(name, bool) and float(name).is_integer():
        return str(int(float(name)))
    raise UserError(f"the column {CLIENT} has {name!r}, which is no client's name: leave it empty for the shared model")


def _rows(found: Sequence[Prediction | NextWords]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for one in found:
        if isinstance(one, Prediction):
            rows.append({"label": one.label, "probability": one.probability, "probabilities": one.probabilities})
        else:
            words, shares = [word for word, _ in one.words], [share for _, share in one.words]
            rows.append({"next_words": words, "probabilities": shares, "perplexity": one.perplexity})
    return rows


def _load_pyfunc(path: str, model_config: Mapping[str, Any] | None = None) -> Server:
    """Load a model folder.

    Args:
        path: The folder.
        model_config: ``{"trust_plugins": True}`` lets plug-ins that are kept with the model run, as in ``Model.load``.
            Where it cannot be given, as to ``mlflow models serve``, ``FEDTEXT_TRUST_PLUGINS=1`` does the same.

    Raises:
        UserError: As ``Model.load``.
    """
    trusted = bool((model_config or {}).get("trust_plugins")) or os.environ.get(TRUST) == "1"
    try:
        return Server(Model.load(Path(path), trust_plugins=trusted))
    except UserError as error:
        if not trusted and "trust_plugins" in str(error):
            raise UserError(f"{error}; a server takes {TRUST}=1 in its environment") from None
        raise
