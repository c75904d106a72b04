"""The documentation site: `make docs` builds it into build/docs, with warnings as errors."""

import re
from pathlib import Path

from scripts.docs_pages import configuration, messages

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
COPIED = {"quickstart": "README.md", "changelog": "CHANGELOG.md", "contributing": "CONTRIBUTING.md", "security": "SECURITY.md"}

project = "Stretto"
extensions = ["myst_parser"]
html_theme = "furo"
html_title = "Stretto"
html_show_copyright = False
html_show_sphinx = False
html_extra_path = ["asyncapi.json"]
myst_heading_anchors = 3
exclude_patterns = ["conf.py"]
nitpicky = True
suppress_warnings = ["myst.header", "misc.highlighting_failure"]  # a recording rule is more than the highlighter knows
linkcheck_ignore = [r"https?://(localhost|127\.0\.0\.1|HOST|.*\.example)"]

_LINK = re.compile(r"\[([^\]]+)\]\(((?:\.\./)?[^)#:\s]+)(#[^)\s]*)?\)")


def _make_pages() -> None:
    """Every setting and every message, from the code; and the pages that stand at the repository's root."""
    made = {"configuration": configuration(), "messages": messages()}
    made |= {page: _LINK.sub(_below, (ROOT / file).read_text("utf-8")) for page, file in COPIED.items()}
    for page, text in made.items():
        (DOCS / f"{page}.md").write_text(text, "utf-8")


def _below(link: re.Match[str]) -> str:
    """A link from the repository's root, as it is from docs/."""
    return f"[{link[1]}](../{link[2]}{link[3] or ''})"


def _name_files(app: object, page: str, text: list[str]) -> None:
    """A link to a file of the repository becomes its name: the site stands alone. One that leads nowhere stops the build."""
    pages = {ROOT / file: f"{name}.md" for name, file in COPIED.items()}

    def put(link: re.Match[str]) -> str:
        words, anchor = link[1], link[3] or ""
        file = (DOCS / link[2]).resolve()
        if not file.exists():
            raise FileNotFoundError(f"docs/{page}.md links to {link[2]}, which does not exist")
        if file in pages or file.parent == DOCS:
            return f"[{words}]({pages.get(file, file.name)}{anchor})"
        name = f"`{file.relative_to(ROOT)}`"
        return words if words.strip("`") in name else f"{words} ({name})"

    text[0] = _LINK.sub(put, text[0])


def setup(app: object) -> None:
    """Sphinx calls it."""
    app.connect("source-read", _name_files)  # type: ignore[attr-defined]  # Sphinx is installed for the docs alone


_make_pages()
