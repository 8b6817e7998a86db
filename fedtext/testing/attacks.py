"""Conformance checks of attacks."""

import copy
from typing import Any

import numpy as np

from fedtext.adversaries import Attack, Collusion
from fedtext.adversaries.base import Tensors
from fedtext.config.sections import Adversaries
from fedtext.corpora.types import TokenSet
from fedtext.messages import Update
from fedtext.seeding import generator
from fedtext.testing.parts import check_declared, no_global_draws
from fedtext.testing.runs import check_run, corpus_for, expect, experiment_with

SHAPES = {"embedding": (8, 3), "weight": (2, 3), "bias": (2,)}


def check_attack(attack: Attack, **sections: Any) -> None:
    """Check the properties of an attack.

    It changes none of its arguments, depends on its generator alone, sends tensors of the same names and shapes, and an
    interrupted run with it ends with the same bits, wherever its clients are.

    Args:
        attack: The attack, with its keys.
        sections: Sections of the experiment to replace.

    Raises:
        AssertionError: A property does not hold. The message is a sentence about the first one.
    """
    check_declared(attack, Attack)
    plain = experiment_with({}, sections)
    corpus = corpus_for(plain, clients=5)
    problem = attack.problem(corpus)
    expect(not problem, f"it does not fit the corpus of this check: {problem}")
    _check_sent(attack)
    train = corpus.clients[0].train
    entries = corpus.clients[0].rows_R[: corpus.clients[0].train_rows]
    trigger = np.arange(min(len(attack.trigger(corpus)), len(entries)), dtype=np.int32)
    before = copy.deepcopy(train)
    with no_global_draws(attack.name):
        one = attack.texts(train, trigger, corpus, generator(0, "testing"))
    expect(_equal(train, before), f"{attack.name} changes the texts it is given: return new ones")
    expect(len(one) == len(train), f"{attack.name} makes {len(one)} texts of {len(train)}: they stay as many")
    again = attack.texts(train, trigger, corpus, generator(0, "testing"))
    expect(_equal(one, again), f"{attack.name} returns other texts with the same generator")
    built_in = Adversaries.model_validate({"fraction": 0.4, "attack": "sign_flip"})
    adversaries = built_in.model_copy(update={"attack": attack})  # one that need not have a name for experiment files
    check_run(experiment_with({"adversaries": adversaries}, sections), corpus)


def _check_sent(attack: Attack) -> None:
    draws = generator(0, "testing/update")
    delta = {name: draws.standard_normal(shape).astype(np.float32) for name, shape in SHAPES.items()}
    kept = copy.deepcopy(delta)
    with no_global_draws(attack.name):
        sent = attack.send(delta, generator(1, "testing"))
    expect(_alike(delta, kept), f"{attack.name} changes the update it is given: return new tensors")
    _check_form(attack, sent)
    expect(_alike(attack.send(delta, generator(1, "testing")), sent), f"{attack.name} ignores its generator")
    if isinstance(attack, Collusion):
        state = {name: np.zeros(shape, np.float32) for name, shape in SHAPES.items()}
        own = [Update(client, client + 1, attack.send(delta, generator(client, "testing"))) for client in (1, 4)]
        chosen = attack.choose(own, 3, state)
        expect([u.client for u in chosen] == [1, 4], f"{attack.name} returns the updates of other clients")
        for update in chosen:
            _check_form(attack, dict(update.tensors))


def _check_form(attack: Attack, sent: Tensors) -> None:
    form = {name: (tensor.shape, tensor.dtype) for name, tensor in sent.items()}
    expected = {name: (shape, np.dtype(np.float32)) for name, shape in SHAPES.items()}
    expect(form == expected, f"{attack.name} sends {form}, and an update is {expected}")


def _alike(one: Tensors, other: Tensors) -> bool:
    return one.keys() == other.keys() and all(np.array_equal(one[name], other[name]) for name in one)


def _equal(one: TokenSet, other: TokenSet) -> bool:
    parts = ("tokens_T", "offsets", "labels_N")
    return all(np.array_equal(getattr(one, part), getattr(other, part)) for part in parts)
