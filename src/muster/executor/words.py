"""What the phases say to people: the last words of a command, counts, verdicts."""

from muster.model.verdict import Degraded, Fail, Pass, Skipped, Undecided, Verdict


def last_words(output: bytes, limit: int = 300) -> str:
    """The last line that says something, for people; never more than `limit` characters, control characters removed."""
    lines = [line.strip() for line in output.decode(errors="replace").splitlines() if line.strip()]
    text = lines[-1] if lines else ""
    return "".join(c if c.isprintable() else "?" for c in text)[:limit]


def counted(number: int, noun: str, plural: str | None = None) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {plural or noun + 's'}"


def verdict_words(verdict: Verdict) -> str:
    match verdict:
        case Pass(why=why) | Degraded(why=why) | Fail(why=why) | Undecided(why=why):
            return why
        case Skipped(by=by, until=until):
            return f"skipped by {by} until {until}"
