"""Errors show a URL so that a person finds the place but not the secret."""

from __future__ import annotations

import pytest

from kvplan.remote.urls import without_credentials


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://me:secret@host/plans", "http://…@host/plans"),
        ("http://secret@host/plans", "http://…@host/plans"),
        ("http://:secret@host", "http://…@host"),
        ("http://me:5432@host:8080/plans", "http://…@host:8080/plans"),
        ("http://me:secret@[::1]:8080/plans", "http://…@[::1]:8080/plans"),
        # An / ? # or @ that nobody escaped.
        ("s3://key:sec/ret@bucket", "s3://…@bucket"),
        ("s3://key:/secret@bucket/plans", "s3://…@bucket/plans"),
        ("s3://key:12ab/secret@bucket/plans", "s3://…@bucket/plans"),
        ("s3://key:sec?r#et@bucket", "s3://…@bucket"),
        ("s3://key:s@ec/ret@bucket", "s3://…@bucket"),
        ("s3://k:se/c@a, then s3://k:se/c@b.", "s3://…@a, then s3://…@b."),
        ("s3://a/b@1,s3://k:se/c@d", "s3://a/b@1,s3://…@d"),
    ],
)
def test_credentials_are_masked(url: str, shown: str) -> None:
    assert without_credentials(url) == shown


@pytest.mark.parametrize(
    "url",
    [
        "s3://bucket/plans@v1",
        "http://host:8080/plans@v1?mail=me@host#@",
        "http://host:8080?mail=me@host",
        "http://[::1]/plans@v1",
        "http://[fe80::1]:8080/plans@v1",
        "file:///plans@v1/a:b@c",
        "http://host:8080 does not answer me@host",
    ],
)
def test_an_at_sign_of_a_path_is_shown(url: str) -> None:
    """`:8080` before a path is a port and no secret; masking it would make two places look the same."""
    assert without_credentials(url) == url
