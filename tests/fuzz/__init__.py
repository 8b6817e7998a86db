"""Malformed inputs: whatever is fed to a command ends in success or in one clear sentence and exit status 2.

Inputs are mutations of valid ones, drawn from a seed: experiment files (``experiments.py``), corpora (``corpora.py``)
and the folders of runs (``runs.py``). ``python -m tests.fuzz`` tries many and prints every one that breaks the rule of
``rule.py``; ``test_fuzz.py`` tries some.
"""
