"""Deep leakage from gradients (Zhu et al. 2019) in embedding space: dummy word vectors that would have made the update
which was received.

Legend: B texts, T places of the longest, M = B x T dummies, D embedding, S directions that are searched, C classes.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from fedtext.audits.first_layer import FirstLayer
from fedtext.layout import TABLE, is_table
from fedtext.methods.base import Method, Model
from fedtext.models.batch import Batch
from fedtext.schema import Strict

Distance = Literal["l2", "cosine"]
_SMALL = 0.05  # s in units of the mean: the best of 0, 0.01, 0.05 and 0.3 on small recurrent networks
_STARTS = 8  # draws of which a try begins with the best: from some no way leads on, past units that have died


@dataclass(frozen=True)
class Client:
    """A client's local update as an attacker plays it through: from the parameters ``start``, without tables, steps of
    ``size`` texts each with these rates and this momentum. ``squashed``: its steps are Adam's.

    Dummies take the table's place, and are no rows that steps would move. Adam's first step is g / |g|, which has no
    slope; g / (|g| + mean |g|) stands in for it.
    """

    method: Method
    network: nn.Module
    start: Mapping[str, Tensor]
    shared: Sequence[str]  # which of them are compared
    size: int
    rates: Sequence[float]  # of its steps
    momentum: float
    squashed: bool
    rescaled: bool = False  # what was received may be a multiple of it, between 0 and 1: ``gradients.rescaled``

    def gradient(self, dummies_MD: Tensor, lengths_B: Tensor, labels: Tensor, slopes: bool = True) -> list[Tensor]:
        """Compute ``gradients.mean_gradient`` of the update that this client would send. The texts' order is that of
        the dummies, in every epoch. ``slopes``: it is differentiated again."""
        parameters = {name: tensor.detach().requires_grad_() for name, tensor in self.start.items()}
        received = {name: parameters[name].detach() for name in self.shared} | {TABLE: dummies_MD.detach()}
        moved, velocity, weight = [torch.zeros(())] * len(parameters), [torch.zeros(())] * len(parameters), 0.0
        places_BT = torch.arange(len(dummies_MD)).view(len(lengths_B), -1)
        batches = [torch.arange(len(lengths_B))[i : i + self.size] for i in range(0, len(lengths_B), self.size)]
        for step, rate in enumerate(self.rates):
            chosen_B = batches[step % len(batches)]
            longest = int(lengths_B[chosen_B].max())
            batch = Batch(places_BT[chosen_B, :longest], lengths_B[chosen_B], labels[chosen_B])
            model = Model(self.network, parameters | dict.fromkeys(self._tables(), dummies_MD))
            loss = self.method.objective(self.method.loss(model, received, batch))
            leaves = list(parameters.values())
            grads = torch.autograd.grad(loss, leaves, create_graph=slopes, allow_unused=True, materialize_grads=True)
            if self.squashed:
                grads = tuple(g / (g.abs() + g.abs().mean().detach() + 1e-12) for g in grads)
            velocity = [self.momentum * v + g for v, g in zip(velocity, grads, strict=True)]
            moved = [m + rate * v for m, v in zip(moved, velocity, strict=True)]
            weight += rate * (1 - self.momentum ** (step + 1)) / (1 - self.momentum)
            if step + 1 < len(self.rates):
                pairs = zip(parameters.items(), velocity, strict=True)
                parameters = {name: tensor - rate * v for (name, tensor), v in pairs}
        means = {name: total / weight for name, total in zip(parameters, moved, strict=True)}
        return [means[name] for name in self.shared]

    def _tables(self) -> list[str]:
        return [name for name, _ in self.network.named_parameters() if is_table(name)]


def distance(kind: Distance, found: Sequence[Tensor], target: Sequence[Tensor], rescaled: bool = False) -> Tensor:
    """The mean over parameters of ||f - t||^2 / (||t||^2 + s), or of 1 - cos(f, t). Each parameter counts alike: in a
    sum over all numbers (Zhu et al.) the head's would drown those of the layers that read the words. Less do those that
    hardly moved, whose relative error says little: s is a share of the mean ||t||^2 of all.

    Args:
        found: the simulated update, by parameter.
        target: the received update.
        rescaled: the target may be c times an update, with an unknown c in (0, 1], the same for all parameters. The l2
            distance is then that of c f, with the c that makes it smallest. Where that c would be negative the distance
            grows with the angle beyond a right one, so that a search is led out of there.
    """
    squares = torch.stack([t.square().sum() for t in target])
    if kind == "cosine":
        products = torch.stack([(f * t).sum() for f, t in zip(found, target, strict=True)])
        sizes = torch.stack([f.square().sum() for f in found]) * squares
        return (1 - products / sizes.clamp_min(1e-30).sqrt()).mean()
    scales = squares + _SMALL * squares.mean().clamp_min(1e-30)
    if rescaled:
        product = torch.stack([(f * t).sum() for f, t in zip(found, target, strict=True)]).div(scales).sum()
        size = torch.stack([f.square().sum() for f in found]).div(scales).sum().clamp_min(1e-30)
        if product <= 0:
            return ((squares / scales).sum() + product.square() / size) / len(scales)
        # at the best factor the distance has no slope in it, so that the factor may be taken as a constant
        found = [f * (product / size).detach().clamp(max=1) for f in found]
    return torch.stack([(f - t).square().sum() for f, t in zip(found, target, strict=True)]).div(scales).mean()


@dataclass
class Best:
    """The iterate of the smallest objective so far, which need not be the last."""

    objective: float = float("inf")
    tensors: tuple[Tensor, ...] = ()

    def offer(self, objective: Tensor, tensors: Sequence[Tensor]) -> None:
        if (value := float(objective.detach())) < self.objective or not self.tensors:
            self.objective, self.tensors = value, tuple(tensor.detach().clone() for tensor in tensors)


class Search(Strict):
    """How dummies are looked for."""

    distance: Distance = Field(
        "l2",
        description="of updates: relative squared distance, behind a clip at the scale that fits best; or 1 - cosine",
    )
    optimizer: Literal["lbfgs", "adam"] = Field("lbfgs", description="of the attacker")
    steps: int = Field(200, ge=1, description="of the attacker's optimizer, in each try")
    lr: float = Field(0.1, gt=0, description="adam's rate, in standard deviations of the word vectors")
    restarts: int = Field(1, ge=1, description="tries; the best is the one with the smallest distance")
    span: bool = Field(
        True,
        description="look only in directions, and among words, along which the first layer's weights moved (Petrov et "
        "al.); false: everywhere (Zhu et al.)",
    )
    swaps: int = Field(
        200,
        ge=0,
        description="tries to exchange the words that two texts have at a place, where a transformer's first layer "
        "tells which these are but not whose; each repeats the client's local update",
    )

    def minimise(self, objective: Callable[..., Tensor], start: tuple[Tensor, ...], both: bool) -> Best:
        """So many steps, of the first argument alone or of ``both``: of Adam, whose rate falls to zero, or of L-BFGS,
        whose line search may take a quarter more evaluations."""
        leaves, best = [tensor.requires_grad_() for tensor in start[: 1 + both]], Best()

        def evaluate() -> Tensor:
            with sdpa_kernel(SDPBackend.MATH):  # attention in one kernel has no second derivative
                value = objective(*start)
            best.offer(value, start)
            for leaf, grad in zip(leaves, torch.autograd.grad(value, leaves), strict=True):
                leaf.grad = grad
            return value.detach()

        if self.optimizer == "lbfgs":
            lbfgs = torch.optim.LBFGS(leaves, 1, self.steps, None, 0, 0, 50, "strong_wolfe")
            lbfgs.step(evaluate)
        else:
            adam = torch.optim.Adam(leaves, lr=self.lr)
            for step in range(self.steps):
                adam.param_groups[0]["lr"] = self.lr * (1 - step / self.steps)
                evaluate()
                adam.step()
        return best

    def reconstruct(
        self,
        client: Client,
        target: Mapping[str, Tensor],
        lengths_B: Tensor,
        labels: Tensor | int,
        spread: tuple[float, float],
        rng: np.random.Generator,
        layer: FirstLayer,
    ) -> tuple[Tensor, Tensor, float]:
        """(inputs_MD, labels_B, distance): what ``layer`` reads of dummies, as many texts of these lengths. They start
        as N(mean, std^2) of ``spread``, and lie in the layer's directions. ``labels`` are those of the texts, or how
        many classes there are: they are then optimised too, as probabilities."""
        texts, longest, (mean, std), basis_SD = len(lengths_B), int(lengths_B.max()), spread, layer.basis_SD
        places_M, dummies = torch.arange(longest).repeat(texts), texts * longest
        goal = [target[name] for name in client.shared]
        known = labels if isinstance(labels, Tensor) else None

        def objective(found_MS: Tensor, logits_BC: Tensor) -> Tensor:
            guess = logits_BC.softmax(1) if known is None else known
            words_MD = layer.words(found_MS @ basis_SD * std, places_M)
            return distance(self.distance, client.gradient(words_MD, lengths_B, guess), goal, client.rescaled)

        tries = []
        for _ in range(self.restarts):
            start = Best()
            for _ in range(_STARTS):
                drawn_MD = torch.from_numpy(rng.standard_normal((dummies, basis_SD.shape[1]), np.float32)) + mean / std
                logits = rng.standard_normal((texts, labels if isinstance(labels, int) else 0), np.float32)
                drawn = drawn_MD @ basis_SD.T, torch.from_numpy(logits)
                start.offer(objective(*drawn), drawn)
            tries.append(self.minimise(objective, start.tensors, known is None))
        best = min(tries, key=lambda tried: tried.objective)
        found_MS, logits_BC = best.tensors
        inputs_MD = layer.inputs(layer.words(found_MS @ basis_SD * std, places_M), places_M)
        return inputs_MD, logits_BC.argmax(1) if known is None else known, best.objective

    def arranged(
        self,
        client: Client,
        target: Mapping[str, Tensor],
        lengths_B: Tensor,
        labels_B: Tensor,
        table_VD: Tensor,
        rows_M: Tensor,
        pairs_P2: Tensor,
        rng: np.random.Generator,
    ) -> Tensor:
        """rows_M: these words, each where it stands best. Pairs of places exchange their words where that explains the
        update better, in random order, until no pair would or ``swaps`` are spent: the discrete half of LAMP
        (Balunovic et al. 2022), among words that are known to be there."""
        goal = [target[name] for name in client.shared]

        def far(rows_M: Tensor) -> float:
            found = client.gradient(table_VD[rows_M], lengths_B, labels_B, slopes=False)
            return float(distance(self.distance, found, goal, client.rescaled).detach())

        if not (self.swaps and len(pairs_P2)):
            return rows_M
        least, left, idle, waiting = far(rows_M), self.swaps, 0, np.zeros(0, np.int64)
        while left and idle < len(pairs_P2):
            if not len(waiting):
                waiting = rng.permutation(len(pairs_P2))
            pair, waiting, idle = pairs_P2[waiting[0]], waiting[1:], idle + 1
            trial_M = rows_M.clone()
            trial_M[pair] = rows_M[pair.flip(0)]
            if torch.equal(trial_M, rows_M):
                continue
            left -= 1
            if (value := far(trial_M)) < least:
                rows_M, least, idle = trial_M, value, 0
        return rows_M
