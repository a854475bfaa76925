"""The runbook has every error that commands and the worker end with: what it means, and what to do."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from frostline import errors

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "frostline"
ROOMS = ("tiering", "pipeline", "lake", "catalog", "delta")
# What need not be told, and why.
EXEMPT = {"": "what droppable() raises is said by its callers, which are looked at"}


def error_classes(trees: Iterable[ast.Module]) -> set[str]:
    """The names of all errors of ours, wherever they are defined."""
    found = {name for name, one in vars(errors).items() if isinstance(one, type) and issubclass(one, Exception)}
    for node in (node for tree in trees for node in tree.body if isinstance(node, ast.ClassDef)):
        if any(isinstance(base, ast.Name) and base.id in found for base in node.bases):
            found.add(node.name)
    return found


def messages(tree: ast.Module, classes: set[str]) -> Iterator[str]:
    """The longest constant part of what each error says happened; what was kept comes after a semicolon."""
    nodes = list(ast.walk(tree))
    assigned = {
        node.targets[0].id: node.value
        for node in nodes
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }
    for node in nodes:
        if isinstance(node, ast.Call) and node.args and made(node.func) & classes:
            said = node.args[0]
            parts = constants(assigned.get(said.id, said) if isinstance(said, ast.Name) else said)
            yield max(plain("\0".join(parts).partition(";")[0]).split("\0"), key=len).strip(" :,.()")


def made(function: ast.expr) -> set[str]:
    """`Error`, `(One if ... else Other)` or `module.function`."""
    nodes = list(ast.walk(function))
    names = {node.id for node in nodes if isinstance(node, ast.Name)}
    return names | {node.attr for node in nodes if isinstance(node, ast.Attribute)}


def constants(text: ast.expr) -> list[str]:
    nodes = text.values if isinstance(text, ast.JoinedStr) else [text]
    return [str(node.value) if isinstance(node, ast.Constant) else "" for node in nodes]


def plain(text: str) -> str:
    return " ".join(text.replace("`", "").lower().split())


def quoted(text: str) -> str:
    """What stands between backticks: an error is to be found as it is printed."""
    return plain("\n".join(re.findall(r"`([^`\n]+)`", text)))


def test_every_error_is_in_the_docs() -> None:
    docs = quoted("\n".join(file.read_text(encoding="utf-8") for file in sorted((ROOT / "docs").glob("*.md"))))
    files = [file for room in ROOMS for file in sorted((SOURCE / room).rglob("*.py"))]
    trees = {str(file.relative_to(SOURCE)): ast.parse(file.read_text(encoding="utf-8")) for file in files}
    classes = error_classes(trees.values()) | {"droppable"}
    found = {(name, message) for name, tree in trees.items() for message in messages(tree, classes)}
    assert len(found) > 100
    exempt = {plain(message) for message in EXEMPT}
    assert exempt <= {message for _, message in found}
    missing = sorted(one for one in found if one[1] not in docs and one[1] not in exempt)
    assert missing == []


def test_what_a_message_is_known_by() -> None:
    source = """
class Own(OperationError): ...
raise OperationError(f"{table} was moved  by someone `else` meanwhile; nothing was changed, and that is kept")
raise (Interrupted if late else OperationError)("plain: " "text", hint="another")
said = f"{one} of {two}: it stays"
raise Own(said)
raise ValueError("none of ours")
"""
    classes = {"OperationError", "Interrupted", "Own"}
    assert list(messages(ast.parse(source), classes)) == [
        "was moved by someone else meanwhile",
        "plain: text",
        "it stays",
    ]
