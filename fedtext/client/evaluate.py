"""The evaluations of a client: its model on its own texts, fine-tuned, and on the texts of all clients.

Legend: V vocabulary, U rows of it that the texts of all clients use, D embedding.
"""

import itertools
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from fedtext.client.host import Host
from fedtext.client.recent import TRIGGERED
from fedtext.client.texts import order_of, texts_of
from fedtext.config.sections import Personalize
from fedtext.evaluation import Evaluated, averaged, evaluate, unchanged
from fedtext.layout import is_table
from fedtext.methods.base import Inference, Method, Model, Phase
from fedtext.seeding import torch_scope
from fedtext.training.local import Work, train
from fedtext.training.stack import Stack


def evaluate_client(
    host: Host,
    flat: NDArray[np.float32],
    round_: int,
    client: int,
    final: bool,
    splits: Sequence[str],
    common: dict[str, Evaluated],
) -> Evaluated:
    """Evaluate a client, as described in ``Worker.evaluate``.

    Args:
        host: The place that hosts the client.
        flat: The shared parameters.
        round_: Number of the round.
        client: The client's id.
        final: Whether to include the evaluations that are made once, with the final model.
        splits: ``test``, ``validation`` or both.
        common: Evaluations that all clients of this host share. It is filled by the first client.
    """
    stack, method = ready(host, flat, round_, client), host.method
    name, config = "Ag" if host.experiment.complete else "Ap_0", host.experiment.evaluation
    evaluated = _evaluate_splits(host, client, stack, "shared", name, splits, scored=True)
    if client in host.adversaries.ids:  # its own model is what it has made of it
        return evaluated if host.experiment.complete else Evaluated()
    if "test" in splits:
        evaluated.add(_backdoored(host, client, stack))
    if final and config.union is not None:
        evaluated.add(_own_model(host, flat, client, stack, splits, common))
    if config.personalize is not None and (final or config.personalize_at == "evaluated"):
        if method.personalizes:
            for name, way in config.personalize.variants().items():
                evaluated.add(_personalized(host, name, way, flat, round_, client, splits))
        else:
            evaluated.add(unchanged(evaluated))
    return evaluated


def own_model(
    host: Host, flat: NDArray[np.float32], round_: int, client: int, common: dict[str, Evaluated]
) -> Evaluated:
    """Evaluate a client's own model on test texts, as described in ``Worker.own_models``.

    Args:
        host: The place that hosts the client.
        flat: The shared parameters.
        round_: Number of the round.
        client: The client's id.
        common: Evaluations that all clients of this host share. It is filled by the first client.
    """
    if client in host.adversaries.ids:  # as in evaluate_client
        return Evaluated()
    return _own_model(host, flat, client, ready(host, flat, round_, client), ("test",), common)


def _own_model(
    host: Host,
    flat: NDArray[np.float32],
    client: int,
    stack: Stack,
    splits: Sequence[str],
    common: dict[str, Evaluated],
) -> Evaluated:
    """Evaluate ``Local`` and ``Global`` of a client that is ready for it."""
    method, evaluated = host.method, Evaluated()
    evaluated.add(_evaluate_splits(host, client, stack, "both", "Local", splits, scored=False))
    own = (
        host.experiment.model.parted
        or host.experiment.model.ranks
        or type(method).private is not Method.private
        or method.before_evaluation()
        or method.separates
    )
    if own or not common:  # otherwise all clients use the same model, and it is evaluated once
        common["Global"] = _everywhere(host, flat, client, stack)
    evaluated.add(common["Global"])
    return evaluated


def ready(host: Host, flat: NDArray[np.float32], round_: int, client: int) -> Stack:
    """Return the client's parameters for an evaluation, after the method's phases of adaptation.

    Args:
        host: The host of the client.
        flat: The parameters that it received, flat.
        round_: Number of the round, for random draws.
        client: Id of the client.
    """
    stack = host.stack(flat, [client])
    with torch_scope(host.experiment.seed, "reading", round_, client):
        for phase in host.method.before_evaluation():
            host.run(phase, stack, flat, [client], round_)
    return stack


def _personalized(
    host: Host,
    name: str,
    config: Personalize,
    flat: NDArray[np.float32],
    round_: int,
    client: int,
    splits: Sequence[str],
) -> Evaluated:
    stack = ready(host, flat, round_, client)
    training, texts = host.experiment.training, host.texts_of(client, "train")
    epochs = -(-config.steps * training.batch(len(texts)) // len(texts))  # as many batches as there are steps
    phase = Phase("personalize", epochs, lr=config.lr_multiplier)
    optimizer, problem = host.optimizer(phase, stack, [client]), host.problem(flat, [client])
    order, evaluations = order_of(host.experiment, texts, phase, round_ + 1, client), []
    with torch_scope(host.experiment.seed, "personalize", round_, client):
        for _ in range(config.steps // config.every):
            work = Work(texts, list(itertools.islice(order, config.every)))
            train(problem, host.training, optimizer, [work])
            evaluations.append(_evaluate_splits(host, client, stack, config.inference, name, splits, scored=False))
    return averaged(evaluations)


def _evaluate_splits(
    host: Host, client: int, stack: Stack, inference: Inference, name: str, splits: Sequence[str], scored: bool
) -> Evaluated:
    """Evaluate a model on some splits of the client's texts."""
    model, data, whole = Model(host.network, stack.tensors(0)), host.clients[client], Evaluated()
    for split in splits:
        if len(getattr(data, split)):
            texts, key = host.texts_of(client, split), name if split == "test" else f"{name}_val"
            whole.add(evaluate(host.method, model, texts, host.evaluating, inference, key, scored))
    return whole


def _backdoored(host: Host, client: int, stack: Stack) -> Evaluated:
    """Evaluate ``backdoor_success``, if adversaries plant one: the share of texts with its trigger that are taken for
    its target."""
    data = host.clients[client]
    if (client, TRIGGERED) not in host.texts:
        triggered = host.adversaries.triggered(data, host.rows.start)
        if triggered is None:
            return Evaluated()
        host.texts[client, TRIGGERED] = texts_of(host.experiment, replace(data, test=triggered), "test")
    model, texts = Model(host.network, stack.tensors(0)), host.texts[client, TRIGGERED]
    return evaluate(host.method, model, texts, host.evaluating, "shared", "backdoor_success", scored=False)


def _everywhere(host: Host, flat: NDArray[np.float32], client: int, stack: Stack) -> Evaluated:
    """Evaluate ``Global``: the accuracy of the client's model, all its branches together, on the test texts of all
    clients. On its own texts it is ``Local`` (FedeVocab paper, section 4.3).

    Words that the client has never seen have the vectors of its initial table. With a vocabulary of its own they are
    <unk>, unless its initial word vectors have them.
    """
    data, (texts, rows_U) = host.clients[client], host.union_texts(client)
    parameters = dict(stack.tensors(0))
    for name in filter(is_table, parameters):
        table_UD = host.rows_of(flat, client, name, rows_U)
        there_R = np.isin(data.rows_R, rows_U)
        table_UD[np.searchsorted(rows_U, data.rows_R[there_R])] = parameters[name][torch.from_numpy(there_R)]
        parameters[name] = table_UD
    model = Model(host.network, parameters)
    return evaluate(host.method, model, texts, host.evaluating, "both", "Global", scored=False)
