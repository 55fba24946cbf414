"""What every process that is to be killed needs, made once, in the process that all of them are forked from."""

from tests.store.engines import full
from tests.store.killed import LENGTH, MODEL, SIDE

ENGINE = full(MODEL, SIDE, LENGTH)
