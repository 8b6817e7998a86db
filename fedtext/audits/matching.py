"""Deep leakage from gradients (Zhu et al. 2019) in embedding space: a search for dummy word vectors that lead to the
received update.

Legend: B texts, T places of the longest, M = B x T dummies, D embedding, S directions that are searched, C classes.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
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
_STARTS = 8  # random starts, of which a try uses the best: some have no gradient, because of dead units


@dataclass(frozen=True)
class Client:
    """A client's local update as the attacker simulates it.

    Dummies replace the embedding table and do not change in the steps. Adam's first step is g / |g|, whose derivative
    is 0; it is replaced by g / (|g| + mean |g|).

    Attributes:
        method: The method.
        network: The network.
        start: Parameters before the first step, without tables.
        shared: Names of the parameters that are compared with the received update.
        size: Number of texts in a batch.
        rates: Learning rate of each step.
        scales: Factors of the learning rates of parameters, by name (``gradients.rate_scale``); 1 for others.
        momentum: Momentum of SGD.
        squashed: Whether the steps are Adam's.
        rescaled: Whether the received update may be multiplied by an unknown factor (``gradients.rescaled``).
    """

    method: Method
    network: nn.Module
    start: Mapping[str, Tensor]
    shared: Sequence[str]
    size: int
    rates: Sequence[float]
    momentum: float
    squashed: bool
    rescaled: bool = False
    scales: Mapping[str, float] = field(default_factory=dict)

    def gradient(self, dummies_MD: Tensor, lengths_B: Tensor, labels: Tensor, slopes: bool = True) -> list[Tensor]:
        """Compute ``gradients.mean_gradient`` of the update that this client would send for these dummies.

        Args:
            dummies_MD: Word vectors of all texts. The order of texts is the same in every epoch.
            lengths_B: Lengths of the texts.
            labels: Labels, shape (B,), or probabilities of classes, shape (B, C).
            slopes: Whether the result can be differentiated with respect to the dummies.

        Returns:
            The gradients of ``shared``, in this order.
        """
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
                parameters = {name: t - rate * self.scales.get(name, 1.0) * v for (name, t), v in pairs}
        there = [float(self.scales.get(name, 1.0) != 0) for name in parameters]
        means = {name: one * total / weight for name, one, total in zip(parameters, there, moved, strict=True)}
        return [means[name] for name in self.shared]

    def _tables(self) -> list[str]:
        return [name for name, _ in self.network.named_parameters() if is_table(name)]


def distance(kind: Distance, found: Sequence[Tensor], target: Sequence[Tensor], rescaled: bool = False) -> Tensor:
    """Compute the mean over parameters of ||f - t||^2 / (||t||^2 + s), or of 1 - cos(f, t).

    All parameters have the same weight: in a sum over all coordinates (Zhu et al.) those of the head would dominate the
    layers that process the words. The constant s, a share of the mean of ||t||^2, reduces the weight of parameters that
    hardly changed, whose relative error is mostly noise.

    Args:
        kind: The distance.
        found: The simulated update f, by parameter.
        target: The received update t.
        rescaled: The target may be c times an update, with an unknown c in (0, 1], the same for all parameters. The l2
            distance is then that of c f, with the c that minimises it. If this c is negative, the distance grows with
            the angle between the updates, so that a search is led out of this region.
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
        # at the best factor the derivative with respect to it is 0, so that it can be treated as a constant
        found = [f * (product / size).detach().clamp(max=1) for f in found]
    return torch.stack([(f - t).square().sum() for f, t in zip(found, target, strict=True)]).div(scales).mean()


@dataclass
class Best:
    """The iterate of the smallest objective so far, which need not be the last."""

    objective: float = float("inf")
    tensors: tuple[Tensor, ...] = ()

    def offer(self, objective: Tensor, tensors: Sequence[Tensor]) -> None:
        """Keep an iterate if its objective is smaller than all before."""
        if (value := float(objective.detach())) < self.objective or not self.tensors:
            self.objective, self.tensors = value, tuple(tensor.detach().clone() for tensor in tensors)


class Search(Strict):
    """The search for dummies, with its keys."""

    distance: Distance = Field(
        "l2",
        description="distance of updates; l2: relative squared distance, behind a clip at the scale that fits best; "
        "cosine: 1 - cosine",
    )
    optimizer: Literal["lbfgs", "adam"] = Field("lbfgs", description="the attacker's optimizer")
    steps: int = Field(200, ge=1, description="steps of the attacker's optimizer in each try")
    lr: float = Field(0.1, gt=0, description="adam's rate, in standard deviations of the word vectors")
    restarts: int = Field(1, ge=1, description="number of tries; the result has the smallest distance")
    span: bool = Field(
        True,
        description="search only in the space that the update of the first layer's weights spans, and among words in "
        "it (Petrov et al.); false: everywhere (Zhu et al.)",
    )
    swaps: int = Field(
        200,
        ge=0,
        description="tries to exchange the words of two texts at the same place, if a transformer's first layer "
        "discloses the words at a place but not their texts; each simulates the client's local update",
    )

    def minimise(self, objective: Callable[..., Tensor], start: tuple[Tensor, ...], both: bool) -> Best:
        """Minimise an objective with ``steps`` steps of Adam, whose rate decays to 0, or of L-BFGS.

        L-BFGS may take a quarter more evaluations, in its line search.

        Args:
            objective: Function of the tensors in ``start``.
            start: Initial values.
            both: Whether both tensors change, or only the first one.
        """
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
        """Search for dummies whose update is near the received one.

        Args:
            client: The simulated client.
            target: The received mean gradient, by parameter.
            lengths_B: Lengths of the texts.
            labels: Labels of the texts; or the number of classes, and labels are optimised too, as probabilities.
            spread: Mean and standard deviation of the normal distribution from which dummies are drawn.
            rng: Source of the draws.
            layer: The first layer, in whose directions dummies lie.

        Returns:
            inputs_MD, the layer's inputs for the dummies; labels_B; and the distance reached.
        """
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
        """Exchange words between texts as long as this reduces the distance of the updates.

        Pairs of places are tried in random order, until no exchange helps or ``swaps`` are spent. This is the discrete
        part of LAMP (Balunovic et al. 2022), restricted to words that are known to occur at these places.

        Args:
            client: The simulated client, as in ``reconstruct``.
            target: The received mean gradient, by parameter.
            lengths_B: Lengths of the texts.
            labels_B: Labels of the texts.
            table_VD: The table of word vectors.
            rows_M: Row of the word at each place.
            pairs_P2: Pairs of places that may be exchanged.
            rng: Source of random numbers.

        Returns:
            rows_M after the exchanges.
        """
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
