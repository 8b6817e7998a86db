"""The same computation in fedtext, Flower and pfl-research, compared in time and memory: `make bench-peers`."""
