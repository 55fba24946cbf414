"""Tests that need torch are left out where it is not installed, as `make test` without TORCH=1 does."""

from importlib.util import find_spec

NEED_TORCH = ["test_connector.py", "test_moving.py", "test_processes.py", "test_scheduler.py", "test_worker.py"]
collect_ignore = [] if find_spec("torch") else NEED_TORCH
