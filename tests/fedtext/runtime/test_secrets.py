"""Addresses with passwords are shown without them, and are in no file of a run."""

import pytest

from fedtext.runtime.secrets import has_secret, redacted
from tests import tiny

HIDDEN = {
    "https://me:SECRET@tracker/mlflow": "https://me:***@tracker/mlflow",
    "postgresql://me:SECRET/with@slash@host/db": "postgresql://me:***@host/db",
    "postgresql://me:SECRET/x@host/db": "postgresql://me:***@host/db",
    "https://SECRET@host/x": "https://***@host/x",
    "postgresql://host/db?user=me&password=SECRET": "postgresql://host/db?user=me&password=***",
    "https://host/x?access_token=SECRET&b=1": "https://host/x?access_token=***&b=1",
    "uri: 'mysql+pymysql://me:SECRET@host/db', next": "uri: 'mysql+pymysql://me:***@host/db', next",
}
OPEN = ("http://host:5000/a", "sqlite:///a.db", "postgresql://me@host/db", "abfs://box@account/x", "s3://b/x?region=eu")


@pytest.mark.parametrize("text", HIDDEN)
def test_a_secret_is_hidden(text: str) -> None:
    assert redacted(text) == HIDDEN[text]
    assert has_secret(text)


@pytest.mark.parametrize("text", OPEN)
def test_what_is_no_secret_is_shown(text: str) -> None:
    assert redacted(text) == text
    assert not has_secret(text)


@pytest.mark.parametrize("uri", [text for text in HIDDEN if " " not in text])
def test_an_experiment_takes_no_address_with_a_secret_since_it_is_stored_with_runs(uri: str) -> None:
    with pytest.raises(ValueError, match="leave the key out, and give the address by") as refused:
        tiny.experiment(tracking={"uri": uri})
    assert "SECRET" not in str(refused.value).partition(" [type=")[0]
