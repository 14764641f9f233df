from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class ProtocolVersion(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PROTOCOL_VERSION_UNSPECIFIED: _ClassVar[ProtocolVersion]
    PROTOCOL_VERSION_1: _ClassVar[ProtocolVersion]
PROTOCOL_VERSION_UNSPECIFIED: ProtocolVersion
PROTOCOL_VERSION_1: ProtocolVersion

class Base(_message.Message):
    __slots__ = ("session_id", "round", "prefix_len", "prefix_hash")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    PREFIX_LEN_FIELD_NUMBER: _ClassVar[int]
    PREFIX_HASH_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    round: int
    prefix_len: int
    prefix_hash: int
    def __init__(self, session_id: _Optional[str] = ..., round: _Optional[int] = ..., prefix_len: _Optional[int] = ..., prefix_hash: _Optional[int] = ...) -> None: ...

class SamplingParams(_message.Message):
    __slots__ = ("temperature", "top_k", "top_p", "min_p", "seed")
    TEMPERATURE_FIELD_NUMBER: _ClassVar[int]
    TOP_K_FIELD_NUMBER: _ClassVar[int]
    TOP_P_FIELD_NUMBER: _ClassVar[int]
    MIN_P_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    seed: int
    def __init__(self, temperature: _Optional[float] = ..., top_k: _Optional[int] = ..., top_p: _Optional[float] = ..., min_p: _Optional[float] = ..., seed: _Optional[int] = ...) -> None: ...

class LogitsParams(_message.Message):
    __slots__ = ("prompt_len", "repetition_penalty", "presence_penalty", "frequency_penalty", "min_tokens", "biased_token_ids", "biases", "allowed_token_ids")
    PROMPT_LEN_FIELD_NUMBER: _ClassVar[int]
    REPETITION_PENALTY_FIELD_NUMBER: _ClassVar[int]
    PRESENCE_PENALTY_FIELD_NUMBER: _ClassVar[int]
    FREQUENCY_PENALTY_FIELD_NUMBER: _ClassVar[int]
    MIN_TOKENS_FIELD_NUMBER: _ClassVar[int]
    BIASED_TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    BIASES_FIELD_NUMBER: _ClassVar[int]
    ALLOWED_TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    prompt_len: int
    repetition_penalty: float
    presence_penalty: float
    frequency_penalty: float
    min_tokens: int
    biased_token_ids: _containers.RepeatedScalarFieldContainer[int]
    biases: _containers.RepeatedScalarFieldContainer[float]
    allowed_token_ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, prompt_len: _Optional[int] = ..., repetition_penalty: _Optional[float] = ..., presence_penalty: _Optional[float] = ..., frequency_penalty: _Optional[float] = ..., min_tokens: _Optional[int] = ..., biased_token_ids: _Optional[_Iterable[int]] = ..., biases: _Optional[_Iterable[float]] = ..., allowed_token_ids: _Optional[_Iterable[int]] = ...) -> None: ...

class TokenLogprobs(_message.Message):
    __slots__ = ("logprob", "rank", "top_token_ids", "top_logprobs")
    LOGPROB_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    TOP_TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    TOP_LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    logprob: float
    rank: int
    top_token_ids: _containers.RepeatedScalarFieldContainer[int]
    top_logprobs: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, logprob: _Optional[float] = ..., rank: _Optional[int] = ..., top_token_ids: _Optional[_Iterable[int]] = ..., top_logprobs: _Optional[_Iterable[float]] = ...) -> None: ...

class ModelInfo(_message.Message):
    __slots__ = ("vocab_size", "max_len", "tokenizer_hash", "numerics", "name", "weights_hash", "features_hash", "features_width", "eos_token_ids", "mask_token_id", "any_subset", "block_length")
    VOCAB_SIZE_FIELD_NUMBER: _ClassVar[int]
    MAX_LEN_FIELD_NUMBER: _ClassVar[int]
    TOKENIZER_HASH_FIELD_NUMBER: _ClassVar[int]
    NUMERICS_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    WEIGHTS_HASH_FIELD_NUMBER: _ClassVar[int]
    FEATURES_HASH_FIELD_NUMBER: _ClassVar[int]
    FEATURES_WIDTH_FIELD_NUMBER: _ClassVar[int]
    EOS_TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    MASK_TOKEN_ID_FIELD_NUMBER: _ClassVar[int]
    ANY_SUBSET_FIELD_NUMBER: _ClassVar[int]
    BLOCK_LENGTH_FIELD_NUMBER: _ClassVar[int]
    vocab_size: int
    max_len: int
    tokenizer_hash: str
    numerics: str
    name: str
    weights_hash: str
    features_hash: str
    features_width: int
    eos_token_ids: _containers.RepeatedScalarFieldContainer[int]
    mask_token_id: int
    any_subset: bool
    block_length: int
    def __init__(self, vocab_size: _Optional[int] = ..., max_len: _Optional[int] = ..., tokenizer_hash: _Optional[str] = ..., numerics: _Optional[str] = ..., name: _Optional[str] = ..., weights_hash: _Optional[str] = ..., features_hash: _Optional[str] = ..., features_width: _Optional[int] = ..., eos_token_ids: _Optional[_Iterable[int]] = ..., mask_token_id: _Optional[int] = ..., any_subset: _Optional[bool] = ..., block_length: _Optional[int] = ...) -> None: ...

class FeatureChunk(_message.Message):
    __slots__ = ("data", "reference", "size")
    DATA_FIELD_NUMBER: _ClassVar[int]
    REFERENCE_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    reference: bytes
    size: int
    def __init__(self, data: _Optional[bytes] = ..., reference: _Optional[bytes] = ..., size: _Optional[int] = ...) -> None: ...

class Candidates(_message.Message):
    __slots__ = ("tokens", "weights")
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    tokens: _containers.RepeatedScalarFieldContainer[int]
    weights: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, tokens: _Optional[_Iterable[int]] = ..., weights: _Optional[_Iterable[int]] = ...) -> None: ...

class Timings(_message.Message):
    __slots__ = ("queue_us", "compute_us", "batch_rows", "passes", "queue_prefill_us", "compute_prefill_us")
    QUEUE_US_FIELD_NUMBER: _ClassVar[int]
    COMPUTE_US_FIELD_NUMBER: _ClassVar[int]
    BATCH_ROWS_FIELD_NUMBER: _ClassVar[int]
    PASSES_FIELD_NUMBER: _ClassVar[int]
    QUEUE_PREFILL_US_FIELD_NUMBER: _ClassVar[int]
    COMPUTE_PREFILL_US_FIELD_NUMBER: _ClassVar[int]
    queue_us: int
    compute_us: int
    batch_rows: int
    passes: int
    queue_prefill_us: int
    compute_prefill_us: int
    def __init__(self, queue_us: _Optional[int] = ..., compute_us: _Optional[int] = ..., batch_rows: _Optional[int] = ..., passes: _Optional[int] = ..., queue_prefill_us: _Optional[int] = ..., compute_prefill_us: _Optional[int] = ...) -> None: ...

class Price(_message.Message):
    __slots__ = ("sessions", "pass_s", "row_s", "draft_s", "drafting")
    SESSIONS_FIELD_NUMBER: _ClassVar[int]
    PASS_S_FIELD_NUMBER: _ClassVar[int]
    ROW_S_FIELD_NUMBER: _ClassVar[int]
    DRAFT_S_FIELD_NUMBER: _ClassVar[int]
    DRAFTING_FIELD_NUMBER: _ClassVar[int]
    sessions: int
    pass_s: float
    row_s: float
    draft_s: float
    drafting: int
    def __init__(self, sessions: _Optional[int] = ..., pass_s: _Optional[float] = ..., row_s: _Optional[float] = ..., draft_s: _Optional[float] = ..., drafting: _Optional[int] = ...) -> None: ...

class Draining(_message.Message):
    __slots__ = ("grace_ms",)
    GRACE_MS_FIELD_NUMBER: _ClassVar[int]
    grace_ms: int
    def __init__(self, grace_ms: _Optional[int] = ...) -> None: ...
