"""Exposure of planted secrets: how much better than chance a language model knows their digits.

Carlini et al. (2019), "The Secret Sharer". The candidates of a secret are all strings of as many digits after its
prefix.

Legend: B sentences or prefixes, V vocabulary, L layers, H hidden units, D the ten digits.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import isnan, log2, nan
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from fedtext.audits.base import Audit, LocalUpdate, Observation
from fedtext.audits.known import Known, State, Words, digest
from fedtext.corpora.language import LanguageCorpus
from fedtext.corpora.secrets import DIGITS, Secret
from fedtext.methods.base import Model
from fedtext.models.language import LanguageModel
from fedtext.runtime.markdown import plain
from fedtext.text.tokens import BOS

FILE = "exposure.md"
CHUNK = 1024  # prefixes that are extended together


class Exposure(Audit):
    """Exposure: how well a language model knows secrets that are planted in train texts (Carlini et al. 2019).

    The attacker has the model after the last round, and knows the words before a secret's digits, but not the digits.
    ``corpus.secrets`` says which secrets are planted. The metrics are of the model, in the record of a client that
    has completed the last round, the first one of those that are evaluated, if there are some.

    - ``exposure_<insertions>``: log2 of the number of candidates minus log2 of the rank of the secret among them, by
      their probability under the model; mean over the secrets that were planted that often. The rank is exact: one plus
      the number of other candidates that are at least as probable. A model that does not know the digits gives -log2 U
      with U uniform, 1.44 on average; ``exposure_control`` is that of secrets that were planted nowhere.
    - ``extracted_<insertions>``: share of these secrets whose digits are what beam search finds as the most probable
      words after the prefix, among all words.
    """

    name: Literal["exposure"] = "exposure"
    beams: int = Field(10, ge=1, le=1000, description="sequences that beam search keeps; 1: greedy")
    reads_updates = False
    metrics = ("exposure_<insertions>", "extracted_<insertions>")

    def observe(self, local: LocalUpdate, words: Words) -> Observation | None:
        experiment = local.known.experiment
        if local.round < experiment.training.rounds:
            return None
        assert isinstance(experiment.corpus, LanguageCorpus)
        assert experiment.corpus.secrets, "or the experiment is refused"
        secrets = experiment.corpus.secrets.drawn(experiment.seed)
        return Exposed(self.beams, secrets, local.known, local.data.rows_R, words)


@dataclass(frozen=True)
class Found:
    """A model's knowledge of a secret."""

    secret: Secret
    rank: int | None  # None: the model's probabilities are not finite
    extracted: bool

    @property
    def exposure(self) -> float:
        return nan if self.rank is None else len(self.secret.digits) * log2(len(DIGITS)) - log2(self.rank)

    @property
    def group(self) -> str:
        """The end of the names of its metrics."""
        return str(self.secret.insertions) if self.secret.insertions else "control"


@dataclass(frozen=True)
class Exposed(Observation):
    """A client of the last round, at which the model can be attacked.

    Attributes:
        beams: Sequences that beam search keeps.
        secrets: The secrets, planted and not.
        known: The attacker's knowledge.
        rows_R: Rows of the table that the client has, in a language corpus all.
        words: The vocabulary.
        made: What was found, by the digest of the parameters.
    """

    of_model = True

    beams: int
    secrets: Sequence[Secret]
    known: Known = field(repr=False)
    rows_R: NDArray[np.int32] = field(repr=False)
    words: Words = field(repr=False)
    made: dict[str, list[Found]] = field(default_factory=dict, repr=False)

    def metrics(self, shared: State) -> dict[str, float]:
        groups: dict[str, list[Found]] = {}
        for one in self._found(shared):
            groups.setdefault(one.group, []).append(one)
        means: dict[str, float] = {}
        for group, members in groups.items():
            if any(one.rank is None for one in members):
                continue
            means[f"exposure_{group}"] = sum(one.exposure for one in members) / len(members)
            means[f"extracted_{group}"] = sum(one.extracted for one in members) / len(members)
        return means

    def _found(self, shared: State) -> list[Found]:
        key = digest(shared)
        if key not in self.made:
            model = Model(self.known.network, self.known.parameters(shared, self.rows_R))
            self.made[key] = model.run(lambda network: [self._attack(network, secret) for secret in self.secrets])
        return self.made[key]

    @torch.no_grad()
    def _attack(self, network: LanguageModel, secret: Secret) -> Found:
        rows = self.words.rows
        prefix, digits = [rows[word] for word in (BOS, *secret.prefix)], [rows[digit] for digit in secret.digits]
        found = searched(network, prefix, len(digits), self.beams)
        return Found(secret, rank(network, prefix, digits, [rows[digit] for digit in DIGITS]), found == digits)

    def report(self, shared: State, words: Words) -> dict[str, str]:
        lines = [
            "# Exposure of planted secrets",
            "",
            "Under the shared parameters after the last round. A control was planted nowhere.",
            "",
            "| prefix | digits | insertions | rank | exposure (bits) | extracted |",
            "| --- | --- | --- | --- | --- | --- |",
        ]
        for one in self._found(shared):
            secret = one.secret
            lines.append(
                f"| {plain(' '.join(secret.prefix))} | {' '.join(secret.digits)} | {secret.insertions or 'control'} | "
                f"{'none' if one.rank is None else f'{one.rank:,}'} of {len(DIGITS) ** len(secret.digits):,} | "
                f"{one.exposure:.2f} | "
                f"{'yes' if one.extracted else 'no'} |"
            )
        return {FILE: "\n".join(lines) + "\n"}


def rank(network: LanguageModel, prefix: Sequence[int], secret: Sequence[int], digits: Sequence[int]) -> int | None:
    """Return the rank of a secret among all strings of as many digits after a prefix, by their probability.

    Strings are extended digit by digit, from the state after their common beginning. A beginning that is less probable
    than the secret is not extended, since no string with it can be more probable: the rank is exact nevertheless.

    Args:
        network: The model.
        prefix: Rows of the words before the secret, at least one.
        secret: Rows of its digits.
        digits: Rows of all digits.

    Returns:
        One plus the number of other strings that are at least as probable, or whose probability is not a number; None
        if that of the secret is not.
    """
    begun = _after(network, prefix)
    own, place, (logits_BV, hidden_LBH) = 0.0, 0, begun
    for number, row in enumerate(secret):
        own -= float(_logs(logits_BV, torch.tensor([row])))
        place = place * len(digits) + digits.index(row)
        if number + 1 < len(secret):
            logits_BV, hidden_LBH = network.step(torch.tensor([row]), hidden_LBH)
    if isnan(own):
        return None
    rows_D, step_D = torch.tensor(digits), torch.arange(len(digits))

    def better(nats_B: Tensor, places_B: Tensor, logits_BV: Tensor, hidden_LBH: Tensor, left: int) -> int:
        """Count the other strings with these beginnings, numbered by ``places_B``, that are at least as probable."""
        nats_BD = nats_B[:, None] - _logs(logits_BV, rows_D)
        places_BD = places_B[:, None] * len(digits) + step_D
        kept_B, kept_D = (~(nats_BD > own)).nonzero(as_tuple=True)
        nats_N, places_N = nats_BD[kept_B, kept_D], places_BD[kept_B, kept_D]
        if left == 1:
            return int((places_N != place).sum())
        count = 0
        for start in range(0, len(nats_N), CHUNK):
            part = slice(start, start + CHUNK)
            following = network.step(rows_D[kept_D[part]], hidden_LBH[:, kept_B[part]].contiguous())
            count += better(nats_N[part], places_N[part], *following, left - 1)
        return count

    return 1 + better(torch.zeros(1, dtype=torch.float64), torch.zeros(1, dtype=torch.int64), *begun, len(secret))


def searched(network: LanguageModel, prefix: Sequence[int], length: int, beams: int) -> list[int]:
    """Return the most probable words after a prefix that beam search finds.

    Args:
        network: The model.
        prefix: Rows of the words before them, at least one.
        length: Number of words.
        beams: Number of sequences that are kept.
    """
    logits_BV, hidden_LBH = _after(network, prefix)
    nats_B, found_BT = torch.zeros(1, dtype=torch.float64), torch.zeros((1, 0), dtype=torch.int64)
    for number in range(length):
        nats_BV = nats_B[:, None] - logits_BV.log_softmax(1).double()
        nats_B, chosen_B = nats_BV.flatten().topk(min(beams, nats_BV.numel()), largest=False)
        from_B, word_B = chosen_B // nats_BV.shape[1], chosen_B % nats_BV.shape[1]
        found_BT = torch.cat([found_BT[from_B], word_B[:, None]], 1)
        if number + 1 < length:
            logits_BV, hidden_LBH = network.step(word_B, hidden_LBH[:, from_B].contiguous())
    best: list[int] = found_BT[0].tolist()
    return best


def _after(network: LanguageModel, prefix: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Return the logits of the word after a prefix, and the states."""
    logits_BV, hidden_LBH = network.step(torch.tensor(prefix[:1]))
    for row in prefix[1:]:
        logits_BV, hidden_LBH = network.step(torch.tensor([row]), hidden_LBH)
    return logits_BV, hidden_LBH


def _logs(logits_BV: Tensor, rows_D: Tensor) -> Tensor:
    """Return the log-probabilities of some words."""
    return logits_BV[:, rows_D].double() - logits_BV.logsumexp(1, keepdim=True).double()
