"""What the documents tell a newcomer to do works to the letter."""

from __future__ import annotations

import re
from pathlib import Path

from typer.testing import CliRunner

from logforensics.cli import app
from logforensics.signatures import load_dialect

ROOT = Path(__file__).parents[1]
LINE = "2026-11-30 19:11:05 FATAL lease of shard 17 expired on node-3"


def walk_through() -> str:
    return re.search(r"```toml\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text(), re.DOTALL)[1]


def test_the_walk_through_of_a_signature_works(tmp_path: Path):
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "featurestore.toml").write_text(walk_through())
    log = tmp_path / "train.log"
    log.write_text(f"{LINE}\n")

    before = CliRunner().invoke(app, ["parsers", "try", LINE])
    check = CliRunner().invoke(app, ["parsers", "check", str(mine)])
    after = CliRunner().invoke(app, ["parsers", "try", "--parsers", str(mine), LINE])
    verdict = CliRunner().invoke(app, ["analyze", str(log), "--parsers", str(mine)])

    assert "lease-expired" not in before.output
    assert "no signature claims this line" in before.output
    assert check.exit_code == 0, check.output
    assert "featurestore/lease-expired" in after.output
    assert "dataloader" in verdict.output


def test_every_key_of_a_signature_is_explained():
    from logforensics import signatures

    text = (ROOT / "CONTRIBUTING.md").read_text()
    explained = {key for row in re.findall(r"^\| (`.*?) \|", text, re.MULTILINE) for key in re.findall(r"`(\w+)`", row)}

    # "stream" and the table's own name need no explanation to write a signature
    assert signatures._SIGNATURE_KEYS - explained == {"stream"}
    assert load_dialect("featurestore.toml", walk_through())


def test_every_file_that_the_documents_name_exists():
    for name in ("README.md", "CONTRIBUTING.md"):
        text = (ROOT / name).read_text()
        for target in re.findall(r"\]\(([^)#:]+)\)", text):
            assert (ROOT / target).exists(), f"{name} links to {target}"
