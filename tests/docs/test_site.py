"""Links of the site that leave docs/ lead to a file that is there, on the page where its source is shown; fences that
tests read are fences there, too.
"""

from __future__ import annotations

from types import SimpleNamespace

from docs.links import on_page_markdown


def linked(markdown: str, page: str) -> str:
    return on_page_markdown(
        markdown,
        page=SimpleNamespace(file=SimpleNamespace(src_uri=page)),
        config=SimpleNamespace(repo_url="https://example.org/kvplan"),
    )


def test_a_file_of_the_repository_is_shown_there() -> None:
    shown = "[x](https://example.org/kvplan/blob/main/plan/types.py#L3)"
    assert linked("[x](../plan/types.py#L3)", "architecture.md") == shown
    assert linked("[x](../../../plan/types.py#L3)", "gallery/kinds/gqa.md") == shown


def test_pages_and_files_that_are_not_there_stay_as_they_are() -> None:
    for link in ("[x](../kinds/gqa.md)", "[x](../../gone.py)"):
        assert linked(link, "gallery/models/llama-3.md") == link


def test_a_console_with_an_exit_code_is_a_fence_as_the_site_knows_them() -> None:
    page = "```console exit-code=3\n$ kvplan check x\n```\n"
    assert linked(page, "add-a-model.md") == "```console\n$ kvplan check x\n```\n"
