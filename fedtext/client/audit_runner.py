"""The audits of one place where clients live, between a client's local update and the evaluation of its round."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fedtext.audits.base import Known, LocalUpdate, Observation, Words
from fedtext.client.texts import texts_of
from fedtext.config.experiment import Experiment
from fedtext.corpora.types import ClientData
from fedtext.errors import UserError, writing
from fedtext.layout import Layout
from fedtext.parameters import build_network
from fedtext.records import RoundRecord
from fedtext.server.sampling import sampled
from fedtext.state.noise_key import NoiseKey
from fedtext.wire.decoder import Decoder

if TYPE_CHECKING:
    from torch import Tensor


class AuditRunner:
    """Shows every audit of ``experiment`` what clients hold and what the server reads of it. ``words`` is the
    vocabulary, ``private`` what private parameters start as, ``network`` the number of classes, of clients and of
    features, which make the network; ``tests`` and ``public_SV`` are ``Known``'s. Nothing is kept beyond a round, so
    that nothing is lost with a process, nor moves with a client."""

    def __init__(
        self,
        experiment: Experiment,
        layout: Layout,
        words: Sequence[str],
        private: Mapping[str, NDArray[np.float32]],
        network: tuple[int, int, int],
        noise: NoiseKey,
        tests: Callable[[int], ClientData] | None = None,
        public_SV: NDArray[np.bool_] | None = None,
    ) -> None:
        self.experiment, self.layout, (_, self.clients, _), self.noise = experiment, layout, network, noise
        build = partial(build_network, experiment, *network)
        self.known = Known(experiment, network[0], private, build, partial(texts_of, experiment), tests, public_SV)
        self.words = Words(list(words), {word: row for row, word in enumerate(words)})
        self.decoder = Decoder(experiment, layout)
        self.cohort: tuple[int, list[int]] = 0, []  # of a round
        self.seen: dict[int, tuple[int, list[Observation]]] = {}  # by client: the round, and what was observed

    def observe(
        self,
        payload: NDArray[np.uint8],
        flat: NDArray[np.float32],
        parameters: "Mapping[str, Tensor]",
        round_: int,
        data: ClientData,
    ) -> None:
        """Show the audits a local update of a client that received ``flat`` and sends ``payload``."""
        if not (self.experiment.audits and payload.size and self.experiment.evaluates(round_)):
            return
        update = self.decoder.update(payload, data.id, flat, round_)
        if self.cohort[0] != round_:
            self.cohort = round_, sampled(self.experiment, range(self.clients), round_, self.noise)
        place = self.cohort[1].index(data.id)
        local = LocalUpdate(data, self.layout.views(flat), parameters, update, round_, place, self.known)
        found = [audit.observe(local, self.words) for audit in self.experiment.audits]
        self.seen[data.id] = round_, [observation for observation in found if observation]

    def metrics(self, client: int, round_: int, flat: NDArray[np.float32]) -> dict[str, float]:
        """Return the audits' metrics of a client in a round after which the shared parameters are ``flat``; none if the
        client did not take part."""
        when, observations = self.seen.get(client, (0, []))
        if when != round_:
            return {}
        shared = self.layout.views(flat)
        return {name: value for observed in observations for name, value in observed.metrics(shared).items()}

    def report(self, client: int, flat: NDArray[np.float32]) -> dict[str, str]:
        """Return what the audits show of a client's last local update: texts by file name."""
        shared, (_, observations) = self.layout.views(flat), self.seen[client]
        return {name: text for observed in observations for name, text in observed.report(shared, self.words).items()}


def audited_words(experiment: Experiment, vocabulary: list[str]) -> list[str]:
    """The vocabulary, where audits need it. Raises UserError if one of them could find nothing in it."""
    for audit in experiment.audits:
        if problem := audit.blind(vocabulary):
            raise UserError(f"audits: {problem}")
    return vocabulary if experiment.audits else []


def write_files(record: RoundRecord, folder: Path) -> None:
    """Write the texts that come with a record as files. Raises UserError where they cannot be written."""
    for name, text in record.files.items():
        with writing(folder / name):
            folder.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text, encoding="utf-8")
