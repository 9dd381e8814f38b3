"""The calls with which a token declares consumers of its own: declare a consumer, remove a consumer, and look up a
table before a declaration."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, Field, field_validator

from dispatcher.access.tokens import Scope
from dispatcher.api.answers.models import (
    GetDeclarer,
    RequestBody,
    TableAnswer,
    ToFile,
    ToGtid,
    ToTimestamp,
    checked_start,
    printable_text,
)
from dispatcher.api.calls.reader_calls import table_of
from dispatcher.api.calls.route import (
    CONSUMER,
    CONSUMERS,
    GUARDED,
    OF_CONSUMER,
    Call,
    Documented,
    Json,
    Route,
)
from dispatcher.dispatch.values.declaration import Declaration

PATTERNS_MAX = 100
START_BYTES_MAX = 1 << 16

_Start = Literal["earliest", "latest"] | ToGtid | ToFile | ToTimestamp
_Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")]
_Pattern = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(printable_text)]
_Patterns = Annotated[list[_Pattern], Field(max_length=PATTERNS_MAX)]


class DeclareRequest(RequestBody):
    """`source`: may be null if the token may use only one source; `databases`, `tables`, `exclude_tables`: names or
    patterns, as in the settings; `tables`: null for all tables of the databases; `start`: where the consumer begins."""

    name: _Name
    source: _Name | None = None
    databases: Annotated[_Patterns, Field(min_length=1)]
    tables: Annotated[_Patterns, Field(min_length=1)] | None = None
    exclude_tables: _Patterns = Field(default_factory=list)
    start: _Start = "latest"

    @field_validator("start")
    @classmethod
    def _is_a_start(cls, value: str | BaseModel) -> str | BaseModel:
        checked_start(value)
        if len(_start_text(value)) > START_BYTES_MAX:
            raise ValueError(f"it is longer than {START_BYTES_MAX} bytes")
        return value

    def declaration(self, owner: str) -> Declaration:
        """Returns the declaration with sorted names, because their order has no meaning: requests that differ only in
        the order are equal."""
        return Declaration(
            self.name,
            owner,
            self.source or "",
            tuple(sorted(set(self.databases))),
            None if self.tables is None else tuple(sorted(set(self.tables))),
            tuple(sorted(set(self.exclude_tables))),
            _start_text(self.start),
        )


def _start_text(start: str | BaseModel) -> str:
    value = start if isinstance(start, str) else start.model_dump()
    return json.dumps(value, separators=(",", ":"))


class DeclaredAnswer(BaseModel):
    """The declared consumer. `created`: False if the consumer was declared before, with equal content. In that case
    `start` is the start of the first declaration. `declared_by`: the name of the token, "" without tokens;
    `declared_at`: seconds since 1970."""

    name: str
    source: str
    databases: list[str]
    tables: list[str] | None
    exclude_tables: list[str]
    start: _Start
    declared_by: str
    declared_at: int
    created: bool


class RemovedAnswer(BaseModel):
    """`removed`: the name of the consumer that the call has removed."""

    removed: str


def declaration_routes(declarer: GetDeclarer) -> Iterator[Route]:
    async def declare(call: Call) -> Json:
        """Declare a consumer, within the limits of its source. From then on the token is valid for this consumer.

        If the consumer is declared already with equal content, the call changes nothing and returns the existing
        consumer. If its content differs, the daemon refuses the call (409). The daemon removes a declared consumer that
        no reader has called for the `max_days_unread` of its source.
        """
        wanted = call.body.declaration(call.token.name)
        declaration, created = await declarer().declare(wanted, call.token.sources)
        return {
            "name": declaration.name,
            **declaration.content,
            "declared_by": declaration.owner,
            "declared_at": declaration.declared_s,
            "created": created,
        }

    async def remove(call: Call) -> Json:
        """Remove a declared consumer, with its stored position.

        A token with the scope `declare` may remove the consumers that it has declared. A token with the scope
        `administer` may remove every declared consumer for which it is valid.
        """
        administers = Scope.ADMINISTER in call.token.scopes
        await declarer().remove(call.consumer, None if administers else call.token.name)
        return {"removed": call.consumer}

    async def table_of_source(call: Call) -> Json:
        """Return the current columns and key of a table that a declared consumer of a source may read."""
        source = call.request.query_params.get("source")
        return await declarer().table(source, call.token.sources, *table_of(call))

    def documented(returns: type[BaseModel], *problems: int, **query: str) -> Documented:
        return Documented("declarations", returns, problems, query=query)

    source = "Name of a source; not needed if the token may use only one."
    declare_scope, both_scopes = [Scope.DECLARE], [Scope.DECLARE, Scope.ADMINISTER]
    yield Route(
        "POST",
        CONSUMERS,
        declare,
        declare_scope,
        DeclareRequest,
        documented(DeclaredAnswer, *GUARDED, 409),
    )
    yield Route(
        "DELETE",
        CONSUMER,
        remove,
        both_scopes,
        documented=documented(RemovedAnswer, *OF_CONSUMER),
    )
    yield Route(
        "GET",
        "/v1/tables/{name}",
        table_of_source,
        declare_scope,
        documented=documented(TableAnswer, *GUARDED, 404, source=source),
    )
