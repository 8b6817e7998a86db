"""Membership inference: which texts a model has been trained on.

Legend: N texts, M train texts, U test texts.
"""

from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedtext.audits.base import Audit, LocalUpdate, Observation
from fedtext.audits.calibrated import AttackField, Calibrated, Loss, References
from fedtext.audits.confidences import attacked, confidences
from fedtext.audits.gradients import texts_behind
from fedtext.audits.known import Known, State, Words
from fedtext.corpora.types import ClientData
from fedtext.evaluation import Evaluated
from fedtext.evaluation.membership import Attacked, measures
from fedtext.runtime.markdown import plain

FILE = "membership.md"


class Membership(Audit):
    """Membership inference: tells train texts from others by the released parameters.

    The attacker has the model after a round, and separates a client's train texts from its test texts: by their
    cross-entropy under it (of sentences per token), or by scores that are calibrated by shadow models, models like it
    that were not trained on the text.

    The model consists of the shared parameters after the round. Private word vectors (fedevocab, fedrecon, lg_fedavg
    that shares its encoder) are replaced by their initial values, since the client's own are never released; texts are
    then encoded with the words of all clients together. If a method has two branches, the model is the shared one. Of
    fedrecon train texts are those of the half that trains the shared parameters.

    Test texts that are also in the train split of any client are members, and are left out of the others and of the
    texts behind shadow models. How many these are is logged of a corpus in memory. Of one on disk they are compared
    with the client's own train texts and those of 1,000 clients that are drawn from the seed, so that rare texts of
    others may be left.

    - ``member_auc``: probability that a train text has a smaller loss, or looks more like a train text, than a test
      text, ties counting half; 0.5 is chance.
    - ``member_advantage``: true minus false positive rate of the threshold at the mean loss or score of known members.
      These are every other train text, beginning with the first; the rates are over the other train texts and all test
      texts. It needs two train texts.
    - ``member_tpr_at_1pct_fpr``: the largest true positive rate of a threshold with a false positive rate of at most
      1 %. Carlini et al. (2022) recommend it, since an attack that is certain about a few texts is invisible in an
      average. It needs 100 test texts of a client, and is left out if there are fewer. Its chance level is beside it
      (``member_tpr_at_1pct_fpr_chance``), since it is more than 1 % if texts are few: 2 % of 100 test texts.
    - ``member_pooled_auc``, ``member_pooled_tpr_at_1pct_fpr`` and ``member_pooled_tpr_at_0.1pct_fpr``: the same with
      one threshold for the texts of all audited clients, of a round's record only, with their chance levels. The last
      needs 1,000 test texts of all of them together.
    - ``member_user_auc``: the same for users instead of texts, by the mean score of a user's texts. Each audited client
      counts as a user that took part, with its train texts, and as one that did not, with its test texts.

    Attacks:

    - ``loss``: the loss alone (Yeom et al. 2018), after every evaluated round. A low value does not prove that texts
      are safe: it takes easy texts for train texts.
    - ``rmia`` and ``lira``: calibrated by shadow models, after the last round. The attacker trains pairs of them, like
      the run and from its initial parameters, on two halves of the clients' test texts, with random draws of its own.
      Every text is compared with one model of each pair, of a test text the one that was not trained on it. Train texts
      are in no shadow model.
    """

    name: Literal["membership"] = "membership"
    texts: int = Field(
        1000, ge=1, description="largest number of a client's train and of its test texts, drawn from the seed"
    )
    attack: AttackField = Field(
        Loss(),
        description="loss; or rmia or lira, which train shadow models after the last round: {rmia: {shadows: 4}}",
    )
    reads_updates, needs_unseen = False, True
    metrics = (
        *("member_auc", "member_advantage", "member_tpr_at_1pct_fpr"),
        *("member_pooled_auc", "member_pooled_tpr_at_1pct_fpr", "member_pooled_tpr_at_0.1pct_fpr", "member_user_auc"),
        *("member_tpr_at_1pct_fpr_chance", "member_pooled_tpr_at_1pct_fpr_chance"),
        "member_pooled_tpr_at_0.1pct_fpr_chance",
    )

    @property
    def simulates(self) -> bool:
        return isinstance(self.attack, Calibrated)

    def observe(self, local: LocalUpdate, words: Words) -> Observation | None:
        if self.simulates and local.round < local.known.experiment.training.rounds:
            return None
        if not len(local.known.unseen(local.data)):
            return None
        train = local.data.train.take(texts_behind(local))  # others are no members: no update depends on them
        return Members(self, replace(local.data, train=train), local.known)


@dataclass(frozen=True)
class Members(Observation):
    """A client that has taken part in the round."""

    audit: Membership
    data: ClientData
    known: Known = field(repr=False)

    def metrics(self, shared: State) -> dict[str, float]:
        return self.evaluate(shared).metrics

    def evaluate(self, shared: State) -> Evaluated:
        scores = self._scores(shared)
        return Evaluated(measures(scores.train_M, scores.test_U), {self.audit.name: scores})

    def _scores(self, shared: State) -> Attacked:
        if not isinstance(attack := self.audit.attack, Calibrated):
            return Attacked(self._losses(shared, "train"), self._losses(shared, "test"))
        assert self.known.population is not None, "the audit simulates"
        made = self.known.population.references
        references = made.get(self.audit)
        if not isinstance(references, References):
            references = made[self.audit] = References(self.known, self.known.population, attack, self.audit.texts)
        return Attacked(*(references.scores(shared, self._data(split), split) for split in ("train", "test")))

    def _data(self, split: str) -> ClientData:
        data = self.data if self.known.tests is None or split != "test" else self.known.tests(self.data.id)
        return attacked(self.known, data, split, self.audit.texts)

    def _losses(self, shared: State, split: str) -> NDArray[np.float32]:
        return confidences(self.known, shared, self._data(split), split).losses()

    def report(self, shared: State, words: Words) -> dict[str, str]:
        train_M, test_U, scores = self._losses(shared, "train"), self._losses(shared, "test"), self._scores(shared)
        found = measures(scores.train_M, scores.test_U)
        attack = self.audit.attack
        left_out = len(self.data.test) - len(self.known.unseen(self.data))
        how = f", calibrated by {attack.shadows} shadow models" if isinstance(attack, Calibrated) else ""
        lines = [
            f"# Membership of texts of {plain(self.data.name)}",
            "",
            f"{len(train_M)} train texts (mean loss {train_M.mean():.3f}) against {len(test_U)} test texts (mean loss "
            f"{test_U.mean():.3f}), under the shared parameters after the round"
            + (
                "."
                if self.known.experiment.method.complete
                else " and the word vectors that every client began with, in the place of the client's own."
            ),
            "",
            f"Attack: {attack.name}{how}.",
            *(["", f"Left out: {left_out} test texts that are also in a client's train split."] if left_out else []),
            "",
            *(f"- {name}: {value:.3f}" for name, value in found.items()),
        ]
        if "member_tpr_at_1pct_fpr" not in found:
            lines.append("- member_tpr_at_1pct_fpr: not given, since it needs 100 test texts")
        return {FILE: "\n".join(lines) + "\n"}
