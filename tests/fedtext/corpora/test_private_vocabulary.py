"""Vocabularies that are released with a guarantee: what is found, what is never found, and the ledger."""

import math
from collections import Counter
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest

from fedtext.accounting import heavy_hitters
from fedtext.config.files import validate
from fedtext.corpora.base import CorpusConfig
from fedtext.corpora.prepare import prepare
from fedtext.corpora.private_vocabulary import NoisySums, Release, TrieHH, drawn_word, draws
from fedtext.errors import UserError
from fedtext.ledger import ledger, spent
from fedtext.ledger.report import reveals
from fedtext.ledger.together import Trial, together
from fedtext.testing.runs import final
from tests import tiny
from tests.loops import nonempty

CORPUS: dict[str, Any] = {
    "name": "demo",
    "clients": 400,
    "train": 20,
    "test": 4,
    "max_length": 9,
    "vocabulary": {"private": {"noisy_sums": {"epsilon": 3.0, "words_per_client": 20}}},
}
RELEASES: list[Release] = [TrieHH(epsilon=6.0), NoisySums(epsilon=2.0, words_per_client=5)]


def _clients(count: int = 6000, seed: int = 0) -> list[Counter[str]]:
    """Clients of whom many have the common words, and each has one of its own."""
    rng = np.random.default_rng(seed)
    common = ["the", "then", "they", "zebra"]
    made = []
    for client in range(count):
        words = rng.choice(common, 4, p=[0.5, 0.2, 0.2, 0.1])
        made.append(Counter([*words.tolist(), f"own{client}"]))
    return made


@pytest.mark.parametrize("release", RELEASES, ids=lambda release: release.name)
def test_common_words_are_found_and_no_client_s_own(release: Release) -> None:
    found = release.words(_clients(), np.random.default_rng(1))
    assert {"the", "then", "they"} <= set(found)
    assert not [word for word in found if word.startswith("own")]
    assert found == release.words(_clients(), np.random.default_rng(1))


def test_noised_sums_are_in_order_of_their_size() -> None:
    assert NoisySums(epsilon=8.0).words(_clients(), np.random.default_rng(1))[0] == "the"


@pytest.mark.parametrize("release", RELEASES, ids=lambda release: release.name)
def test_few_clients_release_nothing(release: Release) -> None:
    assert release.words([Counter(["a", "b"])] * 3, np.random.default_rng(1)) == []
    assert release.words([Counter()] * 3, np.random.default_rng(1)) == []


def test_a_trie_finds_no_word_longer_than_it_is_deep() -> None:
    clients = [Counter(["abcd"])] * 5000
    assert TrieHH(epsilon=8.0, length=5).words(clients, np.random.default_rng(0)) == ["abcd"]
    assert TrieHH(epsilon=8.0, length=4).words(clients, np.random.default_rng(0)) == []


def test_nothing_that_a_text_may_hold_ends_a_word_early() -> None:
    clients = [Counter(["ab\0cd"])] * 5000
    assert TrieHH(epsilon=8.0).words(clients, np.random.default_rng(0)) == ["ab\0cd"]


def test_a_word_is_drawn_in_proportion_to_its_count() -> None:
    rng, counts = np.random.default_rng(0), Counter({"a": 1, "b": 3})
    drawn = Counter(drawn_word(counts, rng) for _ in range(4000))
    assert drawn["b"] == pytest.approx(3000, abs=4 * np.sqrt(4000 * 3 / 16))


def test_a_client_with_many_words_adds_no_more_than_its_share() -> None:
    release = NoisySums(epsilon=100.0, words_per_client=3)
    one = [Counter([f"w{number}" for number in range(30)])]
    squares = []

    class Summed(NoisySums):
        def above(self, sums: Any, rng: np.random.Generator) -> list[str]:
            squares.append(sum(value**2 for value in sums.values()))
            return list(sums)

    assert len(Summed(**release.model_dump()).words(one, np.random.default_rng(0))) == 3
    assert squares == [pytest.approx(1.0)]


def _experiment(**changes: Any) -> Any:
    return tiny.experiment(corpus=CORPUS, **changes)


def _corpus(config: CorpusConfig, seed: int = 0) -> Any:
    return prepare(config, tiny.experiment().model.embedding, seed, None)


def test_a_corpus_has_the_released_words_in_their_order() -> None:
    made = _experiment().corpus
    corpus = _corpus(made)
    assert corpus.vocabulary[:2] == ["<pad>", "<unk>"]
    assert len(corpus.vocabulary) > 2
    assert _corpus(made).digest == corpus.digest
    assert _corpus(made, 1).vocabulary != corpus.vocabulary
    few = made.model_copy(update={"vocabulary": made.vocabulary.model_copy(update={"size": 5})})
    assert _corpus(few).vocabulary == corpus.vocabulary[:7]


def test_no_two_releases_share_draws() -> None:
    """An epsilon that differs in its last digits has the same noise, were it drawn from the seed alone."""
    made = _experiment().corpus
    release = NoisySums(epsilon=3.0 * (1 + 1e-9), words_per_client=20)
    other = made.model_copy(update={"vocabulary": made.vocabulary.model_copy(update={"private": release})})
    assert _corpus(other).vocabulary != _corpus(made).vocabulary
    clients = _clients(50)
    drawn = {
        draws(release, counts, seed).random()
        for release in RELEASES
        for counts in (clients, clients[1:])
        for seed in (0, 1)
    }
    assert len(drawn) == 8


def test_a_release_that_finds_nothing_ends_in_a_sentence() -> None:
    config = _experiment().corpus.model_copy(update={"clients": 3})
    with pytest.raises(UserError, match=r"noisy_sums finds no word that is frequent enough among 3 clients: raise"):
        _corpus(config)


def test_the_ledger_has_the_release_and_both_together() -> None:
    noise = {"uplink": ["clip"], "server": {"weights": "uniform", "noise": {"multiplier": 2.0}}}
    made, plain = _experiment(**noise), tiny.experiment(**noise)
    alone = spent(ledger(plain, 100, 400, 2))
    entries = {entry.mechanism: entry for entry in ledger(made, 100, 400, 2) if entry.unit == "run"}
    assert entries["corpus.vocabulary"].epsilon == 3.0
    assert "noised sums of 20 words a client, sigma" in entries["corpus.vocabulary"].how
    assert spent(ledger(made, 100, 400, 2)) == {"epsilon": alone["epsilon"] + 3.0, "delta": 2e-5}
    for entry in nonempty(list(entries.values())):
        assert "word counts" not in entry.assumptions
    assert "its words, to the server that adds them up" in entries["server.noise"].assumptions
    said = reveals(made, ledger(made, 100, 400, 2))
    assert "the vocabulary is released from every client's words, with a guarantee (noisy_sums)" in said
    assert not [sentence for sentence in said if "without protection" in sentence]
    ((both, trials),) = together([Trial(made)] * 2)
    ((without, _),) = together([Trial(plain)] * 2)
    assert len(trials) == 2
    assert both.epsilon is not None
    assert without.epsilon is not None
    assert both.epsilon == pytest.approx(without.epsilon + 3.0)


def test_without_noise_of_the_server_only_the_release_is_guaranteed() -> None:
    made = _experiment()
    assert spent(ledger(made, 100, 400, 2)) == {}
    assert [entry.epsilon for entry in ledger(made, 100, 400, 2) if entry.mechanism == "corpus.vocabulary"] == [3.0]


@pytest.mark.parametrize(
    ("uplink", "why"),
    [([], "updates are sent as they are"), (["clip"], "no mechanism of the uplink states one")],
)
def test_beside_a_release_the_ledger_says_that_nothing_is_guaranteed_for_updates(uplink: list[str], why: str) -> None:
    made = _experiment(uplink=uplink)
    first, release = ledger(made, 100, 400, 2)
    assert (first.mechanism, first.epsilon, first.how) == ("uplink", None, f"no guarantee: {why}")
    assert release.mechanism == "corpus.vocabulary"
    assert f"ledger: uplink: no guarantee: {why}" in reveals(made, [first, release])


def test_models_that_are_not_shared_have_a_release_all_the_same() -> None:
    made = _experiment(method="local_only")
    entries = ledger(made, 100, 400, 2)
    assert [entry.mechanism for entry in entries] == ["local_only", "corpus.vocabulary"]
    assert reveals(made, entries)[0].startswith("nothing leaves a client but its words, for the vocabulary, and")


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"corpus.min_count": 2}, "a private vocabulary has a threshold of its own"),
        ({"corpus.text": {"hash": {"buckets": 50}}}, "vocabulary: all buckets have a row of the table"),
        ({"privacy.noise": "secret"}, "it is released before a run has its key"),
        ({"method": "fedevocab"}, "clients keep their words, so that nothing is released"),
        ({"corpus.vocabulary": {"private": "other"}}, "corpus.vocabulary"),
        ({"corpus.vocabulary": 0}, "corpus.vocabulary"),
    ],
)
def test_what_does_not_fit_is_refused(changes: dict[str, Any], sentence: str) -> None:
    content: dict[str, Any] = {"name": "x", "corpus": CORPUS | {}, "method": "fedavg", "privacy": {}}
    for key, value in changes.items():
        *sections, name = key.split(".")
        place = content
        for section in sections:
            place = place[section]
        place[name] = value
    with pytest.raises((UserError, ValueError), match=sentence):
        validate(content)


def test_a_run_with_it_is_like_any_other() -> None:
    made = _experiment(participation={"fraction": 0.02})
    corpus = _corpus(made.corpus)
    assert final(made, corpus) == final(made, corpus)


def test_noised_sums_have_the_noise_that_is_stated() -> None:
    """Of 20,000 words whose sum is at the threshold plus c sigma, the share Phi(c) is released."""
    made = NoisySums(epsilon=3.0, delta=1e-6, words_per_client=20)
    sigma = heavy_hitters.sum_sigma(made.epsilon, made.delta)
    least = heavy_hitters.sum_threshold(sigma, made.delta, made.words_per_client)
    count = 20_000
    for deviations in nonempty([-1.0, 0.5, 1.5]):
        sums = {f"w{place}": least + deviations * sigma for place in range(count)}
        share = NormalDist().cdf(deviations)
        found = len(made.above(sums, np.random.default_rng(3))) / count
        assert abs(found - share) < 4 * math.sqrt(share * (1 - share) / count)
