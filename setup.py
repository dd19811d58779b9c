"""The packages of the wheel: those under ``specx``, and the folder ``profiles`` as one more.

All other settings are in ``pyproject.toml``, which cannot add a folder to packages it finds.
"""

from setuptools import find_packages, setup

setup(
    packages=[*find_packages(include=["specx", "specx.*"]), "specx._profiles"],
    package_dir={"specx._profiles": "profiles"},
)
