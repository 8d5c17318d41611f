"""Text: JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any


def to_json(values: Mapping[str, Any], instead: Callable[[float], Any] = lambda _: None, **options: Any) -> str:
    """JSON in which an infinite or undefined number is what `instead` makes of it, as no reader of JSON expects one."""

    def finite(value):
        if isinstance(value, Mapping):
            return {k: finite(v) for k, v in value.items()}
        if isinstance(value, list):
            return [finite(v) for v in value]
        return instead(value) if isinstance(value, float) and not math.isfinite(value) else value

    return json.dumps(finite(values), **options)
