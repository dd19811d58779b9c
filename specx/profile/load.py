"""Reading a profile and reporting every problem of the file at once."""

from pathlib import Path

from pydantic import ValidationError

from specx.errors import ProfileError
from specx.profile.find import SUFFIXES, profile_path
from specx.profile.folders import HUB_ID, missing_folders, with_absolute_folders
from specx.profile.messages import problem_of, report
from specx.profile.profile import Profile
from specx.profile.yaml_lines import Problem, read_yaml


def load_profile(name_or_path: str) -> Profile:
    """Read and check a profile: a shipped name, a user's own, or the path of a YAML file.

    Relative paths of models become absolute. Raises ProfileError with every problem of the file at
    once, each with its line.
    """
    path = profile_path(name_or_path)
    return with_absolute_folders(parse_profile(read_profile(path), str(path)), path.parent)


def check_profile(name_or_path: str) -> None:
    """Raise ProfileError as ``load_profile`` does, and for folders of models that are not there."""
    path = profile_path(name_or_path)
    lines = read_yaml(read_profile(path)).lines
    problems = [
        Problem(lines[section, "model"], sentence)
        for section, sentence in missing_folders(load_profile(name_or_path))
    ]
    if problems:
        raise ProfileError(report(problems, str(path)))


def read_profile(path: Path) -> str:
    """Return the text of a profile. Raises ProfileError if there is none."""
    try:
        return path.read_bytes().decode("utf-8-sig")
    except IsADirectoryError as error:
        what = "a model" if (path / "config.json").is_file() else "no profile, which is a YAML file"
        raise ProfileError(
            f"the folder {path} holds {what}; --model FOLDER summarizes with a model and needs no "
            "profile"
        ) from error
    except OSError as error:
        hub = HUB_ID.fullmatch(str(path)) and path.suffix not in SUFFIXES
        advice = f"; a model of the hub is named by --model {path}" if hub else ""
        raise ProfileError(f"cannot read the profile {path}: {error.strerror}{advice}") from error
    except UnicodeDecodeError as error:
        raise ProfileError(f"the profile {path} is not UTF-8 text") from error


def parse_profile(text: str, source: str) -> Profile:
    """Read and check the text of a profile. ``source``: the name of the file in messages.

    Raises ProfileError with every problem at once, each with its line.
    """
    document = read_yaml(text)
    problems, profile = list(document.problems), None
    if document.content is not None:
        try:
            profile = Profile.model_validate(document.content)
        except ValidationError as error:
            problems += [problem_of(details, document.lines, Profile) for details in error.errors()]
    if profile is None or problems:
        raise ProfileError(report(sorted(problems), source))
    return profile
