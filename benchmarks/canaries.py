"""Epsilon measured by canaries over many small runs: how often it exceeds the ledger's, and whether mistakes are found.

A run trains FedAvg on four clients with some random texts, on a model of 18,000 parameters, with 1,000 canaries. Runs
differ by their seed. ``python -m benchmarks.canaries --runs 200``; ``--cost`` measures what canaries add to a round.
"""

import argparse
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from benchmarks import synthetic
from benchmarks.measure import paired, spread, table, write
from fedtext.canaries.measure import FILE
from fedtext.canaries.pairs import of_pairs, run
from fedtext.client.local_fleet import LocalFleet
from fedtext.config.experiment import Experiment
from fedtext.corpora.types import Corpus
from fedtext.ledger.together import Trial
from fedtext.mechanisms.clip import Clip
from fedtext.records import RoundRecord
from fedtext.server import noise
from fedtext.server.start import start
from fedtext.state.noise_key import NoiseKey
from fedtext.testing import tiny

EPSILON, FOR_MISTAKES = 4.0, 1.0
APART = {"fraction": 0.5, "sampling": "separated", "separation": 2}
POISSON = {"fraction": 0.25, "sampling": "poisson"}


def central(epsilon: float, rounds: int, mechanism: Any = "independent", **sections: Any) -> dict[str, Any]:
    """Return the sections of an experiment with noise of the server."""
    noise = {"target_epsilon": epsilon, "mechanism": mechanism}
    made = {"uplink": [{"clip": {"norm": 1.0}}], "server": {"weights": "uniform", "noise": noise}}
    return made | {"training": {"rounds": rounds}} | sections


KINDS: dict[str, dict[str, Any]] = {
    "server.noise, all clients in each of 2 rounds": central(EPSILON, 2),
    "server.noise, Poisson samples of 0.25, 8 rounds": central(EPSILON, 8, participation=POISSON),
    "server.noise, Poisson samples of 0.25, 8 rounds, 4,000 canaries and a sixteenth guessed": central(
        EPSILON,
        8,
        participation=POISSON,
        privacy={"canaries": {"clients": 4000, "guesses": 0.0625}},
        model={"embedding": {"dim": 30}, "hidden": 4, "head": {"hidden": 3}},
    ),
    "BLT noise, 2 rounds apart, 8 rounds": central(EPSILON, 8, "blt", participation=APART),
    "discrete Gaussian noise of clients on a secure sum, 2 rounds": central(
        EPSILON,
        2,
        participation={"min_clients": 4},
        server={
            "weights": "uniform",
            "noise": {"target_epsilon": EPSILON, "mechanism": "discrete_gaussian"},
            "secure_aggregation": {"masks": False},
        },
    ),
    "clip and gaussian at clients, 1 round": {
        "uplink": [{"clip": {"norm": 1.0}}, {"gaussian": {"sigma": 2.16}}],
        "training": {"rounds": 1},
    },
    "randomised response of 2,203 bits, 1 round": {
        "uplink": ["quantize", {"randomized_response": {"epsilon": 0.02}}],
        "training": {"rounds": 1},
        "model": {"embedding": {"dim": 1}, "hidden": 4, "head": {"hidden": 3}},
    },
}


def experiment(seed: int, canaries: int = 1000, **sections: Any) -> Experiment:
    """Return the experiment of one run."""
    base: dict[str, Any] = {"model": {"embedding": {"dim": 12}, "hidden": 4, "head": {"hidden": 3}}}
    training = tiny.TRAINING | {"local_epochs": 1} | sections["training"]
    base["privacy"] = {"canaries": {"clients": canaries}}
    return tiny.experiment(seed=seed, **(base | sections | {"training": training}))


def last(made: Experiment, corpus: Corpus) -> RoundRecord:
    """Return the record of the last round of a run."""
    return list(start(made, corpus, partial(LocalFleet, made, corpus)).run())[-1]


def divided_twice() -> AbstractContextManager[Any]:
    """The noise is scaled for the sum, and divided by the number of clients after the mean as well."""
    once = noise._on_mean
    return patch.object(noise, "_on_mean", lambda e, clients, z: once(e, clients, z) / noise.expected(e, clients))


def not_clipped() -> AbstractContextManager[Any]:
    """Updates are sent as long as they are."""
    return patch.object(Clip, "apply", lambda self, delta, received, rng: delta)


def wrong_sigma() -> AbstractContextManager[Any]:
    """The noise has a quarter of its standard deviation."""
    whole = noise.round_multiplier
    return patch.object(noise, "round_multiplier", lambda e: whole(e) / 4)


def shared_noise() -> AbstractContextManager[Any]:
    """All trials draw the same noise."""
    drawn = NoiseKey.generator
    key = NoiseKey(b"one key for all trials")
    return patch.object(NoiseKey, "generator", lambda self, *which, **named: drawn(key, *which, **named))


MISTAKES: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "none": nullcontext,
    "noise divided by the number of clients after the mean": divided_twice,
    "no clip": not_clipped,
    "a quarter of sigma": wrong_sigma,
}


def too_large(seed: int, mistake: Callable[[], AbstractContextManager[Any]], corpus: Corpus) -> bool:
    """Return whether a run with a mistake in its noise has a lower bound above the ledger's epsilon."""
    with mistake():
        found = last(experiment(seed, **central(FOR_MISTAKES, 1)), corpus).metrics
    return found["epsilon_lower"] > found["epsilon"]


def of_two_trials(seed: int, mistake: Callable[[], AbstractContextManager[Any]], corpus: Corpus) -> bool:
    """Return whether two trials, which differ in their learning rate, are found to share noise."""
    rates = (0.1, 0.2)
    sections = central(FOR_MISTAKES, 1)
    trials = [experiment(seed, **sections | {"training": {"rounds": 1, "optimizer": {"lr": lr}}}) for lr in rates]
    with mistake():
        (said,) = of_pairs([run(Trial(trial), last(trial, corpus).files[FILE]) for trial in trials])
    return "MORE together" in said


def calibration(runs: int, corpus: Corpus) -> Iterator[dict[str, Any]]:
    """Yield a row for each kind of guarantee."""
    for kind, sections in KINDS.items():
        found = [last(experiment(seed, **sections), corpus).metrics for seed in range(runs)]
        claimed = found[0]["epsilon"]
        row: dict[str, Any] = {"guarantee": kind, "epsilon": f"{claimed:.3g}"}
        for name in ("epsilon_lower", "epsilon_lower_gaussian"):
            values = [metrics[name] for metrics in found if name in metrics]
            row[name] = _spread(values)
            row[f"{name} larger than epsilon"] = f"{sum(value > claimed for value in values)} of {len(values)}"
        row["epsilon_estimate"] = _spread([made["epsilon_estimate"] for made in found if "epsilon_estimate" in made])
        yield row


def mistakes(runs: int, corpus: Corpus) -> Iterator[dict[str, Any]]:
    """Yield a row for each mistake: in how many runs it is found."""
    for name, mistake in MISTAKES.items():
        found = sum(too_large(seed, mistake, corpus) for seed in range(runs))
        yield {"mistake": name, "found": f"{found} of {runs} runs"}
    for name, mistake in {"none": nullcontext, "noise that both share": shared_noise}.items():
        found = sum(of_two_trials(seed, mistake, corpus) for seed in range(runs))
        yield {"mistake": f"{name}, of two trials", "found": f"{found} of {runs} pairs"}


def cost(rounds: int, clients: int = 1000) -> Iterator[dict[str, Any]]:
    """Yield the CPU seconds of a round of a tenth of these clients without canaries, and with as many as clients."""
    texts = synthetic.corpus(clients, 32, 5_000)
    running = {name: _rounds(canaries, rounds, texts) for name, canaries in (("without", 0), ("with", clients))}
    seconds: dict[str, list[float]] = {name: [] for name in running}
    for turn in range(rounds):
        for name, each in running.items():
            taken = next(each)
            if turn:
                seconds[name].append(taken)
    for name, found in seconds.items():
        yield {"canaries": name, "CPU s": spread(found), "times": paired(found, seconds["without"])}


def _rounds(canaries: int, rounds: int, texts: Corpus) -> Iterator[float]:
    """Yield the CPU seconds of each round but the last, which evaluates."""
    privacy = {"canaries": {"clients": canaries}} if canaries else {}
    made = Experiment.model_validate(
        {
            "name": "canaries",
            "corpus": {"name": "demo"},  # the texts are made in memory; see synthetic.py
            "model": {"name": "gru", "embedding": {"dim": 100}, "hidden": 64},
            "method": "fedavg",
            "uplink": [{"clip": {"norm": 1.0}}],
            "participation": {"fraction": 0.1, "sampling": "poisson"},
            "server": {"weights": "uniform", "noise": {"multiplier": 1.0}},
            "training": {"rounds": rounds + 1, "local_epochs": 1, "batch_size": 8},
            "evaluation": {"personalize": None, "every": rounds + 1},
            "privacy": privacy,
        }
    )
    running = start(made, texts, partial(LocalFleet, made, texts)).run()
    for _ in range(rounds):
        began = time.process_time()
        next(running)
        yield time.process_time() - began


def _spread(values: list[float]) -> str:
    if not values:
        return "-"
    return f"{np.mean(values):.3g} ({min(values):.3g}-{max(values):.3g})"


def main() -> None:
    """Measure, and print tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.canaries", description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=200, help="runs of each kind (200)")
    parser.add_argument("--cost", action="store_true", help="measure the cost of a round instead")
    parser.add_argument("--rounds", type=int, default=8, help="with --cost: rounds, the first of which is left out (8)")
    parser.add_argument("--out", type=Path, help="write the rows to this file, as JSON")
    asked = parser.parse_args()
    logging.getLogger("fedtext").setLevel(logging.ERROR)  # a bound that is too large is a warning, and expected here
    corpus = tiny.corpus(clients=4, texts=3, vocabulary=1500)
    made = [cost(asked.rounds)] if asked.cost else [calibration(asked.runs, corpus), mistakes(asked.runs, corpus)]
    kept = []
    for each in made:
        rows = list(each)
        print(table(rows), flush=True)
        kept += rows
    write(asked.out, kept)


if __name__ == "__main__":
    main()
