"""Conformance checks: what holds for every method, mechanism, aggregation, corpus, model, audit and attack.

A check is called with a part and raises AssertionError with a sentence about the first property that does not hold::

    from fedtext.testing import check_method

    def test_my_method():
        check_method(MyMethod(beta=0.1))
"""

from fedtext.testing.attacks import check_attack
from fedtext.testing.data import check_audit, check_corpus
from fedtext.testing.methods import check_method, check_model
from fedtext.testing.uplinks import check_aggregation, check_mechanism

__all__ = [
    "check_aggregation",
    "check_attack",
    "check_audit",
    "check_corpus",
    "check_mechanism",
    "check_method",
    "check_model",
]
