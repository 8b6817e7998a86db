"""``python -m benchmarks.walk``: the library's files that handle a key of an experiment, and one round's weights.

For a key these are the files whose functions are on the call stack when the experiment file is loaded, when the key is
validated, and when its value is used in training; for weights those on the stack when they are broadcast, trained,
encoded, decoded, added up and applied. One run in one process, without Ray.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import fedtext
from fedtext.client.local_fleet import LocalFleet
from fedtext.client.worker import Worker
from fedtext.config import files
from fedtext.mechanisms.randomized_response import RandomizedResponse
from fedtext.methods.kteps import KTEPS
from fedtext.server import federation
from fedtext.server.weighted_sum import WeightedSum
from fedtext.wire import encoding

ROOT = Path(fedtext.__file__).parent
SMALL = ("training.rounds=1", "corpus.clients=2", "corpus.train=12", "corpus.test=4")


@contextmanager
def recorded(*places: tuple[Any, str]) -> Iterator[set[str]]:
    """Collect the library's files that are on the stack whenever one of these functions is called."""
    found: set[str] = set()
    before = [(owner, name, vars(owner)[name]) for owner, name in places]

    def noting(function: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*words: Any, **options: Any) -> Any:
            frame = sys._getframe(1)
            found.add(str(Path(function.__code__.co_filename).relative_to(ROOT)))
            while frame:
                path = Path(frame.f_code.co_filename)
                if path.is_relative_to(ROOT):
                    found.add(str(path.relative_to(ROOT)))
                frame = frame.f_back  # type: ignore[assignment]
            return function(*words, **options)

        return noted

    for owner, name, function in before:
        was = function.fget if isinstance(function, property) else function
        assert was is not None
        made = property(noting(was)) if isinstance(function, property) else noting(was)
        setattr(owner, name, made)
    try:
        yield found
    finally:
        for owner, name, function in before:
            setattr(owner, name, function)


def main() -> None:
    bits = "uplink=[{quantize: {q: 0.01}}, {randomized_response: {epsilon: 1.0}}]"
    weights = (
        *((LocalFleet, "broadcast"), (Worker, "_train"), (encoding, "encode"), (encoding, "decode")),
        *((WeightedSum, "add"), (federation, "step")),
    )
    for title, places, words in (
        ("method.lambda1", ((files, "read"), (files, "validate"), (KTEPS, "weights")), ()),
        ("uplink.randomized_response.epsilon", ((files, "validate"), (RandomizedResponse, "behind")), (bits,)),
        ("one round's weights", weights, ()),
    ):
        with recorded(*places) as found:
            fedtext.run("demo.yaml", *SMALL, *words)
        print(f"{len(found):3}  {title}: {', '.join(sorted(found))}")


if __name__ == "__main__":
    main()
