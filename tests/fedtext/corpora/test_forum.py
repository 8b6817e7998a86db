"""The generated forum: each user's texts follow from the seed and the user's number alone."""

from collections import Counter

import numpy as np
import pytest

from fedtext.corpora.forum import BLOCK, ForumCorpus, spelled
from fedtext.corpora.streamed import by_time
from tests.loops import nonempty

FORUM = ForumCorpus(clients=400)
CORPUS = FORUM.read(None, 3)


@pytest.mark.parametrize("chosen", [[0], [399], [7, 3, 250]])
def test_a_user_is_made_without_the_others(chosen: list[int]) -> None:
    alone = list(FORUM.users(3, chosen).decoded(list(FORUM.lexicon())))
    for client, user in nonempty(zip(alone, chosen, strict=True)):
        other = CORPUS.clients[user]
        assert client.name == other.name
        for side in ("train", "validation", "test"):
            assert getattr(client, side).texts == getattr(other, side).texts


def test_blocks_are_of_all_users_in_their_order() -> None:
    forum = ForumCorpus(clients=BLOCK + 3, median=3, spread=0.0)
    blocks = list(forum.blocks(None, 1, forum.lexicon()))
    assert [len(block.names) for block in blocks] == [BLOCK, 3]
    (last,) = forum.users(1, [BLOCK + 2]).decoded(list(forum.lexicon()))
    *_, same = blocks[1].decoded(list(forum.lexicon()))
    assert (last.name, last.train.texts, last.test.texts) == (same.name, same.train.texts, same.test.texts)


def test_users_write_very_unequally_and_each_has_texts_of_all_splits() -> None:
    sizes = np.array([[len(c.train), len(c.validation), len(c.test)] for c in CORPUS.clients])
    assert sizes.min() >= 1
    texts = sizes.sum(1)
    assert 12 < np.median(texts) < 20
    assert texts.max() > 10 * np.median(texts)
    assert np.log(texts[texts > 3]).std() > 0.7


def test_words_follow_zipf_and_topics_differ_between_users() -> None:
    counts = Counter(word for client in CORPUS.clients for text in client.train.texts for word in text.split()[1:-1])
    ranked = np.array([count for _, count in counts.most_common(1000)])
    slope = np.polyfit(np.log(np.arange(10, 1001)), np.log(ranked[9:]), 1)[0]
    assert -1.3 < slope < -0.7
    longest = sorted(CORPUS.clients, key=lambda client: -len(client.train))[:4]
    words = [Counter(w for text in client.train.texts for w in text.split()) for client in longest]
    shared = [set(dict(one.most_common(20))) & set(dict(words[0].most_common(20))) for one in words[1:]]
    assert max(map(len, shared)) < 20


def test_another_seed_has_other_texts_and_the_same_words() -> None:
    other = FORUM.read(None, 4)
    assert CORPUS.clients[0].train.texts != other.clients[0].train.texts
    assert len({spelled(rank) for rank in range(20_000)}) == 20_000


@pytest.mark.parametrize(("texts", "parts"), [(3, [1, 1, 1]), (14, [12, 1, 1]), (15, [11, 2, 2]), (100, [80, 10, 10])])
def test_the_last_texts_are_held_out(texts: int, parts: list[int]) -> None:
    assert by_time(np.array([texts])).tolist() == [parts]


def test_without_validation_there_are_no_such_texts_and_the_others_are_the_same() -> None:
    without = FORUM.model_copy(update={"validation": 0.0}).read(None, 3)
    half = FORUM.model_copy(update={"validation": 0.5}).read(None, 3)
    for one, two, whole in nonempty(zip(without.clients, half.clients, CORPUS.clients, strict=True)):
        assert (one.train.texts, one.validation.texts) == (whole.train.texts, [])
        assert one.test.texts == two.test.texts == whole.test.texts
        assert two.validation.texts == whole.validation.texts[: -(-len(whole.validation) // 2)]
