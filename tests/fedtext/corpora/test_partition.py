"""Partitions: one set of labelled texts dealt out to clients that differ in their classes."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fedtext.config import files
from fedtext.corpora.imdb import IMDBCorpus
from fedtext.corpora.partition import IID, Dirichlet, Pathological, fitted, sizes_of
from fedtext.corpora.shares import deal
from fedtext.corpora.types import RawClient, Split
from fedtext.errors import UserError
from tests.loops import nonempty

Partition = IID | Dirichlet | Pathological
SIDES = ("train", "test", "validation")


def split(name: str, *of_class: int) -> Split:
    """So many texts of each class, each of which names itself."""
    labels = np.repeat(np.arange(len(of_class)), of_class)
    return Split([f"{name} {number}" for number in range(len(labels))], labels)


def table(clients: list[RawClient], side: str, classes: int) -> NDArray[np.int64]:
    return np.array([np.bincount(getattr(client, side).labels, minlength=classes) for client in clients])


def classes_had(counts_KC: NDArray[Any]) -> NDArray[np.float64]:
    """exp(entropy) of each client's classes."""
    share_KC = counts_KC / counts_KC.sum(1, keepdims=True)
    return np.exp(-(share_KC * np.log(np.where(share_KC > 0, share_KC, 1))).sum(1))


PARTITIONS = st.one_of(
    st.builds(IID),
    st.builds(
        Dirichlet,
        alpha=st.sampled_from([1e-4, 0.01, 0.3, 1.0, 100.0]),
        reading=st.sampled_from(["per_class_prior", "symmetric"]),
        sizes=st.sampled_from(["equal", "drawn"]),
    ),
    st.builds(Pathological, classes=st.integers(1, 4)),
)
COUNTS = st.lists(st.integers(0, 40), min_size=4, max_size=4)


@pytest.mark.parametrize("little", [0.0, 5e-324, 1e-310, 1e-300, 1e-9])
def test_a_class_that_is_next_to_never_drawn_is_filled_up(little: float) -> None:
    """As with alpha = 0.0001. A ratio to so little is no finite number."""
    alone = fitted(np.array([[1.0, little]]), np.array([3, 4]), np.ones(1))
    assert alone.tolist() == [[3, 4]]
    two = fitted(np.array([[1.0, little], [little, 1.0]]), np.array([3, 9]), np.ones(2))
    assert two.sum(0).tolist() == [3, 9]
    assert two.sum(1).tolist() == [6, 6]


@settings(max_examples=150, deadline=None)
@given(
    partition=PARTITIONS,
    train=COUNTS,
    test=COUNTS,
    validation=st.none() | COUNTS,
    clients=st.integers(1, 12),
    seed=st.integers(0, 3),
)
def test_every_text_goes_to_one_client_and_nobody_goes_without(
    partition: Partition, train: list[int], test: list[int], validation: list[int] | None, clients: int, seed: int
) -> None:
    given_ = {"train": split("train", *train), "test": split("test", *test)}
    if validation is not None:
        given_["validation"] = split("validation", *validation)
    if any(len(side) < clients for side in given_.values()):
        with pytest.raises(UserError, match=f"corpus.clients: {clients} clients cannot share"):
            partition.deal(classes=4, clients=clients, seed=seed, **given_)
        return
    try:
        dealt = partition.deal(classes=4, clients=clients, seed=seed, **given_)
    except UserError:
        if isinstance(partition, Pathological):  # the others only need as many texts as clients
            return
        raise
    assert len({client.name for client in dealt}) == clients
    for side, whole in given_.items():
        texts = [text for client in dealt for text in getattr(client, side).texts]
        assert sorted(texts) == sorted(whole.texts)
        label = dict(zip(whole.texts, whole.labels.tolist(), strict=True))
        for client in nonempty(dealt):
            own: Split = getattr(client, side)
            assert own.texts
            assert own.labels.tolist() == [label[text] for text in own.texts]
            assert own.texts == [text for text in whole.texts if text in set(own.texts)]  # in the corpus's order
        if isinstance(partition, IID) or (isinstance(partition, Dirichlet) and partition.sizes == "equal"):
            sizes = [len(getattr(client, side)) for client in dealt]
            assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("partition", [Dirichlet(), Dirichlet(sizes="drawn", reading="symmetric"), Pathological()])
def test_it_depends_on_the_seed_and_nothing_else(partition: Dirichlet | Pathological) -> None:
    sides = split("train", 50, 30, 20), split("test", 20, 20, 20)
    first = partition.deal(*sides, 3, 8, 0)
    again, other = partition.deal(*sides, 3, 8, 0), partition.deal(*sides, 3, 8, 1)
    assert [client.train.texts for client in first] == [client.train.texts for client in again]
    assert [client.test.texts for client in first] == [client.test.texts for client in again]
    assert [client.train.texts for client in first] != [client.train.texts for client in other]
    without = partition.deal(*sides, 3, 8, 0, split("validation", 10, 10, 10))
    assert [client.test.texts for client in first] == [client.test.texts for client in without]


def test_iid_is_the_equal_shares_of_old() -> None:
    sides = split("train", 20, 11), split("test", 5, 9)
    old, new = deal(*sides, 3, 7), IID().deal(*sides, 2, 3, 7)
    assert [client.train.texts for client in new] == [client.train.texts for client in old]
    assert IMDBCorpus().partition == IID()


# Dirichlet


@pytest.mark.parametrize(
    ("reading", "classes", "expected"),
    [
        *(("per_class_prior", 20, 2.7), ("per_class_prior", 4, 2.0), ("per_class_prior", 2, 1.5)),
        *(("symmetric", 20, 13.5), ("symmetric", 4, 3.0), ("symmetric", 2, 1.7)),
    ],
)
def test_clients_have_as_many_classes_as_the_reading_says(reading: Any, classes: int, expected: float) -> None:
    """exp(entropy) of Dir(1/C, ..., 1/C) and of Dir(1, ..., 1), drawn, and kept when all texts are dealt out."""
    totals_C, partition = np.full(classes, 400_000 // classes), Dirichlet(reading=reading)
    drawn_KC = partition.proportions(totals_C, 2000, 0)
    assert drawn_KC.sum(1) == pytest.approx(np.ones(2000))
    assert classes_had(drawn_KC).mean() == pytest.approx(expected, abs=0.1 if classes == 20 else 0.05)
    counts = partition.counts({"train": totals_C, "test": totals_C // 2}, 2000, 0)
    assert classes_had(counts["train"]).mean() == pytest.approx(expected, abs=0.15 if classes == 20 else 0.05)


def test_draws_have_the_moments_of_the_distribution() -> None:
    totals_C = np.array([70, 20, 10])
    for reading, alpha_C in (("per_class_prior", 0.5 * totals_C / 100), ("symmetric", np.full(3, 0.5))):
        drawn_KC = Dirichlet(alpha=0.5, reading=reading).proportions(totals_C, 20_000, 1)
        mean_C = alpha_C / alpha_C.sum()
        assert drawn_KC.mean(0) == pytest.approx(mean_C, abs=0.01)
        assert drawn_KC.var(0) == pytest.approx(mean_C * (1 - mean_C) / (alpha_C.sum() + 1), abs=0.01)


def test_the_local_test_follows_the_local_train() -> None:
    train, test = split("train", *[500] * 20), split("test", *[300] * 20)
    clients = Dirichlet().deal(train, test, 20, 50, 0, split("validation", *[200] * 20))
    share = {side: table(clients, side, 20) / table(clients, side, 20).sum(1, keepdims=True) for side in SIDES}
    apart = {side: np.abs(share["train"] - share[side]).sum(1).max() / 2 for side in ("test", "validation")}
    assert apart["test"] < 0.05
    assert apart["validation"] < 0.06
    assert classes_had(share["train"]).mean() < 4  # of 20, so that there is something to follow


def test_an_even_draw_is_an_even_share_and_a_small_alpha_leaves_one_class() -> None:
    totals = {"train": np.full(4, 250), "test": np.full(4, 100)}
    even = Dirichlet(alpha=1e8).counts(totals, 10, 0)
    assert (even["train"] == 25).all()
    assert (even["test"] == 10).all()
    for reading in ("per_class_prior", "symmetric"):
        lone = Dirichlet(alpha=1e-6, reading=reading).counts(totals, 100, 0)
        # 100 clients of one class each do not come to 25 of each class: some are filled up.
        assert np.median(classes_had(lone["train"])) == 1


def test_drawn_sizes_are_those_of_all_sides() -> None:
    totals = {"train": np.full(4, 5000), "test": np.full(4, 2500)}
    counts = Dirichlet(sizes="drawn").counts(totals, 100, 0)
    train_K, test_K = counts["train"].sum(1), counts["test"].sum(1)
    assert train_K.max() > 5 * np.median(train_K)
    assert np.log(train_K).std() == pytest.approx(1, abs=0.2)
    assert test_K / 10_000 == pytest.approx(train_K / 20_000, abs=3e-4)  # but for the one text that everybody has


def test_fitting_by_hand() -> None:
    """Both clients would rather have class 0, of which there is less: with a third of its weight 3:1 and 1:1 become 1:1
    and 1:3."""
    found_KC = fitted(np.array([[0.75, 0.25], [0.5, 0.5]]), np.array([3000, 5000]), np.ones(2))
    assert found_KC.tolist() == [[2000, 2000], [1000, 3000]]


def test_a_class_nobody_was_drawn_for_is_shared_out() -> None:
    found_KC = fitted(np.array([[1.0, 0, 0], [0, 1.0, 0]]), np.array([6, 2, 4]), np.ones(2))
    assert found_KC.sum(0).tolist() == [6, 2, 4]
    assert found_KC.tolist() == [[6, 0, 0], [0, 2, 4]]


def test_sizes_by_hand() -> None:
    assert sizes_of(8, np.ones(3)).tolist() == [3, 3, 2]
    assert sizes_of(10, np.array([1.0, 2, 5])).tolist() == [2, 3, 5]  # 1 each; of 7: 0.875, 1.75, 4.375
    assert sizes_of(3, np.array([1.0, 1, 1e9])).tolist() == [1, 1, 1]


# Pathological


def test_pathological_clients_have_their_classes_and_no_other() -> None:
    train, test = split("train", 90, 60, 30, 120), split("test", 30, 30, 30, 30)
    clients = Pathological(classes=3).deal(train, test, 4, 8, 0)
    train_KC, test_KC = (table(clients, side, 4) for side in ("train", "test"))
    assert ((train_KC > 0).sum(1) == 3).all()
    assert ((train_KC > 0) == (test_KC > 0)).all()
    assert ((train_KC > 0).sum(0) == 6).all()
    assert [set(of_class[of_class > 0].tolist()) for of_class in train_KC.T] == [{15}, {10}, {5}, {20}]


def test_a_class_each_is_a_class_each() -> None:
    train, test = split("train", 9, 6, 3), split("test", 3, 2, 1)
    clients = Pathological(classes=1).deal(train, test, 3, 3, 0)
    assert sorted(table(clients, "train", 3).tolist()) == [[0, 0, 3], [0, 6, 0], [9, 0, 0]]
    assert [set(c.train.labels) for c in clients] == [set(c.test.labels) for c in clients]


@pytest.mark.parametrize(
    ("clients", "classes", "sentence"),
    [
        (2, 4, "2 clients of 4 classes each cannot have all texts of 3 classes: lower it"),
        (2, 1, "2 clients of 1 classes each cannot have all texts of 3 classes: raise it, or corpus.clients"),
        (7, 1, r"[123] of 7 clients would have no test text: lower corpus.clients, or raise"),
    ],
)
def test_what_cannot_be_dealt_out_is_said(clients: int, classes: int, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        Pathological(classes=classes).deal(split("train", 9, 9, 9), split("test", 10, 1, 1), 3, clients, 0)


# As it is written


def experiment_with(partition: Any) -> dict[str, Any]:
    return {"name": "x", "method": "fedavg", "corpus": {"name": "sst2", "partition": partition}}


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("iid", IID()),
        ("dirichlet", Dirichlet()),
        ({"dirichlet": {"alpha": 0.1, "sizes": "drawn"}}, Dirichlet(alpha=0.1, sizes="drawn")),
        ({"pathological": {"classes": 1}}, Pathological(classes=1)),
        ({"name": "dirichlet", "reading": "symmetric"}, Dirichlet(reading="symmetric")),
    ],
)
def test_partitions_are_written_like_this(written: Any, meant: Partition) -> None:
    experiment = files.validate(experiment_with(written))
    assert experiment.corpus.partition == meant  # type: ignore[attr-defined]
    assert files.validate(experiment.model_dump(mode="json")).corpus == experiment.corpus


@pytest.mark.parametrize(
    ("written", "sentence"),
    [
        ("natural", "corpus.partition: there is no natural partition, since these texts come without users"),
        ({"natural": {}}, "corpus.partition: there is no natural partition"),
        ({"dirichlet": {"alpha": 0}}, "corpus.partition.*alpha: .*greater than 0"),
        ({"dirichlet": {"beta": 1}}, r"no key corpus.partition\S*beta"),
        ("dirichle", "corpus.partition cannot be 'dirichle'; did you mean dirichlet"),
    ],
)
def test_what_cannot_be_is_one_sentence(written: Any, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence) as caught:
        files.validate(experiment_with(written))
    assert "\n" not in str(caught.value)
