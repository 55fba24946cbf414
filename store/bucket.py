"""Pages between memory and an S3 bucket, by NIXL's OBJ backend."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from kvplan.store.nixl_storage import NixlStorage

# Bytes of a request.
PART = 4 << 20


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

    def read(self, path: str, start: int, size: int) -> npt.NDArray[np.uint8]:
        """Bytes of an object, in requests of a few MiB that run beside each other."""
        data = np.empty(size, np.uint8)
        parts = range(0, size, PART)
        memory = [data[at : at + PART] for at in parts]
        self.move("READ", memory, [(start + at, 0) for at in parts], [(0, start + size, 0, self._key(path))])
        return data

    def _key(self, path: str) -> str:
        return path.removeprefix(f"{self.bucket}/")
