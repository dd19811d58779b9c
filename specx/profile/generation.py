"""The section of a profile that says how the target chooses its tokens."""

from pydantic import Field, field_validator

from specx.profile.schema import TOKENS_PER_SENTENCE, TOKENS_PER_WORD
from specx.profile.section import Section
from specx.profile.wording import shown

_MODELS = "null: the model's, else"


class GenerationSettings(Section):
    """The target's choice of tokens; what is null is the model's to say, and then ours.

    ``resolve_sampling`` decides. A model's file is checked by the same ranges.
    """

    max_new_tokens: int | None = Field(
        default=None,
        ge=1,
        description="tokens after which writing stops; null: enough for the sentences of a digest "
        f"({TOKENS_PER_SENTENCE} for each, and 1) or for the words of a summary ({TOKENS_PER_WORD} "
        "for each), otherwise 512",
    )
    temperature: float | None = Field(
        default=None,
        ge=0,
        description=f"0: the most probable token; more: sampling; {_MODELS} 0",
    )
    top_p: float | None = Field(
        default=None,
        gt=0,
        le=1,
        description=f"sample from this share of the probability; {_MODELS} 1, all",
    )
    top_k: int | None = Field(
        default=None, ge=0, description=f"sample from so many tokens; 0: all; {_MODELS} 0"
    )
    min_p: float | None = Field(
        default=None,
        ge=0,
        le=1,
        description="sample from tokens that have at least this share of the likeliest one's "
        f"probability; {_MODELS} 0",
    )
    repetition_penalty: float | None = Field(
        default=None,
        gt=0,
        description="divide by this the logits of what prompt and output have already, multiply "
        f"them where they are negative; {_MODELS} 1",
    )
    presence_penalty: float | None = Field(
        default=None,
        ge=-2,
        le=2,
        description=f"subtract this from the logits of what the output has already; {_MODELS} 0",
    )
    frequency_penalty: float | None = Field(
        default=None,
        ge=-2,
        le=2,
        description=f"subtract this for each time that the output has a token; {_MODELS} 0",
    )
    no_repeat_ngram: int | None = Field(
        default=None,
        ge=0,
        description="so many tokens in a row are never written twice, nor as the prompt has them; "
        f"0: they may be; {_MODELS} 0",
    )
    suppress_tokens: list[int] | None = Field(
        default=None, description=f"ids of tokens that are never written; {_MODELS} none"
    )
    begin_suppress_tokens: list[int] | None = Field(
        default=None, description=f"ids of tokens that are not written first; {_MODELS} none"
    )
    seed: int | None = Field(
        default=None, ge=0, le=2**32 - 1, description="seed of the sampling; null: 0"
    )

    @field_validator("temperature")
    @classmethod
    def _temperature_is_usable(cls, temperature: float | None) -> float | None:
        if temperature and temperature < 0.01:  # logits divided by less leave float32's range
            raise ValueError(f"is {temperature:g}; it must be 0 or at least 0.01")
        return temperature

    @field_validator("suppress_tokens", "begin_suppress_tokens", mode="before")
    @classmethod
    def _ids_are_counted(cls, ids: object) -> object:
        if ids is None or (isinstance(ids, list) and all(type(i) is int and i >= 0 for i in ids)):
            return ids
        raise ValueError(f"is {shown(ids)}; it must be a list of token ids, counted from 0")
