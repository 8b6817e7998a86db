"""A search for whole texts in the spans of a transformer's layers.

The first layer's span discloses which words a client has. If texts share words, it says little about their places: the
span of word + position over many texts has all words' and all positions' directions, and so every word at every place.
Texts follow from the layers behind it. The attention's output at a place is a mean over the whole text, and lies in the
span of the update of its projection only if all words are right. The share outside falls with every word that becomes
right, so that single replacements, exchanges and moves lead from a random text to one of the client's. DAGER (Petrov et
al. 2024) tests the inputs of the second layer instead, which costs the rest of a layer for every text that is tried;
here they decide which texts are accepted.

Legend: S texts that are tried, T places, W words, N texts of the client, D embedding, L length of a text.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache

import numpy as np
import torch
from torch import Tensor

from fedtext.audits.first_attention import FirstLayers
from fedtext.audits.spans import Span
from fedtext.models.packing import Ints

_SMALL = (1e-2, 1e-4)  # shares much below this are alike: while words are searched for, and for the order in the end
_TOKENS = 8192  # that are computed at a time
_RANDOM = 64  # random texts, whose shares tell what chance gives
_ACCEPTED = 0.25  # a text is accepted if its share is less than this multiple of random texts'
_AWAY = 8.0  # penalty of an accepted text, half of it: more than the objective gains from random texts to it
_VARIANT, _WORSE = 0.75, 4.0  # with this share of common words, and this multiple of the other's share or more, a text
# is a try of another one
_EXACT = 1e-3  # share that rounding explains
_SHAKES, _SHAKEN = 2, 0.4  # tries to leave a text for a better one of its words, and share of its places that change
_SWEEPS = 50
_REPEATED = 60  # searches in a row that end at texts of before, after which no other is expected


@dataclass(frozen=True, eq=False)
class Found:
    """A text that was found.

    Attributes:
        words_L: Its words, as numbers of candidates.
        share: Mean share of the layers' inputs outside of their spans.
        chance: The same of random texts of this length.
    """

    words_L: Ints
    share: float
    chance: float


@dataclass(frozen=True, eq=False)
class Goal:
    """The distance that a part of a search minimises, and among which texts.

    Attributes:
        allowed_TW: The words that are tried at each place.
        small: Shares much below this are alike.
        avoided_FL: Texts from which the search is kept away.
    """

    allowed_TW: Tensor
    small: float
    avoided_FL: Tensor

    def penalty(self, tried_SL: Tensor) -> Tensor:
        """Return for each text how far more than half of its words are those of an avoided text, at their places."""
        if not len(self.avoided_FL):
            return torch.zeros(len(tried_SL))
        same_S = (tried_SL[:, None] == self.avoided_FL).float().mean(2).amax(1)
        return _AWAY * (same_S - 0.5).clamp_min(0)


@dataclass
class SpanSearch:
    """The search.

    Attributes:
        layers: The first layers.
        words_WD: Vectors of the words that are tried.
        allowed_TW: Which of them are tried at each place.
        first: Span of the first layer's inputs.
        output: Span of the first attention's output.
        deeper: Spans of the inputs of the layers after the first.
        left: Number of texts that may still be tried.
        rng: Source of random numbers.
    """

    layers: FirstLayers
    words_WD: Tensor
    allowed_TW: Tensor
    first: Span
    output: Span
    deeper: Sequence[Span]
    left: int
    rng: np.random.Generator
    read: list[Tensor] = field(init=False)
    inputs_TWD: Tensor = field(init=False)
    first_TW: Tensor = field(init=False)
    chance: dict[int, float] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        places = len(self.allowed_TW)
        self.inputs_TWD = self.layers.placed(self.words_WD, places)
        self.first_TW = self.first.outside(self.inputs_TWD)
        self.read = self.layers.read(self.inputs_TWD)

    def texts(self, lengths: Sequence[int] | None, count: int) -> list[Found]:
        """Search for the texts of a client until all are found or the budget is spent.

        Args:
            lengths: Lengths of the texts; None: not known.
            count: Number of texts N.

        Returns:
            At most N texts, those of the smallest shares that are unlike each other.
        """
        found: list[Found] = []
        repeated = again = 0
        while self.left > 0 and repeated < _REPEATED and again <= count:
            known = unlike(accepted(found), count)
            exact = [one for one in known if one.share <= max(_EXACT, _WORSE * known[0].share)]
            if len(exact) == count:
                break
            if len(known) == count:  # others may be tries of texts that were not found yet
                again, known = again + 1, exact
            one = self._climbed(self._length(lengths, known), known, repeated)
            repeated += 1
            if not any(np.array_equal(one.words_L, other.words_L) for other in found):
                found.append(one)
                repeated = 0
        return unlike(found, count)

    def _length(self, lengths: Sequence[int] | None, sure: Sequence[Found]) -> int:
        """Draw the length of the next text: one that no accepted text has yet."""
        if lengths is None:
            return int(self.rng.integers(1, len(self.allowed_TW) + 1))
        waiting = Counter(lengths) - Counter(len(one.words_L) for one in sure) or Counter(lengths)
        return int(self.rng.choice(sorted(waiting.elements())))

    def _missing(self, sure: Sequence[Found], repeated: int) -> Tensor:
        """Return the words with which a search begins: in turn those that no accepted text has, those that no accepted
        text has at this place, and all."""
        missing_TW = self.allowed_TW.clone()
        for one in sure:
            words_L = torch.from_numpy(one.words_L)
            if repeated % 3 == 0:
                missing_TW[:, words_L] = False
            elif repeated % 3 == 1:
                missing_TW[torch.arange(len(words_L)), words_L] = False
        return missing_TW.where(missing_TW.any(1, keepdim=True), self.allowed_TW)

    def _drawn(self, length: int, allowed_TW: Tensor) -> Tensor:
        """Draw a text of the words that are allowed at each place."""
        choices = [torch.nonzero(allowed_W).flatten() for allowed_W in allowed_TW[:length]]
        return torch.stack([choice[int(self.rng.integers(len(choice)))] for choice in choices])

    def _climbed(self, length: int, sure: Sequence[Found], repeated: int) -> Found:
        """Change a random text as long as this reduces its objective: among words that are missing in accepted texts,
        then among all, and in the end with regard to the smallest differences."""
        same = [torch.from_numpy(one.words_L) for one in sure if len(one.words_L) == length and repeated % 3 < 2]
        avoided_FL = torch.stack(same) if same else torch.zeros(0, length)
        among_TW = self._missing(sure, repeated)
        text_L = self._drawn(length, among_TW)
        text_L = self._descended(text_L, Goal(among_TW, _SMALL[0], avoided_FL))
        text_L = self._descended(text_L, Goal(self.allowed_TW, _SMALL[0], avoided_FL))
        end = Goal(self.allowed_TW, _SMALL[1], avoided_FL)
        text_L = self._descended(text_L, end)
        share, chance = float(self._shares(text_L[None])[0]), self._chance(length)
        for _ in range(_SHAKES if share < _ACCEPTED * chance else 0):
            other_L = self._descended(self._shaken(text_L), end)
            if (value := float(self._shares(other_L[None])[0])) < share:
                text_L, share = other_L, value
        return Found(text_L.numpy(), share, chance)

    def _shaken(self, text_L: Tensor) -> Tensor:
        """Return a text with the words of some places in another order, as far as they are allowed there."""
        places = torch.from_numpy(self.rng.permutation(len(text_L))[: math.ceil(_SHAKEN * len(text_L))])
        shaken_L = text_L.clone()
        shaken_L[places] = text_L[places.roll(1)]
        return shaken_L.where(self.allowed_TW[torch.arange(len(text_L)), shaken_L], text_L)

    def _descended(self, text_L: Tensor, goal: Goal) -> Tensor:
        """Change a text by single replacements, exchanges and moves as long as one of them reduces its objective."""
        best = float(self._objective(text_L[None], goal)[0])
        for _ in range(_SWEEPS):
            before = best
            for place in self.rng.permutation(len(text_L)):
                words = torch.nonzero(goal.allowed_TW[place]).flatten()
                tried_SL = text_L.repeat(len(words), 1)
                tried_SL[:, place] = words
                text_L, best = self._better(text_L, best, tried_SL, goal)
            while self.left > 0:
                moved_SL, least = text_L[_orders(len(text_L))], best
                allowed_SL = goal.allowed_TW[torch.arange(len(text_L)), moved_SL]
                text_L, best = self._better(text_L, best, moved_SL[allowed_SL.all(1)], goal)
                if best == least:
                    break
            if best == before or self.left <= 0:
                break
        return text_L

    def _better(self, text_L: Tensor, best: float, tried_SL: Tensor, goal: Goal) -> tuple[Tensor, float]:
        """Return the best of a text and others, with its objective."""
        if not len(tried_SL) or self.left <= 0:
            return text_L, best
        values_S = self._objective(tried_SL, goal)
        least = int(values_S.argmin())
        return (tried_SL[least], float(values_S[least])) if values_S[least] < best else (text_L, best)

    def _objective(self, tried_SL: Tensor, goal: Goal) -> Tensor:
        """Return for each text the mean logarithm of the shares of words, and of what attention makes of them, outside
        of their spans."""
        self.left -= len(tried_SL)
        parts = tried_SL.split(max(1, _TOKENS // tried_SL.shape[1]))
        shares_S = torch.cat([(torch.stack(self._early(part)) + goal.small).log().mean((0, 2)) for part in parts])
        return shares_S + goal.penalty(tried_SL)

    def _early(self, tried_SL: Tensor) -> list[Tensor]:
        """Return the shares of the first layer's inputs, and of its attention's output, each of shape (S, L)."""
        places_L = torch.arange(tried_SL.shape[1])
        attended_SLD = self.layers.attended([tensor[places_L, tried_SL] for tensor in self.read])
        return [self.first_TW[places_L, tried_SL], self.output.outside(attended_SLD)]

    @torch.no_grad()
    def _shares(self, tried_SL: Tensor) -> Tensor:
        """Return for each text the mean share of the inputs of all tested layers outside of their spans."""
        inputs_SLD = self.inputs_TWD[torch.arange(tried_SL.shape[1]), tried_SL]
        return torch.stack([*self._early(tried_SL), *self.layers.deeper(inputs_SLD, self.deeper)]).mean((0, 2))

    def _chance(self, length: int) -> float:
        """Return the median share of random texts."""
        if length not in self.chance:
            drawn_SL = torch.stack([self._drawn(length, self.allowed_TW) for _ in range(_RANDOM)])
            self.chance[length] = float(self._shares(drawn_SL).median())
        return self.chance[length]


@cache
def _orders(length: int) -> Tensor:
    """Return the orders of a text's places with two of them exchanged, or with one moved, shape (S, L)."""
    orders = []
    for one in range(length):
        for other in range(length):
            order = [*range(length)]
            if one < other:
                order[one], order[other] = other, one
                orders.append(order)
                order = [*range(length)]
            if abs(one - other) > 1:
                order.insert(other, order.pop(one))
                orders.append(order)
    return torch.tensor(orders, dtype=torch.int64).reshape(-1, length)


def accepted(found: Sequence[Found]) -> list[Found]:
    """Return the texts whose shares are far less than those of random texts."""
    return [one for one in found if one.share < _ACCEPTED * one.chance]


def unlike(found: Sequence[Found], count: int) -> list[Found]:
    """Return the texts of the smallest shares, without others that are tries of the same text.

    Args:
        found: The texts.
        count: Largest number of texts.
    """
    chosen: list[Found] = []
    for one in sorted(found, key=lambda one: one.share):
        likes = [(_common(one, other), one.share < _WORSE * other.share) for other in chosen]
        if not any(like == 1 or (like >= _VARIANT and not near) for like, near in likes):
            chosen.append(one)
    return chosen[:count]


def _common(one: Found, other: Found) -> float:
    """Return the share of the longer text's words that both have, with their multiplicities."""
    shared = Counter(one.words_L.tolist()) & Counter(other.words_L.tolist())
    return shared.total() / max(len(one.words_L), len(other.words_L))
