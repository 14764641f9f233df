"""The report: sections of tables, claims and plots, as Markdown and as JSON values. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from bench.papers.claims import Claim, tally, verdicts_of
from bench.papers.inference.verdicts import Evidence, Verdict


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of text under named columns."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    caption: str = ""


@dataclass(frozen=True, slots=True)
class Section:
    """One table or figure of a paper, measured here.

    how is what was run, in a sentence; plots are file names beside the report; heading heads the
    claims.
    """

    title: str
    how: str
    tables: tuple[Table, ...] = ()
    claims: tuple[Claim, ...] = ()
    plots: tuple[str, ...] = ()
    figures: Mapping[str, Any] = field(default_factory=dict)
    heading: str = "the paper's claims"


def times(value: float | None) -> str:
    """Return a speedup as text."""
    return "-" if value is None else f"{value:.2f}x"


def number(value: float | None) -> str:
    """Return a count or a share as text."""
    return "-" if value is None else f"{value:.2f}"


def percent(value: float | None) -> str:
    """Return a share as text."""
    return "-" if value is None else f"{value:.0%}"


def table_markdown(table: Table) -> str:
    """Return a table as Markdown; a bar inside a cell would end it."""
    lines = [table.columns, tuple("---" for _ in table.columns), *table.rows]
    body = "\n".join("| " + " | ".join(c.replace("|", "/") for c in line) + " |" for line in lines)
    return f"{table.caption}\n\n{body}" if table.caption else body


def section_markdown(section: Section) -> str:
    """Return a section: what was run, its tables, its plots, and what holds of the paper."""
    parts = [f"## {section.title}", section.how]
    parts += [table_markdown(table) for table in section.tables]
    parts += [f"![{section.title}]({name})" for name in section.plots]
    if section.claims:
        parts.append(table_markdown(claims_table(section.claims, section.heading)))
    return "\n\n".join(parts)


def claims_table(claims: Sequence[Claim], heading: str) -> Table:
    """Return the table of claims and of what is seen here."""
    rows = tuple(
        (claim.text, claim.theirs, claim.ours, f"**{verdict}**")
        for claim, verdict in zip(claims, verdicts_of(claims), strict=True)
    )
    return Table((heading, "its figures", "figures here", "here"), rows)


def as_markdown(head: str, sections: Sequence[Section]) -> str:
    """Return the whole report; it begins with how many of each section's claims hold."""
    rows = tuple((section.title, tally([section.claims])) for section in sections if section.claims)
    summary = table_markdown(Table(("table or figure", "its claims"), rows))
    return "\n\n".join([head, summary, *map(section_markdown, sections)]) + "\n"


def as_summary(head: str, sections: Sequence[Section]) -> str:
    """Return the whole report's claims, paper by paper, and what is seen here."""
    parts = [
        f"## {section.title}\n\n" + table_markdown(claims_table(section.claims, section.heading))
        for section in sections
        if section.claims
    ]
    return "\n\n".join([head, *parts]) + "\n"


def as_json(sections: Sequence[Section]) -> list[dict[str, Any]]:
    """Return the sections as JSON values."""
    return [asdict(section) for section in sections]


def from_json(sections: Sequence[dict[str, Any]]) -> list[Section]:
    """Return the sections that as_json was given."""

    def table(value: dict[str, Any]) -> Table:
        rows = tuple(tuple(row) for row in value["rows"])
        return Table(tuple(value["columns"]), rows, value["caption"])

    def claim(value: dict[str, Any]) -> Claim:
        evidence = tuple(Evidence(Verdict(name), chance) for name, chance in value["evidence"])
        return Claim(value["text"], value["theirs"], value["ours"], evidence)

    return [
        Section(
            value["title"],
            value["how"],
            tuple(map(table, value["tables"])),
            tuple(map(claim, value["claims"])),
            tuple(value["plots"]),
            value["figures"],
            value["heading"],
        )
        for value in sections
    ]
