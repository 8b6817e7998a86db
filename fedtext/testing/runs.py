"""Checks of complete runs on small corpora in this process."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load

from fedtext.client.local_fleet import LocalFleet, population
from fedtext.client.participants import stacks
from fedtext.client.worker import Worker
from fedtext.config.compatibility import problems
from fedtext.config.engine import choose_engine, stack_size, with_engine
from fedtext.config.experiment import Experiment
from fedtext.corpora.types import Corpus
from fedtext.errors import NetworkError
from fedtext.layout import TABLE, Layout
from fedtext.messages import Reply
from fedtext.parameters import initial
from fedtext.runtime.compiled import compile_problem
from fedtext.server.federation import Federation
from fedtext.server.fleet import FleetT
from fedtext.server.method_state import MethodState
from fedtext.server.noise import clip_norm
from fedtext.server.start import start
from fedtext.testing import tiny

Host = Sequence[Sequence[int]]  # each worker's clients


def expect(holds: object, sentence: str) -> None:
    """Raise AssertionError with this message unless a condition holds."""
    if not holds:
        raise AssertionError(sentence)


@contextmanager
def trainable() -> Iterator[None]:
    """Raise AssertionError, with the same sentence, if a network in the block cannot be trained."""
    try:
        yield
    except NetworkError as error:
        raise AssertionError(str(error)) from error


class Recording(LocalFleet):
    """A fleet that records the replies of clients."""

    received: list[Reply]

    def train(self, handle: Any, round_: int, cohort: Sequence[int]) -> Iterator[Reply]:
        self.received = []
        for reply in super().train(handle, round_, cohort):
            self.received.append(reply)
            yield reply


def experiment_with(parts: Mapping[str, Any], sections: Mapping[str, Any], language: bool = False) -> Experiment:
    """Make a small experiment with these parts, which need not have a name for experiment files.

    Args:
        parts: Validated values by key, such as a method.
        sections: Sections of the experiment to replace, as in a file.
        language: Whether it has a language model.

    Raises:
        AssertionError: The parts and the sections are not compatible.
    """
    small = (tiny.language_model if language else tiny.experiment)(**sections).model_copy(update=dict(parts))
    asked = with_engine(small, sections.get("training", {}).get("engine", "auto"))  # it depends on the parts
    made = choose_engine(asked, False, compile_problem())
    problem = next(problems(made), "")
    expect(not problem, f"no experiment can be made with it ({problem}): pass other sections, such as training={{...}}")
    return made


def corpus_for(experiment: Experiment, clients: int = 3) -> Corpus:
    """Return a small corpus for the experiment's model."""
    return tiny.language_corpus(clients) if experiment.language else tiny.corpus(clients)


def federated(
    experiment: Experiment, corpus: Corpus, fleet: Callable[..., FleetT], folder: Path | None = None
) -> Federation[FleetT]:
    """Start a run in this process, or continue it.

    Args:
        experiment: The experiment.
        corpus: The corpus.
        fleet: ``LocalFleet``, or a subclass.
        folder: The folder of checkpoints; None: nothing is saved.
    """
    return start(experiment, corpus, partial(fleet, experiment, corpus), folder)


def final(experiment: Experiment, corpus: Corpus, folder: Path | None = None, rounds: int | None = None) -> Any:
    """Run an experiment, or continue it in ``folder``.

    Args:
        experiment, corpus: The experiment and its corpus.
        folder: Folder of its checkpoints; None: there are none.
        rounds: Number of rounds to run; None: all.

    Returns:
        The shared parameters and the clients' private states, as bytes, and the metrics of each round but times.
    """
    federation = federated(experiment, corpus, LocalFleet, folder)
    for record in federation.run():
        if record.round == rounds:
            break
    metrics = [
        {name: float(value).hex() for name, value in record.metrics.items() if "seconds" not in name}
        for record in federation.history
    ]
    return federation.flat.tobytes(), federation.fleet.private_states(), metrics


def check_run(experiment: Experiment, corpus: Corpus | None = None) -> None:
    """Check the properties of every run: payloads, continuation after an interruption, and placement of clients.

    Raises:
        AssertionError: A property does not hold. The message is a sentence about the first one.
    """
    corpus = corpus or corpus_for(experiment)
    with trainable():
        check_wire(experiment, corpus)
    whole = final(experiment, corpus)
    expect(final(experiment, corpus) == whole, "two runs with it differ: it has random draws that ignore the seed")
    with TemporaryDirectory() as folder:
        final(experiment, corpus, Path(folder), rounds=1)
        gone_on = final(experiment, corpus, Path(folder))
    kept = gone_on == whole
    expect(kept, "an interrupted run ends with other bits or metrics: it has state that is not in a checkpoint")
    if not experiment.method.pooled:
        check_packing(experiment, corpus)


def check_wire(experiment: Experiment, corpus: Corpus) -> None:
    """Check that a client sends the shared parameters of the round, and no private ones."""
    federation = federated(experiment, corpus, Recording)
    fleet, shared = federation.fleet, federation.state
    for record in federation.run():
        for reply in fleet.received:
            content = set(load(reply.payload.tobytes())) if reply.payload.size else set()
            names = {name for name in content if not name.startswith("#")}
            hidden = {name for name, _ in fleet.worker.network.named_parameters() if experiment.private(name)}
            expect(not names & hidden, f"a client sends private parameters: {', '.join(sorted(names & hidden))}")
            sent = {name: t.shape for name, t in shared.items() if experiment.shared_in(name, record.round)}
            sent |= fleet.worker.uplink.extras
            for mechanism in experiment.uplink:
                sent = dict(mechanism.leaves(sent))
            odd = ", ".join(sorted(names ^ set(sent)))
            expect(names == set(sent), f"a client sends other tensors than those shared in round {record.round}: {odd}")
            if experiment.own_rows and TABLE in names:
                expect("#rows" in content, "a client sends all rows of the table, not only its own")


def check_packing(experiment: Experiment, corpus: Corpus) -> None:
    """Check that a client's local updates have the same bits wherever it is hosted, also if it moves."""
    size, _ = stack_size(experiment, len(corpus.clients))
    blocks = stacks(range(len(corpus.clients)), size)
    together = [list(range(len(corpus.clients)))]
    halves = [[client for block in blocks[place::2] for client in block] for place in (0, 1)]
    alone = list(hosted_rounds(experiment, corpus, [together, together]))
    apart = list(hosted_rounds(experiment, corpus, [halves, halves[::-1]]))
    expect(alone == apart, "a client's update depends on other clients in its process: state is kept between clients")


def hosted_rounds(experiment: Experiment, corpus: Corpus, hosted: Sequence[Host]) -> Iterator[Any]:
    """Yield every client's payload and private state after each round. The server sends the initial parameters.

    Args:
        experiment, corpus: The experiment and its corpus.
        hosted: For each round, the clients of each worker.
    """
    shared, unshared = initial(experiment, corpus)
    flat = first_broadcast(experiment, shared)
    if norm := clip_norm(experiment, len(corpus.clients), {}):
        flat = norm.after(flat)
    size, _ = stack_size(experiment, len(corpus.clients))
    workers = [
        Worker(experiment, corpus, [corpus.clients[c] for c in members], unshared, corpus_clients=len(corpus.clients))
        for members in hosted[0]
    ]
    for worker in workers:
        worker.population = population(worker)
    for round_, now in enumerate(hosted, 1):
        exchange(workers, now, corpus)
        replies: list[Reply] = []
        states: dict[int, bytes] = {}
        for worker, members in zip(workers, now, strict=True):
            replies += [reply for stack in stacks(members, size) for reply in worker.train(flat, round_, stack)]
            states |= worker.private_states(members)
        problem = next((reply.error for reply in replies if reply.error), "")
        expect(not problem, f"a client fails: {problem}")
        yield {reply.client: reply.payload.tobytes() for reply in replies}, states


def first_broadcast(experiment: Experiment, shared: Mapping[str, NDArray[np.float32]]) -> NDArray[np.float32]:
    """Return the server's first broadcast, for workers without a server."""
    layout = Layout({name: tensor.shape for name, tensor in shared.items()})
    return MethodState(experiment.method, shared, experiment.model.fixes).with_state(layout.pack(shared))


def exchange(workers: Sequence[Worker], hosted: Host, corpus: Corpus) -> None:
    """Move clients to the workers that are to host them.

    Args:
        workers: The workers.
        hosted: For each worker, the clients that it is to host.
        corpus: The corpus of the clients.
    """
    states: dict[int, bytes] = {}
    for worker, members in zip(workers, hosted, strict=True):
        states |= worker.release([client for client in worker.clients if client not in members])
    for worker, members in zip(workers, hosted, strict=True):
        new = [client for client in members if client not in worker.clients]
        worker.adopt([corpus.clients[client] for client in new], {client: states[client] for client in new})
