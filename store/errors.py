"""What may be wrong with stored caches: a permanent code each, and what to do."""

from __future__ import annotations

from kvplan.plan.errors import KvplanError


class StoreError(KvplanError):
    """Base of what is wrong with stored caches."""

    code = "R060"


class DamagedObjectError(StoreError):
    """An object of a store is not as it was written: cut off, or with other bytes. It is never loaded; remove it."""

    code = "R061"


class ForeignObjectError(StoreError):
    """A file among a store's objects is none of them, or another one than its name says. It is never loaded.

    Find out who else writes to the store's folder.
    """

    code = "R062"


class MissingObjectError(StoreError):
    """A block is not in the store, or not with all the tokens that are needed: it was not saved, or it was evicted.

    Compute these tokens.
    """

    code = "R063"


class StoreSideError(StoreError):
    """Neither side of a plan, or not the one that is asked for, can be stored.

    Give a plan of which one side is made to be stored: docs/store.md has one, and says which other sides can be.
    """

    code = "R064"


class StoreKeyError(StoreError):
    """A key is none, or keys do not fit a request.

    Make keys with `block_keys`, one for each block of the stored side, and give a `revision` that is not empty.
    """

    code = "R065"


class StoreIndexError(StoreError):
    """The index of a store cannot be opened or written.

    Make room on the disk, or check the folder's permissions. The index may be removed while nobody has the store open.
    """

    code = "R066"


class StoreFileError(StoreError):
    """A store's file cannot be opened, read or written: the disk is full, it is another's, too many are open, or the
    place at its URL refuses or does not answer.

    The message has what the system says: correct that, and retry.
    """

    code = "R067"
