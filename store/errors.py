"""Errors of stored caches: each has a permanent code and a remedy."""

from __future__ import annotations

from kvplan.plan.errors import KvplanError


class StoreError(KvplanError):
    """Base of what is wrong with stored caches."""

    code = "R060"


class DamagedObjectError(StoreError):
    """An object of a store is truncated or has wrong bytes. It is never loaded; remove it."""

    code = "R061"


class ForeignObjectError(StoreError):
    """A file among a store's objects is not the object that its name says. It is never loaded.

    Find out who else writes to the store's folder.
    """

    code = "R062"


class MissingObjectError(StoreError):
    """The store lacks a block, or some of its tokens: it was not saved, or was evicted.

    Compute these tokens.
    """

    code = "R063"


class StoreSideError(StoreError):
    """Neither side of the plan, or not the requested one, can be stored.

    Give a plan with one side made for the store. docs/store.md has one, and lists the sides that can load it.
    """

    code = "R064"


class StoreKeyError(StoreError):
    """A key of a block is invalid, or the keys do not fit the request.

    Make keys with `block_keys`, one for each block of the stored side, and give a `revision` that is not empty.
    """

    code = "R065"


class StoreIndexError(StoreError):
    """The index of a store cannot be opened or written.

    Free space on the disk, or check the folder's permissions. You may remove the index while nobody has the store
    open.
    """

    code = "R066"


class StoreFileError(StoreError):
    """A store's file cannot be opened, read or written, or its URL refuses or does not answer.

    The message has the system's reason, such as a full disk or too many open files. Correct that, and retry.
    """

    code = "R067"
