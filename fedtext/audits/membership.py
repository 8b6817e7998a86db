"""Which texts a model has been trained on, read from its losses (Yeom et al. 2018).

Legend: N texts.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field

from fedtext.audits.base import Audit, Known, Observation, State, Turn, Words
from fedtext.corpora.types import ClientData
from fedtext.evaluation.classes import BATCH, Scored, area
from fedtext.methods.base import Model
from fedtext.training.batches import Assembler

if TYPE_CHECKING:
    from fedtext.experiment import Experiment

_PLAIN = Assembler(None, False, torch.device("cpu"))


class Membership(Audit):
    """Membership inference: tells train texts from others by their loss.

    Whoever has the model that a round released tells a client's train texts from its test texts by their
    cross-entropy under it. ``member_auc``: how often a train text's is the smaller one, 0.5 if nothing is told;
    ``member_advantage``: true less false positives if all texts are taken for members whose loss is at most the mean of
    the train texts, which the server is told."""

    name: Literal["membership"] = "membership"
    texts: int = Field(1000, ge=1, description="of each kind, the client's first ones")
    metrics = ("member_auc", "member_advantage")

    def observe(self, turn: Turn, words: Words) -> Observation | None:
        return Members(self.texts, turn.data, turn.known) if len(turn.data.test) else None

    def misfit(self, experiment: "Experiment") -> str:
        method = experiment.method
        if experiment.language:
            return (
                f"membership reads probabilities of classes, and model {experiment.model.name} has none: leave it out"
            )
        if not method.shares or not method.complete:
            return f"membership asks the server's model, and method {method.name} shares none whole: leave it out"
        return ""


@dataclass(frozen=True)
class Members(Observation):
    """A client that has taken part in the round."""

    texts: int
    data: ClientData
    known: Known = field(repr=False)

    def figures(self, shared: State) -> dict[str, float]:
        rows_R = self.data.rows_R
        model = Model(self.known.network, self.known.parameters(shared, rows_R))
        train_N, test_N = (self._losses(model, split) for split in ("train", "test"))
        losses_N = np.concatenate([train_N, test_N])
        auc = area([Scored(-losses_N, np.arange(len(losses_N)) < len(train_N))])
        if auc is None:  # a loss is no number
            return {}
        limit = train_N.mean(dtype=np.float64)
        return {"member_auc": auc, "member_advantage": float((train_N <= limit).mean() - (test_N <= limit).mean())}

    def _losses(self, model: Model, split: str) -> NDArray[np.float32]:
        texts, method = self.known.read(self.data, split), self.known.experiment.method
        losses_N = np.zeros(min(len(texts), self.texts), np.float32)
        for start in range(0, len(losses_N), BATCH):
            batch, _ = _PLAIN.single(texts, np.arange(start, min(start + BATCH, len(losses_N))))
            with torch.no_grad():
                probabilities_BC = method.probabilities(model, batch, "shared")
            right_B = probabilities_BC.gather(1, batch.labels_B[:, None]).squeeze(1)
            losses_N[start : start + BATCH] = -right_B.clamp_min(1e-38).log().numpy()
        return losses_N

    def report(self, shared: State, words: Words) -> dict[str, str]:
        return {}
