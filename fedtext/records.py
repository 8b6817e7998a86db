"""Records of rounds: metrics, those of each client, and files."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self


@dataclass
class RoundRecord:
    """The record of a round: its metrics, those of each client, and texts by file name.

    The server fills it while the round goes on.

    Attributes:
        round: The number of the round, from 1.
        time: When the round was over, in unix seconds.
        metrics: Values by name, as ``fedtext.metrics`` describes them. Fractions lie in [0, 1]. ``bytes_up`` and
            ``bytes_down`` are sums over the clients of the round.
        clients: The metrics of each client, by the client's name.
        files: Texts by file name. Few rounds have any.
        curves: Means over clients of accuracies while models are fine-tuned, by name and step. The last round alone has
            any; ``Ap`` is the mean of its curve.
    """

    round: int
    time: float
    metrics: dict[str, float]
    clients: dict[str, dict[str, float]] = field(default_factory=dict, repr=False)  # there may be thousands
    files: dict[str, str] = field(default_factory=dict, repr=False)
    curves: dict[str, dict[int, float]] = field(default_factory=dict, repr=False)

    def to_json(self) -> dict[str, Any]:
        """Return the record as JSON objects. They are not copied.

        Returns:
            An object with the keys ``round``, ``time``, ``metrics`` and ``clients``, and ``files`` and ``curves`` if
            there are any.
        """
        content = {"round": self.round, "time": self.time, "metrics": self.metrics, "clients": self.clients}
        return content | {name: kept for name in ("files", "curves") if (kept := getattr(self, name))}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Self:
        """Make a record of what ``to_json`` returned. Nothing is copied.

        Args:
            content: An object with the keys ``round``, ``time``, ``metrics`` and ``clients``. ``files`` and ``curves``
                may be missing.

        Returns:
            The record.

        Raises:
            ValueError, KeyError: It is something else.
        """
        if not isinstance(content, Mapping) or not isinstance(content["round"], int):
            raise ValueError("this is no record of a round")
        for values in (content["metrics"], content["clients"], *content["clients"].values()):
            if not isinstance(values, Mapping):
                raise ValueError("the metrics of a record are no mapping")
        if not all(value is None or isinstance(value, int | float) for value in content["metrics"].values()):
            raise ValueError("a metric of a record is no number")
        files = content.get("files", {})
        # Steps are keys, which JSON turns into strings.
        curves = {name: {int(step): value for step, value in curve.items()} for name, curve in _curves(content)}
        return cls(content["round"], content["time"], content["metrics"], content["clients"], files, curves)


def _curves(content: Mapping[str, Any]) -> Iterable[tuple[str, Mapping[Any, float]]]:
    return content.get("curves", {}).items()
