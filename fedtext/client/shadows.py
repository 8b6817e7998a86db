"""Models like that of a run, trained in this process on texts that an attacker has (shadow models)."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedtext.audits.known import Population, State
from fedtext.client.host import Host
from fedtext.client.texts import only_tests
from fedtext.config.experiment import Experiment
from fedtext.config.sections import Evaluation, Privacy
from fedtext.corpora.pool import EMPTY
from fedtext.corpora.types import ClientData, Corpus
from fedtext.errors import UserError
from fedtext.parameters import initial
from fedtext.seeding import derive
from fedtext.server.federation import Federation
from fedtext.state.noise_key import noise_key


def simulates(experiment: Experiment) -> bool:
    """Whether an audit of an experiment trains models like the run's."""
    return any(audit.simulates for audit in experiment.audits)


class ShadowPopulation(Population):
    """The population of a run as an attacker has it.

    A shadow model is trained by a whole federation in this process: the run's clients, method, mechanisms, noise and
    number of rounds, from the run's initial parameters. What differs are the clients' train texts and the random draws.

    Args:
        host: A place that hosts clients of the run.
        fleet: ``LocalFleet``, whose workers have such a population themselves.
    """

    def __init__(self, host: Host, fleet: Callable[..., Any]) -> None:
        super().__init__(host.parts[1])
        self.host, self.fleet = host, fleet

    def texts(self, client: int) -> ClientData:
        return self.host.test_in_all_words(client)

    def trained(self, shadow: int, chosen: Sequence[NDArray[np.int64]]) -> State:
        host = self.host
        logging.getLogger(__name__).info("training shadow model %d", shadow + 1)
        experiment = simulated(host.experiment, shadow)
        corpus = self._corpus(shadow, chosen)
        shared, unshared = initial(host.experiment, corpus)
        participants = self.clients + experiment.method.pooled
        noise = noise_key(experiment, corpus.content, participants)
        fleet = self.fleet(experiment, corpus, unshared, str(host.device), noise)
        federation = Federation(experiment, shared, fleet, None)
        for _ in federation.run():
            pass
        return federation.state

    def _corpus(self, shadow: int, chosen: Sequence[NDArray[np.int64]]) -> Corpus:
        """Return the run's corpus with these train texts. A client without one has those of the next client."""
        corpus, having = self.host.corpus, [client for client, texts in enumerate(chosen) if len(texts)]
        if not having:
            raise UserError("audits: membership has no test texts to train shadow models on: use attack: loss")
        made = []
        for client in range(self.clients):
            whose = next((other for other in having if other >= client), having[0])
            data = only_tests(self.host.experiment, corpus, whose, chosen[whose])
            made.append(replace(data, id=client, name=f"client {client}", train=data.test, test=EMPTY))
        return replace(corpus, clients=made, report=[], digest=f"{corpus.digest}/shadow {shadow}")


def simulated(experiment: Experiment, shadow: int) -> Experiment:
    """Return the experiment by which a shadow model is trained: without attacks, and with a seed of its own.

    Args:
        experiment: The experiment of the run.
        shadow: Number of the shadow model.
    """
    changes = {
        "seed": derive(experiment.seed, "audits/membership/shadow", shadow) >> 33,
        "audits": (),
        "adversaries": None,
        "privacy": Privacy(),  # its noise hides nothing
        "evaluation": Evaluation(every=experiment.training.rounds, personalize=None),
    }
    return experiment.model_copy(update=changes)
