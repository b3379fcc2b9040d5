"""The house's order, checked: parsing knows no causality, correlation knows no text, data folders hold data."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from inputs import ROOT

PACKAGE = ROOT / "logforensics"
MODULES = sorted(PACKAGE.rglob("*.py"))
CORRELATE = sorted((PACKAGE / "correlate").glob("*.py"))
# The reproduction harness makes real runs; nothing else may need what it needs.
HARNESS_ONLY = {"torch", "deepspeed", "accelerate", "numpy", "transformers", "psutil"}
# Ways to look into a text for a pattern.
_SEARCHES = {
    "startswith", "endswith", "find", "rfind", "index", "split", "rsplit", "partition", "rpartition", "match", "search",
    "fullmatch", "findall", "finditer", "removeprefix", "removesuffix", "lower", "casefold", "count",
}  # fmt: skip


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def imports(path: Path, *, everywhere: bool = True) -> Iterator[str]:
    """Every module that a module imports, anywhere in it or (not ``everywhere``) while it is loaded."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    nodes = ast.walk(tree) if everywhere else _loaded(tree.body)
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _loaded(body: list[ast.stmt]) -> Iterator[ast.AST]:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        yield node
        for part in ("body", "orelse", "finalbody"):
            yield from _loaded(getattr(node, part, []))


def test_there_is_something_to_check():
    assert len(MODULES) > 30 and len(CORRELATE) > 8


@pytest.mark.parametrize("path", CORRELATE, ids=name_of)
def test_the_correlator_knows_no_pattern(path):
    """It reads kinds, roles, categories, fields and times."""
    wanted = {name.partition(".")[0] for name in imports(path)}
    inside = {name for name in imports(path) if name.startswith("logforensics.")}

    assert not wanted & {"re", "regex", "fnmatch", "glob", "difflib"}
    for module in ("prefixes", "patterns", "records", "engine", "buffer", "expression", "resources"):
        assert not any(name.startswith(f"logforensics.{module}") for name in inside), module


@pytest.mark.parametrize("path", CORRELATE, ids=name_of)
def test_the_correlator_does_not_look_into_messages(path):
    """A message may be shown, not searched: neither by a method nor by ``in`` nor by comparing it with a text."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        where = f"{path.name}:{getattr(node, 'lineno', 0)}"
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _SEARCHES:
            assert not _is_message(node.func.value), where
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            texts = [side for side in sides if isinstance(side, ast.Constant) and isinstance(side.value, str)]
            assert not (any(map(_is_message, sides)) and texts), where


def _is_message(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == "message"


@pytest.mark.parametrize(
    "path", [path for path in MODULES if PACKAGE / "harness" not in path.parents], ids=name_of
)  # fmt: skip
def test_the_analysis_needs_nothing_of_the_harness(path):
    assert not {name.partition(".")[0] for name in imports(path)} & HARNESS_ONLY


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_nothing_asks_a_network_or_another_program(path):
    """Only the harness starts processes, and needs a port for them."""
    if PACKAGE / "harness" in path.parents:
        pytest.skip("the harness starts distributed runs")
    forbidden = {"subprocess", "socket", "http", "urllib.request", "requests", "httpx", "asyncio", "ftplib"}
    assert not {name for name in imports(path) if name in forbidden or name.partition(".")[0] in forbidden}


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_nothing_is_unpickled_or_executed(path):
    """Dumps among the logs are read as data. The program's own cache holds compiled patterns, for this user alone."""
    if PACKAGE / "harness" in path.parents:
        pytest.skip("the harness makes dumps")
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            if path.name == "patterns.py" and called == "pickle.loads":
                continue
            assert called not in {"eval", "exec", "pickle.load", "pickle.loads", "marshal.loads", "os.system"}, called


# Which folder may know which: reading, judging, showing.
_BELOW = {
    "correlate": ["render", "cli", "console", "harness", "checking", "analysis"],
    "render": ["cli", "console", "harness", "checking", "reader", "engine", "prefixes", "signatures"],
    "harness": ["render", "correlate"],
}


@pytest.mark.parametrize("folder", _BELOW)
def test_a_layer_does_not_load_what_lies_above_it(folder):
    for path in sorted((PACKAGE / folder).glob("*.py")):
        for name in imports(path, everywhere=False):
            for forbidden in _BELOW[folder]:
                module = f"logforensics.{forbidden}"
                assert name != module and not name.startswith(module + "."), f"{path.name} imports {name}"


def test_sources_and_streams_know_nothing_of_parsing():
    for module in ("paths", "sniff", "unpack"):
        inside = {name for name in imports(PACKAGE / f"{module}.py") if name.startswith("logforensics.")}
        allowed = {"logforensics.clock", "logforensics.paths", "logforensics.language"}  # all three leaves
        assert all(any(name == one or name.startswith(one + ".") for one in allowed) for name in inside), module


@pytest.mark.parametrize(("folder", "kinds"), [("parsers", {".toml"}), ("reports", {".toml", ".css", ".js", ".j2"})])
def test_data_folders_hold_data_alone(folder, kinds):
    files = [path for path in (ROOT / folder).rglob("*") if path.is_file()]

    assert files
    code = [path.name for path in files if path.suffix in {".py", ".pyc", ".so", ".sh", ".pyi"}]
    assert not code
    assert kinds & {path.suffix for path in files}


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_a_module_says_what_it_is_for(path):
    if path.name == "__main__.py" or path.stat().st_size == 0:
        pytest.skip("nothing to say")
    assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
