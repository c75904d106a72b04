"""Who may have the last places: a key that holds more than its share leaves some for those that hold less.

Pure. While there is room, every key takes what it wants. Of the last places (`reserve_share` of all) a key beyond its share gets none, as
far as others are short of theirs; they are for those others. Shares go by the weights of the keys that there are. With one key nothing
is kept back.
"""

from __future__ import annotations

import math
from collections.abc import Mapping


def is_fair(key: str, held: Mapping[str, int], weights: Mapping[str, float], places: int, reserve_share: float) -> bool:
    """Whether `key` may take one more of `places`. `held`: sessions of each key; a key without a weight weighs 1."""
    names = {key, *held, *weights}
    total = sum(weights.get(name, 1.0) for name in names)
    shares = {name: places * weights.get(name, 1.0) / total for name in names}
    if len(names) == 1 or held.get(key, 0) + 1 <= shares[key]:
        return True
    short = sum(max(0, math.floor(shares[name]) - held.get(name, 0)) for name in names if name != key)
    kept = min(math.ceil(places * reserve_share), short)
    return sum(held.values()) + 1 <= places - kept
