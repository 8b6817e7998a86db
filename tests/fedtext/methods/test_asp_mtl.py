"""ASP-MTL: its terms by hand, and texts that know their task."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fedtext.corpora.pool import pool
from fedtext.methods import ASPMTL
from fedtext.methods.asp_mtl import orthogonality
from fedtext.methods.base import Batch, Model
from fedtext.models.parts import Parts
from fedtext.training.batches import Assembler, Texts, by_task
from tests import tiny
from tests.loops import nonempty

CORPUS = tiny.TWO
ONE_ROUND = tiny.TRAINING | {"rounds": 1}


def test_orthogonality_by_hand() -> None:
    s = torch.tensor([[5.0, 1], [-5, 1], [5, 1], [-5, 1]])  # centred (+-5, 0), of length one (+-1, 0)
    p = torch.tensor([[3.0, 0], [3, 0], [-3, 0], [-3, 0]])
    assert orthogonality(s, p).item() == pytest.approx(0)
    assert orthogonality(s, s, "sum").item() == pytest.approx(16)  # S^T S = [[4, 0], [0, 0]]
    assert orthogonality(s, s).item() == pytest.approx(4)
    assert orthogonality(s[:, [1, 0]], s).item() == pytest.approx(4), "which of the features it is does not matter"
    one = torch.randn(1, 3, requires_grad=True)
    orthogonality(one, one * 2).backward()
    assert one.grad is not None
    assert one.grad.tolist() == [[0, 0, 0]]
    for size in nonempty(range(2, 9)):
        alike, other = (torch.randn(1, 128).repeat(size, 1).requires_grad_() for _ in range(2))
        assert orthogonality(alike, other, "sum").item() == 0, "of equal texts only rounding is left"
        orthogonality(alike, other, "sum").backward()
        assert alike.grad is not None
        assert not alike.grad.any()


def test_the_discriminator_learns_and_the_encoder_unlearns() -> None:
    method = ASPMTL(adv=0.5, diff=0)
    model, batch = tiny.model_and_batch(method, clients=3, task=2)
    made = model(batch)
    encoder, discriminator = model.parameters["encoder.rnn.weight_hh_l0"], model.parameters["discriminator.weight"]
    logits = nn.functional.linear(made.shared_BF, discriminator, model.parameters["discriminator.bias"])
    plain = torch.autograd.grad(0.5 * cross_entropy(logits, torch.full((5,), 2)), [encoder, discriminator])
    objective = method.objective({"adversarial": method.loss(model, {}, batch)["adversarial"]})
    ours = torch.autograd.grad(objective, [encoder, discriminator])
    assert torch.allclose(ours[0], -plain[0])
    assert torch.allclose(ours[1], plain[1])
    assert plain[0].norm() > 1e-6


def test_the_weight_of_the_penalty_does_not_depend_on_the_width_of_the_features() -> None:
    model, batch = tiny.model_and_batch(ASPMTL())
    mean, total = (ASPMTL(penalty=which).loss(model, {}, batch)["orthogonality"] for which in ("mean", "sum"))  # type: ignore[arg-type]
    made = model(batch)
    s_BF, p_BF = (f - f.mean(0) for f in (made.shared_BF, made.private_BF))
    s_BF, p_BF = (f / f.norm(dim=1, keepdim=True) for f in (s_BF, p_BF))
    assert s_BF.shape[1] == 6
    assert torch.allclose(mean, (s_BF.T @ p_BF).square().mean())
    assert torch.allclose(total, 36 * mean)


OPTIMIZERS = [
    {"name": "sgd", "lr": 0.1},
    {"name": "sgd", "lr": 0.1, "clip_norm": 0.05, "schedule": "linear"},
    {"name": "adam", "lr": 0.05},
    {"name": "adamw", "lr": 0.05, "weight_decay": 0.3, "clip_norm": 0.05},
]


@pytest.mark.parametrize("options", OPTIMIZERS, ids=lambda options: "-".join(map(str, options.values())))
@pytest.mark.parametrize("engine", ["reference", "cells"])
def test_steps_leave_the_parts_of_absent_tasks_alone(engine: str, options: dict[str, Any]) -> None:
    """Against torch's optimizers, which leave a parameter without a gradient alone, over two rounds."""
    training = tiny.TRAINING | {"optimizer": options | {"persist": True}, "engine": engine}
    made = tiny.Finished("asp_mtl", training=training, evaluation={"personalize": None})
    experiment, method, everybody = made.experiment, made.experiment.method, pool(CORPUS.clients)
    tables = {
        name: torch.from_numpy(t[everybody.rows_R])
        for name, t in made.layout.views(made.before).items()
        if "emb" in name
    }
    flat = {name: torch.from_numpy(t.copy()) for name, t in made.layout.views(made.before).items()} | tables
    leaves = {name: tensor.double().requires_grad_() for name, tensor in flat.items()}
    kind = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[options["name"]]
    extra = {"momentum": 0.9} if options["name"] == "sgd" else {}
    extra |= {"weight_decay": options["weight_decay"]} if "weight_decay" in options else {}
    rule = kind(leaves.values(), lr=options["lr"], **extra)
    network = method.network(Parts(experiment.model, 2, 2)).double()
    texts = Texts(everybody.train, len(everybody.rows_R))
    assembler = Assembler(None, False, torch.device("cpu"))
    for round_ in (1, 2):
        order = list(by_task(texts.tasks_N, 4, 2, 0, round_, everybody.id))
        for number, chosen in nonempty(enumerate(order)):
            batch = assembler.single(texts, chosen)[0]
            rule.zero_grad()
            method.objective(method.loss(Model(network, leaves), {}, batch)).backward()
            absent = {name for name, leaf in leaves.items() if leaf.grad is None}
            assert absent == {name for name in leaves if f"s.{1 - batch.task}." in name}
            if "clip_norm" in options:
                nn.utils.clip_grad_norm_(leaves.values(), options["clip_norm"])
            if "schedule" in options:
                rule.param_groups[0]["lr"] = options["lr"] * (1 - number / len(order))
            rule.step()
    for name, tensor in nonempty(leaves.items()):
        after = made.state[name][everybody.rows_R] if "emb" in name else made.state[name]
        np.testing.assert_allclose(after, tensor.detach(), atol=2e-5, err_msg=name)


def test_only_the_batchs_own_task_is_computed() -> None:
    names = [f"{part}.{task}" for task in (0, 1) for part in ("encoders", "heads")]
    found = tiny.grads(ASPMTL(), "ce", [_one(name) for name in names], clients=2, task=1)
    assert [grad is not None for grad in found] == [False, False, True, True]


def _one(part: str) -> str:
    return f"{part}.rnn.bias_ih_l0" if part.startswith("encoders") else f"{part}.0.bias"


def test_asp_mtl_of_one_task_without_the_penalty_is_a_plain_classifier_on_two_encoders() -> None:
    model, batch = tiny.model_and_batch(ASPMTL(diff=0))
    terms = ASPMTL(diff=0).loss(model, {}, batch)
    assert terms["adversarial"].item() == 0, "there is nothing to tell apart"
    assert set(ASPMTL(adv=0, diff=0).loss(model, {}, batch)) == {"ce"}
    made = model(batch)
    features_BF = torch.cat([made.shared_BF, made.private_BF], 1)
    one, two = ((model.parameters[f"heads.0.{n}.weight"], model.parameters[f"heads.0.{n}.bias"]) for n in (0, 2))
    logits = nn.functional.linear(nn.functional.linear(features_BF, *one).relu(), *two)
    assert torch.allclose(terms["ce"], cross_entropy(logits, batch.labels_B))


def test_pooled_texts_know_their_task_and_come_in_batches_of_one() -> None:
    train = pool(CORPUS.clients).train
    assert train.tasks_N is not None
    assert train.tasks_N.tolist() == [0] * len(CORPUS.clients[0].train) + [1] * len(CORPUS.clients[1].train)

    def epochs(round_: int) -> Iterator[list[list[int]]]:
        batches = [batch.tolist() for batch in by_task(np.array([0, 1, 1, 0, 1, 1, 1]), 2, 2, 0, round_, 7)]
        assert len(batches) == 2 * 4
        yield from (batches[:4], batches[4:])

    first, second = epochs(1)
    for epoch in (first, second):
        assert sorted(text for batch in epoch for text in batch) == list(range(7))
        assert {len({text in (0, 3) for text in batch}) for batch in epoch} == {1}
    assert first != second
    assert list(epochs(1)) == [first, second]
    assert list(epochs(2)) != [first, second]
    texts = Texts(replace(train, tasks_N=None), 40, task=5)
    for directions in (None, 2):
        assert Assembler(directions, False, torch.device("cpu")).single(texts, np.array([3, 4]))[0].task == 5
        pooled = Texts(train, 40)
        assert Assembler(directions, True, torch.device("cpu")).single(pooled, np.array([20]))[0].task == 1


def test_a_client_is_read_and_fine_tuned_by_its_own_task() -> None:
    made = tiny.Finished("asp_mtl")
    for task, label in ((0, 1), (1, 0)):
        made.state[f"heads.{task}.2.bias"][:] = np.eye(2)[label] * 99
    found = made.worker.evaluate(made.flat, 2, [0, 1], final=True)
    shares = [client.test.labels_N.mean() for client in CORPUS.clients]
    assert found[0].metrics == {name: pytest.approx(shares[0]) for name in ("Ag", "Ap")}
    assert found[1].metrics == {name: pytest.approx(1 - shares[1]) for name in ("Ag", "Ap")}


class OfOneTask(ASPMTL):
    def loss(self, model: Model, received: Mapping[str, Tensor], batch: Batch) -> dict[str, Tensor]:
        assert batch.labels_B.tolist() == [batch.task] * len(batch.labels_B)
        return super().loss(model, received, batch)


def test_asp_mtl_trains_every_tasks_parts_by_batches_of_its_own() -> None:
    one_class = [replace(c, train=replace(c.train, labels_N=np.full(len(c.train), c.id))) for c in CORPUS.clients]
    made = tiny.Finished(OfOneTask(), replace(CORPUS, clients=one_class), training=ONE_ROUND)
    before = made.layout.views(made.before)
    assert {name for name, value in made.state.items() if np.array_equal(value, before[name])} == set()
    assert {name.split(".")[1] for name in made.state if name.startswith("encoders.")} == {"0", "1"}
