"""Runs the audits of the clients that are hosted in one place."""

import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fedtext.audits.base import LocalUpdate, Observation
from fedtext.audits.known import Known, Population, Words
from fedtext.client.texts import texts_of
from fedtext.config.experiment import Experiment
from fedtext.corpora.types import ClientData, Corpus
from fedtext.errors import UserError, writing
from fedtext.evaluation import Evaluated
from fedtext.layout import Layout
from fedtext.ledger.examples import example_multiplier
from fedtext.metrics import reported
from fedtext.records import RoundRecord
from fedtext.wire.decoder import Decoder

if TYPE_CHECKING:
    from torch import Tensor, nn

# The names of an audit's files. Other endings are those of the run's own: its experiment, its records, its ledger.
_FILE = re.compile(r"\w[^/\\\0]{0,99}\.(md|txt|csv|tsv|html|svg)")


class AuditRunner:
    """Gives local updates to the audits of an experiment, and collects their metrics.

    Nothing is kept beyond a round, so nothing is lost with a process, and nothing has to move with a client.

    Args:
        experiment: The experiment.
        layout: The shared tensors.
        words: The vocabulary.
        private: Initial values of the private parameters.
        classes: Number of classes.
        build: Builds the network that clients train.
        tests, public_SV, population, repeated: As in ``Known``.
    """

    def __init__(
        self,
        experiment: Experiment,
        layout: Layout,
        words: Sequence[str],
        private: Mapping[str, NDArray[np.float32]],
        classes: int,
        build: Callable[[], "nn.Module"],
        tests: Callable[[int], ClientData] | None = None,
        public_SV: NDArray[np.bool_] | None = None,
        population: Population | None = None,
        repeated: Callable[[ClientData], NDArray[np.bool_]] | None = None,
    ) -> None:
        self.experiment, self.layout = experiment, layout
        read = partial(texts_of, experiment)
        multiplier = example_multiplier(experiment) if experiment.audits and experiment.training.dp_sgd else 0.0
        given = tests, public_SV, population, multiplier, repeated
        self.known = Known(experiment, classes, private, build, read, *given)
        self.words = Words(list(words), {word: row for row, word in enumerate(words)})
        self.decoder = Decoder(experiment, layout)
        self.audited: Sequence[int] = ()  # ids of the clients of the round that are attacked
        self.seen: dict[int, tuple[int, list[Observation]]] = {}  # by client: the round, and its observations
        self.measured: list[Observation] = []  # those of the client evaluated last that have metrics
        self.checked = set[type]()  # classes of observations whose files have been checked

    def observe(
        self,
        payload: NDArray[np.uint8],
        flat: NDArray[np.float32],
        parameters: "Mapping[str, Tensor]",
        round_: int,
        data: ClientData,
    ) -> None:
        """Give a local update to the audits, in rounds that are evaluated.

        Args:
            payload: The payload that the client sends; empty if it sends nothing.
            flat: The shared parameters that it received.
            parameters: Its parameters after training, on the CPU, tables in its own rows.
            round_: Number of the round.
            data: The client.
        """
        if not (payload.size and data.id in self.audited and self.experiment.evaluates(round_)):
            return
        update = self.decoder.update(payload, data.id, flat, round_)
        place = self.audited.index(data.id)
        local = LocalUpdate(data, self.layout.views(flat), parameters, update, round_, place, self.known)
        found = [audit.observe(local, self.words) for audit in self.experiment.audits]
        self.seen[data.id] = round_, [observation for observation in found if observation]

    def forget(self, clients: Iterable[int]) -> None:
        """Forget the local updates of these clients."""
        for client in clients:
            self.seen.pop(client, None)

    def evaluate(self, client: int, round_: int, flat: NDArray[np.float32], first: bool = True) -> Evaluated:
        """Return the audits' metrics of a client in a round; none if it did not take part.

        Args:
            client: The client's id.
            round_: Number of the round.
            flat: The shared parameters after the round.
            first: Whether it is the first client of the round that is attacked.
        """
        found, (when, observations) = Evaluated(), self.seen.get(client, (0, []))
        self.measured = []
        for observed in observations if when == round_ else ():
            if observed.of_model and not first:
                continue
            one = observed.evaluate(self.layout.views(flat))
            self._check_metrics(observed, one, found)
            found.add(replace(one, metrics=reported.as_floats(one.metrics)))
            self.measured += [observed] if one.metrics else []
        return found

    def _check_metrics(self, observed: Observation, one: Evaluated, found: Evaluated) -> None:
        """Check the metrics of an observation, which may be a plug-in's.

        Raises:
            ValueError: They are no numbers by name, no audit declares one, or one would replace another.
        """
        problem = _form_problem(one.metrics, Real) or reported.problem_of(one.metrics)
        for name in () if problem else (*one.metrics, *one.pooled):
            if reported.is_taken(name) or name in found.metrics or name in found.pooled:
                problem = f"metric {name}, which fedtext or another audit has: choose another name"
            elif name in one.metrics and not any(audit.declares(name) for audit in self.experiment.audits):
                owners = " or ".join(each.name for each in self.experiment.audits)
                problem = f"metric {name}, which {owners} does not declare: add it to metrics of the class"
        if problem:
            raise ValueError(f"{type(observed).__name__}: metrics returned {problem}")

    def check_files(self, flat: NDArray[np.float32]) -> None:
        """Check the files that plug-ins' audits would write about the client that was evaluated last.

        They are written after the last round. In an earlier one they are only made, once for each class of
        observations, so that a name that is refused ends a run early; a report that fails there is asked at the end.

        Args:
            flat: The shared parameters after the round.

        Raises:
            UserError: They are no texts by name, or one could replace a file of another audit or of the run.
        """
        texts: dict[str, str] = {}
        for observed in self.measured:
            kind = type(observed)
            if kind in self.checked or kind.__module__.startswith("fedtext."):
                continue
            self.checked.add(kind)
            try:
                files = observed.report(self.layout.views(flat), self.words)
            except Exception:  # a report may need the last round: it says then what is wrong
                continue
            _check_files(observed, files, texts)
            texts |= files

    def report(self, client: int, flat: NDArray[np.float32]) -> dict[str, str]:
        """Return the audits' files about a client's last local update: texts by file name."""
        shared, (_, observations) = self.layout.views(flat), self.seen[client]
        texts: dict[str, str] = {}
        for observed in observations:
            files = observed.report(shared, self.words)
            _check_files(observed, files, texts)
            texts |= files
        return texts


def _form_problem(returned: object, kind: type) -> str:
    """Return why something is no mapping of names to values of this kind; empty if it is one."""
    if isinstance(returned, Mapping) and all(isinstance(value, kind) for value in returned.values()):
        return ""
    return f"{repr(returned)[:60]}, and not {kind.__name__} by name"


def _check_files(observed: Observation, files: Mapping[str, str], texts: Mapping[str, str]) -> None:
    """Check the files of an observation, which may be a plug-in's, beside those of others.

    Raises:
        UserError: They are no texts by name, or one could replace a file of another audit or of the run.
    """
    problem = _form_problem(files, str)
    for name in () if problem else files:
        if not isinstance(name, str) or not _FILE.fullmatch(name):
            problem = f"a file {name!r}: take a name without a folder that ends in .md, .txt, .csv, .tsv, .html or .svg"
        elif name in texts:
            problem = f"a file {name!r}, which another audit writes too: choose another name"
    if problem:
        raise UserError(f"{type(observed).__name__}: report returned {problem}")


def check_words(experiment: Experiment, vocabulary: list[str]) -> None:
    """Check that audits can find something with a vocabulary.

    Raises:
        UserError: An audit could find nothing with this vocabulary.
    """
    for audit in experiment.audits:
        if problem := audit.blind(vocabulary):
            raise UserError(f"audits: {problem}")


def check_audits(experiment: Experiment, corpus: Corpus) -> None:
    """Check that audits can find something in a corpus, and log how many test texts some of them leave out.

    Raises:
        UserError: An audit could find nothing with its vocabulary.
    """
    check_words(experiment, corpus.vocabulary)
    names = ", ".join(audit.name for audit in experiment.audits if audit.needs_unseen)
    count = sum(int(repeated_N.sum()) for repeated_N in corpus.repeated)
    if names and count:
        whole = sum(map(len, corpus.repeated))
        logging.getLogger(__name__).warning(
            "%d of %d test texts are also in a client's train split: audits that need texts that no client has trained "
            "on leave them out (%s)",
            count,
            whole,
            names,
        )


def write_files(record: RoundRecord, folder: Path) -> None:
    """Write the files of a record. Raises UserError if they cannot be written."""
    for name, text in record.files.items():
        with writing(folder / name):
            folder.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text, encoding="utf-8", errors="replace")
