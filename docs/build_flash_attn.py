"""Build the part of flash-attn 2.8 that specx calls, for one GPU architecture, in minutes.

    FLASH_ATTENTION_SKIP_CUDA_BUILD=TRUE pip download --no-deps --no-build-isolation \\
        --no-binary flash-attn flash-attn==2.8.3
    tar xzf flash_attn-2.8.3.tar.gz
    python docs/build_flash_attn.py flash_attn-2.8.3 site --arch 90
    PYTHONPATH=site python -m specx doctor

The whole package is hundreds of kernels and takes hours. Built here are heads of 64 and 128,
bfloat16 and float16, forward, whole and with the keys divided among programs (*split*): 16 files.
Dropout, ALiBi and soft caps are left out; the backward pass and other heads say so when called.
Torch's headers are those of the Python that runs this, and need not be importable; nvcc must be of
torch's CUDA version.
"""

import argparse
import importlib.util
import os
import shutil
import subprocess
import sysconfig
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

MODULE = "flash_attn_2_cuda"
KERNELS = [
    f"flash_fwd_{split}hdim{dim}_{dtype}_{causal}sm80.cu"
    for dim in (128, 64)
    for split in ("split_", "")
    for dtype in ("bf16", "fp16")
    for causal in ("causal_", "")
]
# The interface of the package, with the head sizes that are built and without a backward pass.
INTERFACE = """\
#include "static_switch.h"
#undef HEADDIM_SWITCH
#define HEADDIM_SWITCH(HEADDIM, ...)                                      \\
  [&] {                                                                   \\
    TORCH_CHECK(HEADDIM == 64 || HEADDIM == 128, "built for heads of 64 and 128"); \\
    if (HEADDIM == 64) { constexpr static int kHeadDim = 64; return __VA_ARGS__(); } \\
    constexpr static int kHeadDim = 128;                                  \\
    return __VA_ARGS__();                                                 \\
  }()
#include "flash_api.cpp"
namespace FLASH_NAMESPACE {
template <typename T, int D, bool causal>
void run_mha_bwd_(Flash_bwd_params&, cudaStream_t) { TORCH_CHECK(false, "built without backward"); }
}
"""
FLAGS = (
    *("-c", "-O3", "-std=c++17", "-w", "-Xcompiler", "-fPIC"),
    *("--expt-relaxed-constexpr", "--expt-extended-lambda", "--use_fast_math"),
    *(f"-U__CUDA_NO_{what}__" for what in ("HALF_OPERATORS", "HALF_CONVERSIONS", "HALF2_OPERATORS",
                                           "BFLOAT16_CONVERSIONS")),
    *(f"-DFLASHATTENTION_DISABLE_{what}" for what in ("DROPOUT", "ALIBI", "SOFTCAP",
                                                         "UNEVEN_K")),
    f"-DTORCH_EXTENSION_NAME={MODULE}",
)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source", type=Path, help="the unpacked source package")
    parser.add_argument("site", type=Path, help="folder for the package that is built")
    parser.add_argument("--arch", default="90", help="compute capability without the dot")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="compilers at a time")
    arguments = parser.parse_args()
    site: Path = arguments.site
    site.mkdir(parents=True, exist_ok=True)
    objects = compiled(arguments.source / "csrc", site / "objects", arguments)
    binary = site / f"{MODULE}{sysconfig.get_config_var('EXT_SUFFIX')}"
    run("nvcc", "-shared", "-cudart", "shared", *objects, "-o", binary, *libraries())
    run("strip", binary)
    # Version 4 lives in flash_attn/cute; an older copy of it in this source would be in its way.
    ignored = shutil.ignore_patterns("cute", "flash_attn_triton_amd")
    package = site / "flash_attn"
    shutil.copytree(arguments.source / "flash_attn", package, ignore=ignored, dirs_exist_ok=True)
    facts = "flash_attn.egg-info"  # name and version
    shutil.copytree(arguments.source / facts, site / facts, dirs_exist_ok=True)


def compiled(csrc: Path, folder: Path, arguments: argparse.Namespace) -> list[Path]:
    """Compile the interface and the kernels; what is there from an earlier run stays."""
    folder.mkdir(exist_ok=True)
    interface = folder / "interface.cpp"
    interface.write_text(INTERFACE)
    sources = [csrc / "flash_attn" / "src" / name for name in KERNELS]
    target = f"-gencode=arch=compute_{arguments.arch},code=sm_{arguments.arch}"
    flags = (*FLAGS, target, *includes(csrc))

    def compile_one(source: Path) -> Path:
        found = folder / f"{source.stem}.o"
        if not found.exists():
            begin, unfinished = time.monotonic(), found.with_suffix(".tmp")
            run("nvcc", *flags, source, "-o", unfinished)
            unfinished.rename(found)
            print(f"{time.monotonic() - begin:5.0f} s  {source.name}", flush=True)
        return found

    with ThreadPoolExecutor(arguments.jobs) as pool:  # the longest first
        return list(pool.map(compile_one, [*sources, interface]))


def includes(csrc: Path) -> Iterator[str]:
    """Yield the options that name the folders of headers."""
    headers = torch_folder() / "include"
    for folder in (headers, headers / "torch/csrc/api/include", sysconfig.get_path("include")):
        yield from ("-isystem", str(folder))
    for folder in ("cutlass/include", "flash_attn/src", "flash_attn"):
        yield from ("-I", str(csrc / folder))


def libraries() -> list[str]:
    names = ("torch", "torch_cpu", "torch_cuda", "torch_python", "c10", "c10_cuda")
    return [f"-L{torch_folder() / 'lib'}", *(f"-l{name}" for name in names)]


def torch_folder() -> Path:
    found = importlib.util.find_spec("torch")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent


def run(*command: object) -> None:
    subprocess.run([str(word) for word in command], check=True)


if __name__ == "__main__":
    main()
