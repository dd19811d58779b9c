"""Compare specx with vLLM on a GPU: the same weights and prompts, one request at a time, greedy.

``python docs/peers_vllm.py prepare LARGE.gguf REPORTS.jsonl FOLDER --draft SMALL.gguf`` writes the
models for vLLM, as specx reads them, in bfloat16, and prompts of 4,096 and 12,288 tokens.
``python docs/peers_vllm.py specx FOLDER OUT.json --large LARGE.gguf --draft SMALL.gguf`` and
``python docs/peers_vllm.py vllm FOLDER OUT.json --mode plain`` (``ngram``, ``draft``) each measure
one program; ``table OUT.json…`` prints the medians. ``--go FILE``: a program starts, warms up,
writes FILE.ready and waits for FILE, so that several start side by side and measure in turn.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # vLLM's process may have no specx
    from specx.records import Method

LENGTHS = (4096, 12288)
TOKENS = 201  # the first is prefill's
WARM = 40
REQUEST = "Summarize the document above in about 400 words."
ROOM = 70  # tokens of a prompt that are not the document's
DRAFTS = {  # of vLLM
    "plain": None,
    "ngram": {
        "method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_max": 4,
        "prompt_lookup_min": 2,
    },
    "draft": {"method": "draft_model", "num_speculative_tokens": 4},
}  # fmt: skip
TREE = {"nodes": 31, "depth": 4, "width": 16, "threshold": 0.0}
METHODS: "dict[str, tuple[Method, dict[str, Any]]]" = {
    "plain": ("plain", {}),
    "lookup": ("lookup", {}),
    "the default with the draft": ("specextend", {}),
    "trees of 31 nodes, 4 levels": ("specextend", {"tree": TREE, "fallback": {"below": None}}),
}
Write = Callable[[list[int], int], list[int]]  # a prompt and the most tokens -> tokens


def prepare(large: Path, small: Path | None, reports: Path, folder: Path) -> None:
    """Write FOLDER/large, FOLDER/small and FOLDER/prompts.json."""
    import torch

    from specx.models.loaded import ModelSpec
    from specx.models.model_files import open_model

    sys.path.insert(0, str(Path(__file__).parents[1]))
    from tests.models.gguf.as_transformers import load_own_class

    files = open_model(ModelSpec(str(large)), "cpu", "target")
    ends = list(files.generation_config.ends or [files.tokenizer.eos_token_id])
    for name, file in (("large", large), ("small", small)):
        if file is None:
            continue
        model = load_own_class(file, torch.bfloat16)
        model.config.architectures = [type(model).__name__]
        model.save_pretrained(folder / name, max_shard_size="100GB")
        text = json.dumps({"eos_token_id": ends})
        (folder / name / "generation_config.json").write_text(text)
    tokenizer, prompts = files.tokenizer, {}
    texts = [json.loads(line)["text"] for line in reports.read_text().splitlines()]
    for length in LENGTHS:
        found = prompts[str(length)] = []
        for text in texts:
            document = tokenizer.decode(tokenizer(text)["input_ids"][: length - ROOM])
            content = f"<document>\n{document}\n</document>\n\n{REQUEST}"
            message = [{"role": "user", "content": content}]
            asked = tokenizer.apply_chat_template(
                message, add_generation_prompt=True, tokenize=False
            )
            found.append(list(tokenizer(asked)["input_ids"]))
    (folder / "prompts.json").write_text(json.dumps(prompts))


def vllm_writer(folder: Path, mode: str, longest: int) -> Write:
    os.environ.update(VLLM_ENABLE_V1_MULTIPROCESSING="0", VLLM_USE_FLASHINFER_SAMPLER="0")
    from vllm import LLM, SamplingParams

    drafts = DRAFTS[mode]
    if mode == "draft":
        drafts = {**drafts, "model": str(folder / "small")}
    ends = json.loads((folder / "large" / "generation_config.json").read_text())["eos_token_id"]
    # Memory is given in bytes, so that several start beside each other.
    engine = LLM(
        model=str(folder / "large"), dtype="bfloat16", max_model_len=longest + TOKENS + 64,
        max_num_batched_tokens=20480, max_num_seqs=2, enable_prefix_caching=False,
        gpu_memory_utilization=0.06, kv_cache_memory_bytes=6 << 30, skip_tokenizer_init=True,
        speculative_config=drafts,
    )  # fmt: skip

    def write(prompt: list[int], tokens: int) -> list[int]:
        asked = SamplingParams(
            temperature=0, max_tokens=tokens, detokenize=False, stop_token_ids=ends
        )
        result = engine.generate([{"prompt_token_ids": prompt}], asked, use_tqdm=False)
        return list(result[0].outputs[0].token_ids)

    return write


def specx_writers(large: str, small: str | None, device: str) -> dict[str, Write]:
    import torch

    from specx.decoding.decode import decode
    from specx.decoding.workspace import WorkspacePool
    from specx.profile import resolve
    from specx.profile.of_models import profile_for
    from specx.records import Step
    from specx.runs.pair import load_pair

    profile = profile_for(None, large, small).on(device)
    pair = load_pair(profile, "specextend" if small else "lookup", torch.device(device))

    def writer(method: "Method", changes: dict[str, Any]) -> Write:
        pool = WorkspacePool()

        def write(prompt: list[int], tokens: int) -> list[int]:
            generation = {"max_new_tokens": tokens, "temperature": 0.0}
            asked = profile.changed(generation=generation, **changes)
            events = decode(pair, resolve(asked, method, pair.facts), prompt, pool=pool)
            return [token for each in events if isinstance(each, Step) for token in each.tokens]

        return write

    return {
        name: writer(*given) for name, given in METHODS.items() if small or given[0] != "specextend"
    }


def measure(program: str, writers: dict[str, Write], arguments: argparse.Namespace) -> None:
    """Measure every writer on each prompt in turn, and write what is there behind each."""
    folder, out, go = arguments.folder, arguments.out, arguments.go
    prompts: dict[str, list[list[int]]] = json.loads((folder / "prompts.json").read_text())
    for found in prompts.values():
        for write in writers.values():
            for _ in range(2):
                write(found[0], WARM)
    if go:
        Path(f"{go}.ready").touch()
        while not go.exists():
            time.sleep(0.05)
    rows: list[dict[str, Any]] = []
    for document in range(min(arguments.count, *map(len, prompts.values()))):
        for length, found in prompts.items():
            for name, write in writers.items():
                times, ids = [], found[document]
                for tokens in (1, TOKENS):
                    began = time.perf_counter()
                    written = write(ids, tokens)
                    times.append(time.perf_counter() - began)
                rows.append(
                    {"program": program, "mode": name, "length": int(length),
                     "document": document, "prompt": len(ids), "prefill_s": round(times[0], 5),
                     "total_s": round(times[1], 5), "output": written}
                )  # fmt: skip
        part = out.with_suffix(".part")
        part.write_text(json.dumps({"rows": rows}))
        part.replace(out)
    if go:
        Path(f"{go}.done").touch()


def speed(row: dict[str, Any]) -> float:
    """Return tokens/s behind the first one."""
    return (len(row["output"]) - 1) / (row["total_s"] - row["prefill_s"])


def table(files: list[Path]) -> str:
    """Return medians over documents, and how many texts are the program's own plain ones."""
    rows = [row for file in files for row in json.loads(file.read_text())["rows"]]
    cells: dict[tuple[int, str, str], dict[int, dict[str, Any]]] = {}
    for row in rows:
        key = row["length"], row["program"], row["mode"]
        cells.setdefault(key, {})[row["document"]] = row
    lines = [
        "| tokens | program | documents | prefill, s | tokens/s (least to most) | all, s | same |",
        "|---|---|---|---|---|---|---|",
    ]
    for (length, program, mode), found in sorted(cells.items()):
        plain = cells[length, program, "plain"]
        same = sum(row["output"] == plain[at]["output"] for at, row in found.items())
        fast = [speed(row) for row in found.values()]
        first, whole = (median(r[k] for r in found.values()) for k in ("prefill_s", "total_s"))
        lines.append(
            f"| {length:,} | {program}, {mode} | {len(found)} | {first:.4f} | {median(fast):.0f} "
            f"({min(fast):.0f} to {max(fast):.0f}) | {whole:.3f} | {same} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("prepare")
    one.add_argument("large", type=Path)
    one.add_argument("reports", type=Path, help='lines of {"text": …}')
    one.add_argument("folder", type=Path)
    one.add_argument("--draft", type=Path)
    for name in ("specx", "vllm"):
        one = commands.add_parser(name)
        one.add_argument("folder", type=Path, help="that prepare has written")
        one.add_argument("out", type=Path)
        one.add_argument("--count", type=int, default=12, help="documents at most")
        one.add_argument("--go", type=Path, help="a file to wait for")
        one.add_argument("--mode", choices=DRAFTS, default="plain", help="of vLLM")
        one.add_argument("--device", default="cuda", help="of specx")
        one.add_argument("--large", type=Path, help="the file for specx, or the folder's model")
        one.add_argument("--draft", type=Path, help="the draft's file for specx")
    one = commands.add_parser("table")
    one.add_argument("files", type=Path, nargs="+")
    arguments = parser.parse_args()
    if arguments.command == "prepare":
        prepare(arguments.large, arguments.draft, arguments.reports, arguments.folder)
    elif arguments.command == "table":
        print(table(arguments.files))
    elif arguments.command == "vllm":
        prompts = json.loads((arguments.folder / "prompts.json").read_text())
        longest = max(len(ids) for found in prompts.values() for ids in found)
        write = vllm_writer(arguments.folder, arguments.mode, longest)
        measure("vLLM", {arguments.mode: write}, arguments)
        os._exit(0)  # its engine would be taken down for seconds
    else:
        large = str(arguments.large or arguments.folder / "large")
        writers = specx_writers(
            large, str(arguments.draft) if arguments.draft else None, arguments.device
        )
        measure("specx", writers, arguments)


if __name__ == "__main__":
    sys.exit(main())
