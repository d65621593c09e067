"""From a session's history to its outcome: one class, every flag, and where it was decided.

Judged per reply, in time order: the first reply that isn't clean gives the session its class.
Which flags make which class is data (outcomes.toml); how a flag comes about is in `flags.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

from fleetctl.trial.classes import Classes, OutcomeClass, load_classes
from fleetctl.trial.events import Exchange, Expectation, SessionRecord, Truth
from fleetctl.trial.flags import Finding, ReplyContext, find
from fleetctl.trial.reply import Reply, assemble

NO_EXPECTATION = Expectation()


@dataclass(frozen=True)
class SessionOutcome:
    """What a session came to.

    Attributes:
        session: index in its run.
        outcome: its class.
        flags: every flag of every reply, sorted.
        round: the round that decided.
        findings: the evidence, each with the flag it belongs to.
    """

    session: int
    outcome: OutcomeClass
    flags: tuple[str, ...] = ()
    round: int = 0
    findings: tuple[Finding, ...] = ()

    @property
    def is_corrupt(self) -> bool:
        """Whether the class is corruption, according to outcomes.toml."""
        return self.outcome in load_classes().corrupt

    @property
    def is_counted(self) -> bool:
        """Whether the session says anything about the model."""
        return self.outcome not in load_classes().uncounted

    @property
    def evidence(self) -> Finding | None:
        """The first finding that made the class; None for a clean session."""
        own = dict(load_classes().flags)[self.outcome]
        return next((finding for finding in self.findings if finding.flag in own), None)


def classify(record: SessionRecord, classes: Classes | None = None) -> SessionOutcome:
    """Return the outcome of a session; never raises on what a server may have sent."""
    classes = classes or load_classes()
    findings: list[Finding] = []
    decided: tuple[OutcomeClass, int] | None = None
    had_token = False
    reply = Reply()
    for exchange in record.exchanges:
        reply = assemble(exchange)
        context = _context(record.truth, exchange, had_token=had_token)
        found = find(exchange, reply, context, classes.garbage)
        findings += found
        verdict = classes.first({finding.flag for finding in found})
        if decided is None and verdict is not OutcomeClass.DONE:
            decided = (verdict, exchange.round)
        had_token = had_token or exchange.first_token_at_s is not None or not reply.is_empty
    if decided is None:
        decided, ending = _end_of_clean_session(record, reply)
        findings += ending
    flags = sorted({finding.flag for finding in findings})
    return SessionOutcome(record.session, decided[0], tuple(flags), decided[1], tuple(findings))


def _context(truth: Truth, exchange: Exchange, *, had_token: bool) -> ReplyContext:
    index = exchange.round - 1
    known = 0 <= index < len(truth.expects)
    expectation = truth.expects[index] if known else None
    return ReplyContext(truth=truth, expectation=expectation, had_token=had_token)


def _end_of_clean_session(
    record: SessionRecord, last: Reply
) -> tuple[tuple[OutcomeClass, int], list[Finding]]:
    rounds = len(record.exchanges)
    if rounds < max(1, len(record.truth.expects)):
        aborted = Finding("client_aborted", f"ended after {rounds} rounds, with nothing wrong")
        return (OutcomeClass.INFRA, rounds), [aborted]
    if last.calls:
        return (OutcomeClass.MAXROUNDS, rounds), [Finding("still_calling", "")]
    return (OutcomeClass.DONE, rounds), []
