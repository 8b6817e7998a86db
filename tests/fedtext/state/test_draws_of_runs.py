"""Draws that hide something: what an attacker can make of two runs, and whose draws come again.

Each attack stands beside the figure it would have if the draws were shared.
"""

import math
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fedtext.config.experiment import Experiment
from fedtext.parameters import initial
from fedtext.seeding import generator
from fedtext.state import versions
from fedtext.state.fingerprint import fingerprint, released
from fedtext.state.noise_key import FILE, NoiseKey, noise_key
from tests import tiny
from tests.loops import nonempty

CORPUS = tiny.corpus(clients=4, vocabulary=400)
ONE = {"training": tiny.TRAINING | {"rounds": 1}}
CLIP = {"clip": {"norm": 0.5}}


def central(multiplier: float, **changes: Any) -> Experiment:
    server = {"weights": "uniform", "noise": {"multiplier": multiplier}}
    return tiny.experiment(**(ONE | {"uplink": [CLIP], "server": server} | changes))


def local(*uplink: Any, **changes: Any) -> Experiment:
    return tiny.experiment(**(ONE | {"uplink": list(uplink), "wire": {"rows": "all"}} | changes))


def released_by(experiment: Experiment) -> NDArray[np.float64]:
    """The shared parameters after all rounds."""
    federation = tiny.federation(experiment, CORPUS)
    list(federation.run())
    return federation.flat.astype(np.float64)


def sent_by(experiment: Experiment) -> dict[int, Mapping[str, NDArray[Any]]]:
    """What the server reads in each client's first payload."""
    federation = tiny.federation(experiment, CORPUS, tiny.Recording)
    fleet = federation.fleet
    start = federation.flat.copy()
    list(federation.run())
    return {r.client: federation.decoder.update(r.payload, r.client, start, 1).tensors for r in fleet.received}


def flat(tensors: Mapping[str, NDArray[Any]]) -> NDArray[np.float64]:
    return np.concatenate([tensors[name].ravel() for name in sorted(tensors)]).astype(np.float64)


def correlation(one: NDArray[Any], other: NDArray[Any]) -> float:
    return float(np.corrcoef(one, other)[0, 1])


def unrelated(one: NDArray[Any], other: NDArray[Any]) -> bool:
    return abs(correlation(one, other)) < 5 / math.sqrt(len(one))


def test_two_multipliers_do_not_give_the_sum_without_noise() -> None:
    """If both runs shared their draws, 2 theta(1) - theta(2) would be the noiseless aggregate."""
    plain = released_by(tiny.experiment(**ONE, uplink=[CLIP], server={"weights": "uniform"}, wire={"rows": "all"}))
    one, two = released_by(central(1.0)) - plain, released_by(central(2.0)) - plain
    assert unrelated(one, two)
    deviation = 0.5 / len(CORPUS.clients)
    left = 2 * one - two
    assert left.std() == pytest.approx(math.sqrt(8) * deviation, rel=0.1), "4 + 4 variances; shared draws leave none"


def test_two_sigmas_do_not_give_an_update_without_noise() -> None:
    plain = sent_by(local(CLIP))
    one, two = sent_by(local(CLIP, {"gaussian": {"sigma": 0.1}})), sent_by(local(CLIP, {"gaussian": {"sigma": 0.2}}))
    for client, update in nonempty(plain.items()):
        first, second = flat(one[client]) - flat(update), flat(two[client]) - flat(update)
        assert unrelated(first, second)
        assert first.std() == pytest.approx(0.1, rel=0.1)


def test_two_epsilons_of_randomised_response_do_not_betray_signs() -> None:
    """Of shared draws, bits of two runs that differ tell the sign for certain: the stronger one is always right."""
    q = 0.2
    plain = sent_by(local())
    weak, strong = (
        sent_by(local({"quantize": {"q": q}}, {"randomized_response": {"epsilon": epsilon}})) for epsilon in (1.0, 10.0)
    )
    differ, right, chances = 0, 0, []
    for client, tensors in plain.items():
        update = flat(tensors)
        one, two = flat(weak[client]) > 0, flat(strong[client]) > 0
        apart = (one != two) & (update != 0)
        differ, right = differ + int(apart.sum()), right + int((two[apart] == (update[apart] > 0)).sum())
        size = np.minimum(np.abs(update[update != 0]) / q, 1) / 2
        r_weak, r_strong = (0.5 - math.tanh(epsilon / 2) * size for epsilon in (1.0, 10.0))
        chances.append([((1 - r_strong) * r_weak).sum(), (r_strong * (1 - r_weak)).sum()])
    well, badly = np.sum(chances, axis=0)
    assert differ == pytest.approx(well + badly, abs=5 * math.sqrt(differ)), "as many as of independent draws"
    assert right / differ == pytest.approx(well / (well + badly), abs=2.5 / math.sqrt(differ))
    assert well / (well + badly) < 0.7, "or this could not tell the two apart"


def test_a_run_and_its_baseline_share_no_draw() -> None:
    """FedProx with mu = 0 trains exactly as FedAvg does."""
    runs = {
        name: sent_by(local(CLIP, {"gaussian": {"sigma": 0.1}}, method=method))
        for name, method in (("fedavg", "fedavg"), ("fedprox", {"name": "fedprox", "mu": 0.0}))
    }
    plain = sent_by(local(CLIP))
    for client in nonempty(plain):
        one, other = (flat(runs[name][client]) - flat(plain[client]) for name in runs)
        assert unrelated(one, other)


def test_the_noise_of_clients_rounds_mechanisms_and_server_is_independent() -> None:
    """Every pair of streams of one run."""
    experiment = tiny.experiment(
        uplink=[{"gaussian": {"sigma": 1e3}}, {"gaussian": {"sigma": 1e-3}}], wire={"rows": "all"}
    )
    key = noise_key(experiment, "content", 3)
    names = [(p, r, c) for p in ("uplink/0/gaussian", "uplink/1/gaussian", "central") for r in (1, 2) for c in (0, 1)]
    drawn = {name: key.generator(*name).standard_normal(20_000) for name in names}
    for one in names:
        for other in names:
            assert one == other or unrelated(drawn[one], drawn[other])
    noise = {client: flat(update) for client, update in sent_by(local({"gaussian": {"sigma": 100.0}})).items()}
    for one, other in ((0, 1), (0, 2), (1, 3)):
        assert unrelated(noise[one], noise[other])


def test_uplink_and_server_noise_of_one_run_do_not_cancel() -> None:
    """With equal draws, sums of both would have another variance than independent ones."""
    uplink = [CLIP, {"gaussian": {"sigma": 0.3}}, CLIP]
    both = released_by(central(1.0, uplink=uplink))
    without = released_by(tiny.experiment(**ONE, uplink=uplink, server={"weights": "uniform"}, wire={"rows": "all"}))
    start = np.concatenate([t.ravel() for t in initial(central(1.0), CORPUS)[0].values()])
    assert len(start) == np.count_nonzero(both != without)
    assert unrelated(both - without, without)


BASE: dict[str, Any] = {"uplink": [CLIP, {"gaussian": {"sigma": 0.1}}]}
ANOTHER: list[dict[str, Any]] = [
    {"seed": 1},
    {"corpus": {"name": "demo", "max_length": 8}},
    {"model": {"embedding": {"dim": 5}, "hidden": 5, "head": {"hidden": 3}}},
    {"method": {"name": "fedprox", "mu": 0.0}},
    {"uplink": [CLIP, {"gaussian": {"sigma": 0.2}}]},
    {"uplink": [{"gaussian": {"sigma": 0.1}}, CLIP]},
    {"wire": {"rows": "all"}},
    {"training": tiny.TRAINING | {"local_epochs": 1}},
    {"training": tiny.TRAINING | {"stack": 2}},
    {"participation": {"fraction": 0.5}},
    {"server": {"weights": "uniform"}},
    {"server": {"optimizer": {"name": "adam"}}},
]
THE_SAME: list[dict[str, Any]] = [
    {"name": "another-name"},
    {"training": tiny.TRAINING | {"rounds": 7}},
    {"evaluation": {"every": 2, "personalize": None}},
    {"audits": ["embedding_rows"]},
    {"resources": {"clients_per_actor": 1}},
    {"checkpoint": {"every": 2}},
    {"storage": "elsewhere"},
]


def key_of(changes: Mapping[str, Any], content: str = "content", clients: int = 3) -> bytes:
    return noise_key(tiny.experiment(**(BASE | dict(changes))), content, clients).material


def test_no_two_different_experiments_share_a_key() -> None:
    keys = [key_of(changes) for changes in ({}, *ANOTHER)] + [key_of({}, "other texts"), key_of({}, clients=4)]
    assert len(set(keys)) == len(keys)
    targets = [
        {"uplink": [CLIP], "server": {"weights": "uniform", "noise": {"target_epsilon": 3.0}}, "training": training}
        for training in (tiny.TRAINING, tiny.TRAINING | {"rounds": 7})
    ]
    assert key_of(targets[0]) != key_of(targets[1]), "a target of more rounds is other noise"


@pytest.mark.parametrize("changes", THE_SAME)
def test_what_no_update_depends_on_leaves_the_key_as_it_is(changes: dict[str, Any]) -> None:
    """So that a longer run begins with the rounds of the shorter one, and is no second look at the same update."""
    assert key_of(changes) == key_of({})


def test_the_same_experiment_can_be_repeated_on_purpose() -> None:
    assert released_by(central(1.0)).tobytes() == released_by(central(1.0)).tobytes()
    longer = tiny.Finished(central(1.0).method, CORPUS, **(BASE | {"training": tiny.TRAINING | {"rounds": 3}}))
    shorter = tiny.Finished(central(1.0).method, CORPUS, **BASE)
    both = zip(shorter.rows, longer.rows, strict=False)
    assert [a.metrics["loss"] == b.metrics["loss"] for a, b in both] == [True, True]


SECRET = {"privacy": {"noise": "secret"}}


def test_secret_noise_comes_from_chacha20_and_is_no_ones_twice() -> None:
    """Against another implementation of the cipher, whose nonce is zero."""
    pytest.importorskip("randomgen")
    ciphers = pytest.importorskip("cryptography.hazmat.primitives.ciphers")
    import hashlib

    key = NoiseKey(bytes(range(32)), secret=True)
    drawn = key.generator("uplink/0/gaussian", 3, 7).bit_generator.random_raw(64).tobytes()
    derived = hashlib.blake2b(b"uplink/0/gaussian/3/7", key=bytes(range(32)), digest_size=32).digest()
    cipher = ciphers.Cipher(ciphers.algorithms.ChaCha20(derived, bytes(16)), mode=None)
    assert drawn == cipher.encryptor().update(bytes(512))
    assert "material" not in repr(key)
    assert released_by(central(1.0, **SECRET)).tobytes() != released_by(central(1.0, **SECRET)).tobytes()


def test_a_secret_run_resumes_and_replays_to_the_same_bits(tmp_path: Path) -> None:
    pytest.importorskip("randomgen")
    participation = {"fraction": 0.7, "sampling": "poisson"}
    experiment = central(
        1.0, **SECRET, training=tiny.TRAINING | {"rounds": 4}, participation=participation, wire={"rows": "all"}
    )
    folder = tmp_path / "run"
    begun = tiny.federation(experiment, CORPUS, folder=folder)
    for record, _ in nonempty(zip(begun.run(), range(2), strict=False)):
        assert record.metrics["epsilon"] > 0
    assert stat.S_IMODE(os.stat(folder / FILE).st_mode) == 0o600
    resumed = tiny.federation(experiment, CORPUS, folder=folder)
    list(resumed.run())
    (tmp_path / "again").mkdir()
    (tmp_path / "again" / FILE).write_bytes((folder / FILE).read_bytes())
    whole = tiny.federation(experiment, CORPUS, folder=tmp_path / "again")
    list(whole.run())
    assert resumed.flat.tobytes() == whole.flat.tobytes()
    assert [record.metrics["clients_trained"] for record in resumed.history] == [
        record.metrics["clients_trained"] for record in whole.history
    ], "who takes part is drawn from the key too"


def test_two_experiments_in_one_folder_share_no_secret_draw(tmp_path: Path) -> None:
    """As where the first one was stopped before its first checkpoint, and the next one found its key."""
    pytest.importorskip("randomgen")
    keys = [
        noise_key(experiment, content, clients, tmp_path).material
        for experiment, content, clients in (
            (central(1.0, **SECRET), "content", 4),
            (central(2.0, **SECRET), "content", 4),
            (central(1.0, **SECRET), "other texts", 4),
            (central(1.0, **SECRET), "content", 5),
        )
    ]
    assert len(set(keys)) == len(keys)
    assert noise_key(central(1.0, **SECRET, evaluation={"every": 2}), "content", 4, tmp_path).material == keys[0]


def test_reproducible_noise_is_that_of_earlier_versions() -> None:
    """Drawn by Philox with 128 bits of the run's key; other numbers are another ``fingerprint.RESULTS``."""
    drawn = NoiseKey(bytes(range(32))).generator("uplink/0/gaussian", 3, 7).bit_generator.random_raw(3)
    assert drawn.tolist() == [3406916892347523082, 4017364256034894488, 13591911746916132299]


def test_everything_else_stays_a_function_of_the_seed() -> None:
    """Cohorts, batches, initial tables: two experiments of one seed differ in what was changed and in nothing else."""
    key = noise_key(central(1.0), "content", 4)
    assert key.paired(3, "cohort", 2).random() == generator(3, "cohort", 2).random()
    assert key.paired(3, "own start", client=2).random() == generator(3, "own start", client=2).random()
    assert released(central(1.0), "content", 4) != released(central(2.0), "content", 4)


def test_names_of_runs_are_those_of_before_and_another_aggregation_changes_them() -> None:
    """The literal digests are of the version that had no key ``server.aggregation``; noise is drawn from them."""
    noisy = {"uplink": [{"clip": {"norm": 0.5}}, {"gaussian": {"sigma": 0.1}}]}
    plain = tiny.configured(**noisy)
    assert released(plain, "content", 4) == "4cbaed4a88398699862bad00fa5cf4e824a512bcc4befab517e6b0f644c7ed8f"
    assert fingerprint(plain, "content", 4) == "a643d98fcd6d2bf2"
    others = [tiny.configured(**noisy, server={"aggregation": name}) for name in ("mean", "median", "krum")]
    assert len({released(one, "content", 4) for one in (plain, *others)}) == 4
    written = tiny.configured(**noisy, server={"aggregation": "auto"})
    assert released(written, "content", 4) == released(plain, "content", 4)


def test_a_target_that_asks_for_less_noise_than_before_makes_another_run() -> None:
    """Where the bounds that were computed before exceed 100 next to the noise that is found now."""
    pytest.importorskip("dp_accounting")
    sampled: dict[str, Any] = {"participation": {"fraction": 0.05, "sampling": "poisson"}} | SECRET
    sampled["training"] = tiny.TRAINING | {"rounds": 20}
    for target, multiplier, changed in nonempty(((50.0, 0.2513, True), (2.0, 1.0, False))):
        noise = {"noise": {"target_epsilon": target}}
        made = central(1.0, **sampled, server={"weights": "uniform"} | noise)
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(versions, "noise_multiplier", lambda _, found=multiplier: found)
            assert versions.ways(made, 1, 4)["losses"] == changed
            assert not versions.ways(central(multiplier, **sampled), 1, 4)["losses"], "it is given"
