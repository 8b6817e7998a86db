"""The formats of a report's tables: LaTeX, CSV and Markdown."""

import csv
import io
import re

import pytest

from dashboards.report.tables import Field, Table, as_csv, as_latex, as_markdown

HOSTILE = Table(
    "odd",
    "50% of $x_1 & <script>",
    ["a|b", "=1+1", "n"],
    [[Field("\\x{y}~^#"), Field("=cmd()"), Field("1.0 ± 0.2", {"": 1.04, "sd": 0.21}, strong=True)]],
)


def test_latex_is_escaped_and_has_booktabs() -> None:
    text = as_latex(HOSTILE)
    assert r"\caption{50\% of \$x\_1 \& \textless{}script\textgreater{}}" in text
    assert r"a\textbar{}b & =1+1 & n \\" in text
    assert r"\textbackslash{}x\{y\}\textasciitilde{}\textasciicircum{}\# & =cmd() & \textbf{1.0 $\pm$ 0.2} \\" in text
    assert r"\begin{tabular}{llr}" in text
    assert [text.count(rule) for rule in (r"\toprule", r"\midrule", r"\bottomrule")] == [1, 1, 1]
    assert "{" not in re.sub(r"\\[{}]", "", text).replace("{", "(", text.count("}"))  # as many open as close


def test_a_cell_is_no_argument_of_the_line_before_it() -> None:
    """As ``[deleted]``, a frequent author: LaTeX would take it for the height of the line's end."""
    odd = [
        [Field("[deleted]"), Field("[b]")],
        [Field("*star"), Field("a\nb")],
        [Field("[best]", strong=True), Field("")],
    ]
    text = as_latex(Table("odd", "Odd", ["[x]", "y"], odd))
    assert "\\toprule\n    {}[x] & y \\\\\n    \\midrule\n    {}[deleted] & [b] \\\\\n    {}*star & a b \\\\\n" in text
    assert "    \\textbf{[best]} &  \\\\\n" in text


@pytest.mark.parametrize(
    "text", ["=1+1", "-2+3+cmd|' /C calc'!A0", "-1+2", "@SUM(A1)", "+1", "-inf", "\r=1+1", "\t=1", "-1 2"]
)
def test_no_text_of_a_csv_is_a_formula(text: str) -> None:
    ((_,), (cell,)) = csv.reader(io.StringIO(as_csv(Table("odd", "Odd", ["n"], [[Field(text)]]))))
    assert cell == f"'{text.strip()}"


@pytest.mark.parametrize("text", ["-", "-1", "-12.5", "-1e-05", "a-b", "1+1", ""])
def test_other_texts_of_a_csv_stay(text: str) -> None:
    ((_, _), (cell, _)) = csv.reader(io.StringIO(as_csv(Table("odd", "Odd", ["n", "m"], [[Field(text), Field("b")]]))))
    assert cell == text


def test_csv_has_numbers_and_no_formulas_and_markdown_no_html() -> None:
    assert as_csv(HOSTILE) == "a|b,'=1+1,n,n sd\n\\x{y}~^#,'=cmd(),1.04,0.21\n"
    text = as_markdown(HOSTILE)
    assert "<" not in text
    assert r"| a\|b | =1+1 | n |" in text
    assert "| --- | --- | ---: |" in text
    assert "**1.0 ± 0.2**" in text
