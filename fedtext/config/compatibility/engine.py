"""Requirements of engines and of stacks on the rest of an experiment."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from fedtext.models.recurrent import KERNEL_WIDTH, Recurrent

if TYPE_CHECKING:
    from fedtext.config.settings import Settings


def engine(e: "Settings") -> Iterator[str]:
    """Check that the engine can train the model."""
    asked, model = e.training.engine, e.model
    if asked in ("cells", "triton") and not isinstance(model, Recurrent):
        yield f"training.engine: model {model.name} has no recurrent layers for {asked}; leave engine at auto"
    if asked == "native" and not model.native:
        more = f" with attention {attention}" if (attention := getattr(model, "attention", "")) else ""
        yield f"training.engine: no part of model {model.name}{more} is computed by native; leave engine at auto"
    if asked == "triton" and isinstance(model, Recurrent) and model.hidden > KERNEL_WIDTH:
        yield (
            f"training.engine: triton is for up to {KERNEL_WIDTH} hidden units; with {model.hidden} the products of "
            "one step are large enough by themselves: use engine: cells"
        )
    if e.method.derivatives == 2 and asked not in ("auto", "reference"):
        yield (
            f"training.engine: the loss of method {e.method.name} takes second derivatives, which {asked} does not "
            "have: leave engine at auto"
        )
    if e.method.derivatives == 2 and not model.second_order:
        yield (
            f"model: the loss of method {e.method.name} takes second derivatives, which this {model.name} does not "
            "have: use a recurrent classifier, or a transformer with attention: eager"
        )
    if asked == "triton" and e.training.tf32:
        yield "training.tf32: the engine triton does not use TF32; leave it out, or use cells"


def stack(e: "Settings") -> Iterator[str]:
    """Check that clients can be trained in stacks."""
    model, method = e.model, e.method
    if e.training.stack in ("auto", 1):
        return
    if not isinstance(model, Recurrent):
        yield (
            f"training.stack: clients with model {model.name} are trained one by one, since there are stacks of "
            "recurrent models alone; leave stack at auto or 1"
        )
    elif method.derivatives:
        yield (
            f"training.stack: the loss of method {method.name} takes gradients of one client, so that clients are "
            "trained one by one; leave stack at auto or 1"
        )
    elif e.engine == "reference":
        yield "training.stack: the engine reference trains clients one by one; use engine: cells"
    elif e.language:
        yield (
            f"training.stack: clients with model {model.name} are trained one by one, since its softmax over the "
            "vocabulary fills a core by itself; leave stack at auto or 1"
        )
    elif method.reads_table:
        yield (
            f"training.stack: method {method.name} uses the whole embedding table, whose rows differ between "
            "clients; leave stack at auto or 1"
        )
    elif method.has_hooks():
        yield (
            f"training.stack: method {method.name} has hooks, which are of one client, so that clients are trained one "
            "by one; leave stack at auto or 1"
        )


RULES = (engine, stack)
