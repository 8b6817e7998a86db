"""The replies of a round's clients, as updates for its sum."""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from fedtext.config.experiment import Experiment
from fedtext.errors import ClientError, NetworkError, UserError
from fedtext.messages import Reply, Update
from fedtext.server import repeats
from fedtext.server.aggregation import Summation
from fedtext.server.buffer import UpdateBuffer
from fedtext.server.fleet import ClientTable
from fedtext.server.terms import check_terms
from fedtext.server.traffic import Traffic
from fedtext.state.failures import AGAIN, OTHERS, Failures
from fedtext.wire.decoder import Decoder


class Inbox:
    """Decodes replies, and decides what the failures among them mean.

    Args:
        experiment: The experiment.
        decoder: Decodes payloads.
        summation: Adds updates up.
        clients: The clients of the run.
        buffer: With ``server.buffer`` the updates that are on their way; else None.
        failures: What is known of clients that have failed in rounds that may be repeated; None: no round is.
    """

    def __init__(
        self,
        experiment: Experiment,
        decoder: Decoder,
        summation: Summation,
        clients: ClientTable,
        buffer: UpdateBuffer | None,
        failures: Failures | None,
    ) -> None:
        self.experiment, self.decoder, self.summation = experiment, decoder, summation
        self.clients, self.buffer, self.failures = clients, buffer, failures

    def updates(
        self,
        replies: Iterable[Reply],
        flat: NDArray[np.float32],
        round_: int,
        attempts: Sequence[Traffic],
        failing: Sequence[int] = (),
    ) -> Iterator[Update]:
        """Decode each reply's payload, and add up its metrics. An invalid payload is an error of its client.

        Args:
            replies: The replies of an attempt at a round.
            flat: The shared parameters that its clients received; with ``buffer`` it has them.
            round_: Number of the round.
            attempts: The attempts so far, of which the last receives the sums of this one.
            failing: Ids of clients that failed in the round before, and whose updates count for nothing.

        Raises:
            ClientError: A client failed, and ``participation.on_client_error`` is ``fail``.
            NetworkError: No client can train the network.
            UserError: The method weighs a term of the loss that there is not, or a round with noise or masks is
                repeated and further clients fail in it.
            TooFewClientsError: All replies have come, and too few have an update.
        """
        traffic = attempts[-1]
        for reply in replies:
            if reply.client in failing and not (reply.error or reply.payload.size):  # an actor has added it up
                raise UserError(OTHERS.format(round_))
            error, update = reply.error or AGAIN * (reply.client in failing), None
            if reply.payload.size and not error:
                try:
                    base = self.buffer.received(reply.client, round_) if self.buffer else flat
                    update = self.decoder.update(reply.payload, reply.client, base, round_)
                    self.summation.check(update)
                except ValueError as refused:
                    error = str(refused)
            if reply.trained or (error and not reply.error):
                traffic.by_training.add(reply.client)
            if reply.unfit:
                raise NetworkError(error)
            if error:
                if self.experiment.participation.on_client_error == "fail":
                    raise ClientError(self.clients.names[reply.client], round_, error)
                traffic.errors[reply.client] = error
                continue
            traffic.add(reply)
            if update:
                yield update
        if round_ == 1:  # later ones have the same terms
            texts = max((self.clients[client].samples for client in traffic.completed), default=0)
            check_terms(self.experiment, traffic.sums, texts)
        few = repeats.too_few(self.experiment, traffic)
        if self.failures and not (few and self.failures.goes_on(round_, len(attempts))):
            # An attempt that was opened is not given up for another one.
            self.failures.check(round_, len(attempts), traffic.errors)
        if few:
            raise repeats.TooFewClientsError
        if self.failures:  # before the masks of a sum are removed, and before the parameters that come of it are sent
            self.failures.keep(round_, [each.failed for each in attempts])
