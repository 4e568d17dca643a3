"""The code in the documents: all blocks with their languages, and the pieces that can be run
alone."""

from __future__ import annotations

import re
import shlex
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from harness import ROOT

DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs" / "guide").glob("*.md"))]

# The language by the word of a fence; blocks without a word are recognized by their beginning.
FENCES = {"sh": "shell", "sql": "sql", "python": "python", "c": "c", "toml": "toml", "yaml": "yaml"}
PROGRAMS = (
    "baro", "cargo", "cc", "curl", "duckdb", "install", "make", "pip", "printf", "promtool", "psql", "python",
    "sqlite3", "systemctl",
)  # fmt: skip
BEGINNINGS = {
    "shell": r"(%s)\s|[A-Z_]+=\S+ " % "|".join(PROGRAMS),
    "sql": r"(SELECT|WITH|CREATE|DROP|SET)\s|-- ",
    "python": r"import |barograph\.",
    "toml": r"\[",
    "yaml": r"scrape_configs:",
}
# Code within a sentence that can be run: a query, or a `baro` command with its arguments.
INLINE = re.compile(r"(?<!`)`((?:SELECT|baro)\s[^`]+)`(?!`)")
# A command that is only named: `baro insight list`.
NAMED = re.compile(r"baro [a-z]+( [a-z]+)?")
# Code within a sentence that shows a form and cannot be pasted: parts are left out or are
# placeholders.
FORM = re.compile(r"…|\b(FILE|NAME)\b")


@dataclass(frozen=True)
class Piece:
    """A command, statement or whole program of a document, as its reader would paste it."""

    document: str
    line: int
    kind: str
    text: str

    @property
    def name(self) -> str:
        """The file name of its document."""
        return Path(self.document).name

    def __str__(self) -> str:
        first = self.text.split("\n")[0].strip()
        return f"{self.document}:{self.line}: {first}"


def pieces(path: Path) -> list[Piece]:
    """All code of a document, in the order of the document."""
    document, content = str(path.relative_to(ROOT)), path.read_text()
    found: list[Piece] = []
    for line, kind, text in blocks(content.split("\n")):
        split = {"shell": commands, "sql": statements}.get(kind, whole)
        found += [Piece(document, line + at, kind, part) for at, part in split(text)]
    found += inline(document, content)
    return sorted(found, key=lambda piece: piece.line)


def blocks(lines: list[str]) -> Iterator[tuple[int, str, str]]:
    """Line, kind and text of each block: fenced ones as they are, indented ones up to an empty
    line."""
    at = 0
    while at < len(lines):
        if lines[at].startswith("```"):
            end = lines.index("```", at + 1)
            text = "\n".join(lines[at + 1 : end])
            word = lines[at].removeprefix("```").strip()
            yield at + 2, FENCES.get(word, "unknown") if word else kind_of(text), text
            at = end + 1
        elif lines[at].startswith("    ") and (at == 0 or not lines[at - 1].strip()):
            end = at
            while end < len(lines) and lines[end].startswith("    "):
                end += 1
            text = "\n".join(line.removeprefix("    ") for line in lines[at:end])
            yield at + 1, kind_of(text), text
            at = end
        else:
            at += 1


def kind_of(text: str) -> str:
    """The language of a block that does not name one."""
    kinds = [kind for kind, beginning in BEGINNINGS.items() if re.match(beginning, text)]
    return kinds[0] if len(kinds) == 1 else "unknown"


def inline(document: str, content: str) -> Iterator[Piece]:
    """Queries and commands within sentences."""
    prose = re.sub(r"^```.*?^```$|^    .*?$", lambda code: re.sub(r"[^\n]", " ", code[0]), content, flags=re.M | re.S)
    for code in INLINE.finditer(prose):
        text = " ".join(code[1].split())
        line = prose.count("\n", 0, code.start()) + 1
        if FORM.search(text):
            continue
        if text.startswith("SELECT"):
            yield Piece(document, line, "sql", text)
        elif NAMED.fullmatch(text):
            yield Piece(document, line, "name", text)
        else:
            yield Piece(document, line, "shell", text)


def whole(text: str) -> Iterator[tuple[int, str]]:
    """A block as one piece."""
    yield 0, text


def commands(text: str) -> Iterator[tuple[int, str]]:
    """The commands of a shell block: one per line, or several lines while a quotation is open."""
    held: list[str] = []
    for at, line in enumerate(text.split("\n")):
        held.append(line)
        command = "\n".join(held)
        try:
            words = shlex.split(command, comments=True)
        except ValueError:
            continue
        if not line.endswith("\\"):
            if words:
                yield at - len(held) + 1, command
            held = []
    assert not held, f"a quotation has no end: {held[0]}"


def statements(text: str) -> Iterator[tuple[int, str]]:
    """The statements of a block of SQL: each ends with a semicolon or the block."""
    held: list[str] = []
    lines = text.split("\n")
    for at, line in enumerate(lines):
        held.append(line)
        statement = "\n".join(held)
        if sqlite3.complete_statement(statement) or at == len(lines) - 1:
            if statement.strip():
                yield at - len(held) + 1, statement
            held = []
