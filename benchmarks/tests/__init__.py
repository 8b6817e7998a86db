"""Tests of what the benchmarks run on and count, never of how fast anything is."""
