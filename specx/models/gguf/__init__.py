"""Models in GGUF, the format of llama.cpp, ollama and LM Studio.

``container`` reads a file's metadata and tensors. ``families`` and ``particulars`` make the config
of a transformers model, ``weights`` maps the tensor names, ``vocabulary`` builds the tokenizer, and
``places`` finds files by name. ``checkpoint`` combines them.
"""
