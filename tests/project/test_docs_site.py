"""The documentation as a web site: its pages, its navigation and llms.txt. The build itself is a deep test."""

from __future__ import annotations

import re
from pathlib import Path

from deploy import docs_site
from deploy.docs_site import INDEX, LLMS, OUTSIDE, ROOT, llms_text, pages, sections, stage

_TARGET = re.compile(r"\]\((?!https?:|mailto:|#)([^)#\s]+)")


def test_each_page_is_in_the_navigation_once() -> None:
    docs = [file.relative_to(ROOT).as_posix() for file in (ROOT / "docs").rglob("*.md")]
    assert sorted(pages()) == sorted(["README.md", *OUTSIDE, *docs])
    assert [*sections()] == ["Tutorials", "How-to guides", "Reference", "Explanation", "Project"]
    assert all(
        page.name and page.about for of_heading in sections().values() for page in of_heading
    )


def test_llms_txt_is_current() -> None:
    assert (ROOT / LLMS).read_text(encoding="utf-8") == llms_text(), (
        "python -m deploy.docs_site --llms"
    )


def test_the_links_of_the_site_lead_to_files_of_the_site(tmp_path: Path) -> None:
    stage(tmp_path)
    lost = []
    for page in pages():
        staged = (tmp_path / page).read_text(encoding="utf-8")
        prose = re.sub(r"^ *```.*?^ *```", "", staged, flags=re.DOTALL | re.MULTILINE)
        targets = [(tmp_path / page).parent / target for target in _TARGET.findall(prose)]
        assert [target for target in targets if not target.resolve().is_file()] == [], page
        lost += sorted(
            {*_TARGET.findall((ROOT / page).read_text(encoding="utf-8"))}
            - {*_TARGET.findall(staged)}
        )
    # Only links to folders, and to descriptions of packages, become text.
    assert [
        target for target in lost if "." in Path(target).name and not target.endswith("README.md")
    ] == []
    assert (tmp_path / "docs/status-light.png").is_file() and (tmp_path / INDEX).is_file()
    assert "github" not in docs_site._SETTINGS
