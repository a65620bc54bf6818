"""The image of a release: built from deploy/Dockerfile, as an OCI archive beside its bill of materials.

It is of the machine's architecture, which the files' names tell. Nothing is pushed.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from parley_devcluster import engine, parley_image
from parley_devcluster.engine import Engine, EngineError
from tools import image_sbom
from tools.files import Refused

NAME = "parley.dev/parley"
_BY_DIGEST = re.compile(r"[a-z0-9][a-zA-Z0-9.:/_-]*@sha256:[0-9a-f]{64}")


@dataclass(frozen=True)
class ReleaseImage:
    """Builds the image with that engine, on that base."""

    engine: Engine
    base: str

    @classmethod
    def on(cls, base: str) -> "ReleaseImage":
        """On a base that is named by its digest. Raises Refused for another, or without a container engine."""
        if not _BY_DIGEST.fullmatch(base):
            raise Refused(
                f"--base {base} does not name an image by its digest: give NAME@sha256:DIGEST"
                " (`docker buildx imagetools inspect NAME` shows the digest)"
            )
        try:
            return cls(engine.require(), base)
        except EngineError as error:
            raise Refused(f"{error}, or leave the image out with --no-image") from error

    def write(self, checkout: Path, version: str, to: Path) -> None:
        """Build the image of the checkout, and write its files into the folder `to`. Raises Refused."""
        image = f"{NAME}:{version}"
        try:
            parley_image.build(self.engine, checkout, image, self.base)
            architecture = self.engine.run("image", "inspect", "--format", "{{.Architecture}}", image).strip()
            stem = f"parley-{version}-image-{architecture}"
            self.engine.save(image, to / f"{stem}.tar")
            (to / f"{stem}.cdx.json").write_text(image_sbom.of_image(self.engine, image))
        except EngineError as error:
            raise Refused(str(error)) from error
