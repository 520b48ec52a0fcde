"""What early stopping did in a search, and what it cost: the grace that was chosen, and the audit of stopped trials."""

from analysis.stopping.audit import AUDITED, Audit, as_stopped, audit, audit_sentences
from analysis.stopping.grace import GRACE, Correlation, Grace, grace, grace_sentences

__all__ = [
    "AUDITED",
    "GRACE",
    "Audit",
    "Correlation",
    "Grace",
    "as_stopped",
    "audit",
    "audit_sentences",
    "grace",
    "grace_sentences",
]
