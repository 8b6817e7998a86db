"""A picture of the number of texts of each client and class."""

import io

from dashboards.trial import one_line, short
from fedtext.corpora.skew import Skew, effective
from fedtext.corpora.types import Corpus

FILE = "partition.svg"
_NAMED, _LETTERS = 20, 40  # the most clients whose names are on the axis, and the most characters of a name
_SHORT, _LETTER = 10, 0.06  # characters of names that have room below, and inches of height for each further one


def picture(corpus: Corpus) -> str:
    """Return an SVG of clients (x axis) by classes (y axis), for train and for test texts."""
    from matplotlib import rc_context

    with rc_context({"text.parse_math": False}):  # a name with two $ is no formula
        return _picture(corpus)


def _picture(corpus: Corpus) -> str:
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    skew = Skew.of(corpus)
    high = min(3.2, max(0.5, 0.14 * corpus.classes))
    named = [short(one_line(c.name), _LETTERS) for c in corpus.clients] if len(corpus.clients) <= _NAMED else []
    below = _LETTER * max(0, max(map(len, named), default=0) - _SHORT)
    figure = Figure(figsize=(9, 1.6 + 2 * high + below), layout="constrained")
    FigureCanvasSVG(figure)
    panels = figure.subplots(2, 1, sharex=True)
    for panel, side, counts_KC in zip(panels, ("train", "test"), (skew.train_KC, skew.test_KC), strict=True):
        cells = panel.imshow(counts_KC.T, cmap="Blues", vmin=0, aspect="auto", interpolation="nearest")
        figure.colorbar(cells, ax=panel, pad=0.01, label=f"{side} texts", ticks=MaxNLocator(4, integer=True))
        panel.set_ylabel("class")
        panel.yaxis.set_major_locator(MaxNLocator(10, integer=True))
        panel.spines[:].set_color("#bbb")
    if named:
        panels[1].set_xticks(range(len(named)), named, rotation=30, ha="right")
    else:
        panels[1].set_xlabel("client")
        panels[1].xaxis.set_major_locator(MaxNLocator(integer=True))
    sizes_K, classes_K = skew.train_KC.sum(1), effective(skew.train_KC)
    figure.suptitle(
        f"{corpus.name}: {len(sizes_K)} clients of {sizes_K.min():,} to {sizes_K.max():,} train texts and "
        f"{classes_K.mean():.1f} of {corpus.classes} classes (exp of the entropy)",
        fontsize=9,
    )
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None})
    return text.getvalue()
