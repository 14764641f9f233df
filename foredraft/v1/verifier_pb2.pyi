from foredraft.v1 import common_pb2 as _common_pb2
from foredraft.v1 import drafter_pb2 as _drafter_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class VerifierInfoRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class VerifierInfoResponse(_message.Message):
    __slots__ = ("model", "oldest_protocol", "newest_protocol", "acceptances", "leads_rounds")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    OLDEST_PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    NEWEST_PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    ACCEPTANCES_FIELD_NUMBER: _ClassVar[int]
    LEADS_ROUNDS_FIELD_NUMBER: _ClassVar[int]
    model: _common_pb2.ModelInfo
    oldest_protocol: _common_pb2.ProtocolVersion
    newest_protocol: _common_pb2.ProtocolVersion
    acceptances: _containers.RepeatedScalarFieldContainer[str]
    leads_rounds: bool
    def __init__(self, model: _Optional[_Union[_common_pb2.ModelInfo, _Mapping]] = ..., oldest_protocol: _Optional[_Union[_common_pb2.ProtocolVersion, str]] = ..., newest_protocol: _Optional[_Union[_common_pb2.ProtocolVersion, str]] = ..., acceptances: _Optional[_Iterable[str]] = ..., leads_rounds: _Optional[bool] = ...) -> None: ...

class VerifyRequest(_message.Message):
    __slots__ = ("open", "round", "draft_source", "grant")
    OPEN_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    DRAFT_SOURCE_FIELD_NUMBER: _ClassVar[int]
    GRANT_FIELD_NUMBER: _ClassVar[int]
    open: VerifyOpen
    round: Round
    draft_source: DraftSource
    grant: Grant
    def __init__(self, open: _Optional[_Union[VerifyOpen, _Mapping]] = ..., round: _Optional[_Union[Round, _Mapping]] = ..., draft_source: _Optional[_Union[DraftSource, _Mapping]] = ..., grant: _Optional[_Union[Grant, _Mapping]] = ...) -> None: ...

class DraftSource(_message.Message):
    __slots__ = ("address", "open", "ngram")
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    OPEN_FIELD_NUMBER: _ClassVar[int]
    NGRAM_FIELD_NUMBER: _ClassVar[int]
    address: str
    open: _drafter_pb2.DraftOpen
    ngram: NgramParams
    def __init__(self, address: _Optional[str] = ..., open: _Optional[_Union[_drafter_pb2.DraftOpen, _Mapping]] = ..., ngram: _Optional[_Union[NgramParams, _Mapping]] = ...) -> None: ...

class NgramParams(_message.Message):
    __slots__ = ("min_expected_tokens", "depth", "window", "pseudocounts", "min_node_prob")
    MIN_EXPECTED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    DEPTH_FIELD_NUMBER: _ClassVar[int]
    WINDOW_FIELD_NUMBER: _ClassVar[int]
    PSEUDOCOUNTS_FIELD_NUMBER: _ClassVar[int]
    MIN_NODE_PROB_FIELD_NUMBER: _ClassVar[int]
    min_expected_tokens: float
    depth: int
    window: int
    pseudocounts: _containers.RepeatedScalarFieldContainer[float]
    min_node_prob: float
    def __init__(self, min_expected_tokens: _Optional[float] = ..., depth: _Optional[int] = ..., window: _Optional[int] = ..., pseudocounts: _Optional[_Iterable[float]] = ..., min_node_prob: _Optional[float] = ...) -> None: ...

class Grant(_message.Message):
    __slots__ = ("seq", "rounds", "num_draft_tokens", "deadline_us", "round", "run_ahead", "plain_passes")
    SEQ_FIELD_NUMBER: _ClassVar[int]
    ROUNDS_FIELD_NUMBER: _ClassVar[int]
    NUM_DRAFT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_US_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    RUN_AHEAD_FIELD_NUMBER: _ClassVar[int]
    PLAIN_PASSES_FIELD_NUMBER: _ClassVar[int]
    seq: int
    rounds: int
    num_draft_tokens: int
    deadline_us: int
    round: int
    run_ahead: bool
    plain_passes: int
    def __init__(self, seq: _Optional[int] = ..., rounds: _Optional[int] = ..., num_draft_tokens: _Optional[int] = ..., deadline_us: _Optional[int] = ..., round: _Optional[int] = ..., run_ahead: _Optional[bool] = ..., plain_passes: _Optional[int] = ...) -> None: ...

class VerifyOpen(_message.Message):
    __slots__ = ("protocol", "session_id", "prefix", "sampling", "max_new_tokens", "max_draft", "stop_token_ids", "acceptance", "logits", "logprobs", "grammar_kind", "grammar", "prompt_logprobs", "cache_salt", "features_hash", "features_from", "tensor_store", "groups", "drafted", "layout", "self_draft", "ngram")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_FIELD_NUMBER: _ClassVar[int]
    MAX_NEW_TOKENS_FIELD_NUMBER: _ClassVar[int]
    MAX_DRAFT_FIELD_NUMBER: _ClassVar[int]
    STOP_TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    ACCEPTANCE_FIELD_NUMBER: _ClassVar[int]
    LOGITS_FIELD_NUMBER: _ClassVar[int]
    LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    GRAMMAR_KIND_FIELD_NUMBER: _ClassVar[int]
    GRAMMAR_FIELD_NUMBER: _ClassVar[int]
    PROMPT_LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    CACHE_SALT_FIELD_NUMBER: _ClassVar[int]
    FEATURES_HASH_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FROM_FIELD_NUMBER: _ClassVar[int]
    TENSOR_STORE_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    DRAFTED_FIELD_NUMBER: _ClassVar[int]
    LAYOUT_FIELD_NUMBER: _ClassVar[int]
    SELF_DRAFT_FIELD_NUMBER: _ClassVar[int]
    NGRAM_FIELD_NUMBER: _ClassVar[int]
    protocol: _common_pb2.ProtocolVersion
    session_id: str
    prefix: _containers.RepeatedScalarFieldContainer[int]
    sampling: _common_pb2.SamplingParams
    max_new_tokens: int
    max_draft: int
    stop_token_ids: _containers.RepeatedScalarFieldContainer[int]
    acceptance: str
    logits: _common_pb2.LogitsParams
    logprobs: int
    grammar_kind: str
    grammar: str
    prompt_logprobs: bool
    cache_salt: str
    features_hash: str
    features_from: int
    tensor_store: str
    groups: _containers.RepeatedScalarFieldContainer[str]
    drafted: bool
    layout: Layout
    self_draft: int
    ngram: NgramParams
    def __init__(self, protocol: _Optional[_Union[_common_pb2.ProtocolVersion, str]] = ..., session_id: _Optional[str] = ..., prefix: _Optional[_Iterable[int]] = ..., sampling: _Optional[_Union[_common_pb2.SamplingParams, _Mapping]] = ..., max_new_tokens: _Optional[int] = ..., max_draft: _Optional[int] = ..., stop_token_ids: _Optional[_Iterable[int]] = ..., acceptance: _Optional[str] = ..., logits: _Optional[_Union[_common_pb2.LogitsParams, _Mapping]] = ..., logprobs: _Optional[int] = ..., grammar_kind: _Optional[str] = ..., grammar: _Optional[str] = ..., prompt_logprobs: _Optional[bool] = ..., cache_salt: _Optional[str] = ..., features_hash: _Optional[str] = ..., features_from: _Optional[int] = ..., tensor_store: _Optional[str] = ..., groups: _Optional[_Iterable[str]] = ..., drafted: _Optional[bool] = ..., layout: _Optional[_Union[Layout, _Mapping]] = ..., self_draft: _Optional[int] = ..., ngram: _Optional[_Union[NgramParams, _Mapping]] = ...) -> None: ...

class Layout(_message.Message):
    __slots__ = ("length", "given")
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    GIVEN_FIELD_NUMBER: _ClassVar[int]
    length: int
    given: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, length: _Optional[int] = ..., given: _Optional[_Iterable[int]] = ...) -> None: ...

class Round(_message.Message):
    __slots__ = ("base", "draft", "plain_steps", "parents", "q", "expected", "no_features", "plain_passes")
    BASE_FIELD_NUMBER: _ClassVar[int]
    DRAFT_FIELD_NUMBER: _ClassVar[int]
    PLAIN_STEPS_FIELD_NUMBER: _ClassVar[int]
    PARENTS_FIELD_NUMBER: _ClassVar[int]
    Q_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_FIELD_NUMBER: _ClassVar[int]
    NO_FEATURES_FIELD_NUMBER: _ClassVar[int]
    PLAIN_PASSES_FIELD_NUMBER: _ClassVar[int]
    base: _common_pb2.Base
    draft: _containers.RepeatedScalarFieldContainer[int]
    plain_steps: int
    parents: _containers.RepeatedScalarFieldContainer[int]
    q: _containers.RepeatedCompositeFieldContainer[_common_pb2.Candidates]
    expected: _containers.RepeatedScalarFieldContainer[float]
    no_features: bool
    plain_passes: int
    def __init__(self, base: _Optional[_Union[_common_pb2.Base, _Mapping]] = ..., draft: _Optional[_Iterable[int]] = ..., plain_steps: _Optional[int] = ..., parents: _Optional[_Iterable[int]] = ..., q: _Optional[_Iterable[_Union[_common_pb2.Candidates, _Mapping]]] = ..., expected: _Optional[_Iterable[float]] = ..., no_features: _Optional[bool] = ..., plain_passes: _Optional[int] = ...) -> None: ...

class VerifyResponse(_message.Message):
    __slots__ = ("opened", "verdict", "draining", "features", "led_round", "lease_ended")
    OPENED_FIELD_NUMBER: _ClassVar[int]
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    LED_ROUND_FIELD_NUMBER: _ClassVar[int]
    LEASE_ENDED_FIELD_NUMBER: _ClassVar[int]
    opened: VerifyOpened
    verdict: Verdict
    draining: _common_pb2.Draining
    features: _common_pb2.FeatureChunk
    led_round: LedRound
    lease_ended: LeaseEnded
    def __init__(self, opened: _Optional[_Union[VerifyOpened, _Mapping]] = ..., verdict: _Optional[_Union[Verdict, _Mapping]] = ..., draining: _Optional[_Union[_common_pb2.Draining, _Mapping]] = ..., features: _Optional[_Union[_common_pb2.FeatureChunk, _Mapping]] = ..., led_round: _Optional[_Union[LedRound, _Mapping]] = ..., lease_ended: _Optional[_Union[LeaseEnded, _Mapping]] = ...) -> None: ...

class LedRound(_message.Message):
    __slots__ = ("block", "verdict", "num_draft_tokens", "rounds_left", "draft_us", "ran_ahead", "hit")
    BLOCK_FIELD_NUMBER: _ClassVar[int]
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    NUM_DRAFT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    ROUNDS_LEFT_FIELD_NUMBER: _ClassVar[int]
    DRAFT_US_FIELD_NUMBER: _ClassVar[int]
    RAN_AHEAD_FIELD_NUMBER: _ClassVar[int]
    HIT_FIELD_NUMBER: _ClassVar[int]
    block: _drafter_pb2.DraftBlock
    verdict: Verdict
    num_draft_tokens: int
    rounds_left: int
    draft_us: int
    ran_ahead: bool
    hit: bool
    def __init__(self, block: _Optional[_Union[_drafter_pb2.DraftBlock, _Mapping]] = ..., verdict: _Optional[_Union[Verdict, _Mapping]] = ..., num_draft_tokens: _Optional[int] = ..., rounds_left: _Optional[int] = ..., draft_us: _Optional[int] = ..., ran_ahead: _Optional[bool] = ..., hit: _Optional[bool] = ...) -> None: ...

class LeaseEnded(_message.Message):
    __slots__ = ("seq", "fault")
    SEQ_FIELD_NUMBER: _ClassVar[int]
    FAULT_FIELD_NUMBER: _ClassVar[int]
    seq: int
    fault: str
    def __init__(self, seq: _Optional[int] = ..., fault: _Optional[str] = ...) -> None: ...

class VerifyOpened(_message.Message):
    __slots__ = ("model",)
    MODEL_FIELD_NUMBER: _ClassVar[int]
    model: _common_pb2.ModelInfo
    def __init__(self, model: _Optional[_Union[_common_pb2.ModelInfo, _Mapping]] = ...) -> None: ...

class Verdict(_message.Message):
    __slots__ = ("base", "accepted", "next_tokens", "timings", "path", "logprobs", "prompt_logprobs", "features", "cached_tokens", "left_out", "price", "plain_tokens")
    BASE_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    NEXT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    TIMINGS_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    PROMPT_LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    CACHED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    LEFT_OUT_FIELD_NUMBER: _ClassVar[int]
    PRICE_FIELD_NUMBER: _ClassVar[int]
    PLAIN_TOKENS_FIELD_NUMBER: _ClassVar[int]
    base: _common_pb2.Base
    accepted: int
    next_tokens: _containers.RepeatedScalarFieldContainer[int]
    timings: _common_pb2.Timings
    path: _containers.RepeatedScalarFieldContainer[int]
    logprobs: _containers.RepeatedCompositeFieldContainer[_common_pb2.TokenLogprobs]
    prompt_logprobs: _containers.RepeatedCompositeFieldContainer[_common_pb2.TokenLogprobs]
    features: bytes
    cached_tokens: int
    left_out: int
    price: _common_pb2.Price
    plain_tokens: int
    def __init__(self, base: _Optional[_Union[_common_pb2.Base, _Mapping]] = ..., accepted: _Optional[int] = ..., next_tokens: _Optional[_Iterable[int]] = ..., timings: _Optional[_Union[_common_pb2.Timings, _Mapping]] = ..., path: _Optional[_Iterable[int]] = ..., logprobs: _Optional[_Iterable[_Union[_common_pb2.TokenLogprobs, _Mapping]]] = ..., prompt_logprobs: _Optional[_Iterable[_Union[_common_pb2.TokenLogprobs, _Mapping]]] = ..., features: _Optional[bytes] = ..., cached_tokens: _Optional[int] = ..., left_out: _Optional[int] = ..., price: _Optional[_Union[_common_pb2.Price, _Mapping]] = ..., plain_tokens: _Optional[int] = ...) -> None: ...
