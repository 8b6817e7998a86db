"""What canaries have measured, in the report and in the final table of a sweep."""

from pathlib import Path

import pytest

from dashboards.table import print_table
from fedtext.config.canaries import Canaries
from tests.loops import nonempty
from tests.reported import BASE, read, trained

MEASURED = BASE | {
    "name": "measured",
    "method": {"name": "fedavg"},
    "uplink": [{"clip": {"norm": 0.5}}],
    "server": {"weights": "uniform", "noise": {"target_epsilon": 4.0}},
    "model": {"embedding": {"dim": 12}, "hidden": 8, "head": {"hidden": 4}},
    "privacy": {"canaries": {"clients": 80}},
    "baselines": [],
    "seeds": 1,
    "space": {"training.optimizer.lr": {"grid": [0.01, 0.1]}},
}


def test_bounds_stand_beside_claims_and_pairs_of_trials_are_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("dp_accounting")
    sweep = read(trained(tmp_path / "measured", MEASURED))
    for row in nonempty(sweep.rows):
        (measured,) = [sentence for sentence in row.reveals() if "measured in the run" in sentence]
        assert "of 10 guesses about 80 canaries are right" in measured
    together, pairs = sweep.guarantees()
    assert together.startswith("trials with server.noise on the same clients: the 2 of seed 0 together: ")
    said = "canaries of 2 trials, each compared with the one of the same seed before it: no two tell more together"
    assert pairs.startswith(said)
    print_table(sweep.cases, sweep.outcomes, "Ap", "max")
    header, _, first, *others = capsys.readouterr().out.splitlines()
    (told,) = [line for line in others if line.startswith("epsilon_lower: ")]
    assert told.endswith(f"with confidence privacy.canaries.confidence (default {100 * Canaries().confidence:.0f} %)")
    assert header.split().index("epsilon_lower") == header.split().index("epsilon") + 1
    assert len(first.split()) >= len(header.split())
