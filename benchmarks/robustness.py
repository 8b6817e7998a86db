"""Tables of a sweep of adversaries.yaml: accuracy by aggregation and attack, and the success of backdoors.

Usage: python -m benchmarks.robustness runs/NAME/report/tables/results.csv [more of the same]

Rows without a table's cell were not run, or have not ended. Of several files the first one that has a cell counts.
"""

import argparse
import csv
from collections.abc import Iterable, Mapping
from pathlib import Path

Rows = Mapping[tuple[str, str, str], Mapping[str, str]]  # by attack, fraction and aggregation


def read(files: Iterable[Path]) -> Rows:
    """Read the tables of reports."""
    rows: dict[tuple[str, str, str], Mapping[str, str]] = {}
    for file in files:
        with file.open(encoding="utf-8", newline="") as stream:
            for row in csv.DictReader(stream):
                if row.get("status", "finished") == "finished":  # without a column all have
                    rows.setdefault((row["attack"], row["fraction"], row["aggregation"]), row)
    return rows


def cell(row: Mapping[str, str] | None, metric: str) -> str:
    """Return mean and deviation over seeds, in percent."""
    if row is None or not row.get(f"{metric} (%)"):
        return "-"
    deviation = row.get(f"{metric} (%) sd")
    return f"{float(row[f'{metric} (%)']):.1f}" + (f" ± {float(deviation):.1f}" if deviation else "")


def table(head: list[str], rows: Iterable[list[str]]) -> str:
    """Return a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def tables(rows: Rows) -> str:
    """Return a table of accuracies for each share of adversaries, and one of backdoors."""
    attacks = list(dict.fromkeys(attack for attack, _, _ in sorted(rows)))
    shares = sorted({share for _, share, _ in rows if float(share)}, key=float)
    aggregations = list(dict.fromkeys(aggregation for _, _, aggregation in sorted(rows)))
    parts = []
    for share in shares:
        body = [
            [
                aggregation,
                cell(next((rows[a, "0", aggregation] for a in attacks if (a, "0", aggregation) in rows), None), "Ag"),
                *(cell(rows.get((attack, share, aggregation)), "Ag") for attack in attacks),
            ]
            for aggregation in aggregations
        ]
        parts.append(f"Ag with {float(share):.0%} adversaries:\n\n{table(['aggregation', 'none', *attacks], body)}")
    backdoors = [attack for attack in attacks if attack.startswith("backdoor")]
    for attack in backdoors:
        body = [
            [name, *(cell(rows.get((attack, share, name)), "backdoor_success") for share in ("0", *shares))]
            for name in aggregations
        ]
        head = ["aggregation", "none", *(f"{float(share):.0%}" for share in shares)]
        parts.append(f"backdoor_success of {attack}, by the share of adversaries:\n\n{table(head, body)}")
    return "\n\n".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="results.csv of a report")
    print(tables(read(parser.parse_args().files)))


if __name__ == "__main__":
    main()
