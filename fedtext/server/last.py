"""The values of metrics after the last round of a trial."""

from collections.abc import Sequence

from fedtext.metrics import of_evaluated_rounds
from fedtext.records import RoundRecord


def last_evaluated(records: Sequence[RoundRecord]) -> RoundRecord | None:
    """Return the record of the last evaluated round; None if no round has been evaluated."""
    return next((record for record in reversed(records) if any(map(of_evaluated_rounds, record.metrics))), None)


def last_values(records: Sequence[RoundRecord]) -> dict[str, float]:
    """Return the values of a trial's metrics after its last round, as tables show them and searches judge them.

    A metric of evaluated rounds (``Metric.when``) has the value of the last evaluated round. If it was left out there,
    as the AUC of scores that are no numbers, it has none: an older one would be that of another model. All others have
    their last value: they count until now, or are computed once, after the last round or in rounds that an audit names
    (``gradient_inversion.rounds``). So have those that ``fedtext.metrics`` does not know, such as a plug-in's.

    Args:
        records: The records of its rounds, in order.
    """
    values: dict[str, float] = {}
    evaluated = last_evaluated(records)
    for record in records:
        metrics = ((name, value) for name, value in record.metrics.items() if value is not None)
        values |= {name: value for name, value in metrics if record is evaluated or not of_evaluated_rounds(name)}
    return values
