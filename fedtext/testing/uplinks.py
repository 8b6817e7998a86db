"""Conformance checks of mechanisms and aggregations."""

import copy
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load, save

from fedtext.accounting.entry import Bound, Sent
from fedtext.aggregations import Aggregation, IndividualAggregation, SumAggregation
from fedtext.aggregations.base import Kept, problem_of, problem_of_kept
from fedtext.errors import UserError
from fedtext.layout import TABLE
from fedtext.ledger import ledger
from fedtext.mechanisms.base import Mechanism, Tensors, bounds, steps
from fedtext.messages import Update
from fedtext.metrics import reported
from fedtext.parameters import check_own_rows, shared_numbers
from fedtext.seeding import generator
from fedtext.testing.parts import check_declared, no_global_draws
from fedtext.testing.runs import check_run, corpus_for, expect, experiment_with
from fedtext.wire import encoding

SHAPES = {TABLE: (60, 5), "head.weight": (3, 40), "head.bias": (3,)}
ROUNDING = 1e-5  # of float32 sums, relative
SAMPLING = 0.1  # of a variance from a few thousand draws, relative: several standard errors


def check_mechanism(mechanism: Mechanism, before: Sequence[Mechanism] = (), **sections: Any) -> None:
    """Check the properties of a mechanism.

    It draws only from the given generator, does not change its arguments, returns the tensors that it declares, in
    types that can be encoded, and stays within its bound. Guarantees name the method of computation and the
    assumptions.

    >>> check_mechanism(MyNoise(sigma=0.1), before=[Clip(norm=1.0)])

    Args:
        mechanism: The mechanism, with its keys.
        before: Mechanisms that must precede it.
        sections: Sections of the experiment to replace, such as ``wire={"rows": "all"}``.

    Raises:
        AssertionError: A property does not hold. The message is a sentence about the first one.
    """
    check_declared(mechanism, Mechanism)
    uplink = [*before, mechanism]
    check_wire_form(uplink)
    check_bound(uplink)
    experiment = experiment_with({"uplink": tuple(uplink)}, sections)
    check_claims(uplink, random=_sent(uplink, _update(), 1) != _sent(uplink, _update(), 2))
    corpus = corpus_for(experiment)
    try:
        check_own_rows(experiment, corpus, len(corpus.clients))
    except UserError as error:
        raise AssertionError(str(error)) from error
    numbers = shared_numbers(experiment, corpus.classes, len(corpus.clients), len(corpus.vocabulary))
    known = {each.name for each in uplink}
    for entry in ledger(experiment, numbers, len(corpus.clients), experiment.training.rounds):
        claims = entry.epsilon is None or entry.mechanism in known
        expect(claims, f"the ledger has a guarantee of {entry.mechanism}, which is not in the uplink")
    check_run(experiment, corpus)


def _update(scale: float = 1.0) -> Tensors:
    draws = generator(0, "testing/update")
    return {name: (scale * draws.standard_normal(shape)).astype(np.float32) for name, shape in SHAPES.items()}


def _received() -> dict[str, NDArray[np.float32]]:
    draws = generator(0, "testing/received")
    return {name: draws.standard_normal(shape).astype(np.float32) for name, shape in SHAPES.items()}


def _applied(uplink: Sequence[Mechanism], delta: Tensors, seed: int) -> Tensors:
    for name, step in steps(uplink).items():
        delta = step(delta, _received(), generator(seed, f"testing/{name}"))
    return delta


def _sent(uplink: Sequence[Mechanism], delta: Tensors, seed: int) -> bytes:
    return encoding.encode(Update(0, 1, _applied(uplink, delta, seed)))


def _restored(uplink: Sequence[Mechanism], sent: Tensors) -> Tensors:
    for mechanism in reversed(uplink):
        sent = mechanism.restore(sent, _received())
    return sent


def check_wire_form(uplink: Sequence[Mechanism]) -> None:
    """Check the output of an uplink, its encoding, and that the server restores an update from it.

    Raises:
        AssertionError: A property does not hold. The message is a sentence about the first one.
    """
    name, delta, received = uplink[-1].name, _update(), _received()
    problem = uplink[-1].order_problem(uplink[:-1])
    expect(not problem, f"{problem}: name the mechanisms that precede it, before=[...]")
    given, kept = copy.deepcopy((delta, received)), (delta, received)
    with no_global_draws(name):
        last = list(steps(uplink).values())[-1]
        in_front = delta if len(steps(uplink)) == 1 else _applied(uplink[:-1], delta, 1)
        before = copy.deepcopy(in_front)
        last(in_front, received, generator(1, "testing"))
    unchanged = _equal(in_front, before) and _equal(kept[1], given[1])
    expect(unchanged, f"{name} changes its arguments: return new tensors")
    expect(_sent(uplink, delta, 1) == _sent(uplink, delta, 1), f"{name} returns other bits with the same generator")
    left: Mapping[str, tuple[int, ...]] = SHAPES
    for mechanism in uplink:
        left = mechanism.leaves(left)
    sent = _applied(uplink, delta, 1)
    shapes = {key: tensor.shape for key, tensor in sent.items()}
    expect(shapes == dict(left), f"{name} returns {shapes}, and its leaves declares {dict(left)}")
    kind = np.bool_ if uplink[-1].bits else np.float32
    wrong = [f"{key} is {tensor.dtype}" for key, tensor in sent.items() if tensor.dtype != kind]
    expect(not wrong, f"the output of {name} must be {np.dtype(kind)}: {', '.join(wrong)}")
    try:
        decoded = encoding.decode(
            _sent(uplink, delta, 1), 0, shapes, encoding.BITS if uplink[-1].bits else encoding.FLOAT32
        )
    except ValueError as error:
        raise AssertionError(f"the server refuses the output of {name}: {error}") from error
    restored = _restored(uplink, dict(decoded.tensors))
    back = {key: (tensor.shape, tensor.dtype) for key, tensor in restored.items()}
    whole = {key: (shape, np.dtype(np.float32)) for key, shape in SHAPES.items()}
    expect(back == whole, f"the server restores {back} from {name}, and an update is {whole}")
    finite = all(np.isfinite(tensor).all() for tensor in restored.values())
    expect(finite, f"the update that the server restores from {name} is not finite")
    metrics = uplink[-1].metrics(in_front, received, sent)
    problem = reported.problem_of(metrics)
    expect(not problem, f"{name}: metrics returned {problem}")
    expect(all(map(math.isfinite, metrics.values())), f"metrics of {name} are not finite: {metrics}")


def _equal(one: Mapping[str, NDArray[Any]], other: Mapping[str, NDArray[Any]]) -> bool:
    return one.keys() == other.keys() and all(np.array_equal(one[name], other[name]) for name in one)


def _vector(tensors: Mapping[str, NDArray[Any]]) -> NDArray[np.float64]:
    return np.concatenate([tensor.ravel() for tensor in tensors.values()]).astype(np.float64)


def check_bound(uplink: Sequence[Mechanism]) -> None:
    """Check that the output of a mechanism is as it states: within its norm, with noise of its variance."""
    bound, name = bounds(uplink)[-1], uplink[-1].name
    if bound.norm is None:
        return
    for scale in (0.01, 1.0, 100.0):
        drawn = [_vector(_applied(uplink, _update(scale), seed)) for seed in range(1, 41)]
        variance = float(np.var(drawn, 0, ddof=1).mean())
        near = abs(variance - bound.variance) <= SAMPLING * bound.variance + ROUNDING * bound.norm**2
        expect(near, f"{name} states noise of variance {bound.variance:g} on each coordinate, and it is {variance:g}")
        norm = float(np.linalg.norm(np.mean(drawn, 0)))
        noise = math.sqrt(bound.variance * len(drawn[0]) / len(drawn))  # of the mean over draws
        limit = math.hypot(bound.norm, noise) * (1 + (SAMPLING if noise else ROUNDING))
        expect(norm <= limit, f"{name} states that updates are no longer than {bound.norm:g}, and one is {norm:g}")


def check_claims(uplink: Sequence[Mechanism], random: bool) -> None:
    """Check the guarantees of a mechanism: that they are complete, and that none is claimed without noise.

    Args:
        uplink: The mechanism, after those that precede it.
        random: Whether its output is random.
    """
    mechanism, known = uplink[-1], bounds(uplink)[-2]
    name = mechanism.name
    expect(not random or any(each.randomises for each in uplink), f"{name} draws noise: declare randomises = True")
    for before in (Bound(), known):
        for entry in mechanism.guarantee(before, Sent(100, 2, 1e-5)):
            expect(entry.mechanism == name, f"{name} states a guarantee of {entry.mechanism}")
            expect(entry.how, f"an entry of {name} names neither a bound nor a reason why there is none")
            if entry.epsilon is None:
                continue
            expect(random, f"{name} claims epsilon = {entry.epsilon:g}, and draws nothing")
            expect(entry.assumptions, f"{name} claims epsilon = {entry.epsilon:g}, and states no assumptions")
            expect(entry.epsilon >= 0 and 0 <= entry.delta < 1, f"{name} claims an invalid (epsilon, delta): {entry}")


def check_aggregation(aggregation: Aggregation, **sections: Any) -> None:
    """Check the properties of an aggregation.

    It does not change its arguments, returns parameters of the same shapes, treats rows that a client does not have as
    unchanged, and an interrupted run ends with the same bits. What it keeps has the same names and shapes after each
    round, is not changed in place, and gives the same bits after it has been saved and loaded.

    Args:
        aggregation: The aggregation, with its keys.
        sections: Sections of the experiment to replace.

    Raises:
        AssertionError: A property does not hold. The message is a sentence about the first one.
    """
    check_declared(aggregation, Aggregation)
    problem = aggregation.problem(5)
    expect(not problem, f"it cannot combine the five updates of this check: {problem}")
    if isinstance(aggregation, IndividualAggregation):
        _check_individual(aggregation)
    else:
        expect(isinstance(aggregation, SumAggregation), "derive it from SumAggregation or IndividualAggregation")
    server = experiment_with({}, sections).server.model_copy(update={"aggregation": aggregation})
    check_run(experiment_with({"server": server}, sections), corpus_for(experiment_with({}, sections), clients=5))


def _check_individual(aggregation: IndividualAggregation) -> None:
    state, (own, whole) = _received(), _cohort("testing/cohort")
    before = copy.deepcopy((state, whole))
    with no_global_draws(aggregation.name):
        returned = aggregation.aggregate(state, iter(whole))
    problem = problem_of(returned, SHAPES)
    expect(not problem, f"{aggregation.name} returned {problem}")
    after, metrics = returned
    _check_kept(aggregation, (state, whole), before)
    finite = all(np.isfinite(tensor).all() for tensor in after.values())
    expect(finite and all(map(math.isfinite, metrics.values())), f"the result of {aggregation.name} is not finite")
    equal = _equal(aggregation.aggregate(state, iter(own))[0], after)
    expect(equal, f"{aggregation.name} does not treat rows that a client does not have as unchanged")
    if aggregation.keeps_state():
        _check_state(aggregation)


def _cohort(purpose: str) -> tuple[list[Update], list[Update]]:
    """Return the updates of five clients that do not have every other row of the table: without these, and with zeros
    in them."""
    draws, rows = generator(0, purpose), np.arange(0, SHAPES[TABLE][0], 2, dtype=np.int32)
    own, whole = [], []
    for client in range(5):
        tensors = {name: draws.standard_normal(shape).astype(np.float32) for name, shape in SHAPES.items()}
        tensors[TABLE][1::2] = 0
        whole.append(Update(client, client + 1, tensors))
        own.append(Update(client, client + 1, tensors | {TABLE: tensors[TABLE][rows]}, rows))
    return own, whole


Given = tuple[Mapping[str, NDArray[np.float32]], Sequence[Update]]  # parameters and updates


def _check_kept(aggregation: IndividualAggregation, given: Given, before: Given) -> None:
    kept = _equal(given[0], before[0]) and all(
        _equal(one.tensors, other.tensors) for one, other in zip(given[1], before[1], strict=True)
    )
    expect(kept, f"{aggregation.name} changes its arguments: return new tensors")


def _check_state(aggregation: IndividualAggregation) -> None:
    """Check what an aggregation keeps over two rounds."""
    name, state = aggregation.name, _received()
    before = copy.deepcopy(state)
    begun = aggregation.server_state(state, 5)
    expect(_equal(state, before), f"server_state of {name} changes its arguments: return new arrays")
    problem = problem_of_kept(begun, None)
    expect(not problem, f"server_state of {name} returned {problem}")
    shapes = {key: array.shape for key, array in begun.items()}
    server = _reloaded(begun)
    for purpose in ("testing/cohort", "testing/later"):
        own, whole = _cohort(purpose)
        given, held = copy.deepcopy((state, whole)), copy.deepcopy(server)
        with no_global_draws(name):
            returned = aggregation.server_step(server, state, iter(whole))
        expect(isinstance(returned, tuple) and len(returned) == 3, f"server_step of {name} returns no three mappings")
        problem = problem_of(returned[:2], SHAPES) or problem_of_kept(returned[2], shapes)
        expect(not problem, f"server_step of {name} returned {problem}")
        _check_kept(aggregation, (state, whole), given)
        expect(_equal(server, held), f"server_step of {name} changes what was kept: return new arrays")
        after, _, following = copy.deepcopy(returned)
        again, _, kept = aggregation.server_step(_reloaded(server), state, iter(whole))
        same = _equal(again, after) and _equal(kept, following)
        expect(same, f"server_step of {name} returns other bits from the same state: it keeps something beside it")
        again, _, kept = aggregation.server_step(server, state, iter(own))
        equal = _equal(again, after) and _equal(kept, following)
        expect(equal, f"server_step of {name} does not treat rows that a client does not have as unchanged")
        state, server = after, _reloaded(following)


def _reloaded(kept: Kept) -> dict[str, NDArray[np.float32]]:
    """Return what is kept as a checkpoint has it, in the order of names."""
    return dict(sorted(load(save({name: np.array(array, order="C") for name, array in kept.items()})).items()))
