"""The documentation: its pages, and what writes the reference and builds the site."""
