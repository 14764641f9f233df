"""The goodput controller: the draft length with the most committed tokens per second. Pure.

The goodput of a draft length k is G(k) = T(k) / S(k): the tokens that a round commits over the
seconds that it takes. Tokens are estimated from the session's own rounds, so run-ahead hits are in
them, and so is a proposal that drafts fewer than k tokens; seconds from its rounds and from the
verifier's prices.

Tokens: T(k) = 1 + r (a_0 + a_1 + ... + a_(k-1)). The 1 is the correction or the bonus token.

- a_i is the acceptance at position i of a block in average text. With A_i the accepted tokens there
  and E_i the blocks that reached it, each counted with the r of its round by the mean r of drafted
  rounds, so that long blocks in easy text do not make late positions look good:
      a_i = (A_i + POSITION_WEIGHT p a_(i-1)) / (E_i + POSITION_WEIGHT),  a_(-1) = 1.
  p is the prior: the acceptance of a token after accepted ones. Long runs of accepted tokens are
  rare, so a position that was seldom reached is believed to be a little worse than the one before.
- r is the recent acceptance relative to average text. With A the accepted tokens of recent blocks
  and E the sums of a_i that were expected of them:
      r = (A + RECENT_WEIGHT g / g_0) / (E + RECENT_WEIGHT).
  g is below, g_0 that of all texts: what repeats itself is easy for any draft, and what does not
  is hard.
A shorter block is the beginning of a longer one, of a tree as of a path, so a block of k tokens is
an observation of the positions below k; those from k on are unobserved, not rejected.

Seconds: S(k) = A + C + n k c + (n - 1) d, for k = 0 per token: S(0) = P C / g.

- g is how many tokens a pass of plain rounds commits: more than one where the target drafts of the
  text's own n-grams. A drafted round observes it, too: its verdict has how many tokens the pass
  would have committed without the draft. So it is known of a text without decoding it plainly;
  before, it is believed to be that of all texts.
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

from dataclasses import dataclass, replace
from itertools import accumulate

from foredraft.types import NO_PRICE, Price
from orchestrator.length.controllers import Cause, Cost, Observation
from orchestrator.length.load import NOTHING_SEEN, NUM_LOADS, Load, Mean, load_of

# How fast r forgets: text changes within a session, about the last 50 blocks count.
_RECENT_FADE = 0.98
# How fast a_i forgets: small differences of noisy figures, about the last 500 count.
_SLOW_FADE = 0.998
# The weights of the priors: of r in accepted tokens, of a mean r of 1 in rounds, of g in passes,
# of a_i in blocks, of A = C in rounds.
_RECENT_WEIGHT = 4.0
_EASE_WEIGHT = 4.0
_PLAIN_WEIGHT = 16.0
_POSITION_WEIGHT = 12.0
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


@dataclass(frozen=True, slots=True)
class GoodputState:
    """positions holds (A_i, E_i), recent (A, E), ease the mean r, plain the tokens and passes of
    plain rounds, usual the same of all texts; loads is what was learnt at each load; price is the
    newest.

    rounds counts the drafted rounds, in_session those of this session, plain_tokens the tokens
    committed plainly since the last one; started is true where the session had a round.
    """

    positions: tuple[tuple[float, float], ...]
    recent: tuple[float, float] = (0.0, 0.0)
    ease: Mean = NOTHING_SEEN
    plain: Mean = NOTHING_SEEN
    usual: Mean = NOTHING_SEEN
    loads: tuple[Load, ...] = (Load(),) * NUM_LOADS
    price: Price = NO_PRICE
    rounds: int = 0
    in_session: int = 0
    plain_tokens: int = 0
    started: bool = False

    @property
    def load(self) -> Load:
        """What was learnt at the load of now."""
        return self.loads[load_of(self.price.sessions)]

    def learnt(self, load: Load) -> GoodputState:
        """Return the state with something new at the load of now."""
        at = load_of(self.price.sessions)
        return replace(self, loads=(*self.loads[:at], load, *self.loads[at + 1 :]))


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
        return GoodputState(((0.0, 0.0),) * self.max_k)

    def resumed(self, saved: GoodputState, price: Price) -> tuple[GoodputState, GoodputState]:
        # Another text begins as an average one: the last one says nothing of it. The tokens that a
        # draft may be tried for go to one session, so that not all try at once.
        own = GoodputState(saved.positions)
        start = replace(self.joined(own, saved), price=price, plain_tokens=saved.plain_tokens)
        return start, replace(saved, plain_tokens=0)

    def joined(self, state: GoodputState, other: GoodputState) -> GoodputState:
        # What drafts are worth and what rounds take; how well this text goes is its own.
        return replace(
            state,
            positions=other.positions,
            ease=other.ease,
            usual=other.usual,
            loads=other.loads,
            rounds=other.rounds,
        )

    def ended(self, saved: GoodputState, state: GoodputState) -> GoodputState:
        tokens = saved.plain_tokens + state.plain_tokens
        return replace(self.joined(state, saved), plain_tokens=tokens)

    def update(self, state: GoodputState, observation: Observation) -> GoodputState:
        k = min(observation.requested_k, self.max_k)
        accepted, expected = state.recent
        recent = (
            _RECENT_FADE * accepted + observation.accepted,
            _RECENT_FADE * expected + sum(self._position_acceptance(state)[:k]),
        )
        relative, positions = _relative_acceptance(state), list(state.positions)
        ease = state.ease.observe(relative)
        weight = relative / ease.value(1.0, _EASE_WEIGHT)
        for place in range(k):
            accepted, reached = positions[place]
            hit = place in observation.places
            positions[place] = (_SLOW_FADE * accepted + hit, _SLOW_FADE * reached + weight)
        return replace(state, positions=tuple(positions), recent=recent, ease=ease)

    def spent(self, state: GoodputState, cost: Cost) -> GoodputState:
        # A session's first round waits for its prompt, too.
        timed = state.started
        drafted_before = state.price.drafting
        if cost.plain_passes:
            seen = cost.plain_tokens, cost.plain_passes
            plain, usual = state.plain.observe(*seen), state.usual.observe(*seen)
            state = replace(state, plain=plain, usual=usual)
        state = replace(state, price=cost.price, started=True)
        load, away = state.load, cost.away_s / _unit_s(cost.price)
        if cost.offered:
            load = load.drafted(cost.bought, cost.offered)
            k = min(cost.k, self.max_k)
            if cost.k and state.in_session < _COLD_ROUNDS:
                load = load.began(cost.seconds - self.seconds(state, k))
            elif cost.k:
                seconds = _predicted(state.load, state.price, _bought(state.load, k))
                load = load.timed(away, cost.seconds, seconds)
            return replace(
                state.learnt(load),
                rounds=state.rounds + 1,
                in_session=state.in_session + 1,
                plain_tokens=0,
            )
        if cost.k:
            # A draft was wanted and did not come: no round of plain decoding.
            return state
        passes = cost.plain_passes or cost.tokens
        # A round in which others began or ended to draft is neither.
        if timed and not (cost.price.drafting or drafted_before):
            state = state.learnt(load.plain(cost.seconds / _unit_s(cost.price), passes))
        elif timed and cost.price.drafting and drafted_before:
            # Beside sessions that draft, plain decoding waits for them: that is their price.
            alone_s = passes * load.plain_passes * _unit_s(cost.price)
            state = state.learnt(
                load.beside(1 - alone_s / max(1e-9, cost.seconds), cost.price.drafting)
            )
        return replace(state, plain_tokens=state.plain_tokens + cost.tokens)

    def next_k(self, state: GoodputState) -> int:
        return self.choose(state)[0]

    def choose(self, state: GoodputState) -> tuple[int, Cause, str]:
        expected, load = self.expected(state), state.load
        bought = {k: _bought(load, k) for k in self.lengths}
        tokens = {k: expected[rows] for k, rows in bought.items()}
        excess = load.excess
        seconds = {k: excess * _predicted(load, state.price, rows) for k, rows in bought.items()}
        if 0 in seconds:
            seconds[0] = self.seconds(state, 0)
        best = max((k for k in self.lengths if k > 0), key=lambda k: tokens[k] / seconds[k])
        reason = f"{tokens[best]:.1f} tokens in {1e3 * seconds[best]:.1f} ms with {best} drafted"
        if 0 in self.lengths:
            reason += f", one in {1e3 * seconds[0]:.1f} ms plainly"
            # What plain decoding commits in the time of a drafted round.
            instead = seconds[best] / seconds[0]
            loss = self.margin * instead - tokens[best]
            known = min(1.0, (_CURIOUS_ROUNDS / (load.rounds + 1)) ** 0.5)
            if 0 < state.in_session < _TRY_ROUNDS:
                known = 1.0
            probed = self.probe_share * state.plain_tokens / _TRY_ROUNDS
            if loss > 0:
                if not state.in_session:
                    loss += self._begin_s(state) / seconds[0] / _TRY_ROUNDS
                if loss > max(_CURIOUS_SHARE * known * instead, probed):
                    return 0, Cause.PLAIN, reason
                return best, Cause.PROBE, f"{reason}: tried"
            if state.price.sessions > 1 and load.rounds < _CURIOUS_ROUNDS:
                return best, Cause.PROBE, f"{reason}: little is known at this load"
        if state.rounds % _LONGEST_EVERY == _LONGEST_EVERY - 1 and best < self.max_k:
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
        relative = _relative_acceptance(state)
        gains = [relative * a for a in self._position_acceptance(state)]
        return list(accumulate(gains, initial=1.0))

    def seconds(self, state: GoodputState, k: int) -> float:
        """Return S(k)."""
        load = state.load
        if k == 0:
            return max(1e-9, load.plain_passes * state.price.pass_s / _plain_tokens(state))
        return load.excess * _predicted(load, state.price, _bought(load, k))

    def _tokens(self, state: GoodputState, k: int) -> float:
        """Return T(k)."""
        return self.expected(state)[_bought(state.load, k)]

    def _position_acceptance(self, state: GoodputState) -> list[float]:
        """Return a_i for every position."""
        found, before = [], 1.0
        for accepted, reached in state.positions:
            prior = self.prior * before
            before = (accepted + _POSITION_WEIGHT * prior) / (reached + _POSITION_WEIGHT)
            found.append(before)
        return found


def _relative_acceptance(state: GoodputState) -> float:
    """Return r."""
    accepted, expected = state.recent
    prior = _plain_tokens(state) / _usual_plain_tokens(state)
    return (accepted + _RECENT_WEIGHT * prior) / (expected + _RECENT_WEIGHT)


def _plain_tokens(state: GoodputState) -> float:
    """Return g."""
    return max(1.0, state.plain.value(_usual_plain_tokens(state), _PLAIN_WEIGHT))


def _usual_plain_tokens(state: GoodputState) -> float:
    """Return the g of all texts."""
    return max(1.0, state.usual.value(1.0, _PLAIN_WEIGHT))


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
