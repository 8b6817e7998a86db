"""Audits: what they find, and that nothing else notices them."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from fedtext.__main__ import main
from fedtext.audits.word_relations import FILE, kept, neighbours
from fedtext.errors import UserError
from fedtext.layout import TABLE
from fedtext.messages import Reply
from fedtext.methods import METHODS
from fedtext.server.federation import Federation
from fedtext.server.sampling import sampled
from fedtext.state.fingerprint import SCIENCE, fingerprint
from fedtext.wire.decoder import Decoder
from tests import planned, tiny
from tests.loops import nonempty
from tests.sampled import slow_but
from tests.tiny import Recording

if TYPE_CHECKING:
    from dashboards.store import Store

WORDS = [f"w{number}" for number in range(2, 40, 3)]
AUDIT: list[Any] = [{"word_relations": {"words": WORDS, "top": 4}}]
STRONG: list[Any] = [{"project": {"d1": 2, "d2": 4}}, {"gaussian": {"sigma": 0.01}}]
SHARING = [
    name
    for name, method in METHODS.items()
    if tiny.experiment(name).shares_table and not method.pooled and not method.whole_table
]


class Watching(Recording):
    """It also keeps what clients received, and the tables they had when they sent theirs."""

    sent_to: Any

    def train(self, handle: Any, round_: int, cohort: Sequence[int]) -> Iterator[Reply]:
        self.tables, self.sent_to = {}, handle
        observe = self.worker.audits.observe

        def noting(payload: Any, flat: Any, parameters: Any, round_: int, data: Any) -> None:
            self.tables[data.id] = parameters[TABLE].cpu().numpy().copy()
            observe(payload, flat, parameters, round_, data)

        self.worker.audits.observe = noting  # type: ignore[method-assign]
        yield from super().train(handle, round_, cohort)
        self.worker.audits.observe = observe  # type: ignore[method-assign]


def run(method: str = "fedavg", audits: Any = AUDIT, **changes: Any) -> tuple[Federation, Watching, list[Any]]:
    corpus, experiment = tiny.corpus(), tiny.experiment(method, audits=audits, **changes)
    federation = tiny.federation(experiment, corpus, Watching)
    fleet = federation.fleet
    return federation, fleet, list(federation.run())


def test_neighbours_by_hand() -> None:
    """Directions at 0, 10, 90, 185 and 350 degrees, of any length, and a row of zeros."""
    angles = np.deg2rad([0, 10, 90, 185, 350])
    table = np.stack([np.cos(angles), np.sin(angles)], 1) * np.array([[1], [9], [2], [3], [0.1]])
    table = np.concatenate([table, np.zeros((1, 2))]).astype(np.float32)
    assert neighbours(table, np.array([1]), 3).tolist() == [[0, 4, 2]]
    assert neighbours(table, np.array([3, 2]), 1).tolist() == [[5], [1]]  # all others are more than a right angle away
    assert neighbours(table, np.array([2]), 99).tolist() == [[1, 0, 5, 3, 4]]


def test_the_share_that_is_kept_is_of_neighbours_in_any_order() -> None:
    before = np.array([[1, 2, 3, 4], [5, 6, 7, 8]])
    assert kept(before, np.array([[4, 3, 2, 1], [5, 9, 8, 0]])) == 6 / 8
    assert kept(before, before + 10) == 0


def similar(table: Any, probe: int, top: int) -> list[int]:
    """The nearest rows, written out."""
    near = [
        (-float(table[probe] @ row / np.linalg.norm(table[probe]) / np.linalg.norm(row)), place)
        for place, row in enumerate(table.astype(np.float64))
        if place != probe
    ]
    return [place for _, place in sorted(near)[:top]]


@pytest.mark.parametrize("rows", ["own", "all"])
@pytest.mark.parametrize("uplink", [[], STRONG, [{"quantize": {"q": 0.05}}]], ids=["none", "project", "bits"])
def test_figures_are_those_of_what_the_server_received(uplink: Any, rows: str) -> None:
    federation, fleet, made = run(uplink=uplink, wire={"rows": rows})
    decoder, flat = Decoder(fleet.worker.experiment, federation.layout), fleet.sent_to
    for reply in nonempty(fleet.received):
        data = fleet.worker.clients[reply.client]
        update = decoder.update(reply.payload, reply.client, flat, 1)
        whole = federation.layout.views(flat)[TABLE].copy()
        whole[update.rows if update.rows is not None else slice(None)] += update.tensors[TABLE]
        own = [place for place in range(data.train_rows) if data.rows_R[place] > 1]
        names = [f"w{data.rows_R[place]}" for place in own]
        tables = fleet.tables[reply.client][own], whole[data.rows_R[own]], federation.state[TABLE][data.rows_R[own]]
        found: list[list[float]] = [[], []]
        for probe in (names.index(word) for word in WORDS if word in names):
            client, *others = ([*similar(table, probe, 4)] for table in tables)
            for shares, other in zip(found, others, strict=True):
                shares.append(len(set(client) & set(other)) / 4)
        scores = made[-1].clients[data.name]
        assert [scores["I_ser"], scores["I_ag"]] == pytest.approx([np.mean(shares) for shares in found])
    metrics = made[-1].metrics
    for name in ("I_ser", "I_ag"):
        assert metrics[name] == pytest.approx(np.mean([client[name] for client in made[-1].clients.values()]))
    if uplink:
        assert metrics["I_ser"] < 1
    else:
        assert metrics["I_ser"] == 1  # what is sent as it is shows all relations


@pytest.mark.parametrize("method", ["fedavg", "scaffold"])
def test_neighbours_are_words_of_the_clients_train_texts_also_where_all_rows_move(method: str) -> None:
    _, fleet, _ = run(method)
    for client, (_, (relations,)) in nonempty(fleet.worker.audits.seen.items()):
        data = tiny.corpus().clients[client]
        rows = np.unique(data.rows_R[data.train.tokens_T])
        assert sorted(relations.rows_N) == [row for row in rows if row > 1]


@pytest.mark.parametrize("uplink", [[], STRONG], ids=["none", "project"])
@pytest.mark.parametrize("method", slow_but(SHARING, "fedavg", "kteps", "fedper"))
def test_results_with_and_without_are_the_same_to_the_bit(method: str, uplink: Any) -> None:
    changes: dict[str, Any] = {"uplink": uplink, "wire": {"rows": "own"}}
    changes["participation"] = {"fraction": 0.7}
    trained = 3 if method == "fedsgd" else 2
    (with_, fleet, rows), (without, plain, others) = (run(method, audits, **changes) for audits in (AUDIT, []))
    assert with_.flat.tobytes() == without.flat.tobytes()
    assert fleet.private_states() == plain.private_states()
    own = {"I_ser", "I_ag"}
    for record, other in nonempty(zip(rows, others, strict=True)):
        assert set(record.metrics) == set(other.metrics) | own
        exact = [name for name in other.metrics if not name.endswith("seconds")]
        assert [record.metrics[name] for name in exact] == [other.metrics[name] for name in exact]
        scores = {client: {n: v for n, v in read.items() if n not in own} for client, read in record.clients.items()}
        assert scores == other.clients
        audited = [client for client, read in record.clients.items() if own <= set(read)]
        assert len(audited) == record.metrics["clients_trained"] == trained  # whoever sent nothing has no figures
    assert "audits" not in SCIENCE
    experiments = [federation.experiment for federation in (with_, without)]
    assert len({fingerprint(experiment, "digest", 3) for experiment in experiments}) == 1


def test_figures_come_with_evaluations_only() -> None:
    training = tiny.TRAINING | {"rounds": 3}
    _, _, rows = run(training=training, evaluation={"every": 2, "personalize": None})
    assert ["I_ser" in record.metrics for record in rows] == [False, True, True]
    assert [sorted(record.files) for record in rows] == [["ledger.json"], [], [FILE]]


def test_words_that_a_client_does_not_know_are_passed_over() -> None:
    corpus = tiny.corpus()
    held = [{f"w{row}" for row in client.rows_R[: client.train_rows]} for client in corpus.clients]
    (word, *_) = sorted(held[1] - held[0] - held[2])
    made = run(audits=[{"word_relations": {"words": [word, "elsewhere", "<pad>"], "top": 3}}])[2]
    assert [("I_ser" in client) for client in made[-1].clients.values()] == [False, True, False]
    assert made[-1].metrics["I_ag"] == made[-1].clients["client1"]["I_ag"]
    assert "at client1" in made[-1].files[FILE]
    with pytest.raises(UserError, match=r"none of elsewhere, W3 is in the corpus's vocabulary"):
        run(audits=[{"word_relations": {"words": ["elsewhere", "W3"]}}])


def test_the_last_round_shows_one_clients_neighbours() -> None:
    federation, fleet, made = run(uplink=STRONG, wire={"rows": "own"})
    data = fleet.worker.clients[0]
    own = [place for place in range(data.train_rows) if data.rows_R[place] > 1]
    names = [f"w{data.rows_R[place]}" for place in own]
    lines = [line for line in made[-1].files[FILE].splitlines() if line.startswith("| w")][1:]
    words, clients, servers, aggregated = zip(*(line.strip("| ").split(" | ") for line in lines), strict=True)
    assert list(words) == [word for word in WORDS if word in names]
    table = federation.state[TABLE][data.rows_R[own]]
    still = []
    for word, client, server, last in nonempty(zip(words, clients, servers, aggregated, strict=True)):
        mine = [names[place] for place in similar(fleet.tables[0][own], names.index(word), 4)]
        final = [names[place] for place in similar(table, names.index(word), 4)]
        assert client.split(", ") == mine
        assert last.split(", ") == [f"**{name}**" if name in mine else name for name in final]
        still.append(server.count("**") / 2 / 4)
    assert np.mean(still) == pytest.approx(made[-1].clients["client0"]["I_ser"])


@pytest.mark.parametrize(
    ("method", "audits", "words"),
    [
        ("local_only", AUDIT, "word_relations needs a shared embedding, and method local_only shares none"),
        ("pooled", AUDIT, "leave out uplink, audits and participation"),
        ("fedavg", AUDIT * 2, "one of them is listed twice"),
        ("fedavg", [{"word_relations": {"words": []}}], "at least 1 item"),
        ("fedavg", [{"word_relations": {"words": ["a"], "top": 0}}], "greater than or equal to 1"),
    ],
)
def test_what_makes_no_sense_is_refused(method: str, audits: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        tiny.experiment(method, audits=audits)


def test_the_neighbours_lie_in_the_runs_folder(tmp_path: Path) -> None:
    words = ["corpus.clients=2", "corpus.train=20", "corpus.test=5", "training.rounds=1", "model.embedding.dim=8"]
    words += ["evaluation.personalize=null", "audits=[{word_relations: {words: [it, the, dreadfully]}}]"]
    assert main(["demo.yaml", *words, "--out", str(tmp_path / "out")]) == 0
    assert "| it | " in (tmp_path / "out" / FILE).read_text()


def test_the_neighbours_lie_in_mlflow(store: "Store", tmp_path: Path) -> None:
    from dashboards.tracking import Tracker

    case = planned.kteps(0, 0.1)
    tracker = Tracker(store, tmp_path / "run", case.experiment, sweep=False)
    tracker.open()
    tracker.open_trial(case)
    (*rows, last) = planned.rows(3)
    tracker.deliver(case.id, [*rows, replace(last, files={FILE: "# neighbours\n"})])
    tracker.close_trial(case.id, "FINISHED")
    run_id = planned.run_id(tmp_path / "run" / case.id)
    path = store.client().download_artifacts(run_id, FILE, str(tmp_path))
    assert Path(path).read_text() == "# neighbours\n"


@pytest.mark.parametrize(
    "changes",
    [
        {"participation": {"fraction": 0.375, "over_selection": 2, "pace": {"spread": 1}}},
        {"participation": {"fraction": 0.5, "pace": {"spread": 1}, "availability": {"hour_s": 60}}},
        {"evaluation": {"personalize": None, "clients": 4}},
    ],
    ids=["late clients", "a clock", "some are evaluated"],
)
def test_the_first_clients_that_return_and_are_evaluated_are_attacked(changes: dict[str, Any]) -> None:
    """Not the first ones of the sample: nothing of these may come, and an attack that is not made finds nothing."""
    audit = {"name": "gradient_inversion", "clients": 2, "steps": 1}
    moved = 0
    for seed in range(4):
        made = tiny.experiment(seed=seed, audits=[audit], **changes)
        federation = tiny.federation(made, tiny.corpus(clients=8), Recording)
        last = list(federation.run())[-1]
        returned = sorted(reply.client for reply in federation.fleet.received)
        first = [client for client in returned if federation.fleet.clients.evaluates[client]][:2]
        attacked = [name for name, scores in last.clients.items() if any("inversion_" in one for one in scores)]
        assert sorted(attacked) == sorted(federation.names[client] for client in first)
        moved += first != sampled(made, range(8), last.round, federation.fleet.noise)[:2]
    assert moved


ROUNDS = tiny.TRAINING | {"rounds": 2}
SAMPLED: dict[str, Any] = {"participation": {"fraction": 0.25}, "evaluation": {"personalize": None, "clients": 2}}


def test_in_the_last_round_clients_are_attacked_that_are_not_evaluated() -> None:
    """Of eight clients two are evaluated and two take part: seldom the same."""
    apart = 0
    for seed in range(3):
        made = tiny.experiment(seed=seed, audits=["membership", "label_leakage"], training=ROUNDS, **SAMPLED)
        federation = tiny.federation(made, tiny.corpus(clients=8))
        first, last = federation.run()
        names = [federation.names[client] for client in sampled(made, range(8), 2, federation.fleet.noise)]
        evaluated = {federation.names[client] for client in federation.fleet.clients.evaluated()}
        assert {name for name, found in last.clients.items() if "member_auc" in found} == set(names)
        assert last.metrics["label_l1"] == pytest.approx(np.mean([last.clients[name]["label_l1"] for name in names]))
        assert {name for name, found in last.clients.items() if "Ag" in found} == evaluated
        assert {"member_pooled_auc", "member_user_auc"} <= last.metrics.keys()
        assert "membership.md" in last.files
        assert {name for name, found in first.clients.items() if "label_l1" in found} <= evaluated
        apart += not evaluated & set(names)
    assert apart


def test_audits_that_have_measured_nothing_are_named_in_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    """Membership without a text that nobody has trained on."""
    corpus = tiny.corpus(clients=3)
    corpus = replace(corpus, repeated=tuple(np.ones(len(client.test), bool) for client in corpus.clients))
    made = tiny.experiment(audits=["membership", "label_leakage"], training=ROUNDS)
    rows = list(tiny.federation(made, corpus).run())
    assert not any(name.startswith("member_") for row in nonempty(rows) for name in nonempty(row.metrics))
    (said,) = [record.message for record in caplog.records if "after the last round" in record.message]
    assert said.startswith("audits: there are no metrics of membership after the last round, since none of the clients")


def test_audits_of_rounds_that_their_keys_name_are_not_missed_after_the_last(caplog: pytest.LogCaptureFixture) -> None:
    audit = {"name": "gradient_inversion", "rounds": [1], "steps": 1, "clients": 1}
    made = tiny.experiment(audits=[audit], training=ROUNDS)
    list(tiny.federation(made, tiny.corpus(clients=2)).run())
    assert not [record.message for record in caplog.records if "after the last round" in record.message]
