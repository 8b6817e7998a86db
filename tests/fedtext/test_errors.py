"""Messages for people: whatever they quote, a terminal shows them as they are, and they have an end."""

import pickle

from fedtext.errors import OwnershipLostError, UserError


def test_a_message_shows_what_it_quotes_and_no_more_than_anybody_reads() -> None:
    assert str(UserError("name: 'é' is no folder")) == "name: 'é' is no folder"
    assert str(UserError("a\x1b[2Jb\0\tc\ud800")) == "a\\x1b[2Jb\\x00\\tc\\ud800"
    assert str(UserError("one\ntwo")) == "one\ntwo"
    long = str(UserError(f"model.hidden: {'x' * 10**6} is too long: lower it"))
    assert len(long) < 1100
    assert long.startswith("model.hidden: xxx")
    assert long.endswith("is too long: lower it")
    assert len(str(UserError("\0" * 10**6))) < 1100


def test_errors_keep_their_kind_and_message_on_their_way_between_processes() -> None:
    sent = pickle.loads(pickle.dumps(OwnershipLostError("another\x07 command")))
    assert type(sent) is OwnershipLostError
    assert str(sent) == "another\\x07 command"
