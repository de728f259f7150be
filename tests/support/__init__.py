"""Helpers of the tests. Their own assertions are explained like those of a test."""

import pytest

pytest.register_assert_rewrite("tests.support.floor", "tests.support.walk")
