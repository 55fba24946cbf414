"""The engine of all processes that are to be killed, made once in the process that forks them."""

from tests.store.engines import full
from tests.store.killed import LENGTH, MODEL, SIDE

ENGINE = full(MODEL, SIDE, LENGTH)
