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

from fedtext.methods.base import Method, Model
from fedtext.models.batch import Batch
from fedtext.models.config import TABLE, is_table
from fedtext.schema import Strict

Distance = Literal["l2", "cosine"]
_SMALL = 0.05  # s in units of the mean: the best of 0, 0.01, 0.05 and 0.3 on small recurrent networks
_STARTS = 8  # draws of which a try begins with the best: from some no way leads on, past units that have died


@dataclass(frozen=True)
class Client:
    """A client's turn as an attacker plays it through: from the parameters ``start``, without tables, steps of ``size``
    texts each with these rates and this momentum. ``squashed``: its steps are Adam's.

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

    def gradient(self, dummies_MD: Tensor, lengths_B: Tensor, labels: Tensor) -> list[Tensor]:
        """What ``gradients.mean_gradient`` would say of this client's update. The texts' order is that of the dummies,
        in every epoch."""
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
            loss = torch.stack(list(self.method.loss(model, received, batch).values())).sum()
            leaves = list(parameters.values())
            grads = torch.autograd.grad(loss, leaves, create_graph=True, allow_unused=True, materialize_grads=True)
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


def distance(kind: Distance, found: Sequence[Tensor], target: Sequence[Tensor]) -> Tensor:
    """The mean over parameters of ||f - t||^2 / (||t||^2 + s), or of 1 - cos(f, t). Each parameter counts alike: in a
    sum over all numbers (Zhu et al.) the head's would drown those of the layers that read the words. Less do those that
    hardly moved, whose relative error says little: s is a share of the mean ||t||^2 of all."""
    squares = torch.stack([t.square().sum() for t in target])
    if kind == "l2":
        scales = squares + _SMALL * squares.mean().clamp_min(1e-30)
        return torch.stack([(f - t).square().sum() for f, t in zip(found, target, strict=True)]).div(scales).mean()
    products = torch.stack([(f * t).sum() for f, t in zip(found, target, strict=True)])
    sizes = torch.stack([f.square().sum() for f in found]) * squares
    return (1 - products / sizes.clamp_min(1e-30).sqrt()).mean()


def directions(target: Mapping[str, Tensor], dummies: int, dim: int) -> Tensor:
    """basis_SD: the directions of embedding space that the dummies may lie in. The gradient of a recurrent layer's
    input weights is sum_t delta_t x_t^T over the words' vectors x_t, so that these lie among its rows' combinations:
    its strongest directions, as many as there are dummies. All D where no layer reads the words so."""
    read = [tensor for name, tensor in target.items() if ".weight_ih_l0" in name and tensor.shape[1] == dim]
    if not read or dummies >= dim:
        return torch.eye(dim)
    _, values_S, basis_SD = torch.linalg.svd(torch.cat(read), full_matrices=False)
    seen = int((values_S > values_S[0] * 1e-6).sum())
    return basis_SD[: max(1, min(dummies, seen))]


def within(basis_SD: Tensor, table_VD: Tensor) -> Tensor:
    """Which words of a table lie in these directions, but for a tenth of what the others leave out of them: V flags.
    All if none stands out so, as under noise, or if every direction is there."""
    outside_VD = table_VD - table_VD @ basis_SD.T @ basis_SD
    shares_V = outside_VD.norm(dim=1) / table_VD.norm(dim=1)  # not a number of a row of zeros, which is never found
    found_V = shares_V < shares_V.nanmedian() / 10
    return found_V if len(basis_SD) < basis_SD.shape[1] and found_V.any() else torch.ones_like(found_V)


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

    distance: Distance = Field("l2", description="of updates: relative squared distance, or 1 - cosine")
    optimizer: Literal["lbfgs", "adam"] = "lbfgs"
    steps: int = Field(200, ge=1, description="of the attacker's optimizer, in each try")
    lr: float = Field(0.1, gt=0, description="adam's rate, in standard deviations of the word vectors")
    restarts: int = Field(1, ge=1, description="tries; the best is the one with the smallest distance")
    span: bool = Field(
        True,
        description="look only in directions, and among words, along which recurrent layers' input weights moved; "
        "false: everywhere (Zhu et al.)",
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
        basis_SD: Tensor,
    ) -> tuple[Tensor, Tensor, float]:
        """(dummies_MD, labels_B, distance), the dummies as many texts of these lengths. They start as N(mean, std^2) of
        ``spread``, and lie in the directions ``basis_SD``. ``labels`` are those of the texts, or how many classes there
        are: they are then optimised too, as probabilities."""
        texts, dummies, (mean, std) = len(lengths_B), len(lengths_B) * int(lengths_B.max()), spread
        goal = [target[name] for name in client.shared]
        known = labels if isinstance(labels, Tensor) else None

        def objective(places_MS: Tensor, logits_BC: Tensor) -> Tensor:
            guess = logits_BC.softmax(1) if known is None else known
            return distance(self.distance, client.gradient(places_MS @ basis_SD * std, lengths_B, guess), goal)

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
        places_MS, logits_BC = best.tensors
        return places_MS @ basis_SD * std, logits_BC.argmax(1) if known is None else known, best.objective
