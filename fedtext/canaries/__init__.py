"""Canary clients: a lower bound on the epsilon of a run, measured in the run.

plan.py says which canaries there are, central.py and local.py how they take part, and measure.py what follows.
"""
