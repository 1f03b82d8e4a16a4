"""The wait that signals and other threads end."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator

import pytest

from relay.worker.bell import Bell

BEYOND_SELECT = 1_100


@pytest.fixture
def many_files() -> Iterator[None]:
    """Open so many files that new ones have numbers which select() does not know."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = 2 * BEYOND_SELECT
    if hard != resource.RLIM_INFINITY and hard < needed:
        pytest.skip("this account may not open that many files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, needed), hard))
    files = [os.open(os.devnull, os.O_RDONLY) for _ in range(BEYOND_SELECT)]
    yield
    for file in files:
        os.close(file)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("many_files")
def test_a_wait_works_where_many_files_are_open() -> None:
    bell = Bell()
    reader, writer = os.pipe()
    silent, kept = os.pipe()

    bell.expect()
    bell.ring()
    assert bell.wait([reader, silent], 60) == []

    os.write(writer, b".")
    assert bell.wait([reader, silent], 60) == [reader]
    os.read(reader, 1)
    assert bell.wait([reader, silent], 0) == []

    # An end tells as much as a message.
    os.close(writer)
    assert bell.wait([reader, silent], 60) == [reader]
    for file in (reader, silent, kept):
        os.close(file)
    bell.close()
