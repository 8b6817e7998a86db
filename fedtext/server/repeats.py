"""Rounds that are repeated: with another sample if too few clients complete them, or after an interruption."""

from collections.abc import Sequence

from fedtext.config.experiment import Experiment
from fedtext.errors import UserError
from fedtext.messages import Reply
from fedtext.server.fleet import Fleet
from fedtext.server.sampling import HIDING, most
from fedtext.server.traffic import Traffic
from fedtext.state.failures import AGAIN, Failures

ATTEMPTS = 3  # at a round


class TooFewClientsError(Exception):
    """A round has fewer updates than it needs. Neither parameters nor the server's state have changed.

    Args:
        said: The problem, in one sentence; empty: that of ``sentence``.
        remedy: What to do about it; empty: that of ``remedy``.
    """

    def __init__(self, said: str = "", remedy: str = "") -> None:
        super().__init__(said)
        self.remedy = remedy


def check_sizes(experiment: Experiment, clients: int) -> None:
    """Check that a round can have as many clients as it needs.

    Args:
        experiment: The experiment.
        clients: Number of clients that train.

    Raises:
        UserError: It cannot.
    """
    least, largest = experiment.participation.min_clients, most(experiment, clients)
    if least > largest:
        otherwise = "raise participation.fraction" if least <= clients else "take a corpus with more clients"
        raise UserError(
            f"participation.min_clients: {least}, but a round has at most {largest} of {clients} clients: lower it, "
            f"or {otherwise}"
        )
    if experiment.server.secure_aggregation and largest < HIDING:
        few = f"a round has at most {largest} of {clients} clients, and a sum hides the updates of {HIDING} or more"
        raise UserError(f"server.secure_aggregation: {few}: raise participation.fraction, or leave it out")
    buffer = experiment.server.buffer
    if buffer and buffer.size > clients:
        raise UserError(
            f"server.buffer.size: {buffer.size} updates of different clients, and there are {clients} clients: lower it"
        )
    config = experiment.participation
    if config.sampling == "epochs" and clients < config.epoch:
        raise UserError(
            f"participation.fraction: an epoch of {config.epoch} rounds needs as many clients, and there are {clients}"
            ": raise fraction"
        )
    apart = config.separation or 1
    together = config.over_selected(largest) * apart
    if apart > 1 and together > clients:
        raise UserError(
            f"participation.separation: {apart} rounds have {together} different clients, and there are "
            f"{clients}: lower separation, fraction or over_selection"
        )


def too_few(experiment: Experiment, traffic: Traffic) -> bool:
    """Whether a round that has had all replies has too few updates.

    An empty Poisson sample is as it should be. A round that no client has begun, since all sampled clients have dropped
    out, counts likewise: else a few clients that drop out would end a run.
    """
    least = experiment.participation.min_clients
    return traffic.trained < least and (bool(traffic.sampled) or least > 1)


def repeatable(experiment: Experiment, clients: int) -> bool:
    """Whether another attempt at a round has other clients, or may have, and no guarantee that would not cover it.

    That of the uplink is of one update of a client in a round: a second one would have the same noise.
    """
    config = experiment.participation
    if config.sampling in ("separated", "epochs") or experiment.server.buffer:
        return False  # the sample of a round is fixed by those of others
    others = config.sampling == "poisson" or config.dropout > 0 or most(experiment, clients) < clients
    others = others or config.availability is not None or bool(config.deadline_s and config.pace and config.pace.jitter)
    noisy = (
        experiment.server.noise
        or experiment.training.dp_sgd
        or any(mechanism.randomises for mechanism in experiment.uplink)
    )
    return others and not noisy


def some_may_train(experiment: Experiment) -> bool:
    """Whether clients may have trained in a round that is repeated, so that they have to go back to their states."""
    config = experiment.participation
    refused = config.on_client_error == "skip"  # by the server: their clients keep what they have trained
    return config.min_clients > 1 or refused or experiment.server.secure_aggregation is not None


def leave_out(
    failures: Failures | None, fleet: Fleet, round_: int, attempt: int, clients: Sequence[int]
) -> tuple[list[Reply], list[int]]:
    """Have a fleet leave out the clients that failed in a round before, if that is repeated.

    Args:
        failures: The failures of the run; None: a repeated round need not have the same.
        fleet: The clients.
        round_: Number of the round.
        attempt: Number of the attempt at it, from 1.
        clients: Ids of its clients.

    Returns:
        The replies of those that are left out, and the ids of those that train and fail again.
    """
    left, failing = failures.earlier(round_, attempt, clients) if failures else ([], [])
    fleet.left_out = frozenset(left)
    return [Reply(client, error=AGAIN) for client in left], failing


def sentence(experiment: Experiment, round_: int, attempts: Sequence[Traffic], names: Sequence[str]) -> str:
    """Return what went wrong in the last attempt at a round, in one sentence.

    Args:
        experiment: The experiment.
        round_: Number of the round.
        attempts: All attempts so far.
        names: Names of all clients.
    """
    last, least = attempts[-1], experiment.participation.min_clients
    late = f", {len(last.late)} being late," if last.late else ","
    found = (
        f"round {round_}: {last.trained} of {len(last.sampled)} clients completed it{late} fewer than the {least} of "
    )
    found += f"participation.min_clients{f', in attempt {len(attempts)}' if len(attempts) > 1 else ''}"
    client = min(last.errors, default=None)
    return found if client is None else f"{found}; client {names[client]}: {last.errors[client]}"


def remedy(attempts: Sequence[Traffic]) -> str:
    """Return what to do about rounds that too few clients complete."""
    last = attempts[-1]
    if len(last.late) > len(last.errors):
        return "raise participation.deadline_s, or lower participation.min_clients"
    if not last.errors:
        return (
            "raise participation.fraction, or lower participation.min_clients, or what keeps clients away (dropout, "
            "availability)"
        )
    return "lower training.optimizer.lr or participation.min_clients"
