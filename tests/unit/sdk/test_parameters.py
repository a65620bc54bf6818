"""Parameters of classes and claims reach the driver typed, or a user is told what is wrong with them."""

from typing import Annotated, Any, Literal

import pytest
from pydantic import AfterValidator, Field

from parley.drivers.device import DeviceDriver
from parley.drivers.tokens import TokensDriver
from parley.sdk import Driver, NoParameters, Parameters
from parley.sdk.checks import (
    BadParameters,
    ParameterModels,
    parse_parameters,
)
from parley.sdk.embedded import EmbeddedDriver
from parley.sdk.parameters import RawClaim
from parley.sdk.values import PodReference


class Size(Parameters):
    disk_size: int


def test_missing_and_unknown_parameters_are_all_told_at_once() -> None:
    with pytest.raises(BadParameters) as caught:
        parse_parameters(Size, {"size": 3}, "class disk")
    assert str(caught.value) == (
        "parameters of class disk: diskSize is missing; size=3 is not a parameter of this driver "
        "(known parameters: diskSize)"
    )


class Disks(Driver[Size, NoParameters]):
    """Its claims have a size, its classes nothing."""

    name = "disks.example.com"
    parameters, class_parameters = Size, NoParameters


def test_parameters_of_class_and_claim_are_typed_apart() -> None:
    driver = EmbeddedDriver(Disks())
    raw = RawClaim("gpu", "u", "team", "p-gpu-x", "gpus", {"diskSize": 1}, {"speed": 1})
    with pytest.raises(BadParameters) as caught:
        driver.request(PodReference("team", "p", "u"), [raw])
    assert str(caught.value) == (
        "parameters of class gpus: speed=1 is not a parameter of this driver (known parameters: none)"
    )


class Described(Parameters):
    """Without a limit of its own for a text."""

    text: str = ""
    texts: tuple[str, ...] = ()
    long: Annotated[str, Field(max_length=5000)] = ""


def test_a_text_among_parameters_has_a_limit_unless_its_field_has_another() -> None:
    assert parse_parameters(Described, {"text": "x" * 1024, "long": "x" * 5000}, "class c").long == "x" * 5000

    with pytest.raises(BadParameters) as told:
        parse_parameters(Described, {"texts": ["x" * 1025]}, "class c")

    assert str(told.value) == (
        f"parameters of class c: texts.0='{'x' * 99}... (1027 characters): string should have at most 1024 "
        "characters (known parameters: long, text, texts)"
    )


def test_of_many_bad_parameters_the_first_are_told() -> None:
    with pytest.raises(BadParameters) as told:
        parse_parameters(Described, {f"p{number}": number for number in range(1000)}, "class c")

    assert str(told.value).startswith("parameters of class c: p0=0 is not a parameter of this driver; p1=1 ")
    assert str(told.value).endswith(
        "; p7=7 is not a parameter of this driver; and 992 more (known parameters: long, text, texts)"
    )


class Careful(Parameters):
    """Repeats what it was given."""

    name: Annotated[str, AfterValidator(lambda text: _refuse(text))] = ""
    size: Annotated[int, Field(le=3)] = 1
    kind: Literal["a", "b"] = "a"


def _refuse(text: str) -> str:
    raise ValueError(f"{text} is not known")


def test_a_message_about_what_not_everybody_may_read_has_no_values() -> None:
    raw = {"name": "s3cret", "size": 4711, "kind": "s3cret", "other": "s3cret"}
    with pytest.raises(BadParameters) as told:
        parse_parameters(Careful, raw, "class c, in ConfigMap admins/c", private=True)
    assert str(told.value) == (
        "parameters of class c, in ConfigMap admins/c: name: is not valid; size: input should be less than or "
        "equal to 3; kind: input should be 'a' or 'b'; other is not a parameter of this driver "
        "(known parameters: kind, name, size)"
    )


class First(Parameters):
    """How much was asked for at first: in GB."""

    gigabytes: Annotated[int, Field(le=1000)] = 1

    def newest(self) -> "Second":
        return Second(gib=self.gigabytes * 10**9 // 2**30)


class Second(Parameters):
    gib: int


VERSIONED = ParameterModels(Second, {"disks.example.com/v1": First, "disks.example.com/v2": Second})
V1, V2 = VERSIONED.versions


@pytest.mark.parametrize(
    ("raw", "gib"),
    [
        (None, 0),
        ({}, 0),
        ({"gigabytes": 100}, 93),
        ({"apiVersion": V1, "gigabytes": 100}, 93),
        ({"apiVersion": V1, "kind": "First", "gigabytes": 100}, 93),
        ({"apiVersion": V2, "gib": 7}, 7),
        ({"apiVersion": V2, "kind": "Second", "gib": 7}, 7),
    ],
)
def test_parameters_of_every_version_reach_the_driver_in_the_newest(raw: Any, gib: int) -> None:
    assert VERSIONED.parse(raw, "class c") == Second(gib=gib)


@pytest.mark.parametrize(
    ("raw", "public", "private"),
    [
        (
            {"apiVersion": "disks.example.com/v3"},
            f"apiVersion='disks.example.com/v3' is not supported: write {V1} or {V2}",
            f"apiVersion is not supported: write {V1} or {V2}",
        ),
        (
            {"apiVersion": ["s"]},
            f"apiVersion=['s'] is not supported: write {V1} or {V2}",
            f"apiVersion is not supported: write {V1} or {V2}",
        ),
        (
            {"apiVersion": V2, "kind": "First"},
            f"kind='First' is not that of {V2}: write Second",
            f"kind is not that of {V2}: write Second",
        ),
        (
            {"apiVersion": V1, "gib": 3},
            f"gib=3 is not a parameter of this driver (known parameters of version {V1}: gigabytes)",
            f"gib is not a parameter of this driver (known parameters of version {V1}: gigabytes)",
        ),
        (
            {"gigabytes": 2000},
            "gigabytes=2000: input should be less than or equal to 1000 (known parameters of version "
            f"{V1}, as no apiVersion is given: gigabytes)",
            "gigabytes: input should be less than or equal to 1000 (known parameters of version "
            f"{V1}, as no apiVersion is given: gigabytes)",
        ),
    ],
)
def test_a_version_that_the_driver_does_not_know_is_refused_with_those_it_does(
    raw: Any, public: str, private: str
) -> None:
    for hidden, message in ((False, public), (True, private)):
        with pytest.raises(BadParameters) as told:
            VERSIONED.parse(raw, "class c", private=hidden)
        assert str(told.value) == f"parameters of class c: {message}"


def test_without_versions_an_api_version_is_a_parameter_like_any_other() -> None:
    with pytest.raises(BadParameters, match="apiVersion='v1' is not a parameter of this driver"):
        ParameterModels(Size, {}).parse({"apiVersion": "v1", "diskSize": 1}, "class c")
    with pytest.raises(BadParameters, match="must be an object, not list"):
        VERSIONED.parse([], "class c")  # type: ignore[arg-type]


@pytest.mark.parametrize("driver", [TokensDriver, DeviceDriver])
def test_the_drivers_that_come_with_parley_have_a_version(driver: Any) -> None:
    for newest, versions in (
        (driver.parameters, driver.parameter_versions),
        (driver.class_parameters, driver.class_parameter_versions),
    ):
        assert list(versions.items()) == [(f"{driver.name}/v1alpha1", newest)]
