"""The clients' optimizer: torch's own, and for SGD an exact shortcut on the embedding table.

A batch touches a few hundred rows of a table of thousands; the others have no gradient, yet momentum keeps moving
them. Their steps need not be made one by one: after k steps without a gradient the velocity is m^k v, and the row has
moved by -lr (m + m^2 + ... + m^k) v. A row is brought up to date when a batch touches it, and all rows at the end.

Legend: R rows of the client's table, U rows that a batch touches, D embedding.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from fedtext.experiment import SGD, Adam
from fedtext.methods.base import Batch
from fedtext.models.recurrent import TABLE


class LocalOptimizer:
    """Updates ``parameters`` in place. ``touched_rows`` turns the shortcut on where it is exact: for SGD, and a loss
    that sees the table through the batch's tokens only.

    ``lr`` stands in for the configured rate (personalisation scales it, the embedding's own rate with it).
    """

    def __init__(
        self, config: SGD | Adam, parameters: Mapping[str, Tensor], lr: float, touched_rows: bool = False
    ) -> None:
        self.parameters = dict(parameters)
        embedding_lr = lr if config.embedding_lr is None else config.embedding_lr * lr / config.lr
        self.rows: TouchedRows | None = None
        groups: list[dict[str, Any]] = [{"params": [p for n, p in parameters.items() if n != TABLE], "lr": lr}]
        if touched_rows and isinstance(config, SGD) and TABLE in parameters:
            self.rows = TouchedRows(parameters[TABLE].detach(), embedding_lr, config.momentum)
        elif TABLE in parameters:
            groups.append({"params": [parameters[TABLE]], "lr": embedding_lr})
        if isinstance(config, Adam):
            self.torch: torch.optim.Optimizer = torch.optim.Adam(groups, lr=lr, fused=True)
        else:
            self.torch = torch.optim.SGD(groups, lr=lr, momentum=config.momentum, fused=True)

    def begin(self, batch: Batch) -> tuple[dict[str, Tensor], Batch]:
        """Parameters to take the gradient at, and the batch in their row numbers."""
        self.torch.zero_grad(set_to_none=True)
        if self.rows is None:
            return self.parameters, batch
        words_U, tokens_BT = torch.unique(batch.tokens_BT, return_inverse=True)
        self.words_U = words_U.long()
        self.table_UD = self.rows.fetch(self.words_U).requires_grad_()
        return self.parameters | {TABLE: self.table_UD}, replace(batch, tokens_BT=tokens_BT)

    def step(self) -> None:
        """One step along the gradients that a backward pass has left."""
        self.torch.step()
        if self.rows is not None:
            assert self.table_UD.grad is not None
            self.rows.update(self.words_U, self.table_UD.detach(), self.table_UD.grad)

    def finish(self) -> None:
        """Makes every row what it should be by now; to be called before anyone reads the table."""
        if self.rows is not None:
            self.rows.catch_up()

    def state(self) -> dict[str, Tensor]:
        """What the optimizer remembers, as named tensors: ``<parameter>/<key>``."""
        kept = {
            f"{name}/{key}": value
            for name, parameter in self.parameters.items()
            for key, value in self.torch.state.get(parameter, {}).items()
        }
        return kept | ({f"{TABLE}/momentum_buffer": self.rows.velocity_RD} if self.rows is not None else {})

    def recall(self, state: Mapping[str, Tensor]) -> None:
        """Puts a state back."""
        for full, value in state.items():
            name, _, key = full.rpartition("/")
            if name == TABLE and self.rows is not None:
                self.rows.velocity_RD.copy_(value)
            else:
                self.torch.state[self.parameters[name]][key] = value


class TouchedRows:
    """SGD with momentum on ``table_RD``, each row's steps made when it is next looked at."""

    def __init__(self, table_RD: Tensor, lr: float, momentum: float) -> None:
        self.table_RD, self.lr, self.momentum = table_RD, lr, momentum
        self.velocity_RD = torch.zeros_like(table_RD)
        self.made_R = torch.zeros(len(table_RD), dtype=torch.int64, device=table_RD.device)  # steps in each row so far
        self.steps = 0

    def fetch(self, rows_U: Tensor) -> Tensor:
        """A copy of these rows as they stand after all steps so far; their velocities are brought up to date too."""
        missed_U = (self.steps - self.made_R.index_select(0, rows_U)).to(self.table_RD.dtype)
        decay_U1 = (self.momentum**missed_U)[:, None]
        velocity_UD = self.velocity_RD.index_select(0, rows_U)
        moved = self.lr * self.momentum / (1 - self.momentum) * (1 - decay_U1)
        rows_UD = self.table_RD.index_select(0, rows_U).addcmul_(velocity_UD, moved, value=-1)
        self.velocity_RD.index_copy_(0, rows_U, velocity_UD.mul_(decay_U1))
        self.made_R[rows_U] = self.steps
        return rows_UD

    def update(self, rows_U: Tensor, fetched_UD: Tensor, grad_UD: Tensor) -> None:
        """The step in which these rows had a gradient."""
        velocity_UD = self.velocity_RD.index_select(0, rows_U).mul_(self.momentum).add_(grad_UD)
        self.velocity_RD.index_copy_(0, rows_U, velocity_UD)
        self.table_RD.index_copy_(0, rows_U, fetched_UD.add_(velocity_UD, alpha=-self.lr))
        self.steps += 1
        self.made_R[rows_U] = self.steps

    def catch_up(self) -> None:
        """Makes the steps that rows have missed."""
        behind_U = torch.nonzero(self.made_R < self.steps).squeeze(1)
        self.table_RD.index_copy_(0, behind_U, self.fetch(behind_U))
