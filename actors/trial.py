"""One Tune trial: the server actor of one experiment. It runs the rounds and reports a record of each."""

import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import ray
from ray import tune

from actors.crew import LOST, NoPlaceError
from actors.fleet import RayFleet
from actors.loss import ActorLostError, why_lost
from actors.metrics import TrialMetrics
from actors.patience import Measured
from actors.placement import Plan
from actors.pulse import beating
from actors.shipment import Shipment
from fedtext.client.audit_runner import write_files
from fedtext.config.experiment import Experiment
from fedtext.errors import ClientError, OwnershipLostError, UserError
from fedtext.records import RoundRecord
from fedtext.server.federation import Federation
from fedtext.server.start import start
from fedtext.server.trained import trained
from fedtext.state import model_folder
from fedtext.state.checkpoint import history
from fedtext.state.copy import Copy
from fedtext.state.seal import StateKey

# Before Tune gives this process another trial, the thread of the last one has to end. By default Tune waits 2 s for it,
# and then gives up the new trial.
os.environ.setdefault("TUNE_FUNCTION_THREAD_TIMEOUT_S", "600")


@dataclass(frozen=True)
class Assignment:
    """The input of a trial: the experiment, its data, its share of the cluster, the folder of its state, and the copy
    of its run at a URI, if there is one."""

    experiment: Experiment
    shipment: Shipment
    plan: Plan
    folder: Path
    copy: Copy | None = None
    until: int | None = None  # the round after which the trial pauses; None: it runs to its end
    beats: Path | None = None  # the file by which the driver sees that the server works (pulse.py)
    key: StateKey | None = None  # with which what is saved is encrypted
    variables: Mapping[str, str] = field(default_factory=dict, repr=False)  # of the command's environment, for stores


@dataclass(frozen=True)
class Given:
    """An assignment in the object store, of a case that was not known before the sweep began, and its resources."""

    assignment: ray.ObjectRef
    bundles: Any

    def __deepcopy__(self, memo: Any) -> "Given":
        """Return itself: Tune copies configurations."""
        return self


def serve(config: Mapping[str, Any], assignments: Mapping[str, Assignment]) -> None:
    """Run a trial: the trainable of Ray Tune.

    It reports the ``record`` of each round, and if it lost client actors since the one before, why they were ``lost``,
    and the round that the checkpoint to which it went back had ``reached``, 0 without one. As soon as it loses one it
    reports why it is ``losing`` it, and that round. If the trial fails it reports the ``error``, whether it is a
    ``user_error``, and whether the run is ``taken``: another command has continued it. If its nodes were lost and no
    other one has room it reports that it is ``displaced``, and ends: it has to be planned again.

    If client actors die or hang, or Ray kills them because memory runs out, new ones continue from the last checkpoint.
    If this process dies or hangs, Tune starts it again, and the trial continues in the same way.

    Args:
        config: The point of Tune's search space. Its ``case`` is the name of the assignment.
        assignments: The trials of the sweep, by case.
    """
    given: Given | None = config.get("given")
    assignment: Assignment = ray.get(given.assignment) if given else assignments[config["case"]]
    os.environ.update(assignment.variables)
    # Two sweeps of an experiment at the same time have trials of the same names: the run's name tells them apart.
    metrics = TrialMetrics(assignment.experiment, f"{assignment.folder.parent.name}/{config['case']}")
    metrics.begin(assignment.experiment.training.rounds)
    try:
        with beating(assignment.beats, assignment.experiment.resources.hang_timeout_s):
            _serve(assignment, metrics)
    except Exception:
        metrics.add(trials_failed=1)
        raise
    finally:
        metrics.end()


def _serve(assignment: Assignment, metrics: TrialMetrics) -> None:
    reported, lost, in_row, measured = _reached(assignment.folder / "checkpoint"), "", 0, Measured()
    back, changed = 0, ""  # the round that the trial went back to, and what is to be said of its machines
    while in_row <= assignment.experiment.resources.max_restarts:
        try:
            for record, said in rounds(assignment, metrics, measured, reported):
                changed = said.get("changed", "") or changed
                if record.round > reported:
                    reported, in_row = record.round, 0
                    tune.report({"record": record, "lost": lost, "reached": back, **said, "changed": changed})
                    lost = changed = ""
            return
        except (ClientError, TimeoutError, UserError) as error:
            metrics.add(trials_failed=1)
            taken = isinstance(error, OwnershipLostError)
            tune.report({"error": str(error), "user_error": isinstance(error, UserError), "taken": taken})
            return
        except NoPlaceError as error:
            tune.report({"displaced": str(error)})
            return
        except (ActorLostError, *LOST) as error:
            in_row += 1
            lost, back = why_lost(error, {}), _reached(assignment.folder / "checkpoint")
            metrics.add(retries=1)
            if in_row <= assignment.experiment.resources.max_restarts:
                tune.report({"losing": lost, "reached": back})
            logging.getLogger(__name__).warning("a client actor was lost, going back to the last round: %s", error)
    metrics.add(trials_failed=1)
    times = f"{in_row} times in a row (more than resources.max_restarts)"
    tune.report({"error": f"its client actors were lost {times}, the last time because: {lost}"})


def _reached(folder: Path) -> int:
    """Return the last round in a folder of checkpoints: Tune's driver has its record, and those before."""
    with suppress(UserError):  # continuing from them raises it again
        if known := history(folder):
            return known[-1].round
    return 0


def rounds(
    assignment: Assignment, metrics: TrialMetrics, measured: Measured, reported: int
) -> Iterator[tuple[RoundRecord, dict[str, str]]]:
    """Run the remaining rounds of a trial. Afterwards its actors wait for another trial, unless something failed, and
    after the loss of an actor the others wait for the next attempt.

    Args:
        assignment: The trial.
        metrics: Its metrics for Prometheus.
        measured: What its actors took in earlier attempts.
        reported: The last round whose record has been reported. Later ones that an earlier attempt has completed are
            yielded, too: it may have lost an actor before it could.

    Yields:
        The record of each round, and sentences, which may be empty: ``unused_gpus`` if GPUs are reserved that no actor
        can use, ``uncopied`` if the run's copy at a URI cannot be brought up to date from this round on, ``short`` if
        it has fewer actors than planned, ``machines`` names those that clients have been trained on, ``changed`` if
        results begin to depend on them.

    Raises:
        ActorLostError: A client actor was lost.
    """
    experiment, shipment = assignment.experiment, assignment.shipment
    group = ray.util.get_current_placement_group()
    given = {"plan": assignment.plan, "group": group, "trial": metrics.trial, "measured": measured}
    fleet = partial(RayFleet, experiment, shipment, **given)
    folder = assignment.folder / "checkpoint"
    begun = shipment.header, fleet, folder, shipment.corpus_clients, assignment.key, _sender(assignment)
    federation = start(experiment, *begun)
    sound = lost = False
    try:
        _keep(federation, assignment)  # the last round was saved, and its files perhaps not
        if federation.history:
            copied(assignment)  # if it cannot be, the next round says so
            said = {"short": federation.fleet.short}
            yield from (
                (_with_nodes(record, federation), said) for record in history(folder) if record.round > reported
            )
        told, done = "", federation.history
        # A server that died after the round at which the trial pauses, before Tune had its record, pauses here again.
        for record in federation.run() if not _paused(done, assignment.until) else ():
            _keep(federation, assignment)
            uncopied = copied(assignment)
            metrics.completed(record, federation.fleet.took)
            said = {"unused_gpus": federation.fleet.unused_gpus, "uncopied": "" if told else uncopied}
            said["short"], told = federation.fleet.short, uncopied
            said |= {"machines": "; ".join(federation.machines.known), "changed": federation.notice}
            yield _with_nodes(record, federation), said
            if record.round == assignment.until:
                break
        sound = True
    except ClientError:  # an exception of a client's code; after one on a GPU its CUDA context may be unusable
        sound = not assignment.plan.gpus
        raise
    except LOST as error:
        lost = True
        elsewhere = set(federation.fleet.addresses.values()) - {ray.util.get_node_ip_address()}
        raise ActorLostError(why_lost(error, federation.fleet.addresses if elsewhere else {})) from error
    except GeneratorExit:  # stopped between two rounds, where nothing runs in them
        sound = True
        raise
    finally:
        metrics.add(late_updates=federation.fleet.late)
        federation.fleet.salvage() if lost else federation.fleet.close(keep=sound)


def _paused(done: Sequence[RoundRecord], until: int | None) -> bool:
    """Whether a trial has completed the round at which it pauses."""
    return bool(done) and until is not None and done[-1].round >= until


def _with_nodes(record: RoundRecord, federation: Federation[RayFleet]) -> RoundRecord:
    """Return a record with the number of nodes, which is in no checkpoint: results do not depend on it."""
    return replace(record, metrics=record.metrics | {"nodes": float(len(set(federation.fleet.nodes)))})


def _keep(federation: Federation, assignment: Assignment) -> None:
    """Write the files of the last completed round, after the last round also the model."""
    experiment, history = assignment.experiment, federation.history
    for record in history[-1:]:
        write_files(record, assignment.folder)
    if len(history) == experiment.training.rounds and experiment.save.model != "none":
        folder = assignment.folder / model_folder.FOLDER  # MLflow's files may be in it, of an earlier end
        model_folder.write(trained(federation, assignment.shipment.header), folder, own=True)


def _sender(assignment: Assignment) -> Callable[[str], None] | None:
    """Return what copies a file of a trial's state at once, by its name; None if its run has no copy."""
    copy = assignment.copy
    return None if copy is None else lambda name: copy.send(f"{assignment.folder.name}/checkpoint/{name}")


def copied(assignment: Assignment) -> str:
    """Copy what is new of a trial, if its run has a copy at a URI. A store that fails for a while ends no trial.

    Returns:
        Why it could not be copied, and what happens then; empty if it was.

    Raises:
        OwnershipLostError: Another command has continued the run.
    """
    try:
        if assignment.copy:
            assignment.copy.push(assignment.folder.name, checkpoints=True)
    except OwnershipLostError:
        raise
    except UserError as error:
        return f"{error}; training goes on, and it is tried again later and at the end"
    return ""
