"""How much a model believes in each of a client's texts: the signal of membership inference.

Legend: N texts, B batch, C classes, S predicted tokens, T tokens of the longest sentence.
"""

from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from fedtext.audits.known import Known, State
from fedtext.corpora.types import ClientData
from fedtext.evaluation.classes import BATCH
from fedtext.methods.base import Model
from fedtext.models.batch import Batch
from fedtext.models.language import LanguageModel
from fedtext.seeding import generator
from fedtext.training.batches import Assembler

_PLAIN, _AHEAD = (Assembler(None, False, torch.device("cpu"), ahead=ahead) for ahead in (False, True))
_LEAST = 1e-38


@dataclass(frozen=True, eq=False)
class Confidences:
    """The confidences of texts.

    Attributes:
        right_N: Probability of a text's class. Of a sentence, the geometric mean of its tokens' probabilities.
        others_N: The rest, 1 - ``right_N``, which is not lost to rounding where ``right_N`` is nearly 1.
    """

    right_N: NDArray[np.float64]
    others_N: NDArray[np.float64]

    def losses(self) -> NDArray[np.float32]:
        """Return -log of the probabilities, in nats; of sentences per token. Small ones are not lost to rounding."""
        small_N = self.others_N < 0.5
        losses_N = -np.log(np.maximum(self.right_N, _LEAST))
        losses_N[small_N] = -np.log1p(-self.others_N[small_N])
        return losses_N.astype(np.float32)

    def logits(self) -> NDArray[np.float64]:
        """Return log(p / (1 - p)) (Carlini et al. 2022, section IV-C)."""
        return np.log(np.maximum(self.right_N, _LEAST)) - np.log(np.maximum(self.others_N, _LEAST))


def drawn(seed: int, client: int, split: str, texts: int, most: int) -> NDArray[np.int64]:
    """Draw which of a client's texts are attacked, in their order.

    Args:
        seed: The experiment's seed.
        client: Id of the client.
        split: ``train`` or ``test``.
        texts: Number of its texts.
        most: Largest number of texts that are attacked.
    """
    return np.sort(generator(seed, f"audits/membership/{split}", client=client).permutation(texts)[:most])


def attacked(known: Known, data: ClientData, split: str, most: int) -> ClientData:
    """Return a client with those texts of a split that are attacked (``drawn``).

    Test texts that are also in a client's train split are left out: they are members.

    Args:
        known: The attacker's knowledge.
        data: The client.
        split: ``train`` or ``test``.
        most: Largest number of texts that are attacked.
    """
    if split == "test":
        return replace(data, test=data.test.take(attacked_tests(known, data, most)))
    if len(data.train) <= most:
        return data
    chosen = drawn(known.experiment.seed, data.id, split, len(data.train), most)
    return replace(data, train=data.train.take(chosen))


def attacked_tests(known: Known, data: ClientData, most: int) -> NDArray[np.int64]:
    """Return the indices of a client's test texts that are attacked: of those that are no members.

    Args:
        known: The attacker's knowledge.
        data: The client, with all its test texts.
        most: Largest number of texts that are attacked.
    """
    unseen = known.unseen(data)
    return unseen[drawn(known.experiment.seed, data.id, "test", len(unseen), most)]


@torch.no_grad()
def confidences(known: Known, shared: State, data: ClientData, split: str) -> Confidences:
    """Evaluate a client's texts by released parameters, with initial values of the private ones.

    Args:
        known: The attacker's knowledge.
        shared: The shared parameters, tables with V rows.
        data: The texts.
        split: ``train`` or ``test``.
    """
    model = Model(known.network, known.parameters(shared, data.rows_R))
    texts, method = known.read(data, split), known.experiment.method
    found = Confidences(*np.zeros((2, len(texts))))
    for start in range(0, len(found.right_N), BATCH):
        chosen = np.arange(start, min(start + BATCH, len(found.right_N)))
        batch, _ = (_AHEAD if known.experiment.model.language else _PLAIN).single(texts, chosen)
        if isinstance(model.network, LanguageModel):
            nats_B = _nats(model, model.network, batch)
            found.right_N[chosen], found.others_N[chosen] = np.exp(-nats_B), -np.expm1(-nats_B)
            continue
        probabilities_BC = method.probabilities(model, batch, "shared").double()
        right_B1 = probabilities_BC.gather(1, batch.labels_B[:, None])
        others_B = probabilities_BC.scatter(1, batch.labels_B[:, None], 0.0).sum(1)
        found.right_N[chosen], found.others_N[chosen] = right_B1.squeeze(1).numpy(), others_B.numpy()
    return found


def _nats(model: Model, network: LanguageModel, batch: Batch) -> NDArray[np.float64]:
    """Return the mean of -log p over the predicted tokens of each sentence."""
    read_B = torch.from_numpy(batch.here.lengths_B - 1)
    text_BT = torch.arange(len(read_B))[:, None].expand(-1, int(read_B.max()))
    text_S = network.packed(text_BT, read_B)  # as the model does
    if (places := network.predicted(batch, read_B)) is not None:
        text_S = text_S[places]
    nats_S = model(batch).nats_S.double()
    sums_B = nats_S.new_zeros(len(read_B)).index_add_(0, text_S, nats_S)
    return (sums_B / (read_B - batch.labels_B)).numpy()
