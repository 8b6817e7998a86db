"""Vocabularies that are released with a guarantee, in the place of counts that are summed without protection.

The clients are simulated in this process. Draws follow from the seed, the release and the texts, as those of
``privacy.noise: reproducible`` do.
"""

import hashlib
import json
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np
from pydantic import Field

from fedtext.accounting import heavy_hitters
from fedtext.accounting.entry import DELTA, Entry
from fedtext.schema import Strict, choice
from fedtext.seeding import generator

END = " "  # after the last letter of a word: no word has a blank
RELEASE = "corpus.vocabulary"  # name of its entry in a ledger
_TRUSTED = (
    "with a client's texts or none in their place; the server that adds up is trusted; simulated: the draws follow "
    "from the seed, the release and the texts"
)


class Release(Strict, ABC):
    """Base of ways to release frequent words, with their guarantee."""

    name: str
    epsilon: float = Field(2.0, ge=0.001, le=100, description="epsilon of the release, of all texts of a client")
    delta: float = Field(DELTA, gt=0, lt=1, description="delta of the release; far below 1 / clients")

    @abstractmethod
    def words(self, clients: Sequence[Counter[str]], rng: np.random.Generator) -> list[str]:
        """Return the released words, the most frequent first as far as it is known.

        Args:
            clients: Word counts of each client.
            rng: Source of random numbers.
        """

    @abstractmethod
    def how(self, clients: int) -> str:
        """Return how words are released by this number of clients, for the ledger."""

    def entry(self, clients: int) -> Entry:
        """Return the entry of the ledger."""
        return Entry(RELEASE, "run", self.epsilon, self.delta, self.how(clients), _TRUSTED)


class TrieHH(Release):
    """TrieHH: a trie of prefixes, of which each level is voted on by a few clients (Zhu et al. 2020).

    Each client has one of its words, drawn in proportion to its counts. On each level some clients are drawn. A client
    whose word has a prefix in the trie votes for the prefix with one more letter, and what has enough votes joins the
    trie. No noise is added: what is released is private since few vote and many votes are needed.
    """

    name: Literal["triehh"] = "triehh"
    length: int = Field(
        10, ge=1, le=100, description="levels of the trie: letters of the longest word that can be found, and its end"
    )

    def words(self, clients: Sequence[Counter[str]], rng: np.random.Generator) -> list[str]:
        return self.found(list(filter(None, (drawn_word(counts, rng) for counts in clients))), len(clients), rng)

    def found(self, words: Sequence[str], clients: int, rng: np.random.Generator) -> list[str]:
        """Return the words of the trie in alphabetical order.

        Args:
            words: The word of each client that has one.
            clients: Number of all clients.
            rng: Source of random numbers.
        """
        threshold = heavy_hitters.triehh_threshold(self.epsilon, self.delta, self.length)
        sample = heavy_hitters.triehh_sample(clients, self.epsilon, threshold, self.length)
        trie = {""}
        ended: list[str] = []
        for level in range(1, self.length + 1):
            drawn = rng.choice(clients, sample, replace=False, shuffle=False)
            votes = Counter(
                whole[:level]
                for place in drawn
                if place < len(words) and len(whole := words[place] + END) >= level and whole[: level - 1] in trie
            )
            trie = {prefix for prefix, count in votes.items() if count >= threshold}
            ended += [prefix.removesuffix(END) for prefix in trie if prefix.endswith(END)]
            if not trie:
                break
        return sorted(ended)

    def how(self, clients: int) -> str:
        threshold = heavy_hitters.triehh_threshold(self.epsilon, self.delta, self.length)
        sample = heavy_hitters.triehh_sample(clients, self.epsilon, threshold, self.length)
        return f"TrieHH, {self.length} levels, {sample} of {clients} clients vote on each, {threshold} votes are needed"


class NoisySums(Release):
    """Noised sums: words whose sum over clients is large with Gaussian noise (Gopi et al. 2020, weighted Gaussian).

    A client draws some of its words, t, and adds 1 / sqrt(t) to each. Words that no one has get no noise: the threshold
    is so high that a word of one client alone is released with a probability of at most delta / 2. The released words
    are ordered by their noised sums.
    """

    name: Literal["noisy_sums"] = "noisy_sums"
    words_per_client: int = Field(100, ge=1, le=100_000, description="largest number of words that a client adds to")

    def words(self, clients: Sequence[Counter[str]], rng: np.random.Generator) -> list[str]:
        sums: dict[str, float] = {}
        for counts in clients:
            chosen = sorted(counts)
            if len(chosen) > self.words_per_client:
                places = rng.choice(len(chosen), self.words_per_client, replace=False, shuffle=False)
                chosen = [chosen[place] for place in places]
            for word in chosen:
                sums[word] = sums.get(word, 0.0) + len(chosen) ** -0.5
        return self.above(sums, rng)

    def above(self, sums: Mapping[str, float], rng: np.random.Generator) -> list[str]:
        """Return the words whose sum with noise is above the threshold, the largest first.

        Args:
            sums: The sum of each word that some client has.
            rng: Source of random numbers.
        """
        sigma = heavy_hitters.sum_sigma(self.epsilon, self.delta)
        least = heavy_hitters.sum_threshold(sigma, self.delta, self.words_per_client)
        names = sorted(sums)
        noised_V = np.array([sums[name] for name in names]) + sigma * rng.standard_normal(len(names))
        order_V = np.argsort(-noised_V, kind="stable")
        return [names[place] for place in order_V if noised_V[place] > least]

    def how(self, clients: int) -> str:
        sigma = heavy_hitters.sum_sigma(self.epsilon, self.delta)
        least = heavy_hitters.sum_threshold(sigma, self.delta, self.words_per_client)
        return f"noised sums of {self.words_per_client} words a client, sigma {sigma:.4g}, threshold {least:.4g}"


ReleaseKinds: TypeAlias = TrieHH | NoisySums
if TYPE_CHECKING:
    ReleaseField: TypeAlias = ReleaseKinds
else:
    ReleaseField = choice(TrieHH, NoisySums, tagged=True)


class PrivateVocabulary(Strict):
    """A vocabulary with a guarantee, which is in the ledger."""

    private: ReleaseField = Field(description="how frequent words are released")
    size: int = Field(50_000, ge=1, description="words kept, the first of those that are released")


def drawn_word(counts: Counter[str], rng: np.random.Generator) -> str:
    """Draw one word in proportion to its count; empty if there is none."""
    names = sorted(counts)
    if not names:
        return ""
    ends = np.cumsum([counts[name] for name in names])
    return names[int(np.searchsorted(ends, rng.integers(ends[-1]), side="right"))]


def draws(release: Release, counts: Iterable[Counter[str]], seed: int) -> np.random.Generator:
    """Return the source of a release's random numbers. Another release, and one of other texts, has other draws.

    Two that shared them would tell more together than both guarantee (see ``fedtext.state.noise_key``).

    Args:
        release: How words are released.
        counts: Word counts of each client.
        seed: The experiment's seed.
    """
    told = hashlib.sha256(release.model_dump_json().encode())
    for each in counts:
        told.update(json.dumps(sorted(each.items())).encode())
    return generator(seed, f"vocabulary/{told.hexdigest()}")


def without(counts: Iterable[Counter[str]], special: Iterable[str]) -> list[Counter[str]]:
    """Return word counts without special tokens."""
    left_out = set(special)
    return [Counter({word: count for word, count in each.items() if word not in left_out}) for each in counts]
