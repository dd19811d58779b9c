"""The base of all sections of a profile, and the one way to change one."""

from collections.abc import Mapping
from typing import Self

from pydantic import BaseModel, ConfigDict, ValidationError

from specx.errors import ProfileError
from specx.profile.messages import sentence_of


class Section(BaseModel):
    """A part of a profile: no unknown keys, no silent conversions, immutable."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, validate_default=True, allow_inf_nan=False
    )

    def changed(self, **settings: object) -> Self:
        """Return a copy with other values, validated like a profile that is read from a file.

        A mapping changes keys inside a section and leaves the others as they are:
        ``profile.changed(generation={"max_new_tokens": 64}, graphs=False)``. Where there are no
        keys to leave (``draft: null``, ``tree: auto``), the mapping is the whole section. Anything
        else replaces the value: ``profile.changed(tree=AutoTree(), draft=None)``.

        Raises ProfileError, a line for each problem: "`tree.nodes` is 99; it must be at most 63".
        """
        content = dict(self)
        for key, value in settings.items():
            section = content.get(key)
            if isinstance(section, Section) and isinstance(value, Mapping):
                content[key] = {**section.by_key(), **value}
            else:
                content[key] = value
        try:
            return type(self).model_validate(content)
        except ValidationError as error:
            sentences = [sentence_of(details, type(self)) for details in error.errors()]
            raise ProfileError("\n".join(sentences)) from error

    def by_key(self) -> dict[str, object]:
        """Return the values by their keys, as far as the section has keys in a file."""
        return dict(self)
