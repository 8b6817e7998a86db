"""The content of an experiment file that tests change."""

GOOD = """\
name: x
corpus: demo
method:
  name: kteps
  lambda1: 0.1
uplink:
  - gaussian: {sigma: 0.1}
model:
  embedding:
    init: {word2vec: {epochs: 3}}
"""

# of a name that a plug-in could define
OF_PLUGIN = " without a plug-in that defines it (--plugin FILE, or plugins: [FILE])"
