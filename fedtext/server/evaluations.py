"""The clients' evaluations in the record of a round."""

import logging
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from fedtext.config.experiment import Experiment
from fedtext.errors import ClientError, UserError
from fedtext.evaluation import Evaluated, curves, pooled
from fedtext.metrics import of_evaluated_rounds
from fedtext.records import RoundRecord
from fedtext.server.fleet import Fleet


def add_evaluations(
    record: RoundRecord,
    evaluations: Mapping[int, Evaluated],
    names: Sequence[str],
    every: int | None,
    attacked: Collection[int] = (),
) -> None:
    """Add each client's metrics to a record, their means (KTEPS paper, equation 15), and pooled metrics.

    Args:
        record: The record.
        evaluations: The evaluations by client. Those that failed are counted and left out.
        names: Names of the clients.
        every: Steps between two values of the curves of fine-tuning; None: there are none.
        attacked: Ids of the clients that are attacked by audits and not evaluated.

    Raises:
        ClientError: All clients that are evaluated failed.
    """
    done = {client: each for client, each in sorted(evaluations.items()) if not each.problem}
    failed = sorted(evaluations.keys() - done.keys())
    for client in failed:
        error = ClientError(names[client], record.round, evaluations[client].problem)
        if not done.keys() - set(attacked):
            raise error
        warn_left_out(error)
    if failed:
        record.metrics["evaluations_failed"] = float(len(failed))
    for client, evaluated in done.items():
        if evaluated.metrics or client not in attacked:
            record.clients.setdefault(names[client], {}).update(evaluated.metrics)
    for name in sorted({name for evaluated in done.values() for name in evaluated.metrics}):
        values = [evaluated.metrics[name] for evaluated in done.values() if name in evaluated.metrics]
        record.metrics[name] = float(sum(values) / len(values))
    record.metrics |= pooled(list(done.values()))
    if every is not None:
        record.curves |= curves(list(done.values()), every)


def warn_left_out(error: ClientError) -> None:
    """Log that a client, which failed with this error, is left out of the evaluation."""
    logging.getLogger(__name__).warning("%s; it is left out of the evaluation", error)


def evaluate_fleet(
    experiment: Experiment,
    fleet: Fleet,
    handle: Any,
    record: RoundRecord,
    splits: Sequence[str],
    final: bool,
    attacked: Sequence[int] = (),
) -> None:
    """Add to the record each client's metrics, means (KTEPS paper, equation 15), pooled metrics and baselines.

    Args:
        experiment: The experiment.
        fleet: The clients.
        handle: The parameters that are evaluated.
        record: The record of the round.
        splits: ``test``, ``validation`` or both.
        final: Whether to include the evaluations that are made once, with the final model.
        attacked: Ids of the clients that audits attack, in the order of ``ClientTable.audited``.
    """
    evaluations = fleet.evaluate(handle, record.round, final, splits, attacked)
    tuning = experiment.evaluation.personalize if final else None
    others = evaluations.keys() - set(fleet.clients.evaluated())
    add_evaluations(record, evaluations, fleet.clients.names, tuning.every if tuning else None, others)
    for name, value in fleet.baselines.items():
        if ("validation" if name.endswith("_val") else "test") in splits:
            record.metrics[name] = value


def audit_files(
    experiment: Experiment,
    fleet: Fleet,
    handle: Any,
    record: RoundRecord,
    attacked: Sequence[int],
) -> dict[str, str]:
    """Return the files of audits for one client, the first for which they have metrics.

    Args:
        experiment: The experiment.
        fleet: The clients.
        handle: The parameters after the round.
        record: The record of the round, with each client's metrics and the files that the run itself has.
        attacked: Ids of the clients that audits attack, in the order of ``ClientTable.audited``.

    Raises:
        UserError: A file of an audit would replace another one.
    """
    for client in attacked:
        there = record.clients.get(fleet.clients.names[client], ())
        if not any(audit.declares(name) for audit in experiment.audits for name in there):
            continue
        files = fleet.report(handle, client)
        if twice := next((name for name in files if name in record.files), ""):
            raise UserError(f"audits: a report has the file {twice}, which the run writes itself: choose another name")
        return files
    return {}


def warn_unmeasured(experiment: Experiment, history: Sequence[RoundRecord]) -> None:
    """Log a warning about the audits of which a run that has ended has no metrics.

    Metrics of audits that attack in evaluated rounds are those of the last round. Of others, which attack once or in
    rounds that their keys name, those of any round count.

    Args:
        experiment: The experiment.
        history: The records of all rounds.
    """
    earlier = {name for record in history for name in record.metrics if not of_evaluated_rounds(name)}
    names = earlier | history[-1].metrics.keys()
    if missing := ", ".join(audit.name for audit in experiment.audits if not any(map(audit.measures, names))):
        logging.getLogger(__name__).warning(
            "audits: there are no metrics of %s after the last round, since none of the clients that completed it has "
            "the texts that are needed, or scores are no numbers",
            missing,
        )
