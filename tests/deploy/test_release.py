"""What `make release` refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from deploy.release import IMAGES, main, misplaced, unlisted

ROOT = Path(__file__).parents[2]


def pins(image: str) -> list[dict[str, str]]:
    """Returns the packages of an image's lock as components of an SBOM."""
    lines = (ROOT / f"deploy/{image}.lock").read_text(encoding="utf-8").splitlines()
    found = [line.split()[0].partition("==") for line in lines if "==" in line]
    return [{"name": name, "version": version} for name, _, version in found]


@pytest.mark.parametrize("image", IMAGES)
def test_an_sbom_lists_exactly_the_packages_of_its_lock(image: str) -> None:
    components = pins(image)
    assert len(components) > 20 and unlisted(image, json.dumps({"components": components})) == []
    first, *rest = components
    other = {"name": first["name"], "version": "0"}
    assert unlisted(image, json.dumps({"components": [other, *rest]})) == [
        f"{first['name']} {first['version']} is not listed",
        f"{first['name']} 0 is not in the lock",
    ]


def test_archives_without_benchmarks_archives_and_large_files() -> None:
    files = {"dispatcher/app.py": 10, "benchmarks/report.json": 1, "a/b.whl": 1, "large": 2 << 20}
    assert misplaced(files) == [
        "benchmarks/report.json: benchmarks are not shipped",
        "a/b.whl: an archive",
        "large: 2,097,152 bytes",
    ]


def test_a_folder_without_archives_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(tmp_path) == 1
    assert "has not one sdist and one wheel" in capsys.readouterr().err
