"""A hook of mkdocs: a link to a file beside docs/ has no page in the site, and says where it is."""

from __future__ import annotations

import posixpath
import re
from typing import Any

_LINK = re.compile(r"\[([^\]]+)\]\((\.\./[^)#\s]+)(?:#[^)]*)?\)")


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Turn each link that leaves docs/ into its text and the file's name."""
    folder = posixpath.dirname(page.file.src_uri)

    def plain(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(folder, link[2]))
        if not target.startswith("../"):
            return link[0]
        return f"{link[1]} (`{target.removeprefix('../')}` in the repository)"

    return _LINK.sub(plain, markdown)
