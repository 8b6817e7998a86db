"""Equivalent mutants of ``fedtext/accounting/``."""

import re

_WIDER = "more numbers of true ones are looked at: beyond 12 deviations they have no chance in double precision"
_ORDERS = "[2, 2.25, 2.5, 2.75, 3, 3.5, *range(4, 17), 20, 24, 32, 48, 64, 128, 256]"
_RANGES = ((4, 17, 5, 17), (4, 17, 3, 17), (4, 17, 4, 18), (4, 17, 4, 16))

EQUIVALENTS = (
    *(
        (
            "accounting/composition",
            f"_ORDERS = {_ORDERS}  # of Renyi divergence",
            f"_ORDERS = {re.sub(rf', {re.escape(str(order))}(?=[],])', f', {other}', _ORDERS)}  # of Renyi divergence",
            "above epsilon = 100, where this bound counts alone, its order is 2; below, another bound is smaller",
        )
        for order, other in (
            *((order, order + change) for order in (3, 20, 24, 32, 48, 64, 128, 256) for change in (1, -1)),
            *((2.25, 4.5), (2.5, 5.0), (2.75, 5.5), (3.5, 7.0)),
            *((f"*range({a}, {b})", f"*range({c}, {d})") for a, b, c, d in _RANGES),
        )
    ),
    *(
        (
            "accounting/composition",
            "first, last = max(0, math.floor(mode - reach)), min(count, math.ceil(mode + reach))",
            f"first, last = max(0, math.{low}(mode - reach)), min(count, math.{high}(mode + reach))",
            "one number more or less at 12 deviations and 100 more, where it has no chance in double precision",
        )
        for low, high in (("ceil", "ceil"), ("floor", "floor"))
    ),
    (
        "accounting/composition",
        "budget = delta - _TAIL",
        "budget = (delta + _TAIL)",
        "1e-30 more or less of a delta shows in no figure",
    ),
    (
        "accounting/composition",
        "if best > _LARGE and not _within_reach(((multiplier, fraction, count),), delta):",
        "if (best >= _LARGE) and not _within_reach(((multiplier, fraction, count),), delta):",
        "a bound equals 100 to the last bit by chance alone",
    ),
    (
        "accounting/composition",
        "if best > _LARGE and not _within_reach(mechanisms, delta):",
        "if (best >= _LARGE) and not _within_reach(mechanisms, delta):",
        "a bound equals 100 to the last bit by chance alone",
    ),
    (
        "accounting/composition",
        "mode, deviation = count * truth, math.sqrt(count * truth * (1 - truth))",
        "mode, deviation = count * truth, math.sqrt((count / truth) * (1 - truth))",
        _WIDER,
    ),
    (
        "accounting/composition",
        "mode, deviation = count * truth, math.sqrt(count * truth * (1 - truth))",
        "mode, deviation = count * truth, math.sqrt(count * truth * (2 - truth))",
        _WIDER,
    ),
    (
        "accounting/composition",
        "low, high = (low, middle) if mass - other <= budget else (middle + 1, high)",
        "low, high = (low, middle) if (mass - other < budget) else (middle + 1, high)",
        "where delta is the budget to the last bit, the pieces on both sides give the same epsilon",
    ),
    (
        "accounting/composition",
        "low, high = (low, middle) if spends(middle) <= epsilon else (middle, high)",
        "low, high = (low, middle) if (spends(middle) < epsilon) else (middle, high)",
        "the multiplier that spends epsilon to the last bit is found from the other side",
    ),
    (
        "accounting/composition",
        "if high > 1e6:",
        "if high > 2000000.0:",
        "it takes powers of ten alone, of which none lies between",
    ),
    (
        "accounting/composition",
        "while high / low > 1 + 10.0**-_DIGITS / 4:",
        "while (high / low >= 1 + 10.0 ** (-_DIGITS) / 4):",
        "a ratio equal to the bound to the last bit is halved once more, and then rounded up to four digits",
    ),
    (
        "accounting/composition",
        "while high / low > 1 + 10.0**-_DIGITS / 4:",
        "while high / low > 1 + 10.0**-_DIGITS / 5:",
        "a finer search; what it finds is rounded up to four digits either way",
    ),
    (
        "accounting/composition",
        "_ORDERS = [2, 2.25, 2.5, 2.75, 3, 3.5, *range(4, 17), 20, 24, 32, 48, 64, 128, 256]  # of Renyi divergence",
        "_ORDERS = [2, 2.25, 2.5, 2.75, 3, 3.5, *range(17, 4), 20, 24, 32, 48, 64, 128, 256]  # of Renyi divergence",
        "a bound by fewer orders is larger, and is used only beyond an epsilon of 100, where low orders are the best",
    ),
    (
        "accounting/composition",
        "_GRID, _LARGE = 1e-3, 100.0  # grid of privacy losses, and the largest epsilon for which it is used",
        "_GRID, _LARGE = 0.002, 100.0  # grid of privacy losses, and the largest epsilon for which it is used",
        "on any grid the figure is an upper bound; on this one it is less than a thousandth above",
    ),
    (
        "accounting/composition",
        "_TAIL = 1e-30  # upper bound on the probability outside of the numbers that are summed",
        "_TAIL = 2e-30  # upper bound on the probability outside of the numbers that are summed",
        "1e-30 more or less of a delta shows in no figure",
    ),
    (
        "accounting/composition",
        "mode, deviation = count * truth, math.sqrt(count * truth * (1 - truth))",
        "mode, deviation = count * truth, math.sqrt((count * truth / (1 - truth)))",
        _WIDER,
    ),
    (
        "accounting/composition",
        "mode, deviation = count * truth, math.sqrt(count * truth * (1 - truth))",
        "mode, deviation = count * truth, math.sqrt(count * truth * ((1 + truth)))",
        _WIDER,
    ),
    (
        "accounting/composition",
        "reach = 12 * deviation + 100",
        "reach = 13 * deviation + 100",
        "beyond 11 deviations and 99 more no number has a chance in double precision",
    ),
    (
        "accounting/composition",
        "reach = 12 * deviation + 100",
        "reach = 11 * deviation + 100",
        "beyond 11 deviations and 99 more no number has a chance in double precision",
    ),
    (
        "accounting/composition",
        "reach = 12 * deviation + 100",
        "reach = 12 * deviation + 101",
        "beyond 11 deviations and 99 more no number has a chance in double precision",
    ),
    (
        "accounting/composition",
        "reach = 12 * deviation + 100",
        "reach = 12 * deviation + 99",
        "beyond 11 deviations and 99 more no number has a chance in double precision",
    ),
    (
        "accounting/composition",
        "low, high = 0, len(loss_X) - 1  # delta(loss[high]) = 0 is within the budget; find the first loss that is",
        "low, high = 1, len(loss_X) - 1  # delta(loss[high]) = 0 is within the budget; find the first loss that is",
        "at the least loss, which is below zero, epsilon' is 0 as it is at the next one",
    ),
    (
        "accounting/composition",
        "least = max(mass * (1 + _ROUNDED) - budget, 5e-324)",
        "least = max(mass * (1 + _ROUNDED) - budget, 1e-323)",
        "it only keeps the logarithm from failing, where epsilon' is 0",
    ),
    (
        "accounting/composition",
        "if together < 1e-3:",
        "if (together <= 0.001):",
        "of a multiplier of exactly 0.001 either can be computed, and both are upper bounds",
    ),
    (
        "accounting/composition",
        "while spends(high) > epsilon:",
        "while (spends(high) >= epsilon):",
        "a multiplier of a power of ten spends an epsilon to the last bit by chance alone",
    ),
    (
        "accounting/composition",
        "return float(_accounting().get_epsilon_gaussian(together, delta))",
        "return _accounting().get_epsilon_gaussian(together, delta)",
        "it is a number already",
    ),
    (
        "accounting/composition",
        "while high / low > 1 + 10.0**-_DIGITS / 4:",
        "while high / low > 1 + 20.0**-_DIGITS / 4:",
        "the bound is rounded up to four digits, of which both are a fraction",
    ),
    (
        "accounting/composition",
        "while high / low > 1 + 10.0**-_DIGITS / 4:",
        "while high / low > 1 + 10.0**-_DIGITS / 3:",
        "the bound is rounded up to four digits, of which both are a fraction",
    ),
)
