"""Start a run or continue it: its initial parameters, its clients, its key of noise and its checkpoints."""

from collections.abc import Callable
from pathlib import Path

from fedtext.accounting.entry import DELTA, Sent
from fedtext.config.experiment import Experiment
from fedtext.corpora.types import Corpus
from fedtext.errors import UserError
from fedtext.ledger.central import strategy
from fedtext.mechanisms.base import bounds
from fedtext.parameters import check_own_rows, initial, without_tables
from fedtext.server.continuations import Continuations
from fedtext.server.federation import Federation
from fedtext.server.fit import check_fit
from fedtext.server.fleet import FleetT
from fedtext.server.repeats import check_sizes
from fedtext.server.sampling import check_adversaries, most
from fedtext.state import noise_key as noise_keys
from fedtext.state.checkpoint import Checkpoints
from fedtext.state.failures import Failures
from fedtext.state.fingerprint import fingerprint
from fedtext.state.machines import Machines
from fedtext.state.noise_key import NoiseKey, noise_key
from fedtext.state.seal import StateKey


def start(
    experiment: Experiment,
    corpus: Corpus,
    fleet: Callable[..., FleetT],
    folder: Path | None = None,
    clients: int | None = None,
    key: StateKey | None = None,
    send: Callable[[str], None] | None = None,
) -> Federation[FleetT]:
    """Return the federation of an experiment before its first round, or after the last one in ``folder``.

    Args:
        experiment: The experiment.
        corpus: The corpus. Its list of clients may be left out, with ``clients``.
        fleet: Makes the clients, from ``unshared``, initial parameters (as in ``Host``), and ``noise``, the run's key:
            ``partial(LocalFleet, experiment, corpus)``. They are closed again if the run cannot be started.
        folder: The folder of checkpoints and of a secret key; None: nothing is saved.
        clients: Number of the corpus's clients; None: that of its list.
        key: Encrypts what is saved in the folder; None: it is not encrypted.
        send: Copies a file of the folder, by its name, to where another machine may continue the run. What a machine
            needs so that it draws no other noise for the same rounds is there before a round begins. None: nowhere.

    Raises:
        UserError: The experiment does not fit the corpus, or the run in ``folder`` cannot be continued, or its key
            cannot be copied.
    """
    made_from = experiment, corpus.content, participant_count(experiment, corpus, clients)
    shared, unshared = initial(experiment, corpus, clients)
    checkpoints = machines = None
    if folder:
        factors, name = strategy(experiment), fingerprint(*made_from)
        checkpoints = Checkpoints(folder, name, key, factors.coefficients if factors else ())
        machines = Machines(folder, name, _is_noisy(experiment))
    noise = noise_key(*made_from, folder, key)
    failures = _failures(experiment, folder, noise, send)
    made = fleet(unshared=without_tables(unshared, corpus), noise=noise)
    try:
        texts = Continuations.of(experiment, corpus, clients)
        fixed = {name: tensor for name, tensor in unshared.items() if experiment.fixed(name)}
        federation = Federation(experiment, shared, made, checkpoints, texts, failures, machines, fixed)
        if send and noise.secret and not federation.history:
            send(noise_keys.FILE)
        return federation
    except BaseException:  # the clients would hold their share of a cluster
        made.close()
        raise


def _failures(
    experiment: Experiment, folder: Path | None, noise: NoiseKey, send: Callable[[str], None] | None
) -> Failures | None:
    """Return the failures of a run whose rounds may be repeated, and whose clients are hidden; else None."""
    skips = experiment.participation.on_client_error == "skip"
    return Failures(folder, noise, send) if folder and skips and _hides(experiment) else None


def _hides(experiment: Experiment) -> bool:
    """Return whether noise hides clients, or masks do."""
    secure = experiment.server.secure_aggregation
    return bool(secure and secure.masks) or _is_noisy(experiment)


def _is_noisy(experiment: Experiment) -> bool:
    """Return whether noise hides clients, at the server or in what they send."""
    if experiment.server.noise or experiment.training.dp_sgd:
        return True
    sent = Sent(1, experiment.training.rounds, DELTA)
    steps = zip(experiment.uplink, bounds(experiment.uplink), strict=False)  # the last bound is behind all of them
    return any(entry.holds for step, before in steps for entry in step.guarantee(before, sent))


def participant_count(experiment: Experiment, corpus: Corpus, clients: int | None = None) -> int:
    """Return the number of participants: the corpus's clients, and the pooled one if the method has it.

    Args:
        experiment: The experiment.
        corpus: The corpus.
        clients: Number of its clients; None: that of its list.

    Raises:
        UserError: The experiment does not fit the corpus, or a round or its aggregation needs more clients.
    """
    clients = len(corpus.clients) if clients is None else clients
    check_fit(experiment, corpus)
    check_own_rows(experiment, corpus, clients)
    check_sizes(experiment, 1 if experiment.method.pooled else clients)
    check_adversaries(experiment, corpus, clients)
    if problem := experiment.aggregation.problem(most(experiment, clients)):
        raise UserError(problem)
    return clients + experiment.method.pooled
