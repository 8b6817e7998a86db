"""Places of coordinates as float32 numbers: every place arrives as it is."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedtext.mechanisms.places import MOST, decode_places, encode_places
from fedtext.messages import Update
from fedtext.wire import encoding
from tests.loops import nonempty

EDGES = [0, 1, 2**23, 2**24 - 1, 2**24, 2**24 + 1, 20_000_001, MOST - 1]


def test_places_arrive_as_they_are() -> None:
    assert MOST == 2**31 - 2**23
    for kind in nonempty((np.int32, np.uint32, np.int64, np.uint64)):
        tensors = {"places": encode_places(np.array(EDGES, kind))}
        payload = encoding.encode(Update(0, 1, tensors))
        sent = encoding.decode(payload, 0, {"places": (len(EDGES),)}).tensors["places"]
        assert decode_places(sent, MOST).tolist() == EDGES
    assert decode_places(encode_places(np.array([], np.int64)), 5).tolist() == []


@given(st.lists(st.integers(0, MOST - 1)))
def test_all_of_them_are_finite_numbers(places: list[int]) -> None:
    numbers = encode_places(np.array(places, np.int64))
    assert numbers.dtype == np.float32
    assert np.isfinite(numbers).all()
    assert decode_places(numbers, MOST).tolist() == places


@pytest.mark.parametrize("places", [[-1], [0, MOST], [2**32]])
def test_what_has_no_finite_number_is_refused(places: list[int]) -> None:
    with pytest.raises(ValueError, match=r"places of a tensor go from 0 to 2,139,095,039, not "):
        encode_places(np.array(places, np.int64))


def test_numbers_of_another_type_are_refused() -> None:
    with pytest.raises(ValueError, match="places are whole numbers, not float32"):
        encode_places(np.array([1.0], np.float32))  # type: ignore[arg-type]


@pytest.mark.parametrize("sent", [encode_places(np.array([3, 5])), np.array([-1.0], np.float32)])
def test_a_client_that_sends_a_place_beyond_the_tensor_is_refused(sent: np.ndarray) -> None:
    with pytest.raises(ValueError, match="it sent places of a tensor of 5 coordinates that it does not have"):
        decode_places(sent, 5)
