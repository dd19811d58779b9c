"""Models of the bench's tests are as small as those of decoding."""

from tests.decoding.conftest import _one_thread as _one_thread
