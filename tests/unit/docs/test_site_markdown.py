"""Markdown as GitHub renders it becomes what the site's renderer understands."""

import pytest
from tools.site_markdown import relinked, spaced, with_anchors


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("It has\n- one\n- two\n", "It has\n\n- one\n- two\n"),
        ("It has\n1. one\n2. two\n", "It has\n\n1. one\n2. two\n"),
        ("It has\n| a |\n|---|\n", "It has\n\n| a |\n|---|\n"),
        ("- one,\n  which goes on\n- two\n", "- one,\n    which goes on\n- two\n"),
        (
            "- one\n  ```\n  code\n  ```\n  more\n- two\n",
            "- one\n\n    ```\n    code\n    ```\n\n    more\n\n- two\n",
        ),
        ("# Title\n- one\n", "# Title\n- one\n"),
        ("```\nIt has\n- one\n```\n", "```\nIt has\n- one\n```\n"),
        ("It is\n```\ncode\n```\nand\n", "It is\n\n```\ncode\n```\n\nand\n"),
    ],
)
def test_a_list_or_table_below_a_paragraph_gets_a_blank_line(text: str, expected: str) -> None:
    assert spaced(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[a](b.md) [`c`](d.md#e)", "[a](<b.md>) [`c`](<d.md>#e)"),
        ("![a picture](b.png)", "![a picture](<b.png>)"),
        ("[here](#below) [away](https://example.com/x)", "[here](#below) [away](https://example.com/x)"),
        ("```\n[a](b.md)\n```\n[a](b.md)", "```\n[a](b.md)\n```\n[a](<b.md>)"),
    ],
)
def test_relative_links_are_replaced_and_code_is_not(text: str, expected: str) -> None:
    assert relinked(text, lambda address: f"<{address}>") == expected


def test_rows_of_codes_get_anchors() -> None:
    assert with_anchors("| code |\n| `Full` | x |\n") == '| code |\n| <a id="Full"></a>`Full` | x |\n'
