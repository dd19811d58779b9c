"""The wait of a user with one document: from the start of the process to the first token and to
the last, with and without CUDA graphs, on cold and warm caches.

``python docs/start.py --target llama-3.1-8b --length 16k --out start.json``
starts one process for each setting, twice: the first finds no compiled kernels on disk.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from specx.bench.cases import beginning, generated_documents
from specx.bench.scaled import scaled_pair, scaled_profile
from specx.bench.workbench import with_output, without_fallback
from specx.decoding.decode import decode
from specx.profile import load_profile, resolve
from specx.prompts.digest import Digest
from specx.records import Step
from specx.reports.figures import parse_length

SETTINGS = {
    "as it is": {"graphs": True},
    "without graphs": {"graphs": False},
}
CACHES = ("TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "XDG_CACHE_HOME")


def main() -> None:
    arguments = _arguments()
    if arguments.settings:
        print(json.dumps(summarize(arguments, json.loads(arguments.settings))))
        return
    found = []
    for method in arguments.methods.split(","):
        for name, settings in SETTINGS.items():
            with tempfile.TemporaryDirectory() as folder:
                for cache in ("cold", "warm"):
                    seconds = _in_process(arguments, settings | {"method": method}, folder)
                    found.append({"method": method, "setting": name, "cache": cache} | seconds)
                    print(found[-1], flush=True)
                    if arguments.out:
                        Path(arguments.out).write_text(json.dumps(found, indent=1))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target", default="llama-3.1-8b")
    parser.add_argument("--draft", default="68m")
    parser.add_argument("--length", default="16k")
    parser.add_argument("--tokens", type=int, default=300, help="output tokens at most")
    parser.add_argument("--methods", default="plain,specextend")
    parser.add_argument("--out")
    parser.add_argument("--settings", help=argparse.SUPPRESS)
    parser.add_argument("--started", type=float, help=argparse.SUPPRESS)
    return parser.parse_args()


def _in_process(
    arguments: argparse.Namespace, settings: dict[str, Any], folder: str
) -> dict[str, Any]:
    """Summarize one document in a new process whose compiled kernels are kept in ``folder``."""
    command = [sys.executable, __file__, "--target", arguments.target]
    command += ["--draft", arguments.draft, "--length", arguments.length]
    command += ["--tokens", str(arguments.tokens), "--settings", json.dumps(settings)]
    environment = os.environ | dict.fromkeys(CACHES, folder)
    command += ["--started", str(time.monotonic())]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True, text=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def summarize(arguments: argparse.Namespace, settings: dict[str, Any]) -> dict[str, float]:
    """Return the seconds since the process was started: until the models are there, the first
    token, the last. Building the scaled weights stands for loading them."""
    profile = without_fallback(load_profile("mini").on("cuda"))
    profile = scaled_profile(with_output(profile, arguments.tokens), arguments.target)
    profile = profile.changed(graphs=settings["graphs"])
    pair = scaled_pair(arguments.target, arguments.draft, torch.device("cuda"))
    torch.cuda.synchronize()
    ready = time.monotonic()
    length = parse_length(arguments.length)
    digest = Digest(pair.target.tokenizer, sentences=16)
    prompt = beginning(digest, generated_documents(1, length, seed=3)[0], length)
    assert prompt is not None
    first, tokens = 0.0, 0
    resolved = resolve(profile, settings["method"], pair.facts)
    for event in decode(pair, resolved, prompt.token_ids):
        if isinstance(event, Step):
            first = first or time.monotonic()
            tokens += len(event.tokens)
    last = time.monotonic()
    began = arguments.started
    return {
        "models_s": ready - began,
        "first_token_s": first - began,
        "last_token_s": last - began,
        "after_models_s": last - ready,
        "tokens": tokens,
    }


if __name__ == "__main__":
    main()
