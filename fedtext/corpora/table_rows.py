"""The labelled rows of a user's table, and their splits: those of a column, or drawn from the seed."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedtext.corpora.splits import held_out
from fedtext.corpora.types import Split
from fedtext.seeding import generator


@dataclass(frozen=True)
class Rows:
    """The labelled rows of a table, N of them.

    Attributes:
        whole: Texts and labels of all rows.
        labels: Names of the classes.
        splits_N: The split of each row; None if the table has no such column.
        clients: Names of the clients, in their order.
        clients_N: The client of each row; None if the table has no such column.
        test: Share of test texts, where no column has the splits.
        validation: Share of the validation rows that is used, where a column has the splits.
    """

    whole: Split
    labels: tuple[str, ...]
    splits_N: NDArray[np.object_] | None
    clients: tuple[str, ...]
    clients_N: NDArray[np.int64] | None
    test: float
    validation: float

    def splits(self, chosen_N: NDArray[np.int64], seed: int, client: int) -> dict[str, Split]:
        """Return the splits of some rows, by the names of the fields of ``RawClient``.

        Validation is among them only if the table has validation rows and ``validation`` is not 0.

        Args:
            chosen_N: Indices of the rows.
            seed: The experiment's seed, for what is drawn.
            client: The client whose rows they are; ``SERVER`` if they are those of all clients.
        """
        own = self.whole.take(chosen_N)
        if self.splits_N is None:
            least = max(1, round(self.test * len(own)))
            draws = generator(seed, "test", client=client)
            test_N = held_out(own, self.test, draws, least, by_class=bool(self.labels))
            return {"train": own.take(np.flatnonzero(~test_N)), "test": own.take(np.flatnonzero(test_N))}
        splits_N = self.splits_N[chosen_N]
        splits = {name: own.take(np.flatnonzero(splits_N == name)) for name in ("train", "test", "validation")}
        if not (self.validation and (self.splits_N == "validation").any()):
            del splits["validation"]
        elif len(splits["validation"]):
            draws = generator(seed, "validation", client=client)
            splits["validation"] = splits["validation"].sample(self.validation, draws)
        return splits

    @property
    def unused(self) -> int:
        """Number of the validation rows if none of them is used."""
        return 0 if self.splits_N is None or self.validation else int((self.splits_N == "validation").sum())

    @property
    def advice(self) -> str:
        """Advice for a message that a split is empty."""
        if self.splits_N is None:
            return "add texts, of which two or more must differ"
        return "mark such rows in the column of the splits, or set corpus.split to a share, 0.2 for example"
