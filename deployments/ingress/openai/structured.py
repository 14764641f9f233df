"""`response_format` of the OpenAI API and vLLM's `structured_outputs`, as one grammar."""

from __future__ import annotations

import json
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool, model_validator

from foredraft.types import Grammar, GrammarKind

_MAX_CHOICES = 256
_ANY_OBJECT = json.dumps({"type": "object"})


class JsonSchema(BaseModel):
    """The schema of a `response_format`."""

    model_config = ConfigDict(extra="allow")

    json_schema: dict[str, Any] = Field(alias="schema")


class ResponseFormat(BaseModel):
    """Free text, any JSON object, or one of a schema."""

    model_config = ConfigDict(extra="forbid")

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None

    @model_validator(mode="after")
    def _complete(self) -> ResponseFormat:
        if (self.type == "json_schema") != (self.json_schema is not None):
            raise ValueError("json_schema goes with type json_schema")
        return self

    def grammar(self) -> Grammar | None:
        """Return what the text must follow."""
        if self.json_schema is not None:
            return Grammar(GrammarKind.JSON_SCHEMA, json.dumps(self.json_schema.json_schema))
        return Grammar(GrammarKind.JSON_SCHEMA, _ANY_OBJECT) if self.type != "text" else None


class StructuredOutputs(BaseModel):
    """One of: a JSON schema, any JSON object, a regex, a choice of texts, a Lark grammar."""

    model_config = ConfigDict(extra="forbid")

    json_: dict[str, Any] | str | None = Field(None, alias="json")
    json_object: StrictBool | None = None
    regex: str | None = None
    choice: list[str] | None = Field(None, min_length=1, max_length=_MAX_CHOICES)
    grammar: str | None = None

    @model_validator(mode="after")
    def _one(self) -> StructuredOutputs:
        given = (self.json_, self.json_object or None, self.regex, self.choice, self.grammar)
        if sum(each is not None for each in given) != 1:
            raise ValueError("exactly one of json, json_object, regex, choice and grammar")
        return self

    def as_grammar(self) -> Grammar:
        """Return what the text must follow."""
        if self.regex is not None:
            return Grammar(GrammarKind.REGEX, self.regex)
        if self.choice is not None:
            # Lark's strings are quoted as JSON's are.
            texts = " | ".join(json.dumps(text, ensure_ascii=False) for text in self.choice)
            return Grammar(GrammarKind.LARK, f"start: {texts}")
        if self.grammar is not None:
            return Grammar(GrammarKind.LARK, self.grammar)
        schema = _ANY_OBJECT if self.json_ is None else self.json_
        text = schema if isinstance(schema, str) else json.dumps(schema)
        return Grammar(GrammarKind.JSON_SCHEMA, text)
