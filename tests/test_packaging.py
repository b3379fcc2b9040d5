"""What is installed: the wheel holds the data folders, and the program finds them there as it does in a checkout."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from inputs import ROOT, SHAPE, SHAPE_TRUTH

import logforensics
from logforensics.resources import data_folder, data_text

pytest.importorskip("hatchling", reason="the dev extra brings what builds the wheel")


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    """The folder with the wheel and the source archive; built as pip would, without a network."""
    folder = tmp_path_factory.mktemp("dist")
    code = "import sys; from hatchling import build; build.build_wheel(sys.argv[1]); build.build_sdist(sys.argv[1])"
    subprocess.run([sys.executable, "-c", code, str(folder)], cwd=ROOT, check=True, capture_output=True, timeout=120)
    return folder


@pytest.fixture(scope="module")
def unpacked(built, tmp_path_factory) -> Path:
    """The wheel's content, as an installation lays it out."""
    folder = tmp_path_factory.mktemp("site")
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


def run(site: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python with the unpacked wheel before everything else, away from the checkout."""
    environment = {**os.environ, "PYTHONPATH": str(site)}
    return subprocess.run(
        [sys.executable, *arguments], cwd=site.parent, env=environment, capture_output=True, text=True, timeout=60
    )


def shipped(folder: str) -> set[str]:
    return {
        path.relative_to(ROOT / folder).as_posix()
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


@pytest.mark.parametrize("folder", ["parsers", "reports"])
def test_the_wheel_holds_every_file_of_the_data_folders(unpacked, folder):
    inside = unpacked / "logforensics" / folder

    assert {path.relative_to(inside).as_posix() for path in inside.rglob("*") if path.is_file()} == shipped(folder)


def test_the_wheel_holds_the_package_its_schema_its_types_and_its_licence(unpacked):
    package = unpacked / "logforensics"

    assert {path.relative_to(package).as_posix() for path in package.rglob("*.py")} == {
        path for path in shipped("logforensics") if path.endswith(".py")
    }
    for file in ("py.typed", "schema/analysis-1.schema.json", "harness/matrix_cpu.toml"):
        assert (package / file).is_file(), file
    (licence,) = unpacked.glob("*.dist-info/licenses/LICENSE")
    assert licence.read_bytes() == (ROOT / "LICENSE").read_bytes()


def test_the_wheel_holds_nothing_else(unpacked):
    assert {path.name.partition("-")[0] for path in unpacked.iterdir()} == {"logforensics"}
    assert not [path for path in unpacked.rglob("*") if path.name in {"tests", "fixtures", "benchmarks", "__pycache__"}]
    assert sum(path.stat().st_size for path in unpacked.rglob("*") if path.is_file()) < 10 << 20


def test_the_wheel_names_the_command_and_only_what_the_analysis_needs(unpacked):
    (info,) = unpacked.glob("*.dist-info")
    metadata = (info / "METADATA").read_text()

    assert "logforensics = logforensics.cli:main" in (info / "entry_points.txt").read_text()
    needed = [line for line in metadata.splitlines() if line.startswith("Requires-Dist:") and "extra ==" not in line]
    assert not [line for line in needed if "torch" in line or "deepspeed" in line]
    assert f"Version: {logforensics.__version__}" in metadata and "Requires-Python: >=3.11" in metadata


def test_the_unpacked_wheel_reads_its_own_data_and_diagnoses_a_run(unpacked, tmp_path):
    ran = run(
        unpacked,
        "-m",
        "logforensics",
        "analyze",
        str(SHAPE / "logs"),
        "--json",
        "-",
        "--html",
        str(tmp_path / "r.html"),
    )

    assert ran.returncode == 0, ran.stderr
    verdict = json.loads(ran.stdout)["verdict"]
    assert (verdict["category"], verdict["ranks"]) == (SHAPE_TRUTH["category"], SHAPE_TRUTH["ranks"])
    assert verdict["remedies"] and (tmp_path / "r.html").stat().st_size > 5000


def test_the_unpacked_wheel_finds_its_data_through_the_import_system(unpacked):
    code = (
        "import logforensics\nfrom importlib.resources import files\nfrom logforensics.resources import data_folder\n"
        "for name in ('parsers', 'reports'):\n"
        "    folder = files('logforensics') / name\n"
        "    assert folder.is_dir() and data_folder(name) == folder, name\n"
        "    print(len(list(folder.iterdir())))\n"
        "from logforensics.render.json_report import schema\nprint(schema()['title'])\nprint(logforensics.__file__)\n"
    )
    ran = run(unpacked, "-c", code)

    assert ran.returncode == 0, ran.stderr
    *counts, title, place = ran.stdout.split()
    assert min(map(int, counts)) > 2 and title == "logforensics.analysis/1"
    assert Path(place).is_relative_to(unpacked)


def test_a_checkout_finds_its_data_beside_the_package():
    for name in ("parsers", "reports"):
        assert Path(str(data_folder(name))).samefile(ROOT / name)
    assert "[[prefix]]" in data_text("parsers", "prefixes.toml")
    with pytest.raises(FileNotFoundError, match="reinstall logforensics"):
        data_folder("nonsense")


def test_the_source_archive_builds_the_same_and_leaves_the_fixtures_out(built):
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}

    assert {"pyproject.toml", "LICENSE", "README.md", "parsers/prefixes.toml", "logforensics/py.typed"} <= names
    assert {f"reports/{name}" for name in shipped("reports")} <= names
    assert not [name for name in names if name.startswith("fixtures/")]
