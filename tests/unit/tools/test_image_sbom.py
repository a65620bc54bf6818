"""An image's inventory, from what its container printed."""

import json

from tools import image_sbom

STATUS = """\
Package: libssl3
Status: install ok installed
Architecture: amd64
Version: 3.0.17-1~deb12u3
Description: Secure Sockets Layer toolkit
 Status: of a line that goes on

Package: gone
Status: deinstall ok config-files
Architecture: amd64
Version: 1
"""
RELEASE = 'PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\nVERSION_ID="12"\nID=debian\n'
CONTENT = {
    "python": "3.11.2",
    "distributions": [["Typing_Extensions", "4.16.0"]],
    "dpkg": STATUS,
    "release": RELEASE,
}
INSPECTED = {"Id": "sha256:0a1b", "Created": "2026-11-22T19:40:00.123456789Z"}


def test_debians_packages_are_those_that_are_installed() -> None:
    assert [purl.to_string() for purl in image_sbom.debian(STATUS, RELEASE)] == [
        "pkg:deb/debian/libssl3@3.0.17-1~deb12u3?arch=amd64&distro=debian-12"
    ]


def test_an_image_without_dpkg_has_no_packages_of_debian() -> None:
    assert list(image_sbom.debian("", "ID=alpine\n")) == []


def test_the_inventory_names_the_image_and_all_its_parts() -> None:
    document = json.loads(image_sbom.inventory("registry.example.com:5000/team/parley:0.1.0", INSPECTED, CONTENT))

    whole = document["metadata"]["component"]
    assert (whole["type"], whole["group"], whole["name"], whole["version"]) == (
        *("container", "registry.example.com:5000/team", "parley", "0.1.0"),
    )
    assert document["metadata"]["timestamp"].startswith("2026-11-22T19:40:00")
    assert [component["purl"].partition("?")[0] for component in document["components"]] == [
        "pkg:deb/debian/libssl3@3.0.17-1~deb12u3",
        "pkg:pypi/typing-extensions@4.16.0",
        "pkg:generic/python@3.11.2",
    ]
    (edge,) = [each for each in document["dependencies"] if each["ref"] == whole["bom-ref"]]
    assert len(edge["dependsOn"]) == 3


def test_the_same_image_has_the_same_inventory() -> None:
    first, second = (image_sbom.inventory("parley:1", INSPECTED, CONTENT) for _ in range(2))
    assert first == second
