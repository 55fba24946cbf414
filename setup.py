"""A build leaves no folder in the clone for the next build to take files from; pyproject.toml cannot say this."""

from tempfile import TemporaryDirectory

from setuptools import setup

with TemporaryDirectory(prefix="kvplan-build-") as folder:
    setup(options={"build": {"build_base": folder}})
