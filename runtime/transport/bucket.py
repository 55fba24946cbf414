"""Pages between memory and an S3 bucket, by NIXL's OBJ backend."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from kvplan.runtime.transport.nixl_storage import NixlStorage


class NixlBucket(NixlStorage):
    """One bucket; `parameters` are those of the backend (`endpoint_override`, `scheme`, `region`, `access_key`, …).

    What is not said there it takes from where AWS's own programs do: its endpoint from AWS_ENDPOINT_OVERRIDE.
    """

    def __init__(self, bucket: str, **parameters: str) -> None:
        super().__init__("bucket", "OBJ", "OBJ", {"bucket": bucket, **parameters})
        self.bucket = bucket

    def write(self, path: str, data: npt.NDArray[np.uint8]) -> None:
        """Write an object whole; `path` begins with the bucket."""
        self.move("WRITE", [data], [(0, 0)], [(0, data.nbytes, 0, self._key(path))])

    def read(self, path: str, start: int, pieces: Sequence[npt.NDArray[np.uint8]]) -> None:
        """Read bytes from `start` on into pieces, one after the other."""
        ends = np.cumsum([start, *(piece.nbytes for piece in pieces)]).tolist()
        self.move("READ", pieces, [(at, 0) for at in ends[:-1]], [(0, ends[-1], 0, self._key(path))])

    def _key(self, path: str) -> str:
        return path.removeprefix(f"{self.bucket}/")
