"""What may be wrong with speculation on a server, each with its number and what to change. Pure.

Facts in, findings out: the first kind of fault that hides all others ends the search.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from statistics import median
from typing import NamedTuple

from foredraft.repetition import repetition
from foredraft_cli.doctor.facts import Facts

# Below, a draft is worth nothing; above, the text repeats itself.
STALE, LOOPING = 0.05, 0.5
# Shares of rounds, of an engine's time and of the KV from which on they are worth a line.
MANY, BUSY, FULL = 0.2, 0.9, 0.9
# A speed that is no more than noise below plain decoding's.
EVEN = 0.97
FAR_S = 0.004


class Finding(NamedTuple):
    """What is wrong, in a name and in words with a number, and what to change."""

    name: str
    what: str
    change: str


Check = Callable[[Facts], Iterator[Finding]]


def diagnose(facts: Facts) -> list[Finding]:
    """Return what is wrong, the causes before what comes of them; empty where nothing is."""
    for hiding in (_silent, _other, _locked, _no_verifier, _refused_request):
        found = list(hiding(facts))
        if found:
            return found
    return [finding for check in _CHECKS for finding in check(facts)]


def _silent(facts: Facts) -> Iterator[Finding]:
    if facts.silence:
        change = "start one with `foredraft serve`, or give the address of the one that runs"
        yield Finding("no_server", facts.silence, change)


def _locked(facts: Facts) -> Iterator[Finding]:
    for reply in (facts.health, facts.refusal):
        if reply is not None and reply.status in (401, 403):
            change = "give a key with --key, or in FOREDRAFT_API_KEY"
            yield Finding("no_key", f"the server wants a key: {reply.error}", change)


def _no_verifier(facts: Facts) -> Iterator[Finding]:
    if facts.health.status == 503:
        change = (
            "wait for it to load; if it never does, `serve status` and the replica's log say why"
        )
        yield Finding("no_verifier", f"no verifier answers: {facts.health.error}", change)


def _other(facts: Facts) -> Iterator[Finding]:
    if not facts.verifier and facts.health.status not in (401, 403, 503):
        what = (
            f"what answers at {facts.url} is no Foredraft: /health has HTTP {facts.health.status}"
        )
        yield Finding("other_server", what, "give the address, with its prefix, of Foredraft")


def _refused_request(facts: Facts) -> Iterator[Finding]:
    if facts.refusal is not None and not facts.probes:
        what = f"a plain request of a few tokens is refused: {facts.refusal.error}"
        yield Finding("request_refused", what, "look at the ingress's log")


def _numerics(facts: Facts) -> Iterator[Finding]:
    numerics = facts.verifier.get("numerics", "exact")
    if numerics != "exact":
        what = f"the verifier's numerics are {numerics}: near ties may turn out differently"
        yield Finding("inexact", what, "set verifier.service.numerics to exact where it must not")


def _kv(facts: Facts) -> Iterator[Finding]:
    used, total = facts.verifier.get("kv_used", 0), facts.verifier.get("kv_total", 0)
    if total and used / total > FULL:
        what = f"{used / total:.0%} of the KV is reserved ({used:.0f} of {total:.0f} tokens)"
        change = "raise verifier.service.kv_tokens, add verifiers, or ask for fewer max_tokens"
        yield Finding("kv_full", what, change)


def _load(facts: Facts) -> Iterator[Finding]:
    busy, queue = facts.verifier.get("busy", 0), facts.verifier.get("queue", 0)
    if busy > BUSY:
        what = f"the verifier was {busy:.0%} busy with others, {queue:.0f} rounds waiting"
        change = "add verifiers; rows are dear meanwhile, and fewer drafts pay"
        yield Finding("busy", what, change)


def _no_drafter(facts: Facts) -> Iterator[Finding]:
    if not facts.drafter:
        change = "`serve status` and the replica's log say why; drafter.num_replicas is how many"
        yield Finding("no_drafter", "no drafter answers: decoding is plain", change)


_REFUSALS = {
    "tokenizer": "set drafter.service.target_tokenizer to the target's tokenizer.json, or take a "
    "drafter that was taught for this target (`foredraft align`)",
    "features": "set verifier.service.features.model to the drafter's folder",
    "ends texts": "take a drafter of the same vocabulary and the same end of text",
}


def _refused_drafter(facts: Facts) -> Iterator[Finding]:
    refused = facts.drafter.get("refused")
    if refused:
        change = next(
            (how for word, how in _REFUSALS.items() if word in refused), "take another one"
        )
        yield Finding("drafter_refused", f"the drafter is not used: {refused}", change)


def _refused_sessions(facts: Facts) -> Iterator[Finding]:
    reasons = Counter(probe.fast.report["drafter_refusal"] for probe in facts.probes)
    for why, count in reasons.items():
        if why and not facts.drafter.get("refused"):
            what = f"the drafter refused {count} of {len(facts.probes)} sessions: {why}"
            yield Finding("session_refused", what, "change what it names under orchestrator.draft")


def _off(facts: Facts) -> Iterator[Finding]:
    rounds = facts.rounds
    if rounds and all(one["k"] == 0 and one["source"] == "none" for one in rounds):
        why = Counter(one["reason"] for one in rounds).most_common(1)[0][0]
        if "plainly" in why:
            price = median(one["price"]["row_s"] for one in rounds)
            what = f"drafts are not worth their price ({why}; a row costs {1e6 * price:.0f} us)"
            change = (
                "a drafter that is accepted more often or is faster; `foredraft bench load` shows "
                "from how many sessions on this machine is full"
            )
            yield Finding("does_not_pay", what, change)
        elif facts.drafter and not facts.drafter.get("refused"):
            what = f"k is 0 in all {len(rounds)} rounds: {why}"
            yield Finding("off", what, "set orchestrator.adl to {name: goodput}")


def _late(facts: Facts) -> Iterator[Finding]:
    wanted = [one for one in facts.rounds if one["k"] > 0]
    late = [one for one in wanted if one["source"] == "none"]
    if wanted and len(late) / len(wanted) > MANY and facts.drafter:
        waited = median(one["draft_wait_s"] for one in late)
        what = (
            f"{len(late)} of {len(wanted)} drafts came too late or not at all; such a round waits "
            f"{1e3 * waited:.1f} ms"
        )
        change = (
            "raise orchestrator.draft_deadline_ms, bring the drafter nearer, or add drafters "
            f"({facts.drafter.get('queue', 0):.0f} proposals wait)"
        )
        yield Finding("late_drafts", what, change)


def _far(facts: Facts) -> Iterator[Finding]:
    away = [
        one["verify_s"] - one["verifier_s"] - one["verifier_queue_s"]
        for one in facts.rounds
        if one["led_by"] == "orchestrator"
    ]
    if away and median(away) > FAR_S:
        what = f"a round spends {1e3 * median(away):.1f} ms between orchestrator and verifier"
        change = (
            "place ingress and verifier on one node, set orchestrator.verifier_led_rounds, and "
            "look at verifier.link"
        )
        yield Finding("far_verifier", what, change)


def _slow_drafter(facts: Facts) -> Iterator[Finding]:
    drafted = [one for one in facts.rounds if one["source"] == "drafter" and one["drafter_s"] > 0]
    if drafted:
        draft = median(one["drafter_s"] for one in drafted)
        verify = median(one["verifier_s"] for one in drafted)
        if draft > verify > 0:
            what = f"a draft takes {1e3 * draft:.1f} ms, its verification {1e3 * verify:.1f} ms"
            change = "a smaller drafter, fewer drafter.service steps, or a device for it"
            yield Finding("slow_drafter", what, change)


def _stale(facts: Facts) -> Iterator[Finding]:
    drafted = [one for one in facts.rounds if one["source"] == "drafter" and one["bought"]]
    if len(drafted) >= 5:
        first = sum(bool(one["draft"]["kept"]) for one in drafted) / len(drafted)
        if first < STALE:
            what = f"of {len(drafted)} drafts {first:.0%} had an accepted token"
            change = "teach the drafter for this target: `foredraft align --target DIR --out DIR`"
            yield Finding("stale_drafter", what, change)


def _looping(facts: Facts) -> Iterator[Finding]:
    shares = [repetition(probe.plain.tokens) for probe in facts.probes]
    if shares and median(shares) > LOOPING:
        what = f"{median(shares):.0%} of a text's 4-grams occurred in it before"
        change = "measure speed on other prompts: drafts of a loop are easily right"
        yield Finding("looping_texts", what, change)


def _slower(facts: Facts) -> Iterator[Finding]:
    if len(facts.probes) >= 3:
        speed = median(probe.plain.seconds / probe.fast.seconds for probe in facts.probes)
        drafted = any(one["source"] != "none" for one in facts.rounds)
        if speed < EVEN and drafted:
            what = f"with drafts requests take {1 / speed:.2f} times as long as without"
            change = "set orchestrator.adl to {name: goodput}, which drafts where that pays"
            yield Finding("slower", what, change)


def _differs(facts: Facts) -> Iterator[Finding]:
    differing = sum(probe.plain.tokens != probe.fast.tokens for probe in facts.probes)
    if differing and facts.verifier.get("numerics") == "exact":
        what = f"{differing} of {len(facts.probes)} texts differ from plain decoding"
        yield Finding("differs", what, "this is a bug: `foredraft audit URL` shows where they part")


_CHECKS: tuple[Check, ...] = (
    _no_drafter,
    _refused_drafter,
    _refused_sessions,
    _off,
    _late,
    _far,
    _slow_drafter,
    _stale,
    _load,
    _kv,
    _numerics,
    _looping,
    _slower,
    _differs,
)
