"""The chat template in a model's folder."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any


def read_template(folder: Path, settings: Mapping[str, Any]) -> str | dict[str, str] | None:
    """Return the template of a folder, or several by name.

    Files count before ``settings``, which are those of ``tokenizer_config.json``.
    """
    templates: dict[str, str] = {}
    main = folder / "chat_template.jinja"
    if main.is_file():
        templates["default"] = main.read_text("utf-8")
    for file in (folder / "additional_chat_templates").glob("*.jinja"):
        templates[file.stem] = file.read_text("utf-8")
    if templates:
        return templates["default"] if [*templates] == ["default"] else templates
    stated: Any = settings.get("chat_template")
    if isinstance(stated, list):
        return {each["name"]: each["template"] for each in stated}
    return stated
