from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from frostline.report import Report


def said(terminal: bool) -> tuple[Report, io.StringIO]:
    out = io.StringIO()
    return Report(Console(file=out, force_terminal=terminal, width=100)), out


def test_elsewhere_a_step_is_one_plain_line_with_its_time() -> None:
    report, out = said(terminal=False)
    with report.step("Copying [events]", total=10) as task:
        task.advance(10)
        task.note = "10 rows"
    assert re.fullmatch(r"Copying \[events\] \(10 rows\): \d+\.\d s\n", out.getvalue())


def test_on_a_terminal_a_step_has_a_bar() -> None:
    report, out = said(terminal=True)
    with report.step("Copying [events]", total=10) as task:
        task.advance(4)
        assert task.done == 4
    assert "4/10" in out.getvalue()
    assert "Copying [events]" in out.getvalue()


def test_a_step_inside_a_step_is_fine_on_a_terminal() -> None:
    report, out = said(terminal=True)
    with report.step("outer"), report.step("inner", total=2) as task:
        task.advance()
        report.line("a line between")
    assert "a line between" in out.getvalue()


def test_a_failed_step_is_not_reported_as_done() -> None:
    report, out = said(terminal=False)
    with pytest.raises(ValueError, match="no"), report.step("Copying"):
        raise ValueError("no")
    assert out.getvalue() == ""
