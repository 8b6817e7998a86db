"""The local updates and evaluations of the clients that are hosted in one place."""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from fedtext.client.evaluate import evaluate_client, own_model
from fedtext.client.trainer import Trainer
from fedtext.config.loading import told
from fedtext.errors import ClientError
from fedtext.evaluation import SPLITS, Evaluated
from fedtext.runtime.memory import return_freed
from fedtext.runtime.precision import products
from fedtext.runtime.threads import one_torch_thread


class Worker(Trainer):
    """Trains and evaluates the clients of a host."""

    def evaluate(
        self,
        flat: NDArray[np.float32],
        round_: int,
        members: Sequence[int],
        final: bool,
        splits: Sequence[str] = SPLITS,
        attacked: Sequence[int] | None = None,
    ) -> dict[int, Evaluated]:
        """Evaluate clients, and attack those that took part, without changing their states.

        The metrics of a client are ``Ag`` (and ``Ag_val``) of the shared branch, or ``Ap_0`` with the client's own
        parameters if the shared ones are no complete model; and those of audits. With ``final``, or after every round
        if ``evaluation.personalize_at`` is ``evaluated``, also ``Ap``, the mean of the evaluations while the client
        fine-tunes a copy of its model (KTEPS paper, equation 16). With ``final`` also ``Local`` and ``Global``, if the
        experiment asks for them. Scores that are pooled over clients come with ``Ag`` or ``Ap_0``
        only.

        Args:
            flat: The shared parameters.
            round_: Number of the round.
            members: Ids of the clients.
            final: Whether to include the evaluations that are made once, with the final model.
            splits: ``test``, ``validation`` or both.
            attacked: Ids of all clients of the round that audits attack; those that were trained here are attacked,
                whether they are evaluated or not. None: ``members``.

        Raises:
            ClientError: The computation of a client failed, and ``participation.on_client_error`` is ``fail``; with
                ``skip`` its evaluation has the ``problem``.
            UserError: An audit of a plug-in would write files that are refused.
        """
        evaluations: dict[int, Evaluated] = {}
        common: dict[str, Evaluated] = {}
        attacked, evaluates = members if attacked is None else attacked, set(members)
        here, first = self.audits.seen if self.experiment.audits else (), next(iter(attacked), None)
        for client in [*members, *(client for client in attacked if client in here and client not in evaluates)]:
            parts: list[Callable[[], Evaluated]] = []
            if client in evaluates:
                parts.append(partial(evaluate_client, self, flat, round_, client, final, splits, common))
            parts.append(partial(self.audits.evaluate, client, round_, flat, client == first))
            evaluations[client] = self._evaluated(client, round_, parts)
            if not evaluations[client].problem and round_ < self.experiment.training.rounds:
                self.audits.check_files(flat)
        return_freed()
        return evaluations

    def own_models(self, flat: NDArray[np.float32], round_: int, members: Sequence[int]) -> dict[int, Evaluated]:
        """Evaluate ``Local`` and ``Global`` of clients on test texts, without changing their states.

        Args:
            flat: The shared parameters.
            round_: Number of the round.
            members: Ids of the clients.

        Raises:
            ClientError: As in ``evaluate``.
        """
        common: dict[str, Evaluated] = {}
        computed = {client: partial(own_model, self, flat, round_, client, common) for client in members}
        evaluations = {client: self._evaluated(client, round_, [each]) for client, each in computed.items()}
        return_freed()
        return evaluations

    def _evaluated(self, client: int, round_: int, parts: Sequence[Callable[[], Evaluated]]) -> Evaluated:
        """Return the parts of a client's evaluation together, or its problem. Raises ClientError as ``evaluate``."""
        evaluated = Evaluated()
        try:
            with one_torch_thread(), products(self.experiment.training.tf32):
                for part in parts:
                    evaluated.add(part())
        except Exception as error:  # as in train: any exception of a client's code is reported with its name
            problem = told(error)
            if self.experiment.participation.on_client_error == "fail":
                raise ClientError(self.clients[client].name, round_, problem) from error
            return Evaluated(problem=problem)
        return evaluated
