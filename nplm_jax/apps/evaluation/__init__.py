"""Models in lm-evaluation-harness."""

COMMANDS: dict[str, tuple[str, str]] = {}
