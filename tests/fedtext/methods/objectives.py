"""Every method's objective, written from its paper's formulas, and gradient descent along it."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedtext.config.experiment import Experiment
from fedtext.corpora.types import ClientData
from fedtext.training.batches import by_task
from tests import tiny

CORPUS = tiny.TWO
# Every method's objective in numbers of its own, of the smallest model: X_BV says which words of the vocabulary a text
# has, its features are ReLU(X E + b), and one linear layer reads them. Legend: B batch, V vocabulary, F features.
Numbers, Objective = Mapping[str, Tensor], Callable[..., Tensor]
LR, ROUNDS, EPOCHS = 0.2, 2, 2  # at a first step nothing has moved away from what was received


def linear(p: Numbers, name: str, inputs_BF: Tensor) -> Tensor:
    return inputs_BF @ p[f"{name}.weight"].T + p[f"{name}.bias"]


def features(p: Numbers, x_BV: Tensor, encoder: str = "encoder", table: str = "embedding") -> Tensor:
    return torch.relu(x_BV @ p[f"{table}.weight"] + p[f"{encoder}.bias"])


def nll(probabilities_BC: Tensor, y_B: Tensor) -> Tensor:
    return -probabilities_BC[torch.arange(len(y_B)), y_B].log().mean()


def squares(o_BF: Tensor) -> Tensor:
    return (o_BF[:, None] - o_BF).square().sum(2)


def plain(p: Numbers, received: Numbers, x_BV: Tensor, y_B: Tensor, task: int) -> Tensor:
    return nll(linear(p, "head.0", features(p, x_BV)).softmax(1), y_B)


def proximal(p: Numbers, received: Numbers, x_BV: Tensor, y_B: Tensor, task: int) -> Tensor:
    away = sum((p[name] - received[name]).square().sum() for name in received)
    return plain(p, received, x_BV, y_B, task) + 0.3 / 2 * away


def renamed(p: Numbers, suffix: str = "_private") -> Numbers:
    """Each model's numbers by the names of the shared one's."""
    parts = {name: name.partition(".") for name in p}
    return {part.removesuffix(suffix) + "." + rest: p[n] for n, (part, _, rest) in parts.items() if suffix in part}


def held_near(p: Numbers, received: Numbers, x_BV: Tensor, y_B: Tensor, task: int) -> Tensor:
    own = renamed(p)
    away = sum((own[name] - received[name]).square().sum() for name in own)
    return plain(p, received, x_BV, y_B, task) + plain(own, received, x_BV, y_B, task) + 0.6 / 2 * away


def half_mixed(
    p: Numbers, received: Numbers, x_BV: Tensor, y_B: Tensor, task: int, share: float | None = None
) -> Tensor:
    own, learnt = renamed(p), p["alpha_private.value"]
    alpha: Tensor | float = stopped(learnt) if share is None else share
    shared = {name: p[name].detach() for name in own if name in p}
    both = {name: alpha * own[name] + (1 - alpha) * tensor for name, tensor in shared.items()}
    return plain(p, received, x_BV, y_B, task) + plain(both, received, x_BV, y_B, task)


def stopped(value: Tensor) -> Tensor:
    """A weight in [0, 1] that does not move further out."""
    same = 1 * value
    if same.requires_grad:
        same.register_hook(lambda g: g * ~(((value >= 1) & (g < 0)) | ((value <= 0) & (g > 0))))
    return same + (same.clamp(0, 1) - same).detach()


def fused(p: Numbers, received: Numbers, x_BV: Tensor, y_B: Tensor, task: int) -> Tensor:
    f_l_BF, f_g_BF = features(p, x_BV), features(received, x_BV)
    if "fusion.gamma" not in p:
        both_BF = linear(p, "fusion", torch.cat([f_l_BF, f_g_BF], 1))
    else:
        both_BF = p["fusion.gamma"] * f_g_BF + (1 - p["fusion.gamma"]) * f_l_BF
    return nll(linear(p, "head.0", both_BF).softmax(1), y_B)


def discrepant(p: Numbers, received: Numbers, x_BV: Tensor, y_B: Tensor, task: int) -> Tensor:
    size, d_NN = len(y_B), squares(torch.cat([features(p, x_BV), features(received, x_BV)]))
    b = d_NN.detach().sum() / (2 * size * (2 * size - 1))
    kernel_NN = sum((torch.exp(-d_NN / (b * width)) for width in (1 / 4, 1 / 2, 1, 2, 4)), torch.zeros(()))
    sides_N = torch.tensor([1 / size] * size + [-1 / size] * size, dtype=b.dtype)
    return plain(p, received, x_BV, y_B, task) + 0.7 * sides_N @ kernel_NN @ sides_N


def mixed(p: Numbers, received: Numbers, x_BV: Tensor, y_B: Tensor, task: int, weight: float = 0) -> Tensor:
    own_BF = features(p, x_BV, "encoder_private", "embedding_private")
    m_s_BC = linear(p, "head.0", features(p, x_BV)).softmax(1)
    m_p_BC, alpha_B1 = linear(p, "head_private.0", own_BF).softmax(1), linear(p, "gate_private", own_BF).sigmoid()
    return nll(alpha_B1 * m_s_BC + (1 - alpha_B1) * m_p_BC, y_B) + weight * nll(m_s_BC, y_B)


def transferred(p: Numbers, received: Numbers, x_BV: Tensor, y_B: Tensor, task: int, printed: bool = True) -> Tensor:
    o_BF, size = features(p, x_BV), len(y_B)
    o_s_BF, o_p_BF = linear(p, "projection_shared", o_BF), linear(p, "projection_private", o_BF)
    g_s_BC, g_p_BC = linear(p, "head_shared.0", o_s_BF), linear(p, "head_private.0", o_p_BF)
    q_BC, p_BC = (g_s_BC.detach() / 0.5).softmax(1), g_p_BC.softmax(1)
    transfer_BC = p_BC * q_BC.log() if printed else q_BC * p_BC.log()
    h_BB, pairs = torch.eye(size, dtype=o_BF.dtype) - 1 / size, torch.triu_indices(size, size, 1).unbind()
    l_s_BB, l_p_BB = (torch.exp(-d_BB / d_BB[pairs].median().detach()) for d_BB in map(squares, (o_s_BF, o_p_BF)))
    diversity = torch.trace(l_s_BB @ h_BB @ l_p_BB @ h_BB) / (size - 1) ** 2
    entropies = nll(g_s_BC.softmax(1), y_B) + nll(p_BC, y_B)
    return entropies - 0.4 * transfer_BC.sum(1).mean() + 0.6 * diversity


def unprojected(p: Numbers, received: Numbers, x_BV: Tensor, y_B: Tensor, task: int) -> Tensor:
    """Table 8's architecture B: no projections, no diversity, an encoder for each branch."""
    g_s_BC = linear(p, "head_shared.0", features(p, x_BV))
    p_BC = linear(p, "head_private.0", features(p, x_BV, "encoder_private")).softmax(1)
    transfer_BC = p_BC * (g_s_BC.detach() / 0.5).softmax(1).log()
    return nll(g_s_BC.softmax(1), y_B) + nll(p_BC, y_B) - 0.4 * transfer_BC.sum(1).mean()


def summed(penalised_FF: Tensor) -> Tensor:
    return penalised_FF.square().sum()


def adversarial(
    p: Numbers,
    received: Numbers,
    x_BV: Tensor,
    y_B: Tensor,
    task: int,
    diff: float = 2.5,
    penalty: Callable[[Tensor], Tensor] = lambda penalised_FF: penalised_FF.square().mean(),
) -> Tensor:
    """As all minimise it but the discriminator, which maximises it."""
    s_BF, p_BF = features(p, x_BV), features(p, x_BV, f"encoders.{task}")
    told = nll(linear(p, "discriminator", s_BF).softmax(1), torch.full_like(y_B, task))
    s_unit, p_unit = (c / c.norm(dim=1, keepdim=True) for c in (o - o.mean(0) for o in (s_BF, p_BF)))
    logits_BC = linear(p, f"heads.{task}.0", torch.cat([s_BF, p_BF], 1))
    return nll(logits_BC.softmax(1), y_B) - 0.5 * told + diff * penalty(s_unit.T @ p_unit)


KTEPS_WEIGHTS = {"name": "kteps", "lambda1": 0.4, "lambda2": 0.6, "temperature": 0.5}
BY_HAND: list[tuple[dict[str, Any], Objective]] = [
    *(({"name": name}, plain) for name in ("fedavg", "fedsgd", "fedper", "lg_fedavg", "local_only", "pooled")),
    ({"name": "fedatt", "step": 1.3}, plain),
    ({"name": "fedprox", "mu": 0.3}, proximal),
    *(({"name": "fedfusion", "operator": operator}, fused) for operator in ("multi", "single", "conv")),
    ({"name": "fedmmd", "lambda": 0.7}, discrepant),
    ({"name": "pfl_da"}, mixed),
    ({"name": "pfl_da", "shared_loss": 0.8}, partial(mixed, weight=0.8)),
    (KTEPS_WEIGHTS, transferred),
    (KTEPS_WEIGHTS | {"distillation": "standard"}, partial(transferred, printed=False)),
    (KTEPS_WEIGHTS | {"lambda2": 0, "projection": False, "architecture": "encoder"}, unprojected),
    ({"name": "ditto", "lambda": 0.6}, held_near),
    ({"name": "apfl"}, half_mixed),
    ({"name": "apfl", "adaptive": False, "alpha": 0.3}, partial(half_mixed, share=0.3)),
    ({"name": "asp_mtl", "adv": 0.5, "diff": 2.5}, adversarial),
    ({"name": "asp_mtl", "adv": 0.5, "diff": 0.1, "penalty": "sum"}, partial(adversarial, diff=0.1, penalty=summed)),
]
NAMES = ["-".join(map(str, options.values())) for options, _ in BY_HAND]


def attentive(w: Tensor, ends: list[Tensor]) -> Tensor:
    alphas = torch.stack([(w - end).norm() for end in ends]).softmax(0)
    return w - 1.3 * sum(alpha * (w - end) for alpha, end in zip(alphas, ends, strict=True))


def descend(
    objective: Objective, received: Numbers, client: ClientData, round_: int, experiment: Experiment
) -> Numbers:
    """What a client has after its turn, of one batch an epoch, or of one for each task in the order that was drawn."""
    texts, size, p = client.train, len(client.train), received
    x_NV = torch.zeros(size, len(CORPUS.vocabulary), dtype=torch.float64)
    x_NV[np.repeat(np.arange(size), np.diff(texts.offsets)), client.rows_R[texts.tokens_T]] = 1
    x_NV = x_NV[:, 1:]  # a bag has no <pad>
    tasks_N = texts.tasks_N if experiment.method.separates else np.zeros(size, int)
    for batch in by_task(tasks_N, 99, experiment.training.local_epochs, 0, round_, client.id):
        p = {name: tensor.detach().requires_grad_() for name, tensor in p.items()}
        loss = objective(p, received, x_NV[batch], torch.from_numpy(texts.labels_N)[batch], tasks_N[batch[0]])
        grads = torch.autograd.grad(loss, list(p.values()), allow_unused=True, materialize_grads=True)
        steps = [-LR if name.startswith("discriminator") else LR for name in p]
        p = {name: p[name] - step * grad for name, step, grad in zip(p, steps, grads, strict=True)}
    return {name: tensor.detach() for name, tensor in p.items()}
