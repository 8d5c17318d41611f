"""KenLM's Python interface over any model."""

COMMANDS: dict[str, tuple[str, str]] = {}
