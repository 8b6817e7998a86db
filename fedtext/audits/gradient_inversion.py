"""Recovery of texts from an update by gradient matching (Zhu et al. 2019; FedeVocab, section 4.2 and appendix A.3).

Legend: T places, R rows of a client's table, V vocabulary, D embedding.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PositiveInt

from fedtext.audits.attack import Attacker, attack
from fedtext.audits.base import Audit, LocalUpdate, Observation
from fedtext.audits.decoding import decoded, eligible
from fedtext.audits.gradients import texts_behind
from fedtext.audits.known import State, Words
from fedtext.audits.recovery import FIGURES, Pairing, paired
from fedtext.layout import TABLE
from fedtext.models.packing import Ints
from fedtext.runtime.markdown import plain
from fedtext.runtime.paths import expanded
from fedtext.seeding import generator
from fedtext.text.embeddings import read_vectors, table

if TYPE_CHECKING:
    from fedtext.audits.known import Setting

FILE = "gradient_inversion.md"
ATTACKERS = ("true", "public", "unrelated")
_UNRELATED = "audits: gradient_inversion.unrelated"
_SHOWN = 8  # texts in the report


class GradientInversion(Attacker, Audit):
    """Gradient inversion (Zhu et al. 2019; FedeVocab paper): recovers texts by gradient matching.

    The attacker knows the model, the method, the optimizer, the batch size, everything that was sent to the client, its
    number of texts, and its update as the server decodes it, but for the rows of an embedding, which need no inversion
    (see ``embedding_rows``). ``labels`` and ``lengths`` say what it knows of labels and lengths. It searches for word
    vectors, one for each place of each text, with which the client would have sent the same update. Each vector is then
    decoded as the nearest word (L2) of a table:

    - ``true``: the public table with the client's own rows after its training for all words that it has (in fedrecon,
      for those whose rows it keeps private); or the public table itself if it fits better, as it can if training moves
      rows far;
    - ``public``: the table that was sent to the client; if none was, the initial one, and if clients start from
      different ones, the one that fits best;
    - ``unrelated``: random rows, normally distributed with mean and deviation of the public table, or the vectors of
      the file ``unrelated``: the baseline of chance.

    With ``span`` the attacker searches only in the space that the update of the first layer's weights spans
    (first_layer.py). Without noise, and with fewer words than the embedding has dimensions, this discloses the words
    themselves: bags of words are then recovered by linear algebra, and only their order has to be searched for. In a
    transformer the words at each place are recovered, and only their texts have to be found, by the search and then by
    ``swaps``. ``span: false`` is the attack of the papers, with other weights of parameters in the distance
    (matching.py).

    Vectors are decoded among the words of ``candidates``; their number is ``inversion_candidates``, and the report
    says which they are. A common vocabulary, or the word pieces of a checkpoint, is known to all clients. With
    vocabularies of the clients' own no party has the list of all clients' words, so that the attack finds more than an
    attacker could: an upper bound. With ``candidates: public`` the public and the unrelated table have only words that
    some public vectors have.

    ``inversion_true_...`` is the leakage if the attacker has the client's map from words to vectors,
    ``inversion_public_...`` the leakage without it. recovery.py defines the metrics. ``inversion_distance`` is the
    attacker's own objective, for the vectors before they are decoded.

    Behind a mechanism that clips (``clip``, ``quantize``), or if SGD's gradients are clipped, the attacker does not
    know the factor, and compares at the factor between 0 and 1 that fits best: clipping keeps the direction. Nothing
    else in the attack depends on the update's length.

    Up to ``unroll`` local steps are simulated one after the other, with gradients through all of them. More steps, or
    those of a client with more than ``texts`` texts, are matched as a single step on all texts, with the mean of their
    gradients; this approximation is better the less the model changed. Dropout is not simulated, private parameters
    have their initial values, and rows of a table their values before training. Adam's steps disclose little more than
    signs, and only these can be matched.
    """

    name: Literal["gradient_inversion"] = "gradient_inversion"
    clients: int = Field(
        1,
        ge=1,
        description="number of a round's clients to attack: evaluated ones first, then by id",
    )
    rounds: Literal["last"] | tuple[PositiveInt, ...] = Field(
        "last", description="rounds to attack; each must be evaluated"
    )
    candidates: Literal["vocabulary", "public"] = Field(
        "vocabulary",
        description="candidates of decoding: the corpus's vocabulary, which with own vocabularies is the "
        "union of all clients' words; or public: of these only words of the word vectors that clients start from",
    )
    unrelated: str | None = Field(
        None,
        description="the unrelated table: a file of vectors as wide as the embedding, as of model.embedding.init.file, "
        "on every node; null: drawn from the seed",
    )
    metrics = (
        "inversion_distance",
        "inversion_candidates",
        *(f"inversion_{table}_{metric}" for table in ATTACKERS for metric in FIGURES),
    )

    def observe(self, local: LocalUpdate, words: Words) -> Observation | None:
        last = local.known.experiment.training.rounds
        if local.place >= self.clients or local.round not in ((last,) if self.rounds == "last" else self.rounds):
            return None
        data = local.data
        local = replace(local, data=replace(data, train=data.train.take(texts_behind(local))))
        own_RD = local.trained[TABLE].numpy().copy()
        experiment = local.known.experiment
        return Inversion(self, replace(local, trained={}), own_RD, words, experiment)  # their memory is used again

    def blind(self, vocabulary: list[str]) -> str:
        if self.unrelated is not None and not expanded(self.unrelated, _UNRELATED).is_file():
            return f"gradient_inversion.unrelated: there is no file {self.unrelated}: correct it, or leave it out"
        return ""


@dataclass
class Inversion(Observation):
    """A local update to attack, and after ``metrics`` the result.

    Attributes:
        audit: The audit.
        local: The local update; None after the attack.
        own_RD: The client's table after its training.
        words: The vocabulary.
        experiment: The experiment.
        client: Name of the client.
        candidates: Number of words that a vector can be decoded to.
        values: The metrics.
        pairings: Original and recovered texts, by the attacker's table.
    """

    audit: GradientInversion
    local: LocalUpdate | None
    own_RD: NDArray[np.float32]
    words: Words = field(repr=False)
    experiment: "Setting" = field(repr=False)
    client: str = ""
    candidates: int = 0
    values: dict[str, float] = field(default_factory=dict)
    pairings: dict[str, Pairing] = field(default_factory=dict)

    def metrics(self, shared: State) -> dict[str, float]:
        if (local := self.local) is None:
            return self.values
        self.local = None  # it holds what was sent to the client, which is large
        self.client, train = local.data.name, local.data.train
        rows_T = local.data.rows_R[train.tokens_T].astype(np.int64)
        texts = [rows_T[start:stop] for start, stop in pairwise(train.offsets)]
        done = attack(self.audit, local)
        guessed = done.labels_B.numpy() if self.audit.labels == "known" else None
        tables = _tables(self.audit, local, self.own_RD, self.words)
        self.candidates = max(int(eligible(table, self.words).sum()) for table in tables[1:-1])
        self.values = {"inversion_distance": done.distance, "inversion_candidates": float(self.candidates)}
        decodings = [decoded(done.vectors, one, self.words, done.layer, done.lengths_N) for one in tables]
        last = len(tables) - 1
        known = dict(zip(ATTACKERS, (range(last), range(1, last), [last]), strict=True))
        fits = {name: min(numbers, key=lambda number: decodings[number][1]) for name, numbers in known.items()}
        found = {number: done.arranged(*decodings[number], tables[number]) for number in sorted(set(fits.values()))}
        for name, number in fits.items():
            pairing = paired(texts, found[number], train.labels_N, guessed)
            metrics = pairing.metrics(self.words, local.known.experiment.corpus.text.name != "hash")
            self.values |= {f"inversion_{name}_{metric}": value for metric, value in metrics.items()}
            self.pairings[name] = pairing
        return self.values

    def report(self, shared: State, words: Words) -> dict[str, str]:
        lines = [
            f"# Texts of {plain(self.client)}, recovered from its update",
            "",
            "Bold: a word of the original. Decoded with the client's own vectors (true), with those that an attacker "
            "has (public), and with random ones (unrelated).",
            "",
            f"Candidates for each vector: {self.candidates} words, {_whose(self.audit, self.experiment)}.",
        ]
        return {FILE: "\n".join([*lines, *shown(self.pairings, words, _SHOWN)]) + "\n"}


def shown(pairings: Mapping[str, Pairing], words: Words, most: int) -> list[str]:
    """Return lines of Markdown with original and recovered texts.

    Args:
        pairings: Originals and recovered texts, by the attacker's table.
        words: The vocabulary.
        most: Largest number of texts.
    """
    lines, nothing = [], np.zeros(0, np.int64)
    for number, text_T in enumerate(next(iter(pairings.values())).texts[:most]):
        lines += ["", f"| text {number + 1} | |", "| --- | --- |"]
        lines.append(f"| original | {_line(text_T, nothing, words)} |")
        lines += [f"| {name} | {_line(pair.found[number], text_T, words)} |" for name, pair in pairings.items()]
    return lines


def _line(rows_T: Ints, bold: Ints, words: Words) -> str:
    """Return the words of these rows as Markdown, with those among ``bold`` in bold."""
    names = [plain(words.names[row]) for row in rows_T]
    hit_T = np.isin(rows_T, bold)
    return " ".join(f"**{name}**" if hit else name for name, hit in zip(names, hit_T, strict=True)) or "(nothing)"


def _whose(audit: GradientInversion, experiment: "Setting") -> str:
    """Return the part of the report that says which words the candidates are."""
    if audit.candidates == "public":
        return "those of all clients' words that public vectors have"
    if experiment.own_vocabularies:
        return "the union of all clients' own vocabularies, which no party has: an upper bound on what is found"
    if not experiment.corpus.counts_words:
        return f"the public {experiment.corpus.text.units}"
    return "the vocabulary that all clients share"


def _tables(
    audit: GradientInversion, local: LocalUpdate, own_RD: NDArray[np.float32], words: Words
) -> list[NDArray[np.float32]]:
    """Return the tables with which vectors are decoded, V rows each: the true, the public and the unrelated ones."""
    public_VD, experiment = local.known.table(local.received), local.known.experiment
    true_VD, rows_R = public_VD.copy(), local.data.rows_R
    kept_R = words.digits[rows_R] if experiment.method.withholds else np.ones(len(rows_R), np.bool_)
    true_VD[rows_R[kept_R]] = own_RD[kept_R]
    unrelated_VD = unrelated(experiment, words, public_VD, audit.unrelated)
    tables, public_SV = list(local.known.tables(local.received)), local.known.public_SV
    if audit.candidates == "public" and public_SV is not None:  # a row of zeros is no candidate
        tables = [table_VD * known_V[:, None] for table_VD, known_V in zip(tables, public_SV, strict=True)]
        unrelated_VD = unrelated_VD * public_SV.max(0)[:, None]
    return [true_VD, *tables, unrelated_VD]


def unrelated(
    experiment: "Setting", words: Words, public_VD: NDArray[np.float32], file: str | None = None
) -> NDArray[np.float32]:
    """Return a table that has nothing to do with the clients', with which an attack finds what chance gives.

    Args:
        experiment: The experiment.
        words: The vocabulary.
        public_VD: The public table, whose mean and deviation random rows have.
        file: A file of vectors; None: rows are drawn from the seed.
    """
    if file is not None:
        vectors = read_vectors(expanded(file, _UNRELATED), public_VD.shape[1], words.rows)
        return table(words.names, vectors, experiment.seed)
    rng = generator(experiment.seed, "audits/unrelated")
    return rng.standard_normal(public_VD.shape, np.float32) * public_VD.std() + public_VD.mean()
