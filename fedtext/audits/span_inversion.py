"""Recovery of the texts of large batches from a transformer's update, by linear algebra (DAGER: Petrov et al. 2024).

Legend: N texts of the client, V vocabulary, W candidates, K places, D embedding.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from fedtext.audits.base import Audit, LocalUpdate, Observation
from fedtext.audits.decoding import eligible
from fedtext.audits.first_attention import FirstLayers, Names, named
from fedtext.audits.gradient_inversion import shown, unrelated
from fedtext.audits.gradients import local_steps, texts_behind
from fedtext.audits.known import State, Words
from fedtext.audits.recovery import FIGURES, Pairing, paired
from fedtext.audits.span_search import SpanSearch
from fedtext.audits.spans import Span, deviation, span
from fedtext.models.packing import Ints
from fedtext.runtime.markdown import plain
from fedtext.seeding import generator

FILE = "span_inversion.md"
_TABLES = ("public", "unrelated")
_MEASURES = (*FIGURES, "texts")
_SHOWN = 8  # texts in the report
_CHANCE = 1000  # random vectors, whose median share outside of the span tells what chance gives


class SpanInversion(Audit):
    """Span inversion (DAGER: Petrov et al. 2024): recovers the texts of large batches from a transformer's update.

    The update of a linear layer's weights spans its inputs, as long as these are fewer than their dimensions. The
    attacker, who knows the model, everything that was sent to the client, the number and the lengths of its texts, and
    its update as the server decodes it, needs no gradient and no labels:

    1. The inputs of the first queries, keys and values are words at places. The words whose inputs lie in the span of
       their update are the candidates at a place.
    2. The output of the first attention is a mean over a whole text, and so are the inputs of the layers behind it. A
       search over texts of candidates minimises the share of the attention's output outside of the span of its
       projection's update; it is ``budget`` texts long (span_search.py).
    3. A text is accepted if the inputs of the layers up to ``layers`` lie in the spans of their updates as well.

    What noise explains does not count as a direction: rounding, the deviation that mechanisms state, and, if there are
    fewer tokens than dimensions, all that lies behind as many directions as tokens (spans.py). Clipping changes no
    span. After several local steps the inputs are those of weights that moved, and the attacker's, by the received
    weights, lie a little outside of their spans; the same holds with dropout, whose masks it does not know.
    Adam's steps are no sums of inputs, so that behind them no word stands out; that hides them from this attack alone.

    ``span_public_...`` is found with the vectors that the attacker has, ``span_unrelated_...`` with random ones, which
    is chance. recovery.py defines the metrics; ``..._texts`` is the share of texts with words of which every word is
    recovered, in order.
    ``span_free`` is the share of the directions of the first attention's output that no text has: if it is near 0, as
    with at least as many tokens as dimensions, no text can be told from another one. ``span_candidates`` is the
    number of words that the first layer discloses: 0 if none stands out, as under noise.
    """

    name: Literal["span_inversion"] = "span_inversion"
    clients: int = Field(
        1,
        ge=1,
        description="number of a round's clients to attack: evaluated ones first, then by id",
    )
    layers: int = Field(2, ge=1, description="number of layers whose spans are used; 1: the first alone")
    budget: int = Field(2_000_000, ge=1, description="largest number of texts that are tried")
    lengths: Literal["known", "tried"] = Field("known", description="lengths of the texts; tried: all are possible")
    metrics = (
        "span_free",
        "span_candidates",
        *(f"span_{table}_{measure}" for table in _TABLES for measure in _MEASURES),
    )

    def observe(self, local: LocalUpdate, words: Words) -> Observation | None:
        if local.place >= self.clients or local.round != local.known.experiment.training.rounds:
            return None
        train = local.data.train.take(texts_behind(local))
        return Spans(self, replace(local, data=replace(local.data, train=train), trained={}), words)


@dataclass(frozen=True)
class Fit:
    """The words that the first layer discloses with some table.

    Attributes:
        parameters: The network's parameters.
        table_VD: The table.
        found_KV: Which words stand out at each place.
        ratio: Mean over places of the least share of a word outside of the span, in units of that of random vectors.
    """

    parameters: dict[str, Tensor]
    table_VD: Tensor
    found_KV: Tensor
    ratio: float


@dataclass
class Spans(Observation):
    """A local update to attack, and after ``metrics`` the result.

    Attributes:
        audit: The audit.
        local: The local update; None after the attack.
        words: The vocabulary.
        client: Name of the client.
        values: The metrics.
        pairings: Original and recovered texts, by the attacker's table.
        width, tokens: Dimensions D of the layers' inputs, and number of tokens of all texts.
    """

    audit: SpanInversion
    local: LocalUpdate | None
    words: Words = field(repr=False)
    client: str = ""
    values: dict[str, float] = field(default_factory=dict)
    pairings: dict[str, Pairing] = field(default_factory=dict)
    width: int = 0
    tokens: int = 0

    def metrics(self, shared: State) -> dict[str, float]:
        if (local := self.local) is None:
            return self.values
        self.local = None  # it holds what was sent to the client, which is large
        self.client, train = local.data.name, local.data.train
        rows_T = local.data.rows_R[train.tokens_T].astype(np.int64)
        texts = [rows_T[start:stop] for start, stop in pairwise(train.offsets)]
        attack = Attack(self.audit, local, self.words)
        self.width, self.tokens = attack.output.tests_SD.shape[1], attack.tokens
        self.values = {"span_free": attack.output.free}
        for table in _TABLES:
            found, candidates = attack.texts(table == "unrelated")
            if table == "public":
                self.values["span_candidates"] = float(candidates)
            pairing = paired(texts, found, train.labels_N, None)
            metrics = pairing.metrics(self.words, local.known.experiment.corpus.text.name != "hash")
            if exact := pairing.exact(self.words):
                metrics["texts"] = float(np.mean(exact))
            self.values |= {f"span_{table}_{measure}": value for measure, value in metrics.items()}
            self.pairings[table] = pairing
        return self.values

    def report(self, shared: State, words: Words) -> dict[str, str]:
        exact = self.pairings["public"].exact(words)
        lines = [
            f"# Texts of {plain(self.client)}, recovered from the spans of its update",
            "",
            "Bold: a word of the original. With the vectors that an attacker has (public), and with random ones "
            "(unrelated).",
            "",
            f"{self._why()} {sum(exact)} of {len(exact)} texts with words are recovered exactly.",
            *shown(self.pairings, words, _SHOWN),
        ]
        return {FILE: "\n".join(lines) + "\n"}

    def _why(self) -> str:
        """Return what the spans disclose, as a sentence."""
        free = self.values["span_free"]
        if self.tokens >= self.width:
            return (
                f"The client's {self.tokens} tokens are not fewer than the {self.width} dimensions of the attention's "
                f"output, of which they leave {free:.0%}: by so little no text can be told from another one."
            )
        if not self.values["span_candidates"]:
            return "No word stands out from the noise in the update of the first layer."
        return (
            f"The first layer discloses {self.values['span_candidates']:.0f} words, and {free:.0%} of the directions "
            "of the attention's output are of no text."
        )


class Attack:
    """An attack on one client's local update.

    Args:
        audit: The audit.
        local: The local update.
        words: The vocabulary.
    """

    def __init__(self, audit: SpanInversion, local: LocalUpdate, words: Words) -> None:
        self.audit, self.local, self.words = audit, local, words
        names = named(local.update.tensors)
        assert names is not None, "experiments whose updates have no transformer are refused"
        self.names: Names = names
        self.lengths_N = local.known.read(local.data, "train").lengths_N
        self.tokens = int(self.lengths_N.sum())
        self.steps = local_steps(local.known.experiment, local.update.samples)
        self.depth = min(
            audit.layers, sum(names.reads(layer)[0] in local.update.tensors for layer in range(audit.layers))
        )
        self.first = self._span(names.reads(0))
        self.output = self._span([names.projects])
        self.deeper = [self._span(names.reads(layer)) for layer in range(1, self.depth)]

    def _span(self, names: Sequence[str]) -> Span:
        updates = [torch.tensor(self.local.update.tensors[name]) for name in names]
        received = [torch.tensor(self.local.received[name]) for name in names]
        std = deviation(updates, received, self.steps, self.local.known.experiment.uplink)
        return span(torch.cat(updates), std, self.tokens)

    def texts(self, random: bool) -> tuple[list[Ints], int]:
        """Search for the client's texts.

        Args:
            random: Whether to search with random vectors.

        Returns:
            The texts that were found, as rows of the vocabulary, and the number of words that stood out.
        """
        best = self._fit(random)
        words = torch.nonzero(best.found_KV.any(0)).flatten()
        if not len(words) or not self.output.free:
            return [], len(words)
        allowed_KW = best.found_KV[:, words]
        allowed_KW = allowed_KW | ~allowed_KW.any(1, keepdim=True)  # where none stands out, all are tried
        experiment = self.local.known.experiment
        search = SpanSearch(
            FirstLayers(self.local.known.network, self.names, best.parameters, self.depth - 1),
            best.table_VD[words],
            allowed_KW,
            self.first,
            self.output,
            self.deeper,
            self.audit.budget,
            generator(experiment.seed, "audits/span_inversion", self.local.round, self.local.data.id),
        )
        lengths = self.lengths_N.tolist() if self.audit.lengths == "known" else None
        found = search.texts(lengths, len(self.lengths_N))
        return [words[torch.from_numpy(one.words_L)].numpy() for one in found], len(words)

    def _fit(self, random: bool) -> Fit:
        """Return what the first layer discloses with the attacker's vectors, or with random ones."""
        parameters = self.local.known.parameters(self.local.received)
        layer = FirstLayers(self.local.known.network, self.names, parameters, 0)
        fits = []
        for table_VD in self._tables(random):
            words_VD, known_V = torch.tensor(table_VD), torch.from_numpy(eligible(table_VD, self.words))
            chance_UD = torch.from_numpy(unrelated(self.local.known.experiment, self.words, table_VD)[:_CHANCE])
            found, ratios = [], []
            for place in range(int(self.lengths_N.max())):
                median = float(self.first.outside(layer.inputs.inputs(chance_UD, place)).median())
                near = layer.inputs.near * median
                shares_V = self.first.near(layer.inputs.inputs(words_VD, place), near).where(known_V, torch.inf)
                found_V = shares_V < near
                most = min(self.tokens, len(shares_V))
                found.append(
                    found_V & (shares_V <= shares_V.kthvalue(most).values) if self.first.free else found_V & False
                )
                ratios.append(float(shares_V.min()) / max(median, 1e-12))
            fits.append(Fit(parameters, words_VD, torch.stack(found), float(np.mean(ratios))))
        return min(fits, key=lambda fit: fit.ratio)

    def _tables(self, random: bool) -> Sequence[NDArray[np.float32]]:
        tables = self.local.known.tables(self.local.received)
        return [unrelated(self.local.known.experiment, self.words, tables[0])] if random else tables
