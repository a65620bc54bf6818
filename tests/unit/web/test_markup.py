"""Elements become HTML, and nothing that somebody wrote becomes an element."""

from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.web.links import Links, address
from parley.web.markup import h, html
from parley.web.views.parts import document


class Seen(HTMLParser):
    """The tags and texts that a browser makes of it."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.texts: list[str] = []
        self.values: list[str | None] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.values += [value for _, value in attrs]

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def seen(text: str) -> Seen:
    found = Seen()
    found.feed(text)
    found.close()
    return found


def test_an_element_with_all_that_it_may_have() -> None:
    made = h("p", "a < b", None, [h("br"), ["c", h("b", "d")]], class_="x", hidden=True, id=None, lang=False)

    assert html(made) == '<p class="x" hidden>a &lt; b<br>c<b>d</b></p>'


@pytest.mark.parametrize(
    "words", ["<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "'&lt;&amp;", "]]>"]
)
def test_hostile_words_stay_words(words: str) -> None:
    found = seen(html(h("p", words, title=words)))

    assert (found.tags, "".join(found.texts), found.values) == (["p"], words, [words])


@given(st.text(st.characters(exclude_characters="\r\0", exclude_categories=["Cs"])))
def test_any_text_comes_out_as_it_went_in(words: str) -> None:
    found = seen(html(h("p", words, title=words)))

    assert (found.tags, "".join(found.texts), found.values) == (["p"], words, [words])


def test_a_page_asks_nobody_else_for_anything() -> None:
    text = document("Title", "<p>main</p>", Links(address("/pods/a/b", {})), "0123")

    assert "//" not in text.removeprefix("<!doctype html>")
    assert 'style="' not in text
    assert text.count("<script") == 1
    assert '<main id="content" tabindex="-1" data-version="0123"><p>main</p></main>' in text
