"""Transfers of pages between memory and an S3 bucket, by NIXL's OBJ backend."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from kvplan.store.nixl_storage import NixlStorage

# The most bytes of one read request.
PART = 4 << 20


class NixlBucket(NixlStorage):
    """One bucket. `parameters` are the backend's (`endpoint_override`, `scheme`, `region`, `access_key`, …).

    Missing parameters come from the same places as for AWS's own programs, the endpoint from AWS_ENDPOINT_OVERRIDE.
    """

    def __init__(self, bucket: str, **parameters: str) -> None:
        super().__init__("bucket", "OBJ", "OBJ", {"bucket": bucket, **parameters})
        self.bucket = bucket

    def write(self, path: str, data: npt.NDArray[np.uint8]) -> None:
        """Write a whole object. `path` begins with the bucket."""
        self.move("WRITE", [data], [(0, 0)], [(0, data.nbytes, 0, self._key(path))])

    def read(self, path: str, start: int, size: int) -> npt.NDArray[np.uint8]:
        """Read bytes of an object, in parallel requests of PART bytes."""
        data = np.empty(size, np.uint8)
        parts = range(0, size, PART)
        memory = [data[at : at + PART] for at in parts]
        self.move("READ", memory, [(start + at, 0) for at in parts], [(0, start + size, 0, self._key(path))])
        return data

    def _key(self, path: str) -> str:
        return path.removeprefix(f"{self.bucket}/")
