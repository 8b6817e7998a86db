"""What guarantees rest on where one client changes the updates of others."""

from typing import Any

import pytest

from fedtext.ledger import ledger
from fedtext.ledger.assumptions import MASKS, OWN_ROWS, STACKS
from fedtext.ledger.together import Trial, together
from tests import tiny
from tests.loops import nonempty

CLIP = {"clip": {"norm": 0.5}}
GRU = {"name": "bigru", "embedding": {"dim": 4}, "hidden": 3, "head": {"hidden": 3}, "dropout": 0.5}
STACKED = {"model": GRU, "training": tiny.TRAINING | {"stack": 4, "engine": "cells"}}
WHOLE = GRU | {"dropout": 0.0}
NATIVE = {"model": WHOLE, "training": tiny.TRAINING | {"stack": 4, "engine": "native"}}
OWN = {"method": "fedevocab", "model": {"embedding": {"dim": 4}, "hidden": 3, "head": {"hidden": 3}}}


def own(words: str) -> dict[str, Any]:
    return OWN | {"model": OWN["model"] | {"embedding": {"dim": 4, "own": {"words": words}}}}


@pytest.mark.parametrize(
    ("changes", "noise", "words"),
    [
        (STACKED, "reproducible", [MASKS, STACKS]),
        (STACKED | {"model": WHOLE}, "reproducible", [STACKS]),
        (STACKED | {"training": tiny.TRAINING | {"stack": 1, "engine": "cells"}}, "reproducible", []),
        (NATIVE, "secret", []),
        (NATIVE | {"method": "kteps"}, "secret", []),
        (NATIVE | {"model": GRU}, "secret", [MASKS, STACKS]),
        (NATIVE | {"method": "fedmmd"}, "secret", [STACKS]),
        (NATIVE | {"method": "fedrecon"}, "secret", [STACKS]),
        (OWN, "reproducible", [OWN_ROWS]),
        (OWN, "secret", [OWN_ROWS]),
        (own("digits"), "secret", [OWN_ROWS]),
        (own("all"), "reproducible", [OWN_ROWS]),
        (own("all"), "secret", []),
        ({"method": "fedrecon"}, "reproducible", []),
    ],
)
def test_where_one_client_changes_the_updates_of_others_the_ledger_says_so(
    changes: dict[str, Any], noise: str, words: list[str]
) -> None:
    pytest.importorskip("dp_accounting")
    base = changes | {"privacy": {"noise": noise}}  # with noise all rows are sent
    server = {"weights": "uniform", "noise": {"multiplier": 1.0}}
    central = tiny.experiment(**(base | {"uplink": [CLIP], "server": server}))
    local = tiny.experiment(**(base | {"uplink": [CLIP, {"gaussian": {"sigma": 1.0}}]}))
    for made in (central, local):
        entries = [entry for entry in ledger(made, 100, 10, 2) if entry.epsilon is not None]
        for entry in nonempty(entries):
            assert [said for said in (OWN_ROWS, MASKS, STACKS) if said in entry.assumptions] == words
    ((both, _),) = together([Trial(central, ledger(central, 100, 10, 2))])
    assert [said for said in (OWN_ROWS, MASKS, STACKS) if said in both.assumptions] == words
