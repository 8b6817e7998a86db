"""The same maths in fedtext, Flower and pfl-research, timed side by side: `make bench-peers`."""
