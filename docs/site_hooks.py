"""What the site needs beside mkdocs.yml. MkDocs calls the functions named on_...

Links in the documents are those of the repository, so that they work on GitHub. Here each is led to the page of the site, or,
if its file has no page, to the repository.
"""

import posixpath
import re
from pathlib import Path

from mkdocs.structure.files import File

# Documents outside docs/, and the page that each becomes.
OUTSIDE = {
    "README.md": "index.md",
    "ARCHITECTURE.md": "ARCHITECTURE.md",
    "CHANGELOG.md": "CHANGELOG.md",
    "CODE_OF_CONDUCT.md": "CODE_OF_CONDUCT.md",
    "CONTRIBUTING.md": "CONTRIBUTING.md",
    "MAINTAINERS.md": "MAINTAINERS.md",
    "SECURITY.md": "SECURITY.md",
    "lab/README.md": "lab/README.md",
}

LINK = re.compile(r"(?<=\]\()([^)\s#]*)(#[^)\s]*)?(?=\))")
FENCE = re.compile(r"^\s*(```|~~~)")
ITEM = re.compile(r"^\s*(?:[-*+]|\d+\.)\s")
# Programs that make docs has fetched, so that no page needs the network.
MERMAID, WORKER = "mermaid.js", "worker.js"
WORKER_ELSEWHERE = re.compile(r"https://[^\"']*/iframe-worker/shim")


def root(config):
    return Path(config.config_file_path).parent


def fetched(config):
    return sorted((root(config) / ".cache" / "docs" / "scripts").glob("*.js"))


def pages(config, folder):
    """The pages of a folder: its README, then in the order in which that names them, then the others."""
    found = sorted(p.name for p in (root(config) / "docs" / folder).glob("*.md"))
    if "README.md" not in found:
        return [f"{folder}/{name}" for name in found]
    text = (root(config) / "docs" / folder / "README.md").read_text()
    at = {name: text.find(f"]({name})") for name in found}
    found.sort(key=lambda name: (name != "README.md", at[name] < 0, at[name]))
    return [f"{folder}/{name}" for name in found]


def on_config(config):
    nav = [{"netnice": "index.md"}]
    if pages(config, "guide"):
        nav.append({"Guide": pages(config, "guide")})
    nav += [
        {"Reference": pages(config, "reference")},
        {"Internals": pages(config, "internals") + ["ARCHITECTURE.md"]},
        {"Decisions": pages(config, "decisions")},
        {"Measurements": ["MEASUREMENTS.md", {"Experiments": "lab/README.md"}]},
        {"Glossary": "GLOSSARY.md"},
        {"Project": ["CHANGELOG.md", "CONTRIBUTING.md", "MAINTAINERS.md", "SECURITY.md", "CODE_OF_CONDUCT.md"]},
    ]
    config.nav = nav
    return config


def on_files(files, config):
    for source, page in OUTSIDE.items():
        files.append(File.generated(config, page, content=(root(config) / source).read_text()))
    for script in fetched(config):
        files.append(File.generated(config, f"assets/{script.name}", abs_src_path=str(script)))
    return files


def source_of(page):
    """The path in the repository of the document behind a page."""
    for source, at in OUTSIDE.items():
        if at == page:
            return source
    return "docs/" + page


def page_of(source, config):
    """The page of a file or folder in the repository, None if it has none."""
    if source in OUTSIDE:
        return OUTSIDE[source]
    if not source.startswith("docs/") or not (root(config) / source).exists():
        return None
    if (root(config) / source).is_dir():
        source += "/README.md"
        if not (root(config) / source).exists():
            return None
    return source.removeprefix("docs/")


def led(link, page, config):
    """The target on the site of a link that stands in a page."""
    if not link or re.match(r"[a-z]+:", link):
        return link
    source = posixpath.normpath(posixpath.join(posixpath.dirname(source_of(page)), link))
    target = page_of(source, config)
    if target:
        return posixpath.relpath(target, posixpath.dirname(page) or ".")
    if (root(config) / source).exists():
        return f"{config.repo_url}/{'tree' if (root(config) / source).is_dir() else 'blob'}/main/{source}"
    return link  # MkDocs warns of it


def on_page_markdown(markdown, page, config, files):
    at = page.file.src_uri
    lines, fenced, listed, before = [], False, False, ""
    for line in markdown.split("\n"):
        if FENCE.match(line):
            fenced = not fenced
        elif not fenced:
            line = LINK.sub(lambda m: led(m[1], at, config) + (m[2] or ""), line)
            # On GitHub a list or a table may follow a paragraph at once.
            begins = ITEM.match(line) and not listed or line.startswith("|") and not before.startswith("|")
            if begins and before.strip():
                lines.append("")
            if ITEM.match(line):
                listed = True
            elif line.strip() and not before.strip() and not line.startswith(" "):
                listed = False
        lines.append(line)
        before = line
    return "\n".join(lines)


def on_post_page(output, page, config):
    """Pages run the fetched programs: one for the search, and one for drawings where they have any."""
    at = {p.name: posixpath.relpath(f"assets/{p.name}", posixpath.dirname(page.file.dest_uri) or ".") for p in fetched(config)}
    if WORKER in at:
        output = WORKER_ELSEWHERE.sub(at[WORKER], output)
    if MERMAID in at and 'class="mermaid"' in output:
        output = output.replace("</head>", f'<script src="{at[MERMAID]}"></script><script>mermaid.initialize({{startOnLoad: false}})</script></head>', 1)
    return output
