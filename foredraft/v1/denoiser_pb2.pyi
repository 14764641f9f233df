from foredraft.v1 import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class DenoiserInfoRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DenoiserInfoResponse(_message.Message):
    __slots__ = ("model", "oldest_protocol", "newest_protocol")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    OLDEST_PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    NEWEST_PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    model: _common_pb2.ModelInfo
    oldest_protocol: _common_pb2.ProtocolVersion
    newest_protocol: _common_pb2.ProtocolVersion
    def __init__(self, model: _Optional[_Union[_common_pb2.ModelInfo, _Mapping]] = ..., oldest_protocol: _Optional[_Union[_common_pb2.ProtocolVersion, str]] = ..., newest_protocol: _Optional[_Union[_common_pb2.ProtocolVersion, str]] = ...) -> None: ...

class DenoiseRequest(_message.Message):
    __slots__ = ("open", "advance")
    OPEN_FIELD_NUMBER: _ClassVar[int]
    ADVANCE_FIELD_NUMBER: _ClassVar[int]
    open: DenoiseOpen
    advance: Advance
    def __init__(self, open: _Optional[_Union[DenoiseOpen, _Mapping]] = ..., advance: _Optional[_Union[Advance, _Mapping]] = ...) -> None: ...

class DenoiseOpen(_message.Message):
    __slots__ = ("protocol", "session_id", "prefix", "sampling", "max_new_tokens", "per_step", "threshold", "max_drafts", "stop_token_ids", "cache_salt", "groups")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_FIELD_NUMBER: _ClassVar[int]
    MAX_NEW_TOKENS_FIELD_NUMBER: _ClassVar[int]
    PER_STEP_FIELD_NUMBER: _ClassVar[int]
    THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    MAX_DRAFTS_FIELD_NUMBER: _ClassVar[int]
    STOP_TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    CACHE_SALT_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    protocol: _common_pb2.ProtocolVersion
    session_id: str
    prefix: _containers.RepeatedScalarFieldContainer[int]
    sampling: _common_pb2.SamplingParams
    max_new_tokens: int
    per_step: int
    threshold: float
    max_drafts: int
    stop_token_ids: _containers.RepeatedScalarFieldContainer[int]
    cache_salt: str
    groups: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, protocol: _Optional[_Union[_common_pb2.ProtocolVersion, str]] = ..., session_id: _Optional[str] = ..., prefix: _Optional[_Iterable[int]] = ..., sampling: _Optional[_Union[_common_pb2.SamplingParams, _Mapping]] = ..., max_new_tokens: _Optional[int] = ..., per_step: _Optional[int] = ..., threshold: _Optional[float] = ..., max_drafts: _Optional[int] = ..., stop_token_ids: _Optional[_Iterable[int]] = ..., cache_salt: _Optional[str] = ..., groups: _Optional[_Iterable[str]] = ...) -> None: ...

class Advance(_message.Message):
    __slots__ = ("base", "calls")
    BASE_FIELD_NUMBER: _ClassVar[int]
    CALLS_FIELD_NUMBER: _ClassVar[int]
    base: _common_pb2.Base
    calls: int
    def __init__(self, base: _Optional[_Union[_common_pb2.Base, _Mapping]] = ..., calls: _Optional[int] = ...) -> None: ...

class DenoiseResponse(_message.Message):
    __slots__ = ("opened", "advanced", "draining")
    OPENED_FIELD_NUMBER: _ClassVar[int]
    ADVANCED_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    opened: DenoiseOpened
    advanced: Advanced
    draining: _common_pb2.Draining
    def __init__(self, opened: _Optional[_Union[DenoiseOpened, _Mapping]] = ..., advanced: _Optional[_Union[Advanced, _Mapping]] = ..., draining: _Optional[_Union[_common_pb2.Draining, _Mapping]] = ...) -> None: ...

class DenoiseOpened(_message.Message):
    __slots__ = ("model",)
    MODEL_FIELD_NUMBER: _ClassVar[int]
    model: _common_pb2.ModelInfo
    def __init__(self, model: _Optional[_Union[_common_pb2.ModelInfo, _Mapping]] = ...) -> None: ...

class Advanced(_message.Message):
    __slots__ = ("base", "committed", "block", "steps", "accepted", "calls", "timings")
    BASE_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_FIELD_NUMBER: _ClassVar[int]
    BLOCK_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    CALLS_FIELD_NUMBER: _ClassVar[int]
    TIMINGS_FIELD_NUMBER: _ClassVar[int]
    base: _common_pb2.Base
    committed: _containers.RepeatedScalarFieldContainer[int]
    block: _containers.RepeatedScalarFieldContainer[int]
    steps: int
    accepted: int
    calls: int
    timings: _common_pb2.Timings
    def __init__(self, base: _Optional[_Union[_common_pb2.Base, _Mapping]] = ..., committed: _Optional[_Iterable[int]] = ..., block: _Optional[_Iterable[int]] = ..., steps: _Optional[int] = ..., accepted: _Optional[int] = ..., calls: _Optional[int] = ..., timings: _Optional[_Union[_common_pb2.Timings, _Mapping]] = ...) -> None: ...
