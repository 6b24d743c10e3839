"""The site of these pages: `python3 docs/site.py FOLDER` writes it to FOLDER/book with mdBook, and fails where a link leads nowhere.

Links out of docs/ lead to the repository: TONNAGE_REPOSITORY says where that is on the web.
"""

import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

DOCS = Path(__file__).resolve().parent
REPOSITORY = os.environ.get("TONNAGE_REPOSITORY", "https://github.com/OWNER/tonnage").rstrip("/")
BOOK = """[book]
title = "Tonnage"
src = "src"
language = "en"

[output.html]
default-theme = "light"
no-section-label = true
"""


def outwards(text):
    """Links out of docs/ as links to the repository."""
    return re.sub(r"\]\((?:\.\./)+([^)]*)\)", rf"]({REPOSITORY}/tree/main/\1)", text)


def write_sources(place):
    """The pages, with the README before them."""
    shutil.copytree(DOCS, place, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    readme = (DOCS.parent / "README.md").read_text(encoding="utf-8").replace("](docs/", "](")
    # What is left is beside docs/.
    readme = re.sub(r"\]\((?!https?:|#)((?:[\w-]+/)[^)]*|[A-Z]+(?:\.md)?|LICENSE)\)", rf"]({REPOSITORY}/tree/main/\1)", readme)
    readme = readme.replace(f"]({REPOSITORY}/tree/main/images/", "](images/")
    (place / "README.md").write_text(readme, encoding="utf-8")
    for page in place.glob("*.md"):
        page.write_text(outwards(page.read_text(encoding="utf-8")), encoding="utf-8")


class Links(HTMLParser):
    """What a page links to, and the places in it that can be linked to."""

    def __init__(self, text):
        super().__init__()
        self.targets, self.places = [], set()
        self.feed(text)

    def handle_starttag(self, _tag, attributes):
        for name, value in attributes:
            if name in ("href", "src") and value:
                self.targets.append(value)
            elif name == "id":
                self.places.add(value)


def dead_links(book):
    """Links within the site to what is not there."""
    pages = {path: Links(path.read_text(encoding="utf-8")) for path in book.rglob("*.html")}
    for path, links in pages.items():
        # It is made for any address.
        if path.name == "404.html":
            continue
        for target in links.targets:
            split = urlsplit(target)
            if split.scheme or split.netloc:
                continue
            other = (path.parent / unquote(split.path)).resolve() if split.path else path
            if not other.exists():
                yield f"{path.name}: {target}"
            elif split.fragment and other in pages and path.name != "print.html" and unquote(split.fragment) not in pages[other].places:
                yield f"{path.name}: {target}: no such place in the page"


def unlisted():
    """Pages that the summary does not have."""
    summary = (DOCS / "SUMMARY.md").read_text(encoding="utf-8")
    return [page.name for page in DOCS.glob("*.md") if page.name != "SUMMARY.md" and f"]({page.name})" not in summary]


def main():
    folder = Path(sys.argv[1]).resolve()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "book.toml").write_text(BOOK, encoding="utf-8")
    write_sources(folder / "src")
    subprocess.run(["mdbook", "build", str(folder)], check=True)
    faults = [f"docs/SUMMARY.md lacks {name}" for name in unlisted()] + sorted(set(dead_links(folder / "book")))
    print("\n".join(faults) or f"{len(list((folder / 'book').glob('*.html')))} pages, every link leads somewhere: {folder / 'book'}")
    sys.exit(bool(faults))


main()
