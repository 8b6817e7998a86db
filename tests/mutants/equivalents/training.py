"""Equivalent mutants of ``fedtext/training/``."""

EQUIVALENTS = (
    *(
        ("training/optimizer", before, before.replace("zeros", "ones"), "``reset``, which follows, sets them to zero")
        for before in (
            "self.steps = [torch.zeros((), device=stack.workspace.device) for _ in range(stack.clients)]",
            "self._steps = [{name: torch.zeros_like(step) for name in self.tasks} for step in self.steps]",
        )
    ),
    (
        "training/optimizer",
        "tables = None if table_grad is None else torch.cat([changed[name] for name in self.stack.widths], -1)",
        "tables = None if table_grad is None else torch.cat([changed[name] for name in self.stack.widths], (1))",
        "the last axis of a table is its second: clients whose gradients are changed are trained one by one",
    ),
    (
        "training/optimizer",
        "if self.apart and self.config.clip_norm is not None:  # the norm is that of the batch's own gradient",
        "if (self.apart or self.config.clip_norm is not None):  # the norm is that of the batch's own gradient",
        "in all other cases the next step writes every gradient that it reads",
    ),
)
