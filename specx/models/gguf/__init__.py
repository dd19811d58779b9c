"""Models in GGUF, the format of llama.cpp, ollama and LM Studio.

``container`` reads what a file holds, ``blocks`` unpacks its tensors, ``families`` says which of
transformers' models it is, ``vocabulary`` builds its tokenizer, ``places`` finds files by name.
"""
