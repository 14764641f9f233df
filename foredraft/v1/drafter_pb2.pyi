from foredraft.v1 import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class DraftTextsRequest(_message.Message):
    __slots__ = ("open", "propose")
    OPEN_FIELD_NUMBER: _ClassVar[int]
    PROPOSE_FIELD_NUMBER: _ClassVar[int]
    open: TextsOpen
    propose: ProposeTexts
    def __init__(self, open: _Optional[_Union[TextsOpen, _Mapping]] = ..., propose: _Optional[_Union[ProposeTexts, _Mapping]] = ...) -> None: ...

class TextsOpen(_message.Message):
    __slots__ = ("protocol", "proposal", "max_len", "params")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    PROPOSAL_FIELD_NUMBER: _ClassVar[int]
    MAX_LEN_FIELD_NUMBER: _ClassVar[int]
    PARAMS_FIELD_NUMBER: _ClassVar[int]
    protocol: _common_pb2.ProtocolVersion
    proposal: str
    max_len: int
    params: DraftParams
    def __init__(self, protocol: _Optional[_Union[_common_pb2.ProtocolVersion, str]] = ..., proposal: _Optional[str] = ..., max_len: _Optional[int] = ..., params: _Optional[_Union[DraftParams, _Mapping]] = ...) -> None: ...

class ProposeTexts(_message.Message):
    __slots__ = ("texts", "num_tokens", "ended")
    TEXTS_FIELD_NUMBER: _ClassVar[int]
    NUM_TOKENS_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    texts: _containers.RepeatedCompositeFieldContainer[Text]
    num_tokens: int
    ended: _containers.RepeatedCompositeFieldContainer[KnownText]
    def __init__(self, texts: _Optional[_Iterable[_Union[Text, _Mapping]]] = ..., num_tokens: _Optional[int] = ..., ended: _Optional[_Iterable[_Union[KnownText, _Mapping]]] = ...) -> None: ...

class Text(_message.Message):
    __slots__ = ("known", "append", "sampling")
    KNOWN_FIELD_NUMBER: _ClassVar[int]
    APPEND_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_FIELD_NUMBER: _ClassVar[int]
    known: KnownText
    append: _containers.RepeatedScalarFieldContainer[int]
    sampling: _common_pb2.SamplingParams
    def __init__(self, known: _Optional[_Union[KnownText, _Mapping]] = ..., append: _Optional[_Iterable[int]] = ..., sampling: _Optional[_Union[_common_pb2.SamplingParams, _Mapping]] = ...) -> None: ...

class KnownText(_message.Message):
    __slots__ = ("len", "hash")
    LEN_FIELD_NUMBER: _ClassVar[int]
    HASH_FIELD_NUMBER: _ClassVar[int]
    len: int
    hash: int
    def __init__(self, len: _Optional[int] = ..., hash: _Optional[int] = ...) -> None: ...

class DraftTextsResponse(_message.Message):
    __slots__ = ("opened", "drafts", "draining")
    OPENED_FIELD_NUMBER: _ClassVar[int]
    DRAFTS_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    opened: TextsOpened
    drafts: TextDrafts
    draining: _common_pb2.Draining
    def __init__(self, opened: _Optional[_Union[TextsOpened, _Mapping]] = ..., drafts: _Optional[_Union[TextDrafts, _Mapping]] = ..., draining: _Optional[_Union[_common_pb2.Draining, _Mapping]] = ...) -> None: ...

class TextsOpened(_message.Message):
    __slots__ = ("model", "max_draft_tokens", "max_texts")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    MAX_DRAFT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    MAX_TEXTS_FIELD_NUMBER: _ClassVar[int]
    model: _common_pb2.ModelInfo
    max_draft_tokens: int
    max_texts: int
    def __init__(self, model: _Optional[_Union[_common_pb2.ModelInfo, _Mapping]] = ..., max_draft_tokens: _Optional[int] = ..., max_texts: _Optional[int] = ...) -> None: ...

class TextDrafts(_message.Message):
    __slots__ = ("drafts",)
    DRAFTS_FIELD_NUMBER: _ClassVar[int]
    drafts: _containers.RepeatedCompositeFieldContainer[TextDraft]
    def __init__(self, drafts: _Optional[_Iterable[_Union[TextDraft, _Mapping]]] = ...) -> None: ...

class TextDraft(_message.Message):
    __slots__ = ("block", "unknown")
    BLOCK_FIELD_NUMBER: _ClassVar[int]
    UNKNOWN_FIELD_NUMBER: _ClassVar[int]
    block: DraftBlock
    unknown: bool
    def __init__(self, block: _Optional[_Union[DraftBlock, _Mapping]] = ..., unknown: _Optional[bool] = ...) -> None: ...

class DrafterInfoRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DrafterInfoResponse(_message.Message):
    __slots__ = ("model", "oldest_protocol", "newest_protocol", "offers", "tensor_store", "max_texts")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    OLDEST_PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    NEWEST_PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    OFFERS_FIELD_NUMBER: _ClassVar[int]
    TENSOR_STORE_FIELD_NUMBER: _ClassVar[int]
    MAX_TEXTS_FIELD_NUMBER: _ClassVar[int]
    model: _common_pb2.ModelInfo
    oldest_protocol: _common_pb2.ProtocolVersion
    newest_protocol: _common_pb2.ProtocolVersion
    offers: _containers.RepeatedCompositeFieldContainer[ProposalOffer]
    tensor_store: str
    max_texts: int
    def __init__(self, model: _Optional[_Union[_common_pb2.ModelInfo, _Mapping]] = ..., oldest_protocol: _Optional[_Union[_common_pb2.ProtocolVersion, str]] = ..., newest_protocol: _Optional[_Union[_common_pb2.ProtocolVersion, str]] = ..., offers: _Optional[_Iterable[_Union[ProposalOffer, _Mapping]]] = ..., tensor_store: _Optional[str] = ..., max_texts: _Optional[int] = ...) -> None: ...

class ProposalOffer(_message.Message):
    __slots__ = ("proposal", "max_draft_tokens")
    PROPOSAL_FIELD_NUMBER: _ClassVar[int]
    MAX_DRAFT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    proposal: str
    max_draft_tokens: int
    def __init__(self, proposal: _Optional[str] = ..., max_draft_tokens: _Optional[int] = ...) -> None: ...

class DraftRequest(_message.Message):
    __slots__ = ("open", "propose", "features", "propose_ahead")
    OPEN_FIELD_NUMBER: _ClassVar[int]
    PROPOSE_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    PROPOSE_AHEAD_FIELD_NUMBER: _ClassVar[int]
    open: DraftOpen
    propose: Propose
    features: _common_pb2.FeatureChunk
    propose_ahead: ProposeAhead
    def __init__(self, open: _Optional[_Union[DraftOpen, _Mapping]] = ..., propose: _Optional[_Union[Propose, _Mapping]] = ..., features: _Optional[_Union[_common_pb2.FeatureChunk, _Mapping]] = ..., propose_ahead: _Optional[_Union[ProposeAhead, _Mapping]] = ...) -> None: ...

class DraftOpen(_message.Message):
    __slots__ = ("protocol", "session_id", "prefix", "sampling", "proposal", "max_len", "params", "num_guesses", "prompt_len", "marginals")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_FIELD_NUMBER: _ClassVar[int]
    PROPOSAL_FIELD_NUMBER: _ClassVar[int]
    MAX_LEN_FIELD_NUMBER: _ClassVar[int]
    PARAMS_FIELD_NUMBER: _ClassVar[int]
    NUM_GUESSES_FIELD_NUMBER: _ClassVar[int]
    PROMPT_LEN_FIELD_NUMBER: _ClassVar[int]
    MARGINALS_FIELD_NUMBER: _ClassVar[int]
    protocol: _common_pb2.ProtocolVersion
    session_id: str
    prefix: _containers.RepeatedScalarFieldContainer[int]
    sampling: _common_pb2.SamplingParams
    proposal: str
    max_len: int
    params: DraftParams
    num_guesses: int
    prompt_len: int
    marginals: bool
    def __init__(self, protocol: _Optional[_Union[_common_pb2.ProtocolVersion, str]] = ..., session_id: _Optional[str] = ..., prefix: _Optional[_Iterable[int]] = ..., sampling: _Optional[_Union[_common_pb2.SamplingParams, _Mapping]] = ..., proposal: _Optional[str] = ..., max_len: _Optional[int] = ..., params: _Optional[_Union[DraftParams, _Mapping]] = ..., num_guesses: _Optional[int] = ..., prompt_len: _Optional[int] = ..., marginals: _Optional[bool] = ...) -> None: ...

class DraftParams(_message.Message):
    __slots__ = ("steps", "extend", "warmup_proposal", "warmup_tokens")
    STEPS_FIELD_NUMBER: _ClassVar[int]
    EXTEND_FIELD_NUMBER: _ClassVar[int]
    WARMUP_PROPOSAL_FIELD_NUMBER: _ClassVar[int]
    WARMUP_TOKENS_FIELD_NUMBER: _ClassVar[int]
    steps: int
    extend: bool
    warmup_proposal: str
    warmup_tokens: int
    def __init__(self, steps: _Optional[int] = ..., extend: _Optional[bool] = ..., warmup_proposal: _Optional[str] = ..., warmup_tokens: _Optional[int] = ...) -> None: ...

class Propose(_message.Message):
    __slots__ = ("base", "keep_len", "append", "num_tokens", "features")
    BASE_FIELD_NUMBER: _ClassVar[int]
    KEEP_LEN_FIELD_NUMBER: _ClassVar[int]
    APPEND_FIELD_NUMBER: _ClassVar[int]
    NUM_TOKENS_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    base: _common_pb2.Base
    keep_len: int
    append: _containers.RepeatedScalarFieldContainer[int]
    num_tokens: int
    features: bytes
    def __init__(self, base: _Optional[_Union[_common_pb2.Base, _Mapping]] = ..., keep_len: _Optional[int] = ..., append: _Optional[_Iterable[int]] = ..., num_tokens: _Optional[int] = ..., features: _Optional[bytes] = ...) -> None: ...

class ProposeAhead(_message.Message):
    __slots__ = ("base", "keep_len", "append", "num_tokens", "outcomes")
    BASE_FIELD_NUMBER: _ClassVar[int]
    KEEP_LEN_FIELD_NUMBER: _ClassVar[int]
    APPEND_FIELD_NUMBER: _ClassVar[int]
    NUM_TOKENS_FIELD_NUMBER: _ClassVar[int]
    OUTCOMES_FIELD_NUMBER: _ClassVar[int]
    base: _common_pb2.Base
    keep_len: int
    append: _containers.RepeatedScalarFieldContainer[int]
    num_tokens: int
    outcomes: _containers.RepeatedCompositeFieldContainer[Outcome]
    def __init__(self, base: _Optional[_Union[_common_pb2.Base, _Mapping]] = ..., keep_len: _Optional[int] = ..., append: _Optional[_Iterable[int]] = ..., num_tokens: _Optional[int] = ..., outcomes: _Optional[_Iterable[_Union[Outcome, _Mapping]]] = ...) -> None: ...

class Outcome(_message.Message):
    __slots__ = ("tokens",)
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    tokens: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, tokens: _Optional[_Iterable[int]] = ...) -> None: ...

class DraftResponse(_message.Message):
    __slots__ = ("opened", "block", "draining", "blocks_ahead")
    OPENED_FIELD_NUMBER: _ClassVar[int]
    BLOCK_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    BLOCKS_AHEAD_FIELD_NUMBER: _ClassVar[int]
    opened: DraftOpened
    block: DraftBlock
    draining: _common_pb2.Draining
    blocks_ahead: DraftBlocks
    def __init__(self, opened: _Optional[_Union[DraftOpened, _Mapping]] = ..., block: _Optional[_Union[DraftBlock, _Mapping]] = ..., draining: _Optional[_Union[_common_pb2.Draining, _Mapping]] = ..., blocks_ahead: _Optional[_Union[DraftBlocks, _Mapping]] = ...) -> None: ...

class DraftBlocks(_message.Message):
    __slots__ = ("blocks",)
    BLOCKS_FIELD_NUMBER: _ClassVar[int]
    blocks: _containers.RepeatedCompositeFieldContainer[DraftBlock]
    def __init__(self, blocks: _Optional[_Iterable[_Union[DraftBlock, _Mapping]]] = ...) -> None: ...

class Guess(_message.Message):
    __slots__ = ("node", "token", "probability")
    NODE_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    PROBABILITY_FIELD_NUMBER: _ClassVar[int]
    node: int
    token: int
    probability: float
    def __init__(self, node: _Optional[int] = ..., token: _Optional[int] = ..., probability: _Optional[float] = ...) -> None: ...

class DraftOpened(_message.Message):
    __slots__ = ("model", "max_draft_tokens", "tensor_store")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    MAX_DRAFT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    TENSOR_STORE_FIELD_NUMBER: _ClassVar[int]
    model: _common_pb2.ModelInfo
    max_draft_tokens: int
    tensor_store: str
    def __init__(self, model: _Optional[_Union[_common_pb2.ModelInfo, _Mapping]] = ..., max_draft_tokens: _Optional[int] = ..., tensor_store: _Optional[str] = ...) -> None: ...

class DraftBlock(_message.Message):
    __slots__ = ("base", "tokens", "parents", "proposal", "generated_len", "guesses", "timings", "q", "expected")
    BASE_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    PARENTS_FIELD_NUMBER: _ClassVar[int]
    PROPOSAL_FIELD_NUMBER: _ClassVar[int]
    GENERATED_LEN_FIELD_NUMBER: _ClassVar[int]
    GUESSES_FIELD_NUMBER: _ClassVar[int]
    TIMINGS_FIELD_NUMBER: _ClassVar[int]
    Q_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_FIELD_NUMBER: _ClassVar[int]
    base: _common_pb2.Base
    tokens: _containers.RepeatedScalarFieldContainer[int]
    parents: _containers.RepeatedScalarFieldContainer[int]
    proposal: str
    generated_len: int
    guesses: _containers.RepeatedCompositeFieldContainer[Guess]
    timings: _common_pb2.Timings
    q: _containers.RepeatedCompositeFieldContainer[_common_pb2.Candidates]
    expected: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, base: _Optional[_Union[_common_pb2.Base, _Mapping]] = ..., tokens: _Optional[_Iterable[int]] = ..., parents: _Optional[_Iterable[int]] = ..., proposal: _Optional[str] = ..., generated_len: _Optional[int] = ..., guesses: _Optional[_Iterable[_Union[Guess, _Mapping]]] = ..., timings: _Optional[_Union[_common_pb2.Timings, _Mapping]] = ..., q: _Optional[_Iterable[_Union[_common_pb2.Candidates, _Mapping]]] = ..., expected: _Optional[_Iterable[float]] = ...) -> None: ...
