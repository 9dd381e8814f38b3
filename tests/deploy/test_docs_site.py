"""`make docs`: MkDocs builds the site from its own lock, and refuses a broken link."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".cache/docs/bin/python"  # deploy/setup.sh docs
_LOADED = re.compile(
    r'<(?:script|img)[^>]+src="(https?:[^"]+)"|rel="(?:stylesheet|icon|preconnect)"[^>]+href="(https?:[^"]+)'
)

pytestmark = pytest.mark.deep


def build(code: str, site: Path) -> subprocess.CompletedProcess[str]:
    imports = "import sys; from pathlib import Path; from deploy import docs_site"
    program = f"{imports}; {code}; docs_site.build(Path(sys.argv[1]))"
    command = [str(PYTHON), "-c", program, str(site)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_the_site_is_built_and_loads_nothing_from_other_servers(tmp_path: Path) -> None:
    done = build("pass", tmp_path / "site")
    assert done.returncode == 0, done.stderr
    written = [*(tmp_path / "site").rglob("*.html")]
    assert len(written) > 60
    for file in written:
        assert _LOADED.findall(file.read_text(encoding="utf-8")) == [], file
    assert (tmp_path / "site/search/search_index.json").stat().st_size > 100_000
    listed = re.findall(r"\]\((\S+?)\)", (tmp_path / "site/llms.txt").read_text(encoding="utf-8"))
    assert [path for path in listed if not (tmp_path / "site" / path).is_file()] == []


@pytest.mark.parametrize("link", ["nothing.md", "faq.md#nothing"])
def test_a_broken_link_is_refused(tmp_path: Path, link: str) -> None:
    copied = "copied = docs_site.stage"
    broken = f"(Path(folder) / 'docs/faq.md').write_text('[text]({link})')"
    done = build(
        f"{copied}; docs_site.stage = lambda folder: (copied(folder), {broken})", tmp_path / "site"
    )
    assert done.returncode and link in done.stderr
