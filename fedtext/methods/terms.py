"""The names of a method's loss terms, which ``loss`` returns and ``weights`` names."""

from collections.abc import Collection

from fedtext.methods.base import Method


def unknown_terms(method: Method, terms: Collection[str]) -> str:
    """Return that a method's weights name terms that are not there, as a sentence; empty if they name none.

    Args:
        method: The method. A term whose weight is 0 may be left out.
        terms: The names of the terms that its loss returned.
    """
    unknown = sorted(name for name, weight in method.weights.items() if weight and name not in terms)
    if not unknown:
        return ""
    named = f"has no terms {', '.join(unknown)}, which its weights name: its terms are {', '.join(terms)}"
    return f"the loss of {method.name} {named}"
