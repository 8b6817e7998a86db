"""Membership inference: which texts a model has been trained on, by its losses (Yeom et al. 2018).

Legend: N texts, M train texts, U test texts.
"""

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field

from fedtext.audits.base import Audit, Known, LocalUpdate, Observation, State, Words
from fedtext.corpora.types import ClientData
from fedtext.evaluation import MEMBERSHIP, Evaluated
from fedtext.evaluation.classes import BATCH
from fedtext.evaluation.membership import Attacked, measures
from fedtext.methods.base import Model
from fedtext.runtime.markdown import plain
from fedtext.training.batches import Assembler

FILE = "membership.md"
_PLAIN = Assembler(None, False, torch.device("cpu"))


class Membership(Audit):
    """Membership inference: tells train texts from others by their loss.

    The attacker has the model after a round, and separates a client's train texts from its test texts by their
    cross-entropy under it.

    The model consists of the shared parameters after the round. Private word vectors (fedevocab, fedrecon, lg_fedavg
    that shares its encoder) are replaced by their initial values, since the client's own are never released; texts are
    then encoded with the words of all clients together. If a method has two branches, the model is the shared one.

    - ``member_auc``: probability that the loss of a train text is smaller than that of a test text, ties counting half;
      0.5 is chance.
    - ``member_advantage``: true minus false positive rate of the threshold at the mean loss of known members. These are
      every other train text, beginning with the first; the rates are over the other train texts and all test texts. It
      needs two train texts.
    - ``member_tpr_at_1pct_fpr``: the largest true positive rate of a threshold with a false positive rate of at most
      1 %. Carlini et al. (2022) recommend it, since an attack that is certain about a few texts is invisible in an
      average. It needs 100 test texts of a client, and is left out if there are fewer.
    - ``member_pooled_auc``, ``member_pooled_tpr_at_1pct_fpr`` and ``member_pooled_tpr_at_0.1pct_fpr``: the same with
      one threshold for the texts of all audited clients, of a round's record only. The last needs 1,000 test texts of
      all of them together.
    - ``member_user_auc``: the same for users instead of texts, by the mean score of a user's texts. Each audited client
      counts as a user that took part, with its train texts, and as one that did not, with its test texts.

    Losses are not calibrated by models that were trained without a text (shadow models), which would find more members:
    a low value does not prove that texts are safe.
    """

    name: Literal["membership"] = "membership"
    texts: int = Field(1000, ge=1, description="largest number of train and of test texts, the client's first ones")
    reads_updates = False
    metrics = (
        *("member_auc", "member_advantage", "member_tpr_at_1pct_fpr"),
        *("member_pooled_auc", "member_pooled_tpr_at_1pct_fpr", "member_pooled_tpr_at_0.1pct_fpr", "member_user_auc"),
    )

    def observe(self, local: LocalUpdate, words: Words) -> Observation | None:
        return Members(self.texts, local.data, local.known) if len(local.data.test) else None


@dataclass(frozen=True)
class Members(Observation):
    """A client that has taken part in the round."""

    texts: int
    data: ClientData
    known: Known = field(repr=False)

    def metrics(self, shared: State) -> dict[str, float]:
        return self.evaluate(shared).metrics

    def evaluate(self, shared: State) -> Evaluated:
        scores = Attacked(self._losses(shared, "train"), self._losses(shared, "test"))
        return Evaluated(measures(scores.train_M, scores.test_U), {MEMBERSHIP: scores})

    def _losses(self, shared: State, split: str) -> NDArray[np.float32]:
        data = self.data if self.known.tests is None or split != "test" else self.known.tests(self.data.id)
        model = Model(self.known.network, self.known.parameters(shared, data.rows_R))
        texts, method = self.known.read(data, split), self.known.experiment.method
        losses_N = np.zeros(min(len(texts), self.texts), np.float32)
        for start in range(0, len(losses_N), BATCH):
            batch, _ = _PLAIN.single(texts, np.arange(start, min(start + BATCH, len(losses_N))))
            with torch.no_grad():
                probabilities_BC = method.probabilities(model, batch, "shared")
            right_B = probabilities_BC.gather(1, batch.labels_B[:, None]).squeeze(1)
            losses_N[start : start + BATCH] = -right_B.clamp_min(1e-38).log().numpy()
        return losses_N

    def report(self, shared: State, words: Words) -> dict[str, str]:
        train_M, test_U = self._losses(shared, "train"), self._losses(shared, "test")
        found = measures(train_M, test_U)
        rate = found.get("member_tpr_at_1pct_fpr")
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
            *(f"- {name}: {value:.3f}" for name, value in found.items()),
        ]
        if rate is None:
            lines.append("- member_tpr_at_1pct_fpr: not given, since it needs 100 test texts")
        return {FILE: "\n".join(lines) + "\n"}
