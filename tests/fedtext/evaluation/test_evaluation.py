"""How models are evaluated: Ap as the mean while a client fine-tunes, at which rates it does, and from which scores the
area under the ROC curve and the membership audit's advantage are taken."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from fedtext.evaluation import Evaluated, averaged, evaluate, pooled, unchanged
from fedtext.evaluation.classes import Scored, accuracy, area
from fedtext.evaluation.words import Predicted
from fedtext.layout import TABLE
from fedtext.methods import FedAvg
from fedtext.methods.base import Inference, Model, Phase
from fedtext.models.batch import Batch
from fedtext.training.batches import Assembler, Texts
from tests import tiny
from tests.loops import nonempty

PLAIN = Assembler(None, False, torch.device("cpu"))


def test_the_mean_of_a_clients_accuracies() -> None:
    found = averaged(
        [
            Evaluated({"Ap": 0.25, "Ap_val": 1.0}),
            Evaluated({"Ap": 0.5, "Ap_val": 0}),
            Evaluated({"Ap": 0.75, "Ap_val": 0.5}),
        ]
    )
    assert found.metrics == {"Ap": 0.5, "Ap_val": 0.5}


def test_what_is_not_fine_tuned_has_its_ag_as_its_ap() -> None:
    found = unchanged(Evaluated({"Ag": 0.25, "Ag_val": 1.0, "Local": 0.5, "Ap_0": 0.75}))
    assert found.metrics == {"Ap": 0.25, "Ap_val": 1.0}
    assert found.pooled == {}
    told = unchanged(
        Evaluated({}, {"Ag": Predicted(4, 4 * math.log(8), (1, 3), 24), "Local": Predicted(1, 0.0, (1, 1), 1)})
    )
    expected = {"perplexity_Ap": 8.0, "nats_per_token_Ap": math.log(8), "bits_per_byte_Ap": 4 * 3 / 24}
    assert told.metrics == pytest.approx(expected | {"top1_Ap": 0.25, "top3_Ap": 0.75})
    assert set(told.pooled) == {"Ap"}


def test_a_model_is_read_without_dropout() -> None:
    made = tiny.Finished("fedavg", model={"embedding": {"dim": 8}, "hidden": 16, "dropout": 0.9})
    made.worker.network.train()
    texts, parameters = made.worker.texts_of(0, "test"), made.worker.stack(made.flat, [0]).tensors(0)
    model = Model(made.worker.network, parameters)
    evaluated = evaluate(made.experiment.method, model, texts, made.worker.evaluating, "both", "Ag", True)
    assert not made.worker.network.training
    assert evaluated.metrics["Ag"] == made.rows[-1].clients["client0"]["Ag"]
    assert isinstance(evaluated.pooled["Ag"], Scored)
    assert not evaluate(made.experiment.method, model, texts, made.worker.evaluating, "both", "Ag", False).pooled


def test_areas_and_perplexities_are_of_all_clients_together() -> None:
    """Of class 1 the scores 3 and 1, of class 0 the scores 2 and 1: in two of four pairs the first is larger, in one
    both are equal. Of one class alone there is no area."""
    one = Scored(np.array([3, 2], np.float32), np.array([True, False]))
    other = Scored(np.array([1, 1], np.float32), np.array([True, False]))
    alone = Scored(np.array([1, 2], np.float32), np.array([True, True]))
    words = Predicted(2, 2 * math.log(2), (1, 1), 8), Predicted(6, 6 * math.log(4), (0, 6), 20)
    found = pooled(
        [Evaluated({}, {"Ag": one, "Ap": words[0]}), Evaluated({}, {"Ag": other, "Ap": words[1], "Ap_0": alone})]
    )
    told = {"nats_per_token": 14 / 8 * math.log(2), "bits_per_byte": 14 / 28, "top1": 1 / 8, "top3": 7 / 8}
    told |= {"perplexity": 2 ** (14 / 8), "perplexity_p90": 4.0}
    assert found == pytest.approx({"AUC": 2.5 / 4} | {f"{name}_Ap": value for name, value in told.items()})
    assert area([replace(one, scores_N=np.array([np.nan, 1], np.float32))]) is None
    assert area([replace(one, labels_N=np.array([False, False]))]) is None


def test_ap_is_the_mean_over_the_steps_and_not_the_last_one() -> None:
    """Equation 16 of the KTEPS paper. After k steps alone a client has the accuracy a_k; read at each of six steps its
    Ap is (a_1 + ... + a_6) / 6, and at every second one (a_2 + a_4 + a_6) / 3."""
    corpus = tiny.corpus(clients=2, texts=30)
    training = tiny.TRAINING | {"rounds": 1, "optimizer": {"lr": 0.3, "momentum": 0.9}}

    def ap(steps: int, every: int) -> list[float]:
        personalize = {"steps": steps, "every": every, "lr_multiplier": 20.0}
        (record,) = tiny.Finished("fedavg", corpus, training=training, evaluation={"personalize": personalize}).rows
        return [figures["Ap"] for figures in record.clients.values()]

    alone = np.array([ap(k, k) for k in range(1, 7)])
    assert any(len(set(accuracies)) > 1 for accuracies in alone.T), "or a mean could not be told from one of them"
    assert ap(6, 1) == pytest.approx(alone.mean(0).tolist())
    assert ap(6, 2) == pytest.approx(alone[1::2].mean(0).tolist())
    assert not np.allclose(alone.mean(0), alone[-1])


@pytest.mark.parametrize(("embedding_lr", "of_the_table"), [(None, 0.3), (0.05, 0.05)])
def test_fine_tuning_scales_the_embeddings_own_rate_with_the_other(
    embedding_lr: float | None, of_the_table: float
) -> None:
    """One step of plain gradient descent along slopes of one takes the rate, times the multiplier, off each number."""
    options = {"name": "sgd", "lr": 0.3, "momentum": 0.0, "embedding_lr": embedding_lr}
    made = tiny.Finished("fedavg", training=tiny.TRAINING | {"rounds": 1, "optimizer": options})
    for multiplier in (1.0, 0.1):
        stack = made.worker.stack(made.flat, [0])
        before = {name: tensor.clone() for name, tensor in stack.tensors(0).items()}
        optimizer = made.worker.optimizer(Phase("personalize", 1, lr=multiplier), stack, [0])
        words = [np.arange(len(before[TABLE]))]
        given = optimizer.begin(range(1), words)
        optimizer.step(range(1), sum((tensor.sum() for tensor in given.values()), torch.zeros(())))
        optimizer.finish()
        for name, tensor in nonempty(stack.tensors(0).items()):
            rate = of_the_table if name == TABLE else 0.3
            assert torch.allclose(before[name] - tensor, torch.full_like(tensor, rate * multiplier), atol=1e-6), name


class Certain(FedAvg):
    """One whose probability of class 1 is that of log-odds of 10 for each token of a text."""

    def probabilities(self, model: Model, batch: Batch, inference: Inference) -> Tensor:
        odds_B = 10.0 * batch.lengths_B
        return torch.stack([torch.zeros_like(odds_B), odds_B], 1).float().softmax(1)


def test_scores_tell_texts_apart_whose_probability_has_come_to_be_one() -> None:
    """exp(-20) and exp(-30) beside 1 are nothing in float32, and their logarithms are not."""
    model, _ = tiny.model_and_batch(FedAvg())
    tokens = tiny.token_set(np.random.default_rng(0), 60, 1, 9, longest=6)
    lengths_N = np.diff(tokens.offsets)
    tokens = replace(tokens, labels_N=(lengths_N > 4).astype(np.int64))
    texts = Texts(tokens, 9)
    share, scored = accuracy(Certain(), model, texts, PLAIN, "both", scored=True)
    assert share == pytest.approx((lengths_N > 4).mean())
    assert scored is not None
    assert scored.scores_N == pytest.approx(10.0 * lengths_N, rel=1e-5)
    assert scored.labels_N.tolist() == (lengths_N > 4).tolist()
    assert area([scored]) == 1.0
    assert accuracy(Certain(), model, texts, PLAIN, "both", scored=False)[1] is None


def test_membership_takes_texts_for_members_whose_loss_is_at_most_the_mean_of_known_train_texts() -> None:
    """Every other one is known; its advantage is the share of the rest below that mean less the share of test texts
    below it. Of all losses the mean would be larger, since test texts have larger ones."""
    model = {"name": "bag", "embedding": {"dim": 8}, "hidden": [8]}
    training = {"rounds": 1, "local_epochs": 20, "batch_size": 8, "optimizer": {"lr": 0.05}}
    made = tiny.Finished(
        "fedavg", tiny.corpus(clients=1, texts=60), model=model, training=training, audits=["membership"]
    )
    for number, client in nonempty(made.worker.clients.items()):
        stack = made.worker.stack(made.flat, [number])
        losses = {}
        for split in ("train", "test"):
            texts = made.worker.texts_of(number, split)
            batch, _ = PLAIN.single(texts, np.arange(len(texts)))
            logits_BC = Model(made.worker.network, stack.tensors(0))(batch)
            losses[split] = cross_entropy(logits_BC, batch.labels_B, reduction="none").detach().numpy()
        known, judged = losses["train"][::2], losses["train"][1::2]
        limit, of_all = known.mean(), np.concatenate(list(losses.values())).mean()
        advantage, other = (float((judged <= at).mean() - (losses["test"] <= at).mean()) for at in (limit, of_all))
        assert made.rows[-1].clients[client.name]["member_advantage"] == pytest.approx(advantage)
        assert advantage != other, "or the two limits could not be told apart"


class Diverged(FedAvg):
    """One with a text that has no probabilities."""

    def probabilities(self, model: Model, batch: Batch, inference: Inference) -> Tensor:
        found_BC = torch.full((len(batch.labels_B), 2), 0.5)
        found_BC[-1] = torch.nan
        return found_BC


def test_a_model_without_probabilities_has_no_accuracy() -> None:
    """The most probable class of nothing would be the first, and the accuracy its share."""
    model, _ = tiny.model_and_batch(FedAvg())
    texts = Texts(tiny.token_set(np.random.default_rng(0), 60, 1, 9, longest=6), 9)
    share, _ = accuracy(Diverged(), model, texts, PLAIN, "both", scored=False)
    assert math.isnan(share)
    each = [Evaluated({"Local": value, "Global": value}) for value in (0.5, 1.0, share)]
    assert all(map(math.isnan, nonempty(pooled(each).values())))
    assert pooled(each[:2]) == pytest.approx({"Local_p10": 0.5, "Global_geometric": 0.5**0.5})
    zero = Evaluated({"Local": 0.0, "Global": 0.0})
    assert pooled([*each[:2], zero]) == {"Local_p10": 0.0, "Global_geometric": 0.0}


def test_fine_tuning_that_diverges_has_no_accuracy() -> None:
    made = tiny.Finished("fedavg", evaluation={"personalize": {"steps": 4, "every": 2, "lr_multiplier": 1e30}})
    last = made.rows[-1].metrics
    assert math.isnan(last["Ap"])
    assert 0 <= last["Ag"] <= 1
