"""The message on a client actor that was lost."""

from collections.abc import Mapping

from ray.exceptions import ActorUnavailableError, NodeDiedError, RayActorError

NODE_DIED = "its node has died"  # as Ray says it


class ActorLostError(RuntimeError):
    """A client actor was lost. The message says on which node, if there are several, and why."""


def why_lost(error: Exception, addresses: Mapping[str, str]) -> str:
    """Return why an actor was lost, and where it was.

    Args:
        error: The error of a call.
        addresses: Addresses of the actors' nodes, by Ray's id of an actor; empty if there is nothing to tell.

    Returns:
        Such as ``on node 10.0.0.2: it does not answer``.
    """
    where = addresses.get(getattr(error, "actor_id", None) or "", "")
    return f"on node {where}: {_why(error)}" if where else _why(error)


def _why(error: Exception) -> str:
    if isinstance(error, ActorUnavailableError):
        return "it does not answer"
    if isinstance(error, NodeDiedError):
        return NODE_DIED
    if isinstance(error, RayActorError) and not error.actor_init_failed:
        return NODE_DIED if NODE_DIED in str(error) else "its process ended"
    return str(error).partition("\n")[0]
