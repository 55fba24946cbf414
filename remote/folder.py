"""A folder at any URL that fsspec supports: files on a disk, S3, HTTP."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

from kvplan.plan.errors import KvplanError, PlanRemoteError
from kvplan.plan.files import folder
from kvplan.remote.urls import HIDDEN, without_credentials


class RemoteFolder:
    """A folder at a URL. Every error of its file system is raised as a `kind`, except for missing files."""

    def __init__(self, url: str, kind: type[KvplanError] = PlanRemoteError) -> None:
        """Connect, if the protocol does so. Raises `kind` if the protocol is not installed or cannot connect."""
        self._kind, self.url = kind, without_credentials(url).rstrip("/")
        try:
            from fsspec.core import url_to_fs

            # Without fsspec's instance cache, which keeps dead connections and old file lists.
            self._system, self._root = url_to_fs(url, skip_instance_cache=True)
        except (ImportError, ValueError) as error:
            install = "pip install 'fsspec[http]', and for another protocol its package, such as s3fs"
            raise kind(f"{self.url} cannot be used: {_error_text(error)}; {install}") from error
        except Exception as error:  # FTP and SFTP connect here; each protocol has errors of its own
            raise kind(f"{self.url} cannot be used: {_error_text(error)}") from error
        self._root = str(self._root).rstrip("/")

    @property
    def place(self) -> str:
        """The folder's canonical URL, equal for all spellings: no user, no last slash, one name per protocol."""
        if self._is_local():
            return f"file://{os.path.abspath(self._root)}"
        scheme, _, rest = self.url.replace(HIDDEN, "://").rpartition("::")[2].partition("://")
        host, slash, path = rest.partition("/")
        protocols = self._protocols()
        return f"{protocols[0] if scheme in protocols else scheme}://{host.lower()}{slash}{path}"

    def path(self, name: str) -> str:
        """Return a file's path in the file system. On S3 it begins with the bucket."""
        return f"{self._root}/{name}"

    def read(self, name: str, most: int) -> bytes | None:
        """Return a file's bytes, None if it does not exist. Raises `kind`, also if it has more than `most` bytes."""
        try:
            with self._system.open(self.path(name), "rb", cache_type="none") as file:
                data = bytes(file.read(most + 1))
        except FileNotFoundError as error:
            self._check_absent(name, error)
            return None
        except Exception as error:  # each protocol has errors of its own
            raise self._error(name, "read", error) from error
        if len(data) > most:
            raise self._kind(f"{self.url}/{name} has more than {most} bytes: it is none of kvplan's")
        return data

    def span(self, name: str, start: int, size: int) -> bytes | None:
        """Return some bytes of a file, fewer if it ends early, None if it does not exist. Raises `kind`."""
        try:
            return bytes(self._system.cat_file(self.path(name), start=start, end=start + size))
        except FileNotFoundError as error:
            self._check_absent(name, error)
            return None
        except Exception as error:  # as above
            raise self._error(name, "read", error) from error

    def size(self, name: str) -> int | None:
        """Return a file's size in bytes, None if it does not exist. Raises `kind`."""
        try:
            return int(self._system.info(self.path(name))["size"])
        except FileNotFoundError as error:
            self._check_absent(name, error)
            return None
        except Exception as error:  # as above
            raise self._error(name, "read", error) from error

    def names(self) -> Iterator[str]:
        """Yield all files below the folder, sorted, none if it does not exist. Raises `kind`."""
        try:
            self._system.invalidate_cache()
            paths = self._system.find(self._root)
            if not paths:
                self._system.ls(self._root)  # raises an error that `find` ignores
        except FileNotFoundError as error:
            self._check_absent("", error)
            return
        except Exception as error:  # as above
            raise self._error("", "listed", error) from error
        # Some file systems have an object for an empty folder.
        below = [path for path in map(str, paths) if path.startswith(self.path(""))]
        yield from sorted(path.removeprefix(self.path("")) for path in below)

    def changed(self, name: str) -> float:
        """Return when a file was written, in seconds since 1970, or 0 if it does not exist. Raises `kind`."""
        try:
            return float(self._system.modified(self.path(name)).timestamp())
        except FileNotFoundError:
            return 0.0
        except Exception as error:  # as above
            raise self._error(name, "read", error) from error

    def write(self, name: str, data: bytes) -> None:
        """Write a whole file, on a local disk under a temporary name first. Raises `kind`."""
        path = self.path(name)
        try:
            if self._is_local():
                os.makedirs(os.path.dirname(path), exist_ok=True)
                half = Path(f"{path}.{uuid.uuid4().hex}{folder.HALF}")
                half.write_bytes(data)
                half.replace(path)
            else:
                self._system.pipe_file(path, data)
        except Exception as error:  # as above
            raise self._error(name, "written", error) from error

    def rename(self, name: str, other: str) -> None:
        """Rename a file. Raises `kind`, also if it does not exist."""
        try:
            self._system.mv(self.path(name), self.path(other))
        except Exception as error:  # as above
            raise self._error(name, "renamed", error) from error

    def remove(self, name: str) -> None:
        """Remove a file, if it exists. Raises `kind`."""
        try:
            self._system.rm_file(self.path(name))
        except FileNotFoundError:
            return
        except Exception as error:  # as above
            raise self._error(name, "removed", error) from error

    def _check_absent(self, name: str, error: FileNotFoundError) -> None:
        """Raises `kind` if the connection failed: over HTTP this is a FileNotFoundError, too, with another cause."""
        if error.__cause__ is not None and not isinstance(error.__cause__, FileNotFoundError):
            raise self._error(name, "read", error.__cause__) from error

    def _is_local(self) -> bool:
        return os.path.isabs(self._root) and "file" in self._protocols()

    def _protocols(self) -> tuple[str, ...]:
        protocol: str | tuple[str, ...] = self._system.protocol
        return (protocol,) if isinstance(protocol, str) else tuple(protocol)

    def _error(self, name: str, what: str, error: BaseException) -> KvplanError:
        return self._kind(f"{self.url}/{name} cannot be {what}: {_error_text(error)}")


def _error_text(error: BaseException) -> str:
    return without_credentials(f"{type(error).__name__}: {error}")[:250]
