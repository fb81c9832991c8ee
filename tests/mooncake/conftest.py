"""What the tests of the embedded server have, for those that need a Mooncake Store."""

from tests.benchserver.conftest import leak_free

__all__ = ["leak_free"]
