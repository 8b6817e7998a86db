"""The clients' evaluations in the record of a round."""

import logging
from collections.abc import Mapping

from fedtext.errors import ClientError
from fedtext.evaluation import Evaluated, curves, pooled
from fedtext.records import RoundRecord


def add_evaluations(
    record: RoundRecord, evaluations: Mapping[int, Evaluated], names: Mapping[int, str], every: int | None
) -> None:
    """Add each client's metrics to a record, their means (KTEPS paper, equation 15), and pooled metrics.

    Args:
        record: The record.
        evaluations: The evaluations by client. Those that failed are counted and left out.
        names: Names of the clients.
        every: Steps between two values of the curves of fine-tuning; None: there are none.

    Raises:
        ClientError: All of them failed.
    """
    done = {client: each for client, each in sorted(evaluations.items()) if not each.problem}
    failed = sorted(evaluations.keys() - done.keys())
    for client in failed:
        error = ClientError(names[client], record.round, evaluations[client].problem)
        if not done:
            raise error
        logging.getLogger(__name__).warning("%s; it is left out of the evaluation", error)
    if failed:
        record.metrics["evaluations_failed"] = float(len(failed))
    for client, evaluated in done.items():
        record.clients.setdefault(names[client], {}).update(evaluated.metrics)
    for name in sorted({name for evaluated in done.values() for name in evaluated.metrics}):
        values = [evaluated.metrics[name] for evaluated in done.values() if name in evaluated.metrics]
        record.metrics[name] = float(sum(values) / len(values))
    record.metrics |= pooled(list(done.values()))
    if every is not None:
        record.curves |= curves(list(done.values()), every)
