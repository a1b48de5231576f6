"""What a query answers where it judges: a clause, the record it rests on, and how far that can be trusted.

Why it exists: a rule that admits or refuses must be able to say from where, and must not do so on something that nobody found written.
It asks nothing and decides nothing.
"""

from muster.knowledge.schema import Confidence, Provenance
from muster.model.frozen import dataclass


@dataclass(frozen=True, slots=True)
class Claim:
    """A statement of the base in one clause. `kind` and `key` name its record, for `muster knowledge show KIND KEY`."""

    says: str
    kind: str
    key: str
    provenance: Provenance

    @property
    def can_decide(self) -> bool:
        """Whether a rule may admit or refuse on it alone; false for what rests on memory or on sources that disagree (ADR 0005)."""
        return self.provenance.can_decide

    @property
    def source(self) -> str:
        """The sources in one text."""
        return ", ".join(self.provenance.sources)

    @property
    def confidence(self) -> Confidence:
        """How far it can be trusted."""
        return self.provenance.confidence
