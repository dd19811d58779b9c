"""Reading a profile and reporting every problem of the file at once."""

from pydantic import ValidationError

from specx.errors import ProfileError
from specx.profile.find import profile_path
from specx.profile.messages import problem_of, report
from specx.profile.profile import Profile
from specx.profile.yaml_lines import read_yaml


def load_profile(name_or_path: str) -> Profile:
    """Read and check a profile: a shipped name, a user's own, or the path of a YAML file.

    Raises ProfileError with every problem of the file at once, each with its line.
    """
    path = profile_path(name_or_path)
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise ProfileError(f"cannot read the profile {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ProfileError(f"the profile {path} is not UTF-8 text") from error
    return parse_profile(text, str(path))


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
