"""The goodput controller: the draft length with the most committed tokens per second. Pure.

The goodput of a draft length k is G(k) = T(k) / S(k): the tokens that a round commits over the
seconds that it takes. Tokens are estimated from the session's own rounds, so run-ahead hits are in
them, and so is a proposal that drafts fewer than k tokens; seconds from its rounds and from the
verifier's prices.

Tokens: T(k) = 1 + r (a_0 + a_1 + ... + a_(k-1)). The 1 is the correction or the bonus token.

a_i is the acceptance at position i in average text, r that of this text against it
(acceptance.py).

Seconds: S(k) = A + C + n k c + (n - 1) d, for k = 0 per token: S(0) = P C / g.

- g is how many tokens a pass of plain rounds commits. A drafted round observes it, too: its verdict
  has how many tokens the pass would have committed without the draft. So it is known of a text
  without decoding it plainly.
- k stands for the tokens that the verifier buys of the draft, in the share of late.
- C is the time of a pass over one row of each of the n sessions that share it, c what one more row
  adds to it, d what a drafted round's draft and messages take from the passes of the others: the
  verifier's price, which comes with each verdict. A second of a pass is a second of every session
  in it: so what k rows and a draft add counts n times. Instead of d it is l (A + C + n k c), if
  that is more: l is the share of their tokens that plain sessions lose for each that drafts.
- A is the session's time outside the passes that decide its rounds: the draft, the messages, the
  wait for a pass that others are in. It is the mean over its drafted rounds.
- P is what plain rounds take for each of their passes while nobody drafts, in passes over one row:
  more than one for messages, and for the rows of the target's own drafts. What was seen of it fades
  while drafts are made, towards one, so that plain decoding is tried again.

The time that passes take for prompts is in none of these: it is spent whether a session drafts or
not, and sessions that begin together have their first rounds beside each other's prompts.

A and P are means in passes (A / C), times the C of now: what else a machine does makes all of a
round slower, and is over when drafts are tried again.

S(k) is multiplied by e, if that is more than 1: what drafted rounds took, against what S predicted.
No model of a machine that all parts share is exact, and where it errs, plain decoding is to win. A,
P, e and the share that is bought are those of rounds at a like number of sessions (load.py).

To begin to draft costs all sessions the time that opening a drafter's session takes, what its first
rounds take beyond S(k), and the rows that have to be read again with features: with few tokens left
it does not pay, unless the tokens decoded plainly since the last draft pay for it (probe_share).

T(k) / S(k) > 1 / S(0) holds if and only if a draft adds more tokens than all sessions together
would have committed in the seconds that it takes: so no session drafts at the others' expense, and
with k = 0 the drafter has no work.

Every estimate fades by a factor with each observation, so that it follows a text, or a machine,
that changes. All but r and g is shared by the sessions under way: sixteen that begin at once learn
what a draft costs them in a sixteenth of the rounds that each would need by itself. Few rounds say
little: until more were seen at a load, drafts are tried that are expected to lose. Whatever is
tried, one session tries it for all: to begin takes the drafter's time, and so the others'. While
nothing is drafted, the acceptance may change unseen: a draft is tried again as soon as what it is
expected to lose is a small share of the tokens since the last one.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

from foredraft.types import NO_PRICE, Price
from orchestrator.length.acceptance import AllTexts, OneText, decoded_plainly, drafted
from orchestrator.length.controllers import Cause, Cost, Observation
from orchestrator.length.load import NUM_LOADS, Load, load_of

# The weight of the prior A = C, in rounds.
_AWAY_WEIGHT = 1.0
# Up to so many drafted rounds at a load, drafts are tried that are expected to lose this share; of
# later rounds, the share falls as their number's square root rises.
_CURIOUS_ROUNDS = 8
_CURIOUS_SHARE = 0.25
# A session's first drafted rounds wait for connections and caches: they say nothing of later ones.
_COLD_ROUNDS = 3
# So a session that drafts goes on for some rounds, unless more than _CURIOUS_SHARE would be lost.
_TRY_ROUNDS = 5
# Every so many drafted rounds the longest draft is tried, which observes all positions.
_LONGEST_EVERY = 32


class Learnt(NamedTuple):
    """What sessions share: of texts, of each load, and the number of drafted rounds."""

    texts: AllTexts
    loads: tuple[Load, ...] = (Load(),) * NUM_LOADS
    rounds: int = 0


class GoodputState(NamedTuple):
    """What was learnt by all, and of this session's text; price is the newest.

    in_session counts the session's drafted rounds, plain_tokens the tokens committed plainly since
    the last one; started is true where it had a round.
    """

    learnt: Learnt
    text: OneText = OneText()
    price: Price = NO_PRICE
    in_session: int = 0
    plain_tokens: int = 0
    started: bool = False

    @property
    def load(self) -> Load:
        """What was learnt at the load of now."""
        return self.learnt.loads[load_of(self.price.sessions)]

    @property
    def relative(self) -> float:
        """r."""
        return self.text.relative(self.learnt.texts)

    @property
    def plain_rate(self) -> float:
        """g."""
        return self.text.plain_tokens(self.learnt.texts)

    def at_load(self, load: Load) -> GoodputState:
        """Return the state with something new at the load of now."""
        at, loads = load_of(self.price.sessions), self.learnt.loads
        loads = (*loads[:at], load, *loads[at + 1 :])
        return self._replace(learnt=Learnt(self.learnt.texts, loads, self.learnt.rounds))


@dataclass(frozen=True, slots=True)
class GoodputController:
    """Picks among lengths by expected tokens per second; prior is p.

    probe_share is the share of the tokens decoded plainly that trying a draft again may cost. A
    draft must be expected to beat plain decoding by the factor margin: estimates err, and to begin
    costs something.
    """

    lengths: tuple[int, ...]
    prior: float
    probe_share: float
    margin: float

    @property
    def max_k(self) -> int:
        return max(self.lengths)

    def initial(self) -> GoodputState:
        return GoodputState(Learnt(AllTexts(((0.0, 0.0),) * self.max_k)))

    def resumed(self, saved: GoodputState, price: Price) -> tuple[GoodputState, GoodputState]:
        # Another text begins as an average one: the last one says nothing of it. The tokens that a
        # draft may be tried for go to one session, so that not all try at once.
        start = GoodputState(saved.learnt, price=price, plain_tokens=saved.plain_tokens)
        return start, saved._replace(plain_tokens=0)

    def joined(self, state: GoodputState, other: GoodputState) -> GoodputState:
        return state if state.learnt is other.learnt else state._replace(learnt=other.learnt)

    def ended(self, saved: GoodputState, state: GoodputState) -> GoodputState:
        tokens = saved.plain_tokens + state.plain_tokens
        return state._replace(learnt=saved.learnt, plain_tokens=tokens)

    def update(self, state: GoodputState, observation: Observation) -> GoodputState:
        k, learnt = min(observation.requested_k, self.max_k), state.learnt
        places, accepted = observation.places, observation.accepted
        text, texts = drafted(state.text, learnt.texts, k, places, accepted, self.prior)
        return state._replace(text=text, learnt=Learnt(texts, learnt.loads, learnt.rounds))

    def spent(self, state: GoodputState, cost: Cost) -> GoodputState:
        # A session's first round waits for its prompt, too.
        timed = state.started
        drafted_before = state.price.drafting
        text, learnt = state.text, state.learnt
        if cost.plain_passes:
            seen = cost.plain_tokens, cost.plain_passes
            text, texts = decoded_plainly(text, learnt.texts, *seen)
            learnt = Learnt(texts, learnt.loads, learnt.rounds)
        state = state._replace(learnt=learnt, text=text, price=cost.price, started=True)
        load, away = state.load, cost.away_s / _unit_s(cost.price)
        if cost.offered:
            load = load.drafted(cost.bought, cost.offered)
            k = min(cost.k, self.max_k)
            if cost.k and state.in_session < _COLD_ROUNDS:
                load = load.began(cost.seconds - self.seconds(state, k))
            elif cost.k:
                seconds = _predicted(state.load, state.price, _bought(state.load, k))
                load = load.timed(away, cost.seconds, seconds)
            state = state.at_load(load)
            return state._replace(
                learnt=state.learnt._replace(rounds=state.learnt.rounds + 1),
                in_session=state.in_session + 1,
                plain_tokens=0,
            )
        if cost.k:
            # A draft was wanted and did not come: no round of plain decoding.
            return state
        passes = cost.plain_passes or cost.tokens
        # A round in which others began or ended to draft is neither.
        if timed and not (cost.price.drafting or drafted_before):
            state = state.at_load(load.plain(cost.seconds / _unit_s(cost.price), passes))
        elif timed and cost.price.drafting and drafted_before:
            # Beside sessions that draft, plain decoding waits for them: that is their price.
            alone_s = passes * load.plain_passes * _unit_s(cost.price)
            state = state.at_load(
                load.beside(1 - alone_s / max(1e-9, cost.seconds), cost.price.drafting)
            )
        return state._replace(plain_tokens=state.plain_tokens + cost.tokens)

    def next_k(self, state: GoodputState) -> int:
        return self.choose(state)[0]

    def choose(self, state: GoodputState) -> tuple[int, Cause, str]:
        # After most rounds, on a core that may be the verifier's, too.
        expected, load, price = self.expected(state), state.load, state.price
        excess, found = load.excess, []
        for k in self.lengths:
            if k > 0:
                rows = _bought(load, k)
                found.append((k, expected[rows], excess * _predicted(load, price, rows)))
        best, tokens, seconds = max(found, key=_speed)
        reason = f"{tokens:.1f} tokens in {1e3 * seconds:.1f} ms with {best} drafted"
        if 0 in self.lengths:
            plain_s = self.seconds(state, 0)
            reason += f", one in {1e3 * plain_s:.1f} ms plainly"
            # What plain decoding commits in the time of a drafted round.
            instead = seconds / plain_s
            loss = self.margin * instead - tokens
            known = min(1.0, (_CURIOUS_ROUNDS / (load.rounds + 1)) ** 0.5)
            if 0 < state.in_session < _TRY_ROUNDS:
                known = 1.0
            probed = self.probe_share * state.plain_tokens / _TRY_ROUNDS
            if loss > 0:
                if not state.in_session:
                    loss += self._begin_s(state) / plain_s / _TRY_ROUNDS
                if loss > max(_CURIOUS_SHARE * known * instead, probed):
                    return 0, Cause.PLAIN, reason
                return best, Cause.PROBE, f"{reason}: tried"
            if price.sessions > 1 and load.rounds < _CURIOUS_ROUNDS:
                return best, Cause.PROBE, f"{reason}: little is known at this load"
        if state.learnt.rounds % _LONGEST_EVERY == _LONGEST_EVERY - 1 and best < self.max_k:
            return self.max_k, Cause.OBSERVE, "all positions are observed"
        return best, Cause.DRAFTS, reason

    def begin_pays(
        self, state: GoodputState, rows: int, opening_s: float, tokens_left: int
    ) -> bool:
        k, cause, _ = self.choose(state)
        price = state.price
        chosen = 0 in self.lengths and price.pass_s > 0 and cause is not Cause.PROBE
        if not rows and not chosen:
            return True
        plain_s = self.seconds(state, 0)
        saved_s = tokens_left * (plain_s - self.seconds(state, k) / self._tokens(state, k))
        begin_s = max(1, price.sessions) * (rows * price.row_s + opening_s) + self._begin_s(state)
        return saved_s + self.probe_share * state.plain_tokens * plain_s > begin_s

    def _begin_s(self, state: GoodputState) -> float:
        """Return what all sessions lose to the first drafted rounds of one."""
        return max(1, state.price.sessions) * _COLD_ROUNDS * state.load.cold_s

    def expected(self, state: GoodputState) -> list[float]:
        """Return how many tokens a round commits with 0, 1, ... bought draft tokens."""
        relative, acceptance = state.relative, state.learnt.texts.acceptance(self.prior)
        return list(accumulate((relative * a for a in acceptance), initial=1.0))

    def seconds(self, state: GoodputState, k: int) -> float:
        """Return S(k)."""
        load = state.load
        if k == 0:
            return max(1e-9, load.plain_passes * state.price.pass_s / state.plain_rate)
        return load.excess * _predicted(load, state.price, _bought(load, k))

    def _tokens(self, state: GoodputState, k: int) -> float:
        """Return T(k)."""
        return self.expected(state)[_bought(state.load, k)]


def _speed(found: tuple[int, float, float]) -> float:
    """Return the tokens per second of a length, its tokens and its seconds."""
    return found[1] / found[2]


def _bought(load: Load, k: int) -> int:
    """Return how many of k offered tokens the verifier buys."""
    return round(k * load.bought)


def _unit_s(price: Price) -> float:
    """Return the seconds of a pass; one where its price is not known."""
    return price.pass_s or 1.0


def _predicted(load: Load, price: Price, rows: int) -> float:
    """Return S(k) as the prices have it, without e, where so many rows are bought of the k."""
    # Before any was seen, as long as a pass.
    prior = 1.0 if price.pass_s else 0.0
    own = load.away.value(prior, _AWAY_WEIGHT) * _unit_s(price) + price.pass_s
    if price.sessions <= 1:
        return max(1e-9, own + rows * price.row_s)
    own += price.sessions * rows * price.row_s
    return max(1e-9, own + (price.sessions - 1) * max(price.draft_s, load.lost_share * own))
