"""Compare specx with llama.cpp on the CPU: the embedded target, the same tokens, in one run.

``python docs/peers.py gguf model.gguf`` writes the target as a GGUF file in float32.
``python docs/peers.py compare model.gguf report.txt --out peers.json`` runs both in turn, each time
in a process of its own, and prints a table. Needs the packages ``gguf`` and ``llama-cpp-python``.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import takewhile
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

SETTINGS = {"no flash attention": 0, "flash attention": 1}  # llama_flash_attn_type
DRAFTED = (2, 10)  # tokens that its lookup drafts: its own advice for CPUs, and its default
METHODS = ("plain", "specextend", "specextend+lookup")
SENTENCES = 40  # more than are written
WARM = 64  # tokens that both read before anything is timed

# ---------------------------------------------------------------- the GGUF file


def write_gguf(path: Path) -> None:
    """Write the embedded target in float32, without a vocabulary: it is given token ids."""
    import gguf
    from transformers import AutoModelForCausalLM

    from specx.models.source import locate

    folder = locate("embedded:target", None, "target").folder
    model = AutoModelForCausalLM.from_pretrained(folder, dtype="float32")
    config, state = model.config, model.state_dict()
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)
    writer.add_tokenizer_model("no_vocab")
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config.num_hidden_layers)
    for name, weight in state.items():
        if name == "lm_head.weight":  # the embeddings
            continue
        for projection, count in heads.items():
            if projection in name:  # pairs of a rotation lie side by side there
                halves = weight.view(count, 2, config.head_dim // 2, -1)
                weight = halves.transpose(1, 2).reshape(weight.shape)
        to = names.get_name(name, try_suffixes=(".weight",))
        writer.add_tensor(to, weight.float().contiguous().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


# ---------------------------------------------------------------- one side, in its own process


class LlamaCpp:
    """The model in llama.cpp, through its C interface, with float32 keys and values, or float16."""

    def __init__(
        self, path: str, room: int, threads: int, flash: int, *, half: bool = False
    ) -> None:
        import llama_cpp

        self.api = llama_cpp
        llama_cpp.llama_backend_init()
        quiet = llama_cpp.llama_log_callback(lambda *_: None)
        llama_cpp.llama_log_set(quiet, None)
        self._quiet = quiet
        self.model = llama_cpp.llama_model_load_from_file(
            path.encode(), llama_cpp.llama_model_default_params()
        )
        params = llama_cpp.llama_context_default_params()
        params.n_ctx = room
        params.n_threads = params.n_threads_batch = threads
        params.type_k = params.type_v = llama_cpp.GGML_TYPE_F16 if half else llama_cpp.GGML_TYPE_F32
        params.flash_attn_type = flash
        self.context = self.model and llama_cpp.llama_init_from_model(self.model, params)
        if not self.context:
            raise SystemExit(f"llama.cpp cannot load {path}")
        self.memory = llama_cpp.llama_get_memory(self.context)
        self.batch = llama_cpp.llama_batch_init(512, 0, 1)

    def logits(self, tokens: Sequence[int], past: int, rows: int) -> np.ndarray:
        """Read tokens behind the first ``past``; return logits [rows, V] of the last ones."""
        self.api.llama_memory_seq_rm(self.memory, 0, past, -1)
        for begin in range(0, len(tokens), 512):
            part = tokens[begin : begin + 512]
            batch = self.batch
            batch.n_tokens = len(part)
            for i, token in enumerate(part):
                batch.token[i], batch.pos[i] = token, past + begin + i
                batch.n_seq_id[i], batch.seq_id[i][0] = 1, 0
                batch.logits[i] = begin + i >= len(tokens) - rows
            if self.api.llama_decode(self.context, batch):
                raise RuntimeError("llama.cpp cannot decode the batch")
        found = self.api.llama_get_logits(self.context)
        size = self.api.llama_vocab_n_tokens(self.api.llama_model_get_vocab(self.model))
        return np.ctypeslib.as_array(found, shape=(rows, size))


def theirs(path: str, ids: list[int], count: int, setting: str, threads: int) -> Iterator[dict]:
    """Yield llama.cpp's figures: prefill, plain decoding, lookup."""
    peer = LlamaCpp(path, len(ids) + count + 64, threads, SETTINGS[setting])
    yield from decoded(peer, f"llama.cpp, {setting}, {threads} threads", ids, count)


def decoded(peer: LlamaCpp, name: str, ids: list[int], count: int) -> Iterator[dict]:
    """Yield the figures of llama.cpp with given settings, which ``name`` says."""
    from llama_cpp.llama_speculative import LlamaPromptLookupDecoding

    peer.logits(ids[:WARM], 0, 1)
    began = time.perf_counter()
    first = int(peer.logits(ids, 0, 1)[0].argmax())
    prefill = time.perf_counter() - began
    drafts: dict[str, Callable[[np.ndarray], np.ndarray]] = {
        "plain": lambda tokens: tokens[:0],
        **{f"lookup of {n}": LlamaPromptLookupDecoding(2, n) for n in DRAFTED},
    }
    for method, draft in drafts.items():
        tokens, began = np.array([*ids, first], dtype=np.intc), time.perf_counter()
        while len(tokens) < len(ids) + count:
            guess = draft(tokens)
            rows = peer.logits([int(tokens[-1]), *map(int, guess)], len(tokens) - 1, 1 + len(guess))
            chosen = rows.argmax(-1)
            wrong = np.nonzero(chosen[:-1] != guess)[0]
            kept = int(wrong[0]) if len(wrong) else len(guess)
            tokens = np.concatenate([tokens, chosen[: kept + 1].astype(np.intc)])
        seconds, out = time.perf_counter() - began, tokens[len(ids) :].tolist()
        yield figures(name, method, prefill, (len(out) - 1) / seconds, out[:count])


def ours(ids: list[int], count: int, threads: int) -> Iterator[dict]:
    """Yield specx's figures: prefill, and each method, the draft's prefill counted."""
    import torch

    from specx.profile import load_profile
    from specx.runs.pair import load_pair

    profile = load_profile("mini").changed(
        fallback={"below": None}, generation={"max_new_tokens": count}
    )
    torch.set_num_threads(threads)
    pair = load_pair(profile, METHODS[-1], torch.device("cpu"))
    for method in METHODS:
        yield written(pair, profile, method, ids, "specx")


def written(pair: Any, profile: Any, method: str, ids: list[int], side: str) -> dict:
    """Return specx's figures of a method, once it is warm."""
    from specx.decoding.decode import decode
    from specx.profile import resolve
    from specx.records import Finished, Step

    tokens: list[int] = []
    settings = resolve(profile, method, pair.facts)
    for _ in decode(pair, settings, ids[:WARM]):
        pass
    for event in decode(pair, settings, ids):
        if isinstance(event, Step):
            tokens += event.tokens
        if isinstance(event, Finished):
            end = event
    speed = (len(tokens) - 1) / end.decoding
    return figures(side, method, end.timings.target_prefill, speed, tokens)


def figures(side: str, method: str, prefill: float, speed: float, tokens: list[int]) -> dict:
    return {
        "side": side, "method": method, "prefill_s": prefill, "tokens_s": speed, "tokens": tokens
    }  # fmt: skip


# ---------------------------------------------------------------- both, in turn


def prompts(document: Path, lengths: Sequence[str]) -> dict[str, list[int]]:
    """Return the ids of a digest's prompt at each length, from the beginning of a document."""
    from specx.bench.cases import make_cases
    from specx.documents.read import read_documents
    from specx.models.load import load_model
    from specx.models.loaded import ModelSpec
    from specx.prompts.digest import Digest
    from specx.reports.figures import parse_lengths

    target = load_model(ModelSpec("embedded:target", None, "float32"), "cpu", "target")
    kind, found = Digest(target.tokenizer, SENTENCES), {}
    for text, length in zip(lengths, parse_lengths(",".join(lengths)), strict=True):
        (case,) = make_cases(kind, list(read_documents(document)), length, most=1)
        found[text] = list(case.ids)
    return found


def compare(
    gguf: Path,
    document: Path,
    lengths: Sequence[str],
    count: int,
    times: int,
    threads: int,
    settings: Sequence[str],
) -> dict:
    """Run every side ``times`` times at each length, in turn."""
    runs: list[dict] = []
    cases = prompts(document, lengths)
    for turn in range(times):
        for length, ids in cases.items():
            sides = [["ours"], *(["theirs", str(gguf), setting] for setting in settings)]
            for side in sides if turn % 2 == 0 else reversed(sides):
                asked = json.dumps({"ids": ids, "count": count})
                command = [sys.executable, __file__, *side, "--threads", str(threads)]
                for row in in_process(command, asked):
                    runs.append({"length": length, "prompt": len(ids), **row})
    return {"runs": runs}


def in_process(command: list[str], asked: str) -> Iterator[dict]:
    """Yield the rows that a process prints of what it is asked on its stdin."""
    done = subprocess.run(command, input=asked, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed")
    yield from map(json.loads, done.stdout.splitlines())


def table(runs: list[dict]) -> Iterator[str]:
    """Yield a table of medians: prefill in s, tokens/s, tokens as in plain decoding of specx."""
    yield "| tokens | | | prefill, s | tokens/s | lowest, highest | same tokens |"
    yield "|---|---|---|---|---|---|---|"
    groups: dict[tuple, list[dict]] = {}
    for run in runs:
        groups.setdefault((run["prompt"], run["side"], run["method"]), []).append(run)
    for (prompt, side, method), group in groups.items():
        plain = groups[prompt, "specx", "plain"][0]["tokens"]
        speeds = sorted(run["tokens_s"] for run in group)
        pairs = [zip(run["tokens"], plain, strict=False) for run in group]
        same = min(sum(1 for _ in takewhile(lambda ab: ab[0] == ab[1], pair)) for pair in pairs)
        prefill = median(run["prefill_s"] for run in group)
        yield (
            f"| {prompt:,} | {side} | {method} | {prefill:.2f} | {median(speeds):.0f} | "
            f"{speeds[0]:.0f}, {speeds[-1]:.0f} | {same} of {len(plain)} |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("gguf", "compare", "ours", "theirs"))
    parser.add_argument("gguf", type=Path, nargs="?")
    parser.add_argument("document", nargs="?", help="a text; for one side, its setting")
    parser.add_argument("--lengths", default="1k,4k,16k")
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--times", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2, help="of llama.cpp")
    parser.add_argument("--settings", default=",".join(SETTINGS), help="of llama.cpp")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    if args.gguf is None and args.what != "ours":
        parser.error("which GGUF file?")
    if args.document is None and args.what in ("compare", "theirs"):
        parser.error("which document?")
    if args.what == "gguf":
        write_gguf(args.gguf)
    elif args.what == "compare":
        lengths = args.lengths.split(",")
        found: dict[str, Any] = compare(
            args.gguf,
            Path(args.document),
            lengths,
            args.tokens,
            args.times,
            args.threads,
            args.settings.split(","),
        )
        if args.out:
            args.out.write_text(json.dumps(found) + "\n", encoding="utf-8")
        print("\n".join(table(found["runs"])))
    else:
        asked = json.load(sys.stdin)
        ids, count = asked["ids"], asked["count"]
        sides = (
            ours(ids, count, args.threads)
            if args.what == "ours"
            else theirs(str(args.gguf), ids, count, args.document, args.threads)
        )
        for row in sides:
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
