"""What the documentation says of itself must be so: generated parts, links, and no trace of a machine."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from redisched import keys, state
from redisched.keys import SHARD_KEYS, Keys
from tests.house import DOCS, ROOT, name, texts

PAGES = [*sorted(ROOT.glob("*.md")), *sorted(DOCS.rglob("*.md"))]


def cell(text: str) -> str:
    return text.replace("|", "\\|")


def key_table() -> str:
    """keys.SHARD_KEYS and the keys of a namespace, as a Markdown table."""
    shard = Keys("rs", 8).shards[7]
    rows = ["| key | type | what |", "| --- | --- | --- |"]
    for word, said in SHARD_KEYS.items():
        kind, _, what = said.partition(": ")
        rows.append(f"| `{shard[word]}{'...' if word.endswith(':') else ''}` | {kind} | {cell(what)} |")
    return "\n".join(rows)


GENERATED = {
    ("states.md", "diagram"): state.diagram,
    ("states.md", "table"): state.table,
    ("keys.md", "table"): key_table,
}


@pytest.mark.parametrize(("page", "part"), GENERATED)
def test_generated_parts_are_up_to_date(page: str, part: str) -> None:
    # A page that is written by hand is right on the day it is written.
    wanted = GENERATED[page, part]()
    found = re.findall(rf"<!-- generated: {part} -->\n(.*?)\n?<!-- end -->", (DOCS / page).read_text(), re.DOTALL)
    assert found == [wanted], f"put this between the markers `generated: {part}` of docs/{page}:\n\n{wanted}\n"


def test_states_md_explains_every_state() -> None:
    # A diagram names them; a reader wants to know what they mean.
    text = (DOCS / "states.md").read_text()
    assert [one for one in state.State if f"**{one}**" not in text] == []


def bounds() -> dict[str, str]:
    """Key -> how it is kept from growing, from the hand-written table of keys.md."""
    text = (DOCS / "keys.md").read_text().partition("## What bounds each key")[2]
    return dict(re.findall(r"^\| `([^`]+)` \| (\w+) \|", text, re.MULTILINE))


def test_every_key_has_a_bound() -> None:
    # Invariant 11: nothing grows without one. A new key needs a line that says how.
    found = bounds()
    assert sorted(found) == sorted([*SHARD_KEYS, "meta", "members", "declared"])
    assert set(found.values()) <= {"empties", "trimmed", "TTL", "permanent"}
    for word, said in SHARD_KEYS.items():
        assert (found[word] == "TTL") == ("with a TTL" in said), word


def test_permanent_keys_are_those_of_keys_py() -> None:
    # keys.py lists them at its top.
    assert keys.__doc__ is not None
    listed = re.search(r"Permanent keys, bounded by what they count: ([^.]+)\.", keys.__doc__)
    assert listed
    assert sorted(listed[1].split(", ")) == sorted(key for key, how in bounds().items() if how == "permanent")


def slugs(path: Path) -> set[str]:
    """The anchors of a page, as GitHub makes them."""
    text = re.sub(r"^```.*?^```", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)
    heads = re.findall(r"^#+ +(.+?)\s*$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page: Path) -> None:
    # To files that are there, and to headings in them.
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", link):
            continue
        file, _, anchor = link.partition("#")
        target = (page.parent / file).resolve() if file else page
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in slugs(target)):
            broken.append(link)
    assert not broken


# Written in two parts, so that this file does not hold what it looks for.
HOSTS = ["py" + "pi.org", "files.python" + "hosted", "registry.npm" + "js"]
FOLDERS = ["/" + folder + "/" for folder in ("home", "root", "work")]


def test_no_file_names_a_registry_or_a_folder_of_a_machine() -> None:
    # What works on one machine only, or sends an installation somewhere, is no part of a project.
    pattern = re.compile(
        "|".join(re.escape(one) for one in HOSTS) + "|" + "|".join(rf"(?<![\w.*]){one}" for one in FOLDERS)
    )
    found = [
        f"{name(path)}:{text.count(chr(10), 0, hit.start()) + 1}: {hit[0]}"
        for path, text in texts()
        for hit in pattern.finditer(text)
    ]
    assert not found
