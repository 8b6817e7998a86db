"""Metrics of membership inference: of a client by hand, and over the texts of all clients."""

from typing import Any

import numpy as np
import pytest

from fedtext.evaluation import Evaluated, pooled
from fedtext.evaluation.membership import Attacked, measures, together
from tests.leaking import BAG, ONE_STEP, corpus, finished
from tests.loops import nonempty


def test_measures_of_membership_by_hand() -> None:
    """Losses of four train texts, the first and third of which set the limit of 2; and of test texts."""
    train = np.array([1.0, 1.5, 3.0, 2.5], np.float32)
    test = np.array([0.5, 4.0, 5.0], np.float32)
    found = measures(train, test)
    assert found == {"member_auc": 8 / 12, "member_advantage": pytest.approx(1 / 2 - 1 / 3)}
    assert set(measures(train[:1], test)) == {"member_auc"}, "a single train text cannot be known and judged"
    assert measures(np.array([np.nan, 1.0], np.float32), test) == {}
    many = np.arange(200, dtype=np.float32)  # two of them may lie below the threshold: 0 and 1
    rate = "member_tpr_at_1pct_fpr"
    assert measures(np.array([-1.0, 1.5, 2.0, 2.5], np.float32), many)[rate] == 0.5
    assert measures(np.array([-1.0, 1.5, 2.0, 2.5], np.float32), many[:199])[rate] == 0.25
    assert measures(np.array([-1.0, 0.0, 1.0, 2.5], np.float32), many[:100])[rate] == 0.5
    assert rate not in measures(train, many[:99])


@pytest.mark.parametrize("texts", [100, 199, 200, 1000])
def test_chance_levels_are_the_mean_rates_of_scores_that_say_nothing(texts: int) -> None:
    """Over 800 draws of scores: the deviation of a rate's mean is at most 0.0007."""
    rng = np.random.default_rng(texts)
    draws = [rng.random((2, texts), np.float32) for _ in range(800)]
    found = [together([attacked(train, test)]) | measures(train, test) for train, test in draws]
    levels = {name: value for name, value in found[0].items() if name.endswith("_chance")}
    assert len(levels) == (3 if texts == 1000 else 2)
    assert levels["member_tpr_at_1pct_fpr_chance"] == (texts // 100 + 1) / (texts + 1)
    for name, level in nonempty(levels.items()):
        rates = [one[name.removesuffix("_chance")] for one in found]
        assert np.mean(rates) == pytest.approx(level, abs=0.0025)


def attacked(train: Any, test: Any) -> Attacked:
    return Attacked(np.array(train, np.float32), np.array(test, np.float32))


def test_texts_of_all_clients_share_a_threshold() -> None:
    """By hand. Each client tells its own texts apart, and the second one's losses are all larger."""
    found = together([attacked([1, 2], [3, 4]), attacked([5], [6])])
    assert found == {"member_pooled_auc": 7 / 9, "member_user_auc": 3 / 4}
    assert together([attacked([1, np.nan], [3])]) == {}
    assert together([attacked([1], [3, 0])]) == {"member_pooled_auc": 0.5}, "of a single user there is no curve"


def test_rates_at_few_false_positives_need_enough_texts_of_all_clients_together() -> None:
    clients = [attacked([number - 0.5, 2000], np.arange(number, 1000, 10)) for number in range(10)]
    found = together(clients)
    assert found["member_pooled_tpr_at_1pct_fpr"] == 10 / 20, "ten of a thousand may lie below: 0 to 9"
    assert found["member_pooled_tpr_at_0.1pct_fpr"] == 2 / 20, "one may: 0"
    assert "member_pooled_tpr_at_0.1pct_fpr" not in together([*clients[:-1], attacked([0], range(99))])
    assert "member_pooled_tpr_at_1pct_fpr" not in together([attacked([0], range(99))])


def test_a_user_is_the_mean_of_its_texts() -> None:
    """Of two users each; a client without test texts is none."""
    clients = [attacked([0, 5], [2]), attacked([1, 1.5], [3, 9]), attacked([-7], [])]
    assert together(clients)["member_user_auc"] == 3 / 4


def test_pooled_scores_are_in_the_record_and_each_clients_in_its_own() -> None:
    training: dict[str, Any] = ONE_STEP | {"rounds": 10, "local_epochs": 10, "optimizer": {"name": "adam", "lr": 0.02}}
    model = BAG | {"embedding": {"dim": 32}, "hidden": [32]}
    made = finished(corpus([8] * 30, clients=4, test=30), ["membership"], model=model, training=training)
    *_, record = made.rows
    assert record.metrics["member_pooled_auc"] > 0.8
    assert 0 <= record.metrics["member_pooled_tpr_at_1pct_fpr"] < 1
    assert record.metrics["member_user_auc"] == 1
    own = {name for read in record.clients.values() for name in read}
    assert own & set(made.experiment.audits[0].metrics) == {"member_auc", "member_advantage"}
    read = [scores["member_auc"] for scores in record.clients.values()]
    assert record.metrics["member_auc"] == pytest.approx(np.mean(read))


def test_the_pooled_values_do_not_depend_on_evaluations_without_attacks() -> None:
    one = Evaluated(pooled={"membership": attacked([1], [3, 0])})
    assert pooled([Evaluated({"Ag": 1.0}), one]) == {"member_pooled_auc": 0.5}
