"""A catalog whose plans come from a URL."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from threading import Lock

from kvplan.plan.errors import PlanMissingError, PlanRemoteError
from kvplan.plan.types import Plan
from kvplan.registry.exchange import PATIENCE, pull
from kvplan.registry.signing import TrustedKeys
from kvplan.remote.urls import without_credentials
from kvplan.runtime.ops import logs
from kvplan.runtime.plans.catalog import Catalog, Pinned

# Seconds between two pulls, however many plans are missing.
PAUSE = 10.0


class RemoteCatalog(Catalog):
    """A catalog whose directory is a copy of the plans at a URL, signed by a trusted key.

    It pulls them at first, and again if a plan is missing. If the URL does not answer, the last copy counts.
    """

    def __init__(
        self,
        url: str,
        folder: str | Path,
        trusted: TrustedKeys,
        options: Mapping[str, str] | None = None,
        seconds: float = PATIENCE,
        signed_for: str | None = None,
    ) -> None:
        """Pull the plans; `signed_for` is that of `pull`.

        Raises PlanSignatureError, PlanIndexError, and PlanRemoteError if nothing was pulled before.
        """
        super().__init__(folder, None, options)
        self.url, self._trusted, self._seconds, self._signed_for = url, trusted, seconds, signed_for
        self._pulling, self._rests_until = Lock(), 0.0
        self._problem = self._try_pull()
        if self._problem is not None and not self.entries():
            raise self._problem

    @property
    def waits(self) -> bool:
        return True

    def find(self, model: str, model_digest: str, prefill: Pinned, decode: Pinned) -> Plan:
        if self.look(model_digest, prefill[0], decode[0]) is None:
            self.refresh()
        try:
            return super().find(model, model_digest, prefill, decode)
        except PlanMissingError as error:
            problem = f" ({self._problem})" if self._problem is not None else ""
            raise PlanMissingError(f"{error}\nand push it to {without_credentials(self.url)}{problem}") from error

    def refresh(self) -> None:
        """Pull, unless the last pull was within PAUSE. Raises PlanSignatureError, PlanIndexError."""
        with self._pulling:
            if time.monotonic() >= self._rests_until:
                self._problem = self._try_pull()

    def _try_pull(self) -> PlanRemoteError | None:
        """Pull. Return the error if the URL did not answer."""
        try:
            done = pull(self.url, self.folder, self._trusted, self._seconds, self._signed_for)
        except PlanRemoteError as error:
            logs.event(logs.WARNING, "plans not pulled", url=without_credentials(self.url), error=error)
            return error
        finally:
            self._rests_until = time.monotonic() + PAUSE
        facts = {"serial": done.serial, "new": len(done.copied), "plans": len(done.plans)}
        logs.event(logs.INFO, "plans pulled", url=without_credentials(self.url), **facts)
        return None
