"""A folder at a URL, at any place that fsspec knows: files on a disk, S3, HTTP."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

from kvplan.plan.errors import KvplanError, PlanRemoteError
from kvplan.plan.files import folder
from kvplan.remote.urls import HIDDEN, without_credentials


class RemoteFolder:
    """A folder at a URL. Every error of the place is a `kind`, except for missing files."""

    def __init__(self, url: str, kind: type[KvplanError] = PlanRemoteError) -> None:
        """Raises `kind` where no protocol of this name is installed, or it cannot connect."""
        self._kind, self.url = kind, without_credentials(url).rstrip("/")
        try:
            from fsspec.core import url_to_fs

            # fsspec keeps connections, also those that have died, and lists of files that are old.
            self._system, self._root = url_to_fs(url, skip_instance_cache=True)
        except (ImportError, ValueError) as error:
            install = "pip install 'fsspec[http]', and for another protocol its package, such as s3fs"
            raise kind(f"{self.url} cannot be used: {_told(error)}; {install}") from error
        except Exception as error:  # FTP and SFTP connect here; each protocol has errors of its own
            raise kind(f"{self.url} cannot be used: {_told(error)}") from error
        self._root = str(self._root).rstrip("/")

    @property
    def place(self) -> str:
        """The folder's name, equal for all spellings of its URL: no user, no last slash, one name for a protocol."""
        if self._is_local():
            return f"file://{os.path.abspath(self._root)}"
        scheme, _, rest = self.url.replace(HIDDEN, "://").rpartition("::")[2].partition("://")
        host, slash, path = rest.partition("/")
        protocols = self._protocols()
        return f"{protocols[0] if scheme in protocols else scheme}://{host.lower()}{slash}{path}"

    def path(self, name: str) -> str:
        """A file's path as the file system has it: of S3, behind its bucket."""
        return f"{self._root}/{name}"

    def read(self, name: str, most: int) -> bytes | None:
        """A file's bytes, None where there is none. Raises `kind`, also where they are more than `most`."""
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
        """Some bytes of a file, fewer where it ends before, None where there is none. Raises `kind`."""
        try:
            return bytes(self._system.cat_file(self.path(name), start=start, end=start + size))
        except FileNotFoundError as error:
            self._check_absent(name, error)
            return None
        except Exception as error:  # as above
            raise self._error(name, "read", error) from error

    def size(self, name: str) -> int | None:
        """A file's bytes, None where there is none. Raises `kind`."""
        try:
            return int(self._system.info(self.path(name))["size"])
        except FileNotFoundError as error:
            self._check_absent(name, error)
            return None
        except Exception as error:  # as above
            raise self._error(name, "read", error) from error

    def names(self) -> Iterator[str]:
        """All files below the folder, sorted; none where there is no folder. Raises `kind`."""
        try:
            self._system.invalidate_cache()
            paths = self._system.find(self._root)
            if not paths:
                self._system.ls(self._root)  # raises where it cannot be listed, which `find` passes over
        except FileNotFoundError as error:
            self._check_absent("", error)
            return
        except Exception as error:  # as above
            raise self._error("", "listed", error) from error
        # Some keep an object for an empty folder, too.
        below = [path for path in map(str, paths) if path.startswith(self.path(""))]
        yield from sorted(path.removeprefix(self.path("")) for path in below)

    def changed(self, name: str) -> float:
        """When a file was written, in seconds since 1970; 0 where there is none. Raises `kind`."""
        try:
            return float(self._system.modified(self.path(name)).timestamp())
        except FileNotFoundError:
            return 0.0
        except Exception as error:  # as above
            raise self._error(name, "read", error) from error

    def write(self, name: str, data: bytes) -> None:
        """Write a file whole, on a file system under another name first. Raises `kind`."""
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
        """Give a file another name. Raises `kind`, also where there is none."""
        try:
            self._system.mv(self.path(name), self.path(other))
        except Exception as error:  # as above
            raise self._error(name, "renamed", error) from error

    def remove(self, name: str) -> None:
        """Remove a file; once more does nothing. Raises `kind`."""
        try:
            self._system.rm_file(self.path(name))
        except FileNotFoundError:
            return
        except Exception as error:  # as above
            raise self._error(name, "removed", error) from error

    def _check_absent(self, name: str, error: FileNotFoundError) -> None:
        """Raises `kind` where nobody could be asked: over HTTP that is not there, too, and only the cause tells."""
        if error.__cause__ is not None and not isinstance(error.__cause__, FileNotFoundError):
            raise self._error(name, "read", error.__cause__) from error

    def _is_local(self) -> bool:
        return os.path.isabs(self._root) and "file" in self._protocols()

    def _protocols(self) -> tuple[str, ...]:
        protocol: str | tuple[str, ...] = self._system.protocol
        return (protocol,) if isinstance(protocol, str) else tuple(protocol)

    def _error(self, name: str, what: str, error: BaseException) -> KvplanError:
        return self._kind(f"{self.url}/{name} cannot be {what}: {_told(error)}")


def _told(error: BaseException) -> str:
    return without_credentials(f"{type(error).__name__}: {error}")[:250]
