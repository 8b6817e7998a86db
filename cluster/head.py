"""The nodes of a Ray cluster, as its head reports them over HTTP."""

import json
import time
import urllib.request
from typing import Any

from fedtext.errors import UserError


def await_nodes(url: str, token: str, count: int, deadline: float, until: float) -> None:
    """Poll the head of a local cluster until all nodes are alive and its job server answers.

    Args:
        url: Address of its dashboard.
        token: Ray's token.
        count: Number of nodes.
        deadline: Seconds that were given to them, for the message.
        until: Time by ``time.monotonic`` at which they have to be there.

    Raises:
        UserError: They are not.
    """
    alive, trouble = 0, "no answer yet"
    while time.monotonic() < until:
        try:
            listed = _ask(f"{url}/api/v0/nodes", token)["data"]["result"]["result"]
            alive = sum(node["state"] == "ALIVE" for node in listed)
            if alive >= count:
                _ask(f"{url}/api/jobs/", token)
                return
        except (OSError, ValueError, KeyError, TypeError) as error:  # the dashboard is still starting
            trouble = str(error)
        time.sleep(0.2)
    raise UserError(
        f"only {alive} of {count} nodes of the local cluster had joined after {deadline:g} s, as seen from {url} "
        f"({trouble})"
    )


def _ask(url: str, token: str) -> Any:
    """Return the answer to a GET request, parsed from JSON."""
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # no proxy knows these addresses
    with opener.open(request, timeout=5) as answer:
        return json.load(answer)
