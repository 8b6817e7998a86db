"""Errors a person can act on. Commands print them as one sentence and leave with exit status 2."""


class UserError(ValueError):
    """What was asked for cannot be done: the message says what, where, and what to do about it."""


class ClientError(RuntimeError):
    """A client's own computation failed: its loss is not finite, or its code raised.

    ``client`` and ``round`` say where, ``cause`` why.
    """

    def __init__(self, client: str, round_: int, cause: str) -> None:
        super().__init__(client, round_, cause)  # positional, so that it survives pickling
        self.client, self.round, self.cause = client, round_, cause

    def __str__(self) -> str:
        return f"client {self.client} failed in round {self.round}: {self.cause}"
