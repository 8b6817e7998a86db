"""Differences between experiments, for messages."""

import json
from collections.abc import Mapping
from typing import Any

SHOWN, LONGEST = 4, 40  # of differences in a message, and of the characters of a value


def flattened(part: Any, prefix: str = "") -> dict[str, Any]:
    """Return nested mappings as one, with dotted keys."""
    if not isinstance(part, dict) or not part:
        return {prefix: part}
    inner = (flattened(value, f"{prefix}.{key}" if prefix else str(key)) for key, value in part.items())
    return {key: value for each in inner for key, value in each.items()}


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, str]:
    """Return the dotted keys whose values differ, each with a phrase such as ``method.lambda1 0.1 -> 0.2``.

    Args:
        before, now: Values by dotted key. A key that is in one of them only has no value in the other.
    """
    keys = [key for key in {**before, **now} if before.get(key) != now.get(key)]
    return {key: f"{key} {_shown(before, key)} -> {_shown(now, key)}" for key in keys}


def listed(changed: Mapping[str, str]) -> str:
    """Return the first of some differences as a list, and how many keys follow."""
    shown, more = list(changed.values())[:SHOWN], len(changed) - SHOWN
    return ", ".join(shown) + (f" and {more} more key{'s' * (more > 1)}" if more > 0 else "")


def _shown(values: Mapping[str, Any], key: str) -> str:
    text = json.dumps(values[key], ensure_ascii=False) if key in values else "nothing"
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."
