"""The arguments of the doctor's checks."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Asked:
    """The objects that the doctor checks.

    Attributes:
        experiment: An experiment file to look at as well; None: none.
        overrides: Changes to it, ``key=value``.
        plugins: Further plug-ins of it.
        data: The folder of corpora, or its URI; None: $FEDTEXT_DATA and the cache.
        address: The Ray cluster; None: $RAY_ADDRESS, else none.
        cpus: Logical CPUs of a Ray that would be started here; None: the number of this machine's.
        gpus: Logical GPUs of a Ray that would be started here; None: the number of this machine's.
    """

    experiment: str | None = None
    overrides: Sequence[str] = ()
    plugins: Sequence[str] = ()
    data: str | None = None
    address: str | None = None
    cpus: int | None = None
    gpus: int | None = None
