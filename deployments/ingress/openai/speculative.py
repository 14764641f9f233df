"""The field `speculative` of a request: how it is decoded."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt

from foredraft.errors import InvalidRequest
from foredraft.limits import MAX_DRAFT, MAX_LED_ROUNDS
from foredraft.types import Acceptance, Proposal
from orchestrator.config import DraftConfig, NgramConfig, OrchestratorConfig
from orchestrator.length.config import AdlConfig


class SpeculativeOptions(BaseModel):
    """Our extension: how this request speculates.

    It never changes the tokens, unless `acceptance` asks for another rule than "coupled".
    """

    model_config = ConfigDict(extra="forbid")

    enabled: StrictBool = True
    proposal: Proposal | None = None
    ngram: NgramConfig | None = None
    self_draft: StrictInt | None = Field(None, ge=0, le=MAX_DRAFT)
    adl: AdlConfig | None = None
    draft: DraftConfig | None = None
    acceptance: Acceptance | None = None
    verifier_led_rounds: StrictInt | None = Field(None, ge=0, le=MAX_LED_ROUNDS)
    detail: StrictBool = False
    trace: StrictBool = False
    rounds: StrictBool = False

    def applied_to(self, config: OrchestratorConfig) -> OrchestratorConfig:
        """Return the server's configuration with this request's choices.

        Raise InvalidRequest where they do not go together.
        """
        drafters = {
            "proposal": self.proposal,
            "ngram": self.ngram,
            "adl": self.adl,
            "draft": self.draft,
            "verifier_led_rounds": self.verifier_led_rounds,
        }
        self_draft = self.self_draft
        if self_draft is None and any(each is not None for each in drafters.values()):
            # Who sets how drafters draft wants their drafts, not the target's own.
            self_draft = 0
        chosen = {**drafters, "self_draft": self_draft, "acceptance": self.acceptance}
        asked = config.model_copy(update={k: v for k, v in chosen.items() if v is not None})
        if self.ngram is None and asked.acceptance is not Acceptance.COUPLED:
            # The server's n-gram trees serve the rule that verifies trees.
            asked = asked.model_copy(update={"ngram": NgramConfig()})
        if (fault := asked.why_unverifiable()) is not None:
            raise InvalidRequest(fault, param="speculative.acceptance")
        return asked
