"""What crosses the wire: its encoding, its size, and that nothing else does."""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from safetensors.numpy import load, save

from fedtext.layout import TABLE
from fedtext.messages import Update
from fedtext.methods import METHODS
from fedtext.parameters import initial
from fedtext.wire import encoding
from tests import tiny
from tests.loops import nonempty
from tests.tiny import Recording

NAMES = st.text("abcxyz_.0é", min_size=1, max_size=12)
SHAPES = st.dictionaries(NAMES, st.lists(st.integers(0, 7), max_size=3).map(tuple), max_size=5)


def contents(tensors: Mapping[str, np.ndarray]) -> dict[str, tuple[np.dtype, tuple[int, ...], bytes]]:
    return {name: (tensor.dtype, tensor.shape, tensor.tobytes()) for name, tensor in tensors.items()}


@given(SHAPES)
def test_encoded_size_is_the_size_of_the_encoding(shapes: dict[str, tuple[int, ...]]) -> None:
    tensors = {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}
    assert encoding.encoded_size(shapes) == (len(save(tensors)) if tensors else 0)


TYPES = ["u8", "i8", "f8", "f4", "u4", "i4", "f2", "u2", "i2", "u1", "i1"]


@given(st.dictionaries(NAMES, st.tuples(st.sampled_from(TYPES), st.lists(st.integers(0, 7), max_size=3)), max_size=6))
def test_payloads_are_what_safetensors_writes(kinds: dict[str, tuple[str, list[int]]]) -> None:
    tensors: Any = {name: np.full(shape, 3, dtype) for name, (dtype, shape) in kinds.items()}
    assert encoding.encode(Update(1, 10, tensors)) == save(tensors | {"#samples": np.array([10], np.int64)})


@given(SHAPES, st.integers(0, 2**40), st.integers(0, 99))
@example({"a": (2,)}, 0, 0)
def test_payloads_come_back_as_they_were(shapes: dict[str, tuple[int, ...]], samples: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    tensors = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    back = encoding.decode(encoding.encode(Update(3, samples, tensors)), 3, shapes)
    assert (back.client, back.samples, back.rows) == (3, samples, None)
    assert list(back.tensors) == list(tensors), "a sum over them has the same bits each time"
    assert contents(back.tensors) == contents(tensors)


@given(SHAPES, st.integers(0, 99))
def test_bits_come_back_as_they_were_eight_to_a_byte(shapes: dict[str, tuple[int, ...]], seed: int) -> None:
    rng = np.random.default_rng(seed)
    tensors = {name: np.asarray(rng.random(shape) < 0.5) for name, shape in shapes.items()}
    payload = encoding.encode(Update(3, 7, tensors))  # type: ignore[arg-type]
    back = encoding.decode(payload, 3, shapes, dtype=encoding.BITS)
    assert contents(back.tensors) == contents(tensors)
    content = load(payload)
    assert {name: content[name].nbytes for name in tensors} == {name: -(-t.size // 8) for name, t in tensors.items()}


def test_bits_are_refused_where_numbers_are_expected_and_the_other_way_round() -> None:
    shapes = {TABLE: (5, 2), "b": (3,)}
    numbers = {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}
    bits: Any = {name: np.zeros(shape, np.bool_) for name, shape in shapes.items()}
    with pytest.raises(ValueError, match=r"sent .* as uint8"):
        encoding.decode(encoding.encode(Update(1, 10, bits)), 1, shapes)
    with pytest.raises(ValueError, match=r"sent .* as float32"):
        encoding.decode(encoding.encode(Update(1, 10, numbers)), 1, shapes, dtype=encoding.BITS)
    short = bits | {TABLE: np.zeros((4, 2), np.bool_)}
    with pytest.raises(ValueError, match=r"uint8\(1,\), not uint8\(2,\)"):
        encoding.decode(encoding.encode(Update(1, 10, short)), 1, shapes, dtype=encoding.BITS)
    rows = np.array([1, 3, 4], np.int32)
    own = encoding.decode(
        encoding.encode(Update(1, 10, bits | {TABLE: np.ones((3, 2), np.bool_)}, rows)), 1, shapes, dtype=encoding.BITS
    )
    assert own.tensors[TABLE].shape == (3, 2)


NO_COUNTS: list[Any] = [[-1], [1.0], [1, 2], [], 1]


def _typed(code: str) -> bytes:
    """A payload with a tensor of two bytes of a type that numpy does not have."""
    text = json.dumps({"b": {"dtype": code, "shape": [1], "data_offsets": [0, 2]}}).encode()
    return len(text).to_bytes(8, "little") + text + bytes(2)


def test_long_headers_are_not_kept() -> None:
    """A client could fill the server's memory with them."""
    kept = encoding._places.cache_info().currsize
    shapes = {f"{number:0100}": (1,) for number in range(1000)}
    tensors = {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}
    assert encoding.decode(encoding.encode(Update(1, 10, tensors)), 1, shapes).samples == 10
    assert encoding._places.cache_info().currsize == kept


def test_what_is_not_the_expected_payload_is_refused() -> None:
    shapes = {TABLE: (5, 2), "b": (3,)}
    rows = np.array([0, 4], np.int32)
    tensors = {TABLE: np.zeros((2, 2), np.float32), "b": np.zeros(3, np.float32)}
    counted = tensors | {"#rows": rows}
    good = encoding.encode(Update(1, 10, tensors, rows))
    assert np.array_equal(encoding.decode(good, 1, shapes).rows, rows)
    one, none = (tensors | {TABLE: np.zeros((count, 2), np.float32)} for count in (1, 0))
    nothing = encoding.decode(encoding.encode(Update(1, 10, none, np.zeros(0, np.int32))), 1, shapes)
    assert nothing.tensors[TABLE].shape == (0, 2), "a client need not hold any row"
    for bad, word in (
        (good[:-1], "no readable payload"),
        (_typed("BF16"), "BF16"),
        (b"", "no readable payload"),
        (save(tensors), "without its sample count"),
        *((save(counted | {"#samples": np.array(count)}), "a sample count that is none") for count in NO_COUNTS),
        (encoding.encode(Update(1, 10, {"b": tensors["b"]})), "are expected"),
        (encoding.encode(Update(1, 10, tensors | {"b": np.zeros(4, np.float32)}, rows)), "not float32"),
        (encoding.encode(Update(1, 10, tensors | {"b": np.zeros(3)}, rows)), "float64"),
        (encoding.encode(Update(1, 10, tensors, np.array([0, 5], np.int32))), "distinct rows"),
        (encoding.encode(Update(1, 10, one, np.array([5], np.int32))), "distinct rows"),
        (encoding.encode(Update(1, 10, tensors, np.array([4, 4], np.int32))), "distinct rows"),
        (encoding.encode(Update(1, 10, tensors, np.array([0, -1], np.int32))), "distinct rows"),
    ):
        with pytest.raises(ValueError, match=word):
            encoding.decode(bad, 1, shapes)


@pytest.mark.parametrize("own", [True, False])
def test_rows_are_named_if_and_only_if_they_are_to_be(own: bool) -> None:
    """With secure aggregation a client that names one row would move the masks of all others."""
    shapes, rows = {TABLE: (5, 2), "b": (3,)}, np.array([0, 4], np.int32)
    tensors = {TABLE: np.zeros((2, 2), np.float32), "b": np.zeros(3, np.float32)}
    named = encoding.encode(Update(1, 10, tensors, rows))
    whole = encoding.encode(Update(1, 10, tensors | {TABLE: np.zeros((5, 2), np.float32)}))
    right, wrong = (named, whole) if own else (whole, named)
    assert encoding.decode(right, 1, shapes, own_rows=own).samples == 10
    with pytest.raises(ValueError, match=f"it sent {'all' if own else 'some'} rows of the table"):
        encoding.decode(wrong, 1, shapes, own_rows=own)
    without = encoding.encode(Update(1, 10, {"b": tensors["b"]}))
    assert encoding.decode(without, 1, {"b": (3,)}, own_rows=own).rows is None, "a method that keeps its table"
    of_nothing = encoding.encode(Update(1, 10, {"b": tensors["b"]}, rows))
    with pytest.raises(ValueError, match="it sent rows of a table, and no table is expected"):
        encoding.decode(of_nothing, 1, {"b": (3,)}, own_rows=own)


@pytest.mark.parametrize("value", [1.0, np.nan])
def test_a_payload_whose_tensors_do_not_lie_side_by_side_is_refused(value: float) -> None:
    """Such a payload is valid safetensors. Numbers behind the sample count would not be looked at."""
    kinds = {"a": ("F32", 4), "#samples": ("I64", 8), "b": ("F32", 8)}
    header, end = {}, 0
    for name, (dtype, size) in kinds.items():
        header[name] = {"dtype": dtype, "shape": [2 if name == "b" else 1], "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header).encode()
    body = np.float32([1]).tobytes() + np.int64([10]).tobytes() + np.float32([1, value]).tobytes()
    payload = len(text).to_bytes(8, "little") + text + body
    assert load(payload)["#samples"] == 10
    with pytest.raises(ValueError, match="with its sample count or its rows between them"):
        encoding.decode(payload, 1, {"a": (1,), "b": (2,)})


NOISY = [{"clip": {"norm": 0.1}}, {"gaussian": {"sigma": 0.01}}]


@pytest.mark.parametrize(
    ("method", "uplink"),
    [
        *((name, []) for name, method in sorted(METHODS.items()) if not method.pooled),
        *((name, NOISY) for name, method in sorted(METHODS.items()) if method.shares and not method.pooled),
    ],
)
def test_the_server_receives_shared_tensors_and_counts_and_nothing_else(method: str, uplink: Any) -> None:
    experiment, corpus = tiny.experiment(method, uplink=uplink), tiny.corpus()
    shared = initial(experiment, corpus)[0]
    federation = tiny.federation(experiment, corpus, Recording)
    fleet = federation.fleet
    record = list(federation.run())[-1]
    assert fleet.received
    hidden = {name for name, _ in fleet.worker.network.named_parameters() if experiment.method.private(name)}
    for reply in nonempty(fleet.received):
        content = load(reply.payload.tobytes()) if shared else {}
        extra = {"#samples", "#rows"} if experiment.own_rows and TABLE in shared else {"#samples"}
        if method == "scaffold":
            extra |= {f"delta_c/{name}" for name in shared}
        assert set(content) == (set(shared) | extra if shared else set())
        assert not set(content) & hidden
        hosted = fleet.worker.clients[reply.client]
        if "#rows" in content:  # own rows: exactly those that occur in the client's train texts, as the run says
            rows_R = hosted.rows_R[: hosted.train_rows]
            kept = [] if fleet.withheld is None else fleet.withheld
            assert np.array_equal(content["#rows"], rows_R[~np.isin(rows_R, kept)])
        elif TABLE in shared:
            assert content[TABLE].shape == shared[TABLE].shape
        assert set(reply.metrics) >= {"loss", "samples"}
    assert record.metrics["bytes_up"] == sum(len(reply.payload) for reply in fleet.received)


def test_noise_covers_every_row_unless_own_rows_are_asked_for() -> None:
    noisy = [{"gaussian": {"sigma": 0.01}}]
    assert not tiny.experiment(uplink=noisy).own_rows
    assert tiny.experiment(uplink=noisy, wire={"rows": "own"}).own_rows
    assert tiny.experiment().own_rows
    corpus = tiny.corpus()
    experiment = tiny.experiment(uplink=noisy)
    federation = tiny.federation(experiment, corpus, Recording)
    fleet = federation.fleet
    list(federation.run())
    for reply in nonempty(fleet.received):
        assert np.all(np.any(load(reply.payload.tobytes())[TABLE] != 0, axis=1))


def test_rows_come_as_int32_whatever_numbers_they_are() -> None:
    shapes, tensors = {TABLE: (5, 2)}, {TABLE: np.ones((2, 2), np.float32)}
    for dtype in (np.int64, np.uint32, np.int16):
        rows: Any = np.array([0, 4], dtype)
        with pytest.raises(ValueError, match="distinct rows of a table of 5"):
            encoding.decode(encoding.encode(Update(1, 10, tensors, rows)), 1, shapes)
    square: Any = np.array([[0, 4]], np.int32)
    with pytest.raises(ValueError, match="distinct rows of a table of 5"):
        encoding.decode(encoding.encode(Update(1, 10, tensors, square)), 1, shapes)


def test_numbers_arrive_at_their_places_however_they_lie_in_memory() -> None:
    """What is transposed, strided or turned round in memory is no other tensor."""
    grid = np.arange(24, dtype=np.float32).reshape(4, 6)
    laid_out: dict[str, Any] = {
        "transposed": grid.T,
        "strided": grid[::2, 1::3],
        "reversed": grid[::-1],
        "fortran": np.asfortranarray(grid),
        "broadcast": np.broadcast_to(grid[0], (3, 6)),
    }
    shapes = {name: tensor.shape for name, tensor in laid_out.items()}
    back = encoding.decode(encoding.encode(Update(1, 10, laid_out)), 1, shapes)
    for name, tensor in laid_out.items():
        assert back.tensors[name].tolist() == tensor.tolist(), name
    bits: dict[str, Any] = {name: tensor > 9 for name, tensor in laid_out.items()}
    back = encoding.decode(encoding.encode(Update(1, 10, bits)), 1, shapes, dtype=encoding.BITS)
    for name, tensor in bits.items():
        assert back.tensors[name].tolist() == tensor.tolist(), name
    rows = np.array([4, 9, 0, 9, 2, 9], np.int32)[::2]
    table = {TABLE: np.ones((3, 2), np.float32)}
    received = encoding.decode(encoding.encode(Update(1, 10, table, rows)), 1, {TABLE: (5, 2)}).rows
    assert received is not None
    assert received.tolist() == [4, 0, 2]


def test_an_update_is_a_copy_of_its_payload_or_a_part_of_it_that_nobody_can_change() -> None:
    tensors = {TABLE: np.ones((4, 2), np.float32), "w": np.arange(3, dtype=np.float32)}
    payload = np.frombuffer(encoding.encode(Update(0, 1, tensors, np.arange(4, dtype=np.int32))), np.uint8).copy()
    shapes = {name: tensor.shape for name, tensor in tensors.items()}
    for copied in (True, False):
        found = encoding.decode(payload, 0, shapes, copied=copied)
        assert found.rows is not None
        for part in (found.rows, *found.tensors.values()):
            assert np.shares_memory(part, payload) != copied
            assert part.flags.writeable == copied
        assert found.tensors["w"].tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("changes", "copied"),
    [({}, False), ({"server": {"aggregation": "median"}}, True), ({"uplink": [{"clip": {"norm": 1.0}}]}, True)],
)
def test_updates_that_are_kept_or_restored_do_not_hold_payloads(changes: Any, copied: bool) -> None:
    federation = tiny.federation(tiny.experiment(**changes), fleet=Recording)
    list(federation.run())
    payload = federation.fleet.received[0].payload
    update = federation.decoder.update(payload, 0, federation.flat, 1)
    assert np.shares_memory(update.tensors[TABLE], payload) != copied
