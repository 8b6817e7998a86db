"""Names of some of a sweep's cases in a line: what they have in common, and the others have not."""

from collections.abc import Collection, Mapping, Sequence

from dashboards.report.collect import told
from dashboards.table import short_keys
from tune_spaces.cases import Case

METHOD, SEED = "method", "seed"
MOST = 4  # values of a key, and ids, in a name


class Names:
    """Names for parts of a sweep's cases. Parts that differ have names that differ, except for ids beyond ``MOST``.

    Args:
        cases: All cases.
    """

    def __init__(self, cases: Sequence[Case]) -> None:
        self._keys = short_keys(cases)
        self._points = {case.id: self._point(case) for case in cases}
        self._ids: dict[str, dict[str, list[str]]] = {}  # of the cases with a value, by key and value
        for id_, point in self._points.items():
            for key, value in point.items():
                self._ids.setdefault(key, {}).setdefault(value, []).append(id_)

    def of(self, cases: Sequence[Case]) -> str:
        """Return a name: the cases' methods, followed by values of swept keys, or of the seed, that they alone have.

        Where no values tell them from the others, it lists their ids.

        Args:
            cases: Some of all cases.
        """
        ids = [case.id for case in cases]
        values = {key: list(dict.fromkeys(self._points[one].get(key, "") for one in ids)) for key in self._ids}
        methods = ", ".join(values[METHOD])
        if self._count({METHOD: values[METHOD]}) == len(ids):
            return methods
        telling = {key: found for key, found in values.items() if key != METHOD and len(found) < len(self._ids[key])}
        fewer = {key: found for key, found in telling.items() if found != values[METHOD]}  # values that are no methods
        for named in (fewer, telling):
            short = all(len(found) <= MOST and "" not in found for found in named.values())
            if short and self._count({METHOD: values[METHOD]} | named) == len(ids):
                return " ".join([methods, *(f"{key}={' or '.join(found)}" for key, found in named.items())])
        return ", ".join(ids[:MOST]) + (f" and {len(ids) - MOST} more" if len(ids) > MOST else "")

    def _point(self, case: Case) -> dict[str, str]:
        """Return the method, the swept keys and the seed of a case, with their values in few words."""
        point = {self._keys[key]: told(value) for key, value in case.overrides.items() if key in self._keys}
        if case.baseline:
            point = {METHOD: case.label}
        return {METHOD: case.experiment.method.name, SEED: str(case.experiment.seed)} | point

    def _count(self, wanted: Mapping[str, Collection[str]]) -> int:
        """Return the number of cases with one of the wanted values of each key."""
        found = [[id_ for value in values for id_ in self._ids[key][value]] for key, values in wanted.items()]
        return sum(
            all(self._points[id_].get(key) in values for key, values in wanted.items()) for id_ in min(found, key=len)
        )
