"""Conformance checks of methods and models."""

from collections.abc import Mapping
from typing import Any, cast, get_args

import numpy as np
import torch

from fedtext.client.load import Received
from fedtext.client.texts import texts_of
from fedtext.config.experiment import Experiment
from fedtext.corpora.rows import within
from fedtext.layout import TABLE, is_table
from fedtext.methods.base import Inference, Method, Model
from fedtext.methods.state import Local, State, Tensors, flat
from fedtext.methods.terms import unknown_terms
from fedtext.models.base import ClassifierConfig, ModelConfig
from fedtext.models.batch import Batch
from fedtext.models.parts import Parts, whole
from fedtext.models.trainable import check_parameters
from fedtext.parameters import table_rows
from fedtext.testing import tiny
from fedtext.testing.epochs import CPU, Client, difference, epoch, stackable
from fedtext.testing.parts import check_declared
from fedtext.testing.runs import check_run, corpus_for, expect, experiment_with, trainable
from fedtext.training.batches import Assembler
from fedtext.training.config import SGD

EQUAL = 1e-9  # in float64, of the largest change of a tensor
SIZES = (50, 44, 20)  # texts of the clients of an epoch: last batches differ, and one client runs out early


def check_method(method: Method, **sections: Any) -> None:
    """Check the properties of a method.

    Its network has no parameter that cannot be trained, and no buffer that training changes. Its loss terms are finite,
    with finite gradients, and its probabilities are valid. Its states keep their shapes. All engines and stacks give
    the same results. Private parameters never leave a client. An interrupted run ends with the same bits, and results
    do not depend on the placement of clients.

    >>> check_method(MyMethod(beta=0.1))

    Args:
        method: The method, with its keys.
        sections: Sections of the experiment to replace, such as ``training={"local_epochs": 1}``.

    Raises:
        AssertionError: A property does not hold. The message is a sentence about the first one.
    """
    check_declared(method, Method)
    with trainable():
        check_losses(method)
        check_hooks(method)
        check_engines(method)
    check_run(experiment_with({"method": method}, sections))


def check_losses(method: Method) -> None:
    """Check the loss terms, their gradients, and the probabilities, on one batch in float64.

    Raises:
        AssertionError: A property does not hold, or the loss raises ValueError.
    """
    model, batch = tiny.model_and_batch(method, clients=2)
    terms = _terms(method, model, batch)
    expect(
        isinstance(terms, Mapping) and bool(terms),
        f"the loss of {method.name} must return its terms by name, as {{'ce': loss}}, and at least one",
    )
    unknown = unknown_terms(method, terms)
    expect(not unknown, unknown)
    for name, term in terms.items():
        expect(torch.is_tensor(term) and term.dim() == 0, f"loss term {name} of {method.name} is not a scalar tensor")
        expect(torch.isfinite(term), f"loss term {name} of {method.name} is {term.item()}")
    leaves = list(model.parameters.values())
    grads = torch.autograd.grad(method.objective(terms), leaves, allow_unused=True)
    reached = {name: grad for name, grad in zip(model.parameters, grads, strict=True) if grad is not None}
    expect(reached, f"the loss of {method.name} has no gradient: it does not depend on the parameters")
    for name, grad in reached.items():
        expect(grad.isfinite().all(), f"the gradient of {method.name} at {name} is not finite")
    for name in model.parameters:
        mirrored = method.mirrors(name)
        expect(not mirrored or method.private(name), f"{name} mirrors {mirrored} and is not private")
        there = not mirrored or (mirrored in model.parameters and not method.private(mirrored))
        expect(there, f"{name} mirrors {mirrored}, which is not a shared parameter")
    for inference in get_args(Inference):
        table_BC = method.probabilities(model, batch, cast(Inference, inference))
        expect(table_BC.shape == (len(batch.labels_B), 3), f"probabilities ({inference}) must have a row for each text")
        sums = (table_BC >= 0).all() and torch.allclose(table_BC.sum(1), torch.ones(len(table_BC)).double())
        expect(sums, f"probabilities ({inference}) are below 0, or do not sum to 1")


def _terms(method: Method, model: Model, batch: Batch) -> dict[str, torch.Tensor]:
    """Return the loss terms of a client whose parameters are those that it received."""
    shared = {name: tensor.detach().clone() for name, tensor in model.parameters.items() if not method.private(name)}
    table = model.parameters.get(TABLE)
    rows_R = None if table is None or not method.reads_table else np.arange(len(table), dtype=np.int32)
    model.state = method.client_state(Tensors(shared)) if method.reads_state else {}
    try:
        return method.loss(model, Received(shared, rows_R), batch)
    except (ValueError, KeyError, RuntimeError) as error:
        raise AssertionError(f"the loss of {method.name} failed: {error}") from error


def check_hooks(method: Method) -> None:
    """Check that states, extras and gradients keep their names and shapes."""
    model, batch = tiny.model_and_batch(method, clients=2)
    terms = {name: float(term.detach()) for name, term in _terms(method, model, batch).items()}
    detached = Tensors({name: tensor.detach() for name, tensor in model.parameters.items()})
    shared = Tensors({name: tensor for name, tensor in detached.items() if not method.private(name)})
    state, server = method.client_state(shared), method.server_state(shared)
    sums, known = dict.fromkeys(shared, 0.5), server if method.sends_state else {}
    local = Local(shared, state, known, detached * 1.5, 3, sums, 2, terms)
    kept, sent = method.after_update(local)
    _check_shapes(f"after_update of {method.name} returns other tensors than client_state", state, kept)
    _check_shapes(f"{method.name} sends other tensors than those of extras", method.extras(shared), sent)
    update = method.before_sending(local)
    odd = [name for name, tensor in update.items() if name in shared and tensor.dtype != shared[name].dtype]
    expect(not odd, f"before_sending of {method.name} returns {', '.join(odd)} in another type than local.delta has")
    _check_shapes(
        f"before_sending of {method.name} returns another update than local.delta", {"": shared}, {"": update}
    )
    kept = method.after_sending(local, kept, shared * 0.5, sent)
    _check_shapes(f"after_sending of {method.name} returns other tensors than client_state", state, kept)
    extras = {group: tensors.zeros() for group, tensors in method.extras(shared).items()}
    following, change = method.server_step(server, shared, extras, 0.5)
    _check_shapes(f"server_step of {method.name} returns other tensors than server_state", server, following)
    _check_shapes(
        f"server_step of {method.name} changes other tensors than the shared ones", {"": shared}, {"": change}
    )
    changed = method.gradient(detached, local)
    _check_shapes(f"gradient of {method.name} returns other tensors than it is given", {"": detached}, {"": changed})
    finite = all(tensor.isfinite().all() for tensor in changed.values())
    expect(finite, f"gradient of {method.name} returns numbers that are not finite")


def _check_shapes(problem: str, expected: State, got: State) -> None:
    before, after = ({name: tuple(tensor.shape) for name, tensor in flat(state).items()} for state in (expected, got))
    odd = sorted(before.items() ^ after.items())
    expect(not odd, f"{problem}: {', '.join(f'{name} {list(shape)}' for name, shape in odd)}")


def check_engines(method: Method) -> None:
    """Check that engine cells, and stacks of clients, give the same results as engine reference, in float64.

    Raises:
        AssertionError: They differ. The message is a sentence about the first difference.
    """
    config = tiny.experiment().model
    clients = [
        Client(tiny.token_set(np.random.default_rng(number), texts, 1, 60 + number), 60 + number)
        for number, texts in enumerate(SIZES)
    ]
    if method.derivatives == 2:  # it has engine reference, and no stacks
        return
    how: Any = {"optimizer": SGD(lr=0.05), "longest": 12}
    expected = epoch("reference", method, cast(Any, config), clients[:1], **how)[0]
    apart = difference(epoch("cells", method, cast(Any, config), clients[:1], **how)[0], expected)
    expect(apart < EQUAL, f"engine cells differs from reference by {apart:.1e}: does the loss use the batch's tokens?")
    if not stackable(method):
        return
    try:
        apart = difference(epoch("cells", method, cast(Any, config), clients, **how)[0], expected)
    except RuntimeError as error:  # from torch, if vmap does not support an operation
        raise AssertionError(
            f"clients cannot be trained in stacks ({error}): no Python branch may depend on a tensor's "
            "values, and a loss that takes gradients itself states its derivatives"
        ) from error
    expect(apart < EQUAL, f"in a stack a client differs from the same client alone by {apart:.1e}")


def check_model(model: ModelConfig, **sections: Any) -> None:
    """Check the properties of a model.

    Its encoder has the width that it declares, and outputs for a text do not depend on the other texts of a batch. It
    has no parameter that cannot be trained, except those that it fixes, and no buffer that training changes. An
    interrupted run ends with the same bits, and results do not depend on the placement of clients.

    Args:
        model: The model, with its keys. It should be small, since several runs are made with it.
        sections: Sections of the experiment to replace, such as ``corpus={"name": "demo", "max_length": None}``.

    Raises:
        AssertionError: A property does not hold. The message is a sentence about the first one.
    """
    check_declared(model, ModelConfig)
    experiment = experiment_with({"model": model}, sections, model.language)
    if isinstance(model, ClassifierConfig):
        check_texts(model, experiment)
    check_run(experiment)


def check_texts(model: ClassifierConfig, experiment: Experiment) -> None:
    """Check the logits and gradients of a classifier on a client's texts in float64, in one batch and one by one.

    Raises:
        AssertionError: They differ, or are not finite. The message is a sentence about it.
    """
    corpus = corpus_for(experiment)
    data = within(corpus.clients[0], table_rows(experiment, len(corpus.vocabulary), 0), 0)
    torch.manual_seed(1)
    parts = Parts(model, corpus.classes, weights=False)
    network = whole(parts).double().eval()
    with trainable():
        check_parameters(network, model.fixes)
    drawn = {name: p.detach().clone().requires_grad_() for name, p in network.named_parameters()}
    for name in filter(is_table, drawn):
        drawn[name] = torch.randn(len(data.rows_R), model.embedding.dim, dtype=torch.float64, requires_grad=True)
    bound, texts = Model(network, drawn), texts_of(experiment, data, "test")
    assembler = Assembler(None, False, CPU)

    def logits(numbers: list[int]) -> torch.Tensor:
        return bound(assembler.single(texts, np.array(numbers))[0])

    numbers = list(range(len(texts)))
    try:
        together_BC = logits(numbers)
    except RuntimeError as error:
        raise AssertionError(
            f"model {model.name} fails on a batch ({error}): width must be that of its encoder's output"
        ) from error
    expect(together_BC.shape == (len(numbers), corpus.classes), f"model {model.name} must return a row for each text")
    expect(together_BC.isfinite().all(), f"logits of model {model.name} are not finite")
    apart_BC = torch.cat([logits([number]) for number in numbers])
    equal = torch.allclose(together_BC, apart_BC, rtol=EQUAL, atol=EQUAL)
    expect(equal, f"logits of model {model.name} for a text depend on the other texts: does it ignore padding?")
    grads = torch.autograd.grad(together_BC.square().sum(), list(drawn.values()), allow_unused=True)
    finite = all(grad is None or bool(grad.isfinite().all()) for grad in grads)
    expect(finite, f"gradients of model {model.name} are not finite")
