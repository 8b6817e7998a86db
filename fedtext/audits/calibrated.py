"""Membership inference that is calibrated by shadow models: LiRA and RMIA.

A text that is easy has a small loss whether a model was trained on it or not. Shadow models, which the attacker trains
like the model, on texts of the population, show what to expect of a model that was not.

Legend: N texts, Z population texts, S shadow models, P = S/2 of them that were not trained on a text.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, field_validator

from fedtext.audits.confidences import Confidences, attacked, attacked_tests, confidences
from fedtext.audits.known import Known, Population, State, digest
from fedtext.corpora.types import ClientData
from fedtext.schema import Strict, entry
from fedtext.seeding import generator

PURPOSE = "audits/membership"  # of random draws
FEW = 64  # shadow models: with fewer, the variance of a single text's logits is hardly known (Carlini et al. 2022)


class Loss(Strict):
    """The loss alone (Yeom et al. 2018), which no other model calibrates."""

    name: Literal["loss"] = "loss"


class Calibrated(Strict, ABC):
    """Base of attacks with shadow models.

    Attributes:
        least: Smallest number of shadow models.
    """

    name: str
    least: ClassVar[int] = 2
    shadows: int = Field(
        2,
        ge=2,
        le=1024,
        description="number of shadow models, even; each costs as much as a run on half as many texts as the clients' "
        "test texts, in every process that hosts clients",
    )
    population: int = Field(
        2000,
        ge=1,
        le=1_000_000,
        description="largest number of population texts to compare with: test texts of other clients, drawn from the "
        "seed",
    )

    @field_validator("shadows")
    @classmethod
    def _pairs(cls, value: int) -> int:
        if value % 2 or value < cls.least:
            raise ValueError(
                f"shadow models are trained in pairs, each pair on two halves of the texts: use an even number, "
                f"{cls.least} or more"
            )
        return value

    @abstractmethod
    def scores(
        self, target: Confidences, outside: Sequence[Confidences], population: "Reference"
    ) -> NDArray[np.float64]:
        """Return a score of each text, the larger the more it looks like a train text; shape (N,).

        Args:
            target: Confidences by the released parameters.
            outside: The same by P shadow models that were not trained on the text: another P for each text.
            population: Texts of the population, for comparison.
        """


class RMIA(Calibrated):
    """Robust membership inference attack (Zarifzadeh et al. 2024), offline: pairwise likelihood ratios.

    The score of a text x is the share of population texts z with LR(x, z) >= gamma, where LR(x, z) = [p(x) / p_ref(x)]
    / [p(z) / p_ref(z)], p is the probability of a text's class by the released parameters, and p_ref(x) = ((1 + a)
    p_out(x) + 1 - a) / 2 with p_out the mean over shadow models that were not trained on x (equations 3, 4 and 10). Two
    shadow models are enough.

    With one set of texts z the score grows with p(x) / p_ref(x) alone. A ``gamma`` above 1 moves the scores down, so
    that fewer of the most suspicious texts are tied at 1.
    """

    name: Literal["rmia"] = "rmia"
    gamma: float = Field(1.0, ge=1, le=1e6, description="threshold of a likelihood ratio")
    a: float = Field(
        0.33, ge=0, le=1, description="how far p_out is to be trusted: the probability of a member is a p_out + 1 - a"
    )

    def scores(
        self, target: Confidences, outside: Sequence[Confidences], population: "Reference"
    ) -> NDArray[np.float64]:
        ratios_N = self._ratios(target, outside)
        ratios_Z = np.sort(self.gamma * self._ratios(population.target, population.outside))
        dominated_N = np.searchsorted(ratios_Z, ratios_N, side="right") / len(ratios_Z)
        # NaN is sorted behind all numbers: a diverged model would dominate every text, and look like chance.
        return np.where(np.isnan(ratios_N) | np.isnan(ratios_Z).any(), np.nan, dominated_N)

    def _ratios(self, target: Confidences, outside: Sequence[Confidences]) -> NDArray[np.float64]:
        out_N = np.mean([shadow.right_N for shadow in outside], axis=0)
        return target.right_N / (((1 + self.a) * out_N + 1 - self.a) / 2)


class LiRA(Calibrated):
    """Likelihood ratio attack (Carlini et al. 2022), offline: a one-sided test of a text's logit.

    The logits log(p / (1 - p)) of a text by shadow models that were not trained on it are fitted by a Gaussian. The
    score is how many of its deviations the logit by the released parameters lies above its mean. It grows with the
    probability of a smaller logit (equation 4), which many texts of an overfitted model share as it is rounded to 1.
    With fewer than 64 shadow models the variance is that of all texts.
    """

    name: Literal["lira"] = "lira"
    least = 4
    shadows: int = Field(16, ge=4, le=1024, description=Calibrated.model_fields["shadows"].description)

    def scores(
        self, target: Confidences, outside: Sequence[Confidences], population: "Reference"
    ) -> NDArray[np.float64]:
        logits_PN = np.stack([shadow.logits() for shadow in outside])
        if self.shadows < FEW:
            others_PZ = np.stack([shadow.logits() for shadow in population.outside])
            deviation = np.sqrt(others_PZ.var(0, ddof=1).mean())
        else:
            deviation = logits_PN.std(0, ddof=1)
        z_N: NDArray[np.float64] = (target.logits() - logits_PN.mean(0)) / np.maximum(deviation, 1e-12)
        return z_N


if TYPE_CHECKING:
    AttackField: TypeAlias = Loss | RMIA | LiRA
else:
    AttackField = entry(Loss, RMIA, LiRA)


@dataclass(frozen=True, eq=False)
class Reference:
    """Confidences of population texts."""

    target: Confidences
    outside: Sequence[Confidences]


class References:
    """Shadow models, and the population texts by which scores are compared: test texts that no client has trained on.

    Args:
        known: The attacker's knowledge.
        population: What the attacker has of the population.
        attack: The attack.
        texts: Largest number of texts of a client.

    Attributes:
        inside: For each client, which shadow models are trained on which of its test texts, shape (S, its texts).
        states: The shared parameters of each shadow model.
    """

    def __init__(self, known: Known, population: Population, attack: Calibrated, texts: int) -> None:
        self.known, self.population, self.attack, self.texts = known, population, attack, texts
        chosen = [attacked_tests(known, population.texts(client), texts) for client in range(population.clients)]
        self.inside = halves(known.experiment.seed, sizes := [len(each) for each in chosen], attack.shadows)
        self.states = [
            population.trained(
                shadow, [each[inside_SN[shadow]] for each, inside_SN in zip(chosen, self.inside, strict=True)]
            )
            for shadow in range(attack.shadows)
        ]
        self.compared = {client: self._population(client, chosen) for client, chosen in self._drawn(sizes).items()}
        self.last: tuple[str, dict[int, Confidences]] = "", {}

    def scores(self, shared: State, data: ClientData, split: str) -> NDArray[np.float32]:
        """Return a score of each of a client's texts, the smaller the more it looks like a train text.

        Args:
            shared: The released parameters.
            data: The client, with those texts that are attacked.
            split: ``train`` or ``test``.
        """
        target = confidences(self.known, shared, data, split)
        if split == "test":
            first_PN = ~self.inside[data.id][::2]
        else:  # no shadow model was trained on it: one of each pair is drawn, so that as many count as of a test text
            rng = generator(self.known.experiment.seed, f"{PURPOSE}/outside", client=data.id)
            first_PN = rng.random((len(self.states) // 2, len(target.right_N))) < 0.5
        reference = self._reference(shared, data.id)
        return -self.attack.scores(target, self._outside(data, split, first_PN), reference).astype(np.float32)

    def _outside(self, data: ClientData, split: str, first_PN: NDArray[np.bool_]) -> list[Confidences]:
        """Return the confidences by one shadow model of each pair: the first one where ``first_PN``, else the other."""
        each = [confidences(self.known, state, data, split) for state in self.states]
        return [
            Confidences(np.where(first_N, one.right_N, other.right_N), np.where(first_N, one.others_N, other.others_N))
            for first_N, one, other in zip(first_PN, each[::2], each[1::2], strict=True)
        ]

    def _drawn(self, sizes: Sequence[int]) -> dict[int, NDArray[np.int64]]:
        """Draw the population texts among all clients' test texts: their indices by client."""
        places = np.concatenate([[0], np.cumsum(sizes)])
        rng = generator(self.known.experiment.seed, f"{PURPOSE}/population")
        drawn = np.sort(rng.permutation(places[-1])[: self.attack.population])
        whose = np.searchsorted(places, drawn, side="right") - 1
        return {int(client): (drawn - places[client])[whose == client] for client in np.unique(whose)}

    def _population(self, client: int, chosen: NDArray[np.int64]) -> tuple[ClientData, list[Confidences]]:
        """Return population texts of a client, and their confidences by shadow models not trained on them."""
        data = attacked(self.known, self.population.texts(client), "test", self.texts)
        data = replace(data, test=data.test.take(chosen))
        return data, self._outside(data, "test", ~self.inside[client][::2, chosen])

    def _reference(self, shared: State, client: int) -> Reference:
        """Return the population texts of all other clients; of this one if there is no other."""
        if self.last[0] != (now := digest(shared)):  # the same parameters are attacked for every client
            found = {other: confidences(self.known, shared, data, "test") for other, (data, _) in self.compared.items()}
            self.last = now, found
        others = [other for other in self.compared if other != client] or list(self.compared)
        outside = zip(*(self.compared[other][1] for other in others), strict=True)
        return Reference(joined([self.last[1][other] for other in others]), [joined(parts) for parts in outside])


def halves(seed: int, sizes: Sequence[int], shadows: int) -> list[NDArray[np.bool_]]:
    """Draw on which texts each shadow model is trained: those of a pair on the two halves of each client's texts.

    Args:
        seed: The experiment's seed.
        sizes: Number of texts of each client.
        shadows: Number S of shadow models.

    Returns:
        For each client an array of shape (S, its texts). Of an odd number of texts either shadow model of a pair has
        one more, in turns, so that both have as many over all clients, up to one.
    """
    odd = np.cumsum([0, *(size % 2 for size in sizes)])[:-1]
    found = []
    for client, size in enumerate(sizes):
        inside_SN = np.zeros((shadows, size), np.bool_)
        for pair in range(shadows // 2):
            order_N = generator(seed, f"{PURPOSE}/halves", pair, client).permutation(size)
            inside_SN[2 * pair] = (order_N + odd[client]) % 2 == 0
        inside_SN[1::2] = ~inside_SN[::2]
        found.append(inside_SN)
    return found


def joined(parts: Sequence[Confidences]) -> Confidences:
    """Join the confidences of texts of several clients."""
    return Confidences(
        np.concatenate([part.right_N for part in parts]), np.concatenate([part.others_N for part in parts])
    )
