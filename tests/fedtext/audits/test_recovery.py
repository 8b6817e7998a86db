"""Recovery: how words and texts that an attack finds are counted, and paired with the client's texts."""

from collections.abc import Mapping

import numpy as np
import pytest

from fedtext.audits.known import Words
from fedtext.audits.recovery import Pairing, paired


def test_figures_by_hand() -> None:
    """Two texts, of which the second one has a word twice, an unknown word, and nothing of it at its place."""
    names = ["<pad>", "<unk>", "on", "may", "7th", "at", "5", "pm"]
    text, other = np.array([2, 3, 4, 5, 6]), np.array([7, 7, 1, 6])
    found = [np.array([2, 3, 5, 4, 0]), np.array([6, 7, 3, 2])]
    pairing = Pairing([text, other], found, np.concatenate(found))
    values = pairing.metrics(Words(names, {}), digits=True)
    assert values == {
        "precision": pytest.approx((1 + 2 / 4) / 2),  # four words of the first, all right; <pad> is none
        "recall": pytest.approx((4 / 5 + 3 / 3) / 2),
        "f1": pytest.approx(2 * 0.75 * 0.9 / 1.65),
        "exact": pytest.approx((2 / 5 + 1 / 3) / 2),
        "ptlr": 1,  # 7th, 5, 5: of the first text's 5 it counts that it is found, though in the other text
        "ptlr_exact": 0,
    }
    assert "ptlr" not in pairing.metrics(Words(names, {}), digits=False)

    def of(text: list[int], found: list[int]) -> Mapping[str, float]:
        return Pairing([np.array(text)], [np.array(found)], np.array(found)).metrics(Words(names, {}), digits=True)

    assert "ptlr" not in of([2, 3], [4, 6])
    assert of([1], [2]) == {}


def test_texts_are_recovered_exactly_or_have_no_words() -> None:
    words = Words(["<pad>", "<unk>", "on", "may"], {})
    texts = [np.array([2, 1, 3]), np.array([1, 1]), np.array([2, 3]), np.array([2]), np.zeros(0, np.int64)]
    found = [np.array([2, 3, 0]), np.array([1, 1]), np.array([3, 2]), np.zeros(0, np.int64), np.zeros(0, np.int64)]
    assert Pairing(texts, found, np.concatenate(found)).exact(words) == [True, False, False]
    assert Pairing(texts[1:2], [np.array([2])], np.array([2])).exact(words) == []


def test_a_number_leaks_in_whichever_text_it_is_found() -> None:
    names = ["<pad>", "<unk>", "on", "may", "7th", "at", "pm", "5"]
    texts = [np.array([2, 3, 4]), np.array([5, 6, 7])]  # on may 7th; at pm 5
    crossed = paired(texts, [np.array([2, 3, 7]), np.array([5, 6, 4])], np.array([0, 1]), None)
    values = crossed.metrics(Words(names, {}), digits=True)
    assert values["ptlr"] == 1
    assert values["ptlr_exact"] == 0
    assert values["recall"] == pytest.approx(2 / 3)
    left = paired(texts, [np.array([5, 4, 4])], np.array([0, 1]), np.array([0]))  # nothing is left for the second
    assert left.metrics(Words(names, {}), digits=True)["ptlr"] == 0.5


def test_texts_are_paired_by_what_they_have_in_common_within_a_label() -> None:
    texts = [np.array([2, 3, 4]), np.array([5, 6]), np.array([7, 8])]
    found = [np.array([5, 6]), np.array([2, 3, 9])]
    free = paired(texts, found, np.array([0, 1, 1]), None)
    assert [f.tolist() for f in free.found] == [[2, 3, 9], [5, 6], []]
    bound = paired(texts, found, np.array([0, 1, 1]), np.array([0, 1]))
    assert [f.tolist() for f in bound.found] == [[5, 6], [2, 3, 9], []]
