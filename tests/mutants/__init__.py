"""Mutation testing: which small faults in the mathematics the tests would not notice.

``python -m tests.mutants`` changes one expression or statement of a module at a time and runs the tests that call the
changed function. A mutant that no test fails on has survived: a test is missing, or the mutant computes the same.
"""
