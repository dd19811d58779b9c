"""A profile with nothing but what is required."""

MINIMAL = """\
name: small
target: {model: org/target}
draft: {model: org/draft, trained_context: 2048}
"""
