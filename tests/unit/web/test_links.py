"""What addresses ask for, and how pages name each other."""

from urllib.parse import urljoin

import pytest

from parley.web.links import Links, address

HERE = "http://proxy.example/below/this"


@pytest.mark.parametrize("path", ["/", "/pods/team/p", "/classes/gpu", "/nodes/a", "/pods/team/p/"])
def test_links_lead_to_the_same_places_from_every_page_below_any_path(path: str) -> None:
    links = Links(address(path, {}))

    def led(link: str) -> str:
        return urljoin(HERE + path, link)

    assert led(links.home) == f"{HERE}/"
    assert led(links.static("live.js")) == f"{HERE}/static/live.js"
    assert led(links.pod("team", "p")) == f"{HERE}/pods/team/p"
    assert led(links.class_("gpu")) == f"{HERE}/classes/gpu"
    assert led(links.node("a.example")) == f"{HERE}/nodes/a.example"
    assert led(links.changed(page="2")) == f"{HERE}{path}?page=2"


def test_names_never_become_more_than_one_part_of_an_address() -> None:
    links = Links(address("/", {}))

    assert links.node("../../x?y#z:w") == "nodes/..%2F..%2Fx%3Fy%23z%3Aw"


def test_a_query_keeps_what_is_understood_of_it() -> None:
    found = address("/", {"namespace": "team", "state": "", "page": "3", "version": "abc", "utm": "x"})

    assert found.query == {"namespace": "team", "page": "3"}
    assert Links(found).changed(page="4") == "?namespace=team&page=4"
    assert Links(found).changed(page="") == "?namespace=team"


@pytest.mark.parametrize(
    ("text", "page"), [("", 1), ("7", 7), ("0", 1), ("-1", 1), ("٣", 1), ("x", 1), ("9" * 30, 10_000)]
)
def test_pages_of_a_table(text: str, page: int) -> None:
    assert address("/", {"page": text}).page == page


def test_addresses_of_the_same_page_have_the_same_key() -> None:
    one = address("/pods/team/p", {"page": "2", "nodes": "each", "format": "stream"})
    other = address("/pods/team/p", {"nodes": "each", "page": "2"})

    assert one.key == other.key
    assert one.key != address("/pods/team/p", {"nodes": "each"}).key
