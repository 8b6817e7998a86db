"""The clients' evaluations in the record of a round."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from fedtext.config.experiment import Experiment
from fedtext.errors import ClientError
from fedtext.evaluation import Evaluated, curves, pooled
from fedtext.records import RoundRecord
from fedtext.server.fleet import Fleet


def add_evaluations(
    record: RoundRecord, evaluations: Mapping[int, Evaluated], names: Sequence[str], every: int | None
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


def evaluate_fleet(
    experiment: Experiment, fleet: Fleet, handle: Any, record: RoundRecord, splits: Sequence[str], final: bool
) -> None:
    """Add to the record each client's metrics, means (KTEPS paper, equation 15), pooled metrics and baselines.

    Args:
        experiment: The experiment.
        fleet: The clients.
        handle: The parameters that are evaluated.
        record: The record of the round.
        splits: ``test``, ``validation`` or both.
        final: Whether to include the evaluations that are made once, with the final model.
    """
    evaluations = fleet.evaluate(handle, record.round, final, splits)
    tuning = experiment.evaluation.personalize if final else None
    add_evaluations(record, evaluations, fleet.clients.names, tuning.every if tuning else None)
    for name, value in fleet.baselines.items():
        if ("validation" if name.endswith("_val") else "test") in splits:
            record.metrics[name] = value


def audit_files(
    experiment: Experiment, fleet: Fleet, handle: Any, scores: Mapping[str, Mapping[str, float]]
) -> dict[str, str]:
    """Return the files of audits for one client, the first for which they have metrics.

    Args:
        experiment: The experiment.
        fleet: The clients.
        handle: The parameters after the round.
        scores: Each client's metrics, by its name.
    """

    def audited(client: int) -> bool:
        there = scores.get(fleet.clients.names[client], ())
        return any(audit.declares(name) for audit in experiment.audits for name in there)

    shown = [client for client in fleet.clients.evaluated() if audited(client)] if experiment.audits else []
    return fleet.report(handle, min(shown)) if shown else {}
