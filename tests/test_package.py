"""What importing the package changes."""

import os
import subprocess
import sys

import pytest

PROGRAM = "import specx, torch; print(torch.backends.cuda.preferred_blas_library())"
NAME = "TORCH_BLAS_PREFER_CUBLASLT"


@pytest.mark.parametrize(("own", "library"), [(None, "Cublaslt"), ("0", "Cublas")])
def test_torch_multiplies_with_cublaslt_unless_told_otherwise(
    own: str | None, library: str
) -> None:
    environment = {k: v for k, v in os.environ.items() if k != NAME}
    if own is not None:
        environment[NAME] = own
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    )
    assert done.stdout.strip().endswith(f".{library}")
    assert "experimental" not in done.stderr
