"""What pyproject.toml cannot say: a build leaves no folder in the clone for the next one to take from."""

from tempfile import TemporaryDirectory

from setuptools import setup

with TemporaryDirectory(prefix="kvplan-build-") as folder:
    setup(options={"build": {"build_base": folder}})
