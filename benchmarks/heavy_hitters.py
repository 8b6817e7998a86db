"""Private vocabularies of corpora whose words follow Zipf's law: how many words are released, and which.

A vocabulary of 50,000 words of 3 to 9 letters, of which the k-th has a share proportional to 1 / (k + 2.7); 20 words a
user. F1 compares the released words with as many that are most frequent. ``python -m benchmarks.heavy_hitters``
"""

import argparse
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.measure import table, write
from fedtext.corpora.private_vocabulary import NoisySums, TrieHH
from fedtext.seeding import generator

WORDS, EACH = 50_000, 20
SHIFT = 2.7  # Mandelbrot's: the first words of a text are less far ahead


def vocabulary(rng: np.random.Generator) -> list[str]:
    """Return different random words of 3 to 9 letters, the most frequent first."""
    found: dict[str, None] = {}
    while len(found) < WORDS:
        letters = rng.integers(97, 123, int(rng.integers(3, 10)), dtype=np.uint8)
        found[letters.tobytes().decode()] = None
    return list(found)


def drawn(users: int, rng: np.random.Generator) -> NDArray[np.int32]:
    """Return the words of users, shape (users, EACH)."""
    shares_V = 1 / (np.arange(WORDS) + SHIFT)
    ends_V = np.cumsum(shares_V / shares_V.sum())
    return np.searchsorted(ends_V, rng.random((users, EACH)) * ends_V[-1], side="right").astype(np.int32)


def sums(words_UE: NDArray[np.int32]) -> NDArray[np.float64]:
    """Return the sum of each word: a user adds 1 / sqrt(t) to each of its t different words."""
    ordered_UE = np.sort(words_UE, axis=1)
    first_UE = np.ones(ordered_UE.shape, bool)
    first_UE[:, 1:] = ordered_UE[:, 1:] != ordered_UE[:, :-1]
    weights_U = 1 / np.sqrt(first_UE.sum(1))
    shares = np.repeat(weights_U, EACH)[first_UE.ravel()]
    return np.bincount(ordered_UE.ravel()[first_UE.ravel()], shares, WORDS).astype(np.float64)


def quality(found: list[str], counts_V: NDArray[np.int64], names: list[str]) -> dict[str, Any]:
    """Return how many words were found, and how many of the most frequent are among them."""
    ranked = [names[place] for place in np.argsort(-counts_V, kind="stable")]
    among = set(found)
    row: dict[str, Any] = {"released": len(found)}
    row["F1"] = len(among & set(ranked[: len(found)])) / len(found) if found else 0.0
    return row | {f"of the first {count:,}": len(among & set(ranked[:count])) / count for count in (100, 1000)}


def measured(users: int, epsilons: list[float], delta: float, seed: int) -> Iterator[dict[str, Any]]:
    """Yield a row for each way of release and epsilon."""
    rng = generator(seed, "benchmark/heavy hitters")
    names, words_UE = vocabulary(rng), drawn(users, rng)
    counts_V = np.bincount(words_UE.ravel(), minlength=WORDS)
    one = [names[word] for word in words_UE[np.arange(users), rng.integers(EACH, size=users)]]
    summed = {names[word]: total for word, total in enumerate(sums(words_UE)) if total}
    for epsilon in epsilons:
        trie, noisy = (
            TrieHH(epsilon=epsilon, delta=delta),
            NoisySums(epsilon=epsilon, delta=delta, words_per_client=EACH),
        )
        for name in ("triehh", "noisy_sums"):
            began = time.process_time()
            found = trie.found(one, users, rng) if name == "triehh" else noisy.above(summed, rng)
            taken = time.process_time() - began
            yield {"users": users, "release": name, "epsilon": epsilon, "seed": seed, "CPU s": taken} | quality(
                found, counts_V, names
            )


def means(rows: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the mean of each kind of row over seeds, with the standard deviation of F1."""
    kinds = dict.fromkeys((row["users"], row["release"], row["epsilon"]) for row in rows)
    for users, release, epsilon in kinds:
        same = [row for row in rows if (row["users"], row["release"], row["epsilon"]) == (users, release, epsilon)]
        row: dict[str, Any] = {"users": f"{users:,}", "release": release, "epsilon": f"{epsilon:g}"}
        row["released"] = f"{np.mean([each['released'] for each in same]):,.0f}"
        scores = [each["F1"] for each in same]
        row["F1"] = f"{np.mean(scores):.3f} ± {np.std(scores, ddof=1) if len(scores) > 1 else 0:.3f}"
        for name in ("of the first 100", "of the first 1,000"):
            row[name] = f"{np.mean([each[name] for each in same]):.3f}"
        yield row


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.heavy_hitters", description=__doc__.splitlines()[0])
    parser.add_argument("--users", type=int, nargs="+", default=[10_000, 100_000, 1_000_000], help="numbers of users")
    parser.add_argument("--epsilons", type=float, nargs="+", default=[1.0, 2.0, 4.0, 8.0], help="epsilons (1 2 4 8)")
    parser.add_argument("--delta", type=float, default=1e-7, help="delta (1e-7)")
    parser.add_argument("--seeds", type=int, default=3, help="number of seeds (3)")
    parser.add_argument("--out", type=Path, help="write the rows to this file, as JSON")
    asked = parser.parse_args()
    rows = [
        row
        for users in asked.users
        for seed in range(asked.seeds)
        for row in measured(users, asked.epsilons, asked.delta, seed)
    ]
    print(table(list(means(rows))))
    write(asked.out, rows)


if __name__ == "__main__":
    main()
