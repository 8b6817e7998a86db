"""Cost of vocabulary size in FedAtt's language model: W3 of local_loop.py with other vocabularies.

``python -m benchmarks.vocabulary``: milliseconds of CPU for a step of 20 sentences of 35 words, on one core, and the
time of the three products of the softmax, which alone grow with the vocabulary. The products cannot be reduced without
changing the result: padding is left out already, <pad> has no row, and the logits of a chunk of tokens are replaced by
their gradient in the cache (fedtext/models/softmax.py).
"""

import argparse
from collections.abc import Callable
from pathlib import Path

import torch

from benchmarks import w3
from benchmarks.measure import in_turns, paired, spread, table, write

SIZES = (1_000, 2_000, 5_000, 10_000, 20_000, 33_000)


def products(vocabulary: int) -> Callable[[int], None]:
    """Return a loop of the three products of a step's softmax: logits, and the gradients of both factors."""
    tokens, width = w3.W3.inputs, w3.W3.config.hidden
    hidden, weight, logits = (
        torch.randn(shape) for shape in ((tokens, width), (vocabulary, width), (tokens, vocabulary))
    )

    def run(steps: int) -> None:
        for _ in range(steps):
            torch.mm(hidden, weight.T, out=logits)
            logits @ weight
            logits.T @ hidden

    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="entries of the vocabulary")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--steps", type=int, default=5, help="steps of each turn")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for size in arguments.sizes:
        made = w3.variants(w3.W3.corpus(None, size), size)
        runs = {"naive": made["naive"], "ours": made["ours"], "products": products(size)}
        times = in_turns({name: (run, 1) for name, run in runs.items()}, arguments.steps, arguments.turns)
        rows.append(
            {
                "words": size,
                **{f"{name}, ms": spread(found.cpu) for name, found in times.items()},
                "naive / ours": paired(times["naive"].cpu, times["ours"].cpu),
            }
        )
        print(table(rows[-1:]), flush=True)
    print(f"\n{table(rows)}")
    write(arguments.json, rows)


if __name__ == "__main__":
    main()
