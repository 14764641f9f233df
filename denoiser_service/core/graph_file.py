"""A draft graph as JSON beside a model's weights, read strictly, with a hash that names it."""

from __future__ import annotations

import hashlib
import json
from typing import Annotated, Any, Literal

from pydantic import Field

from denoiser_service.core.graph import Candidate, DraftGraph, Node, RankedBy
from foredraft.errors import ConfigError
from foredraft.limits import MAX_BLOCK_LENGTH
from foredraft.strict import StrictModel, parse

FILE_NAME = "draft_graph.json"

_Rank = Annotated[int, Field(ge=1)]
_Count = Annotated[int, Field(ge=0)]
_Position = Annotated[int, Field(ge=1, le=MAX_BLOCK_LENGTH)]
_Token = Annotated[int, Field(ge=1, lt=1 << 31)]
_After = Annotated[int, Field(ge=0, lt=MAX_BLOCK_LENGTH)]


class StaticFields(StrictModel):
    """Static unmasking, S slots in a step."""

    kind: Literal["static"]
    per_step: _Rank


class DynamicFields(StrictModel):
    """Dynamic unmasking, all slots above a probability."""

    kind: Literal["dynamic"]
    threshold: Annotated[float, Field(ge=0, lt=1)]


class CalibrationFields(StrictModel):
    """What the graph was calibrated with; serving does not depend on it."""

    block_length: _Rank
    unmasking: Annotated[StaticFields | DynamicFields, Field(discriminator="kind")]
    temperature: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    lookahead: _Rank
    prompts: _Count
    steps: _Count
    weights: str
    """SHA-256 of the model's weights"""


class NodeFields(StrictModel):
    """A node; each candidate is [position rank, vocabulary rank, filled after so many]."""

    level: _Rank
    count: _Rank
    candidates: Annotated[tuple[tuple[_Position, _Token, _After], ...], Field(min_length=1)]


class GraphFields(StrictModel):
    """The file's fields without its hash."""

    version: Literal[2]
    ranked_by: RankedBy
    anchors: _Count
    calibration: CalibrationFields
    nodes: tuple[NodeFields, ...]


def to_json(graph: DraftGraph, calibration: CalibrationFields) -> str:
    """Return the file's text; the same graph has the same text and so the same hash."""
    fields = GraphFields(
        version=2,
        ranked_by=graph.ranked_by,
        anchors=graph.anchors,
        calibration=calibration,
        nodes=tuple(
            NodeFields(level=node.level, count=node.count, candidates=tuple(sorted(node.formula)))
            for node in graph.nodes
        ),
    ).model_dump(mode="json")
    return json.dumps(fields | {"hash": hash_fields(fields)}, indent=2) + "\n"


def hash_fields(fields: dict[str, Any]) -> str:
    """Return the SHA-256 of the fields in one canonical spelling."""
    text = json.dumps(fields, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def from_json(text: str) -> tuple[DraftGraph, CalibrationFields, str]:
    """Return a graph, how it was calibrated, and its hash.

    Raise ConfigError naming the field for anything but what `to_json` writes: an unknown or missing
    field, a number out of range, a node that is there twice, or a hash of other fields.
    """
    try:
        values = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"the draft graph is not JSON: {error}") from None
    if not isinstance(values, dict):
        raise ConfigError("the draft graph is not a JSON object")
    stated = values.pop("hash", None)
    fields = parse(GraphFields, values)
    found = hash_fields(fields.model_dump(mode="json"))
    if stated != found:
        raise ConfigError("hash: it is not that of the fields", param="hash")
    return DraftGraph(_nodes(fields), fields.ranked_by, fields.anchors), fields.calibration, found


def _nodes(fields: GraphFields) -> tuple[Node, ...]:
    nodes: dict[frozenset[Candidate], Node] = {}
    for index, node in enumerate(fields.nodes):
        at = f"nodes.{index}.candidates"
        formula = frozenset(Candidate(*each) for each in node.candidates)
        if len(formula) < len(node.candidates):
            raise ConfigError(f"{at}: a candidate is there twice", param=at)
        if node.count > fields.anchors:
            param = f"nodes.{index}.count"
            raise ConfigError(f"{param}: it is above the {fields.anchors} anchors", param=param)
        if formula in nodes:
            raise ConfigError(f"{at}: another node has the same", param=at)
        nodes[formula] = Node(formula, node.level, node.count)
    return tuple(nodes.values())
