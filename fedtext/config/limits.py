"""How large an experiment may be: what is larger is refused before anything of it is built.

The numbers are far above what a run can use. They keep a slip of a few zeros from filling the memory of a machine, or
from making trials for hours.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Limit:
    """A limit.

    Attributes:
        most: The largest number.
        what: What is counted, in the plural.
        why: What more of them would take.
    """

    most: int
    what: str
    why: str


WHOLE = 2**63 - 1  # of any whole number in an experiment
PARAMETERS = Limit(10**9, "parameters of the model", "4 GB, and training takes several times that")
LAYERS = Limit(100, "layers", "a module for each of them")
TEXTS = Limit(10**6, "generated texts", "they are made before the first round, some thousands a second")
CLIENTS = Limit(10**6, "clients", "a private state for each of them")
ROUNDS = Limit(10**6, "rounds", "each has a record, and each checkpoint all records")
STEPS = Limit(10**5, "evaluations while models are fine-tuned", "each has a point on a curve")
TRIALS = Limit(10_000, "trials", "each is planned and checked before the first one starts")


def excess(limit: Limit, number: int, keys: str, least: bool = False) -> str:
    """Return a sentence about what is larger than a limit; empty if it is not.

    Args:
        limit: The limit.
        number: The number in the experiment.
        keys: The keys that it follows from, for the message.
        least: Whether the number is a lower bound.
    """
    if number <= limit.most:
        return ""
    about = f"{number:,}" if number < 10**15 else f"{number:.1e}" if number < 10**300 else "over 1e300"
    return (
        f"{keys}: {'at least ' * least}{about} {limit.what}, and at most {limit.most:,} are accepted ({limit.why}): "
        f"lower {keys}"
    )
