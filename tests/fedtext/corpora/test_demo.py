"""The demo corpus: what its texts and labels are made of."""

from collections import Counter

import numpy as np
import pytest

from fedtext.corpora.demo import _DOMAINS, _FLIP_GROUPS, _NEGATIVE, _POSITIVE, DemoCorpus
from fedtext.corpora.prepare import prepare
from fedtext.models.base import Embedding
from tests.loops import nonempty


def test_demo_is_the_same_for_a_seed_and_differs_between_seeds() -> None:
    config = DemoCorpus(train=20, test=10)
    first, again, other = (prepare(config, Embedding(), seed, None).digest for seed in (1, 1, 2))
    assert first == again != other
    raw = config.read(None, 1)
    assert [client.name for client in raw.clients][:2] == ["appliances", "films"]
    assert [(len(client.train), len(client.test)) for client in raw.clients] == [(20, 10)] * 8
    fewer = DemoCorpus(train=20, test=10, clients=2).read(None, 1)
    assert fewer.clients[1].train.texts == raw.clients[1].train.texts  # a client does not depend on the others
    assert config.read_unlabeled(None, 1) == config.read_unlabeled(None, 1)
    assert not {text for text, _ in config.read_unlabeled(None, 1)} & set(raw.clients[0].train.texts[:5])


def test_demo_can_have_more_clients_than_domains() -> None:
    raw = DemoCorpus(clients=10, train=4, test=2).read(None, 0)
    names = [client.name for client in raw.clients]
    assert len(set(names)) == 10
    assert names[8] == "appliances-2"
    assert raw.clients[0].train.texts != raw.clients[8].train.texts


def test_demo_labels_follow_from_general_words_and_from_flip_words_by_domain() -> None:
    positive, negative = set(_POSITIVE.split()), set(_NEGATIVE.split())
    flips = [set(group.split()) for group in _FLIP_GROUPS]
    assert not positive & negative
    assert not (positive | negative) & set.union(*flips)
    raw = DemoCorpus(noise=0, train=300).read(None, 0)
    hang = 0
    for client, (name, signs, *_) in nonempty(zip(raw.clients, _DOMAINS, strict=True)):
        assert client.name == name
        for text, label in nonempty(zip(client.train.texts, client.train.labels, strict=True)):
            used = set(text.split())
            good = used & positive or [s for s, group in zip(signs, flips, strict=True) if s == "+" and used & group]
            bad = used & negative or [s for s, group in zip(signs, flips, strict=True) if s == "-" and used & group]
            assert bool(good) != bool(bad), text
            assert label == bool(good), text
            hang += not used & (positive | negative)
    assert hang / 2400 == pytest.approx(0.3, abs=0.04)


def test_demo_flip_words_say_nothing_over_all_domains() -> None:
    """Each group is praise in as many domains as not, and so is it for the first 2, 4 and 6 domains."""
    for count in (2, 4, 6, 8):
        for group in nonempty(range(len(_FLIP_GROUPS))):
            assert Counter(signs[group] for _, signs, *_ in _DOMAINS[:count])["+"] == count / 2


def test_demo_is_not_iid_and_gives_its_domain_away_only_in_some_texts() -> None:
    raw = DemoCorpus(train=400).read(None, 0)
    topics = [set(topic_words.split()) for *_, topic_words in _DOMAINS]
    lengths, shares = [], []
    for client, own in nonempty(zip(raw.clients, topics, strict=True)):
        texts = [set(text.split()) for text in client.train.texts]
        named = sum(bool(text & own) for text in texts) / 400
        assert named == pytest.approx(0.5, abs=0.1)
        lengths.append(np.mean([len(text.split()) for text in client.train.texts]))
        shares.append(client.train.labels.mean())
    assert max(lengths) > 1.3 * min(lengths)
    assert max(shares) > min(shares) + 0.1
    assert 8 < min(lengths) < max(lengths) < 30


def test_demo_noise_turns_labels_round() -> None:
    clean, noisy = (DemoCorpus(noise=noise, train=500, clients=2).read(None, 0) for noise in (0.0, 0.3))
    for a, b in nonempty(zip(clean.clients, noisy.clients, strict=True)):
        assert a.train.texts == b.train.texts
        assert np.mean(a.train.labels != b.train.labels) == pytest.approx(0.3, abs=0.06)
