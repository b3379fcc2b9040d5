"""Keeps what a run wrote to the byte, but for this machine's names and paths, and puts the truth beside it.

The same original always becomes the same replacement, in every file: what belonged together still does.
"""

from __future__ import annotations

import getpass
import importlib.metadata
import io
import json
import os
import pickle
import platform
import re
import socket
import sys
from pathlib import Path
from typing import Any

from logforensics.harness.faults import FAULTS
from logforensics.harness.launch import SCRIPT, Launch, base_environment
from logforensics.harness.plan import Plan, Truth

REDACTED = ("host name", "user name", "home, temporary, virtual environment and project paths")


class Neutraliser:
    """Replaces this machine's names and paths by harmless ones, consistently and nothing else."""

    def __init__(self, paths: dict[str, str], names: dict[str, str]) -> None:
        """Paths are replaced wherever they stand, longest first; names only as whole words."""
        ordered = sorted(paths, key=len, reverse=True)
        parts = [f"{re.escape(path)}(?![\\w.-])" for path in ordered]
        parts += [rf"(?<![\w.-]){re.escape(name)}(?![\w-])" for name in sorted(names, key=len, reverse=True)]
        self._table = {key.encode(): value.encode() for key, value in {**names, **paths}.items()}
        self._pattern = re.compile("|".join(parts).encode()) if parts else None

    def clean(self, data: bytes) -> bytes:
        """The data with every name and path replaced."""
        if self._pattern is None:
            return data
        return self._pattern.sub(lambda match: self._table[match.group()], data)

    def text(self, data: str) -> str:
        """The text with every name and path replaced."""
        return self.clean(data.encode()).decode()

    def pickled(self, data: bytes) -> bytes:
        """A flight recorder dump with its strings replaced (their lengths are part of the format)."""
        return pickle.dumps(self._inside(_PlainUnpickler(io.BytesIO(data)).load(), {}), protocol=2)

    def _inside(self, value: Any, known: dict[str, str]) -> Any:
        if isinstance(value, str):
            if value not in known:  # equal strings stay one object, so that pickle writes each once
                known[value] = self.text(value)
            return known[value]
        if isinstance(value, dict):
            return {self._inside(key, known): self._inside(item, known) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return type(value)(self._inside(item, known) for item in value)
        return value


class _PlainUnpickler(pickle.Unpickler):
    """Loads containers, numbers and strings, and nothing that could run."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"{module}.{name} has no business in a flight recorder dump")


def this_machine(work: Path) -> Neutraliser:
    """The neutraliser for runs made here, in this folder."""
    paths = {
        str(work): "/home/user/runs/demo",
        str(SCRIPT.parent): "/home/user/project",
        str(SCRIPT.parents[2]): "/home/user/src",
        sys.prefix: "/opt/venv",
        str(Path(sys.prefix).resolve()): "/opt/venv",
        sys.base_prefix: "/usr",
        str(Path(sys.base_prefix).resolve()): "/usr",
        str(Path.home()): "/home/user",
    }
    for useless in ("/", "/usr", "/usr/local"):
        paths.pop(useless, None)
    names = {name: "node0" for name in (socket.gethostname(), platform.node()) if name not in ("", "localhost")}
    user = getpass.getuser()
    if user not in ("root", "user", ""):
        names[user] = "user"
    return Neutraliser(paths, names)


def write_fixture(
    plan: Plan, codes: tuple[int, ...], ended: bool, seconds: float, launch: Launch, work: Path, out: Path
) -> None:
    """Write ``logs/``, ``truth.toml`` and ``provenance.toml``."""
    neutral = this_machine(work)
    out.mkdir(parents=True)
    source = work / "logs"
    for path in sorted(source.rglob("*")):
        if not path.is_file() or path.is_symlink():
            continue
        data = path.read_bytes()
        clean = neutral.pickled if path.name.startswith("nccl_trace_rank_") else neutral.clean
        target = out / "logs" / path.relative_to(source)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(clean(data))
    (out / "truth.toml").write_text(truth_toml(FAULTS[plan.fault].truth(plan)))
    (out / "provenance.toml").write_text(provenance_toml(plan, codes, ended, seconds, launch, work, neutral))


def toml_value(value: Any) -> str:
    """A TOML literal: strings, numbers, booleans, and lists and inline tables of them."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {toml_value(item)}" for key, item in value.items()) + " }"
    return "[" + ", ".join(toml_value(item) for item in value) + "]"


def truth_toml(truth: Truth) -> str:
    """``truth.toml`` as design section 7 has it."""
    lines = [
        f"status = {toml_value(truth.status)}",
        f"category = {toml_value(truth.category)}",
        f"also_acceptable = {toml_value(truth.also_acceptable)}",
        f"ranks = {toml_value(truth.ranks)}",
        f"phase = {toml_value(truth.phase)}",
        f"evidence = {toml_value(truth.evidence)}   # a literal of the line to point at; empty: any",
    ]
    if truth.also_phases:
        lines.append(f"also_acceptable_phases = {toml_value(truth.also_phases)}")
    if truth.also_ranks:
        lines.append(f"also_acceptable_ranks = {toml_value(truth.also_ranks)}")
    if truth.also_statuses:
        lines.append(f"also_acceptable_status = {toml_value(truth.also_statuses)}")
    if truth.note:
        lines.append(f"note = {toml_value(truth.note)}")
    return "\n".join(lines) + "\n"


def provenance_toml(
    plan: Plan,
    codes: tuple[int, ...],
    ended: bool,
    seconds: float,
    launch: Launch,
    work: Path,
    neutral: Neutraliser,
) -> str:
    """``provenance.toml``: how the run was made and how it ended."""
    environment = base_environment(plan, work)
    environment.pop("LOGFORENSICS_RUN")
    fault = FAULTS[plan.fault]
    where = f"rank {plan.rank}, before step {plan.at_step}" if fault.strikes_rank else "the whole run"
    entries: dict[str, Any] = {
        "strategy": plan.strategy,
        "fault": plan.fault,
        "injected": f"{fault.injects} ({where})" if plan.fault != "none" else fault.injects,
        "launcher": plan.launcher,
        "layout": plan.layout,
        "nproc": plan.nproc,
        "nnodes": plan.nnodes,
        "rank": plan.rank,
        "at_step": plan.at_step,
        "device": plan.device,
        "backend": plan.backend,
        "dialect": plan.dialect,
        "seed": plan.seed,
        "timeout_s": plan.timeout,
        "bound_s": plan.bound,
        "reproduce": reproduce_command(plan),
        "commands": [[neutral.text(word) for word in task.argv] for task in launch.tasks],
        "environment": {key: neutral.text(value) for key, value in sorted(environment.items())},
        "exit_codes": codes,
        "ended_by_harness": ended,
        "seconds": seconds,
        "redacted": REDACTED,
        "wrapped": plan.layout in ("srun", "mpirun", "kubectl", "ray"),
    }
    entries["plan"] = json.loads(plan.to_json())
    for package in ("torch", "deepspeed", "accelerate"):
        try:
            entries[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            entries[package] = ""
    entries["python"] = platform.python_version()
    for name, text in launch.files.items():
        entries[f"file_{re.sub(r'[^A-Za-z0-9]+', '_', name)}"] = neutral.text(text)
    return "".join(f"{key} = {toml_value(value)}\n" for key, value in entries.items())


def reproduce_command(plan: Plan) -> str:
    """The command line that makes the same run again."""
    words = ["logforensics", "reproduce", "--strategy", plan.strategy, "--fault", plan.fault]
    usual = Plan()
    for key in ("launcher", "layout", "nproc", "nnodes", "rank", "at_step", "device", "backend", "dialect"):
        if getattr(plan, key) != getattr(usual, key):
            words += [f"--{key.replace('_', '-')}", str(getattr(plan, key))]
    rest = {
        key: value
        for key, value in json.loads(plan.to_json()).items()
        if value != getattr(usual, key)
        and f"--{key.replace('_', '-')}" not in words
        and key not in ("strategy", "fault")
    }
    for key, value in rest.items():
        words += ["--set", f"{key}={value}"]
    return " ".join([*words, "--out", "DIR"])


def read_logs(fixture: Path) -> dict[str, bytes]:
    """Every captured file of a fixture, by its path under ``logs/``."""
    logs = fixture / "logs"
    return {os.fspath(path.relative_to(logs)): path.read_bytes() for path in sorted(logs.rglob("*")) if path.is_file()}
