"""Says at the end of a run which implementations of which port went through their contract."""

from collections.abc import Callable, Iterable

import pytest

_KEY = "implementation under contract"


@pytest.fixture
def covers(record_property: Callable[[str, object], None]) -> Callable[[str, str], None]:
    """To be called by a contract's fixture: `covers("Store", "sqlite")`."""
    return lambda port, name: record_property(_KEY, f"{port}: {name}")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports: Iterable[pytest.TestReport] = terminalreporter.stats.get("passed", [])
    names = sorted({str(value) for report in reports for key, value in report.user_properties if key == _KEY})
    if names:
        terminalreporter.write_line("under contract: " + ", ".join(names))
