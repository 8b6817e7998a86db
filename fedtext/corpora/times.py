"""Times of texts: seconds since 1970, or dates in ISO 8601."""

import math
import re
import reprlib
from datetime import UTC, date, datetime, time
from typing import Annotated, Any, TypeAlias

from pydantic import BeforeValidator

_LAST = datetime(9999, 12, 31, tzinfo=UTC).timestamp()
_DAY = re.compile(r"[12]\d{3}(0[1-9]|1[0-2])(0[1-9]|[12]\d|3[01])(\.0*)?")  # 20150501
_FORMS = "seconds since 1970, or a date in ISO 8601 such as 2015-05-01 or 2015-05-01T12:00:00Z"


def seconds_of(value: Any) -> float:
    """Return a time in seconds since 1970. A time without a zone is in UTC, and a day or a month is its beginning.

    Args:
        value: A number of seconds, also as a text, a text in ISO 8601 (also ``2015-05``, a month), or a date or time.

    Raises:
        ValueError: It is none of these, not between 1970 and 9999, or eight digits that may be a day.
    """
    if _DAY.fullmatch(str(value).strip()):  # as seconds it would be a time in 1970 to 1973
        raise ValueError(f"{reprlib.repr(value)} may be a day or a number of seconds: write {_FORMS}")
    try:
        seconds = _seconds(value.strip() if isinstance(value, str) else value)
    except (ValueError, OverflowError):
        seconds = math.nan
    if not 0 <= seconds <= _LAST:  # also what is no number
        raise ValueError(f"{reprlib.repr(value)} is no time from 1970 to 9999: write {_FORMS}")
    return seconds


def _seconds(value: Any) -> float:
    if isinstance(value, datetime):
        return (value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp()
    if isinstance(value, date):
        return datetime.combine(value, time(), UTC).timestamp()
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, str):
        raise ValueError
    try:
        return float(value)
    except ValueError:
        month = len(value) == len("2015-05")
        return _seconds(datetime.fromisoformat(f"{value}-01" if month else value))


def _as_text(value: Any) -> Any:
    """Return the text of a date, which YAML reads as such. Raises ValueError if a text is no date."""
    if isinstance(value, int | float) or (isinstance(value, str) and value.strip().isdecimal()):
        raise ValueError(f"{reprlib.repr(value)} is no date: write one in ISO 8601 such as 2015-05-01")
    if isinstance(value, str | date):
        seconds_of(value)
    return value.isoformat() if isinstance(value, date) else value


Time: TypeAlias = Annotated[str, BeforeValidator(_as_text)]  # the type of a key that is a date
