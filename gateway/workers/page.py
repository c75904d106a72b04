"""The `/metrics` pages of all workers as one: every sample gets the label `worker`.

Added up they would be smaller, but a worker that dies would take its counts out of the sums, which Prometheus reads as a jump.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_SAMPLE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})?( .*)")


def merged(pages: Mapping[int, bytes]) -> bytes:
    """One page in the text format; each family once, as the format demands."""
    families: dict[str, list[str]] = {}
    for number, page in sorted(pages.items()):
        for block in re.split(r"^(?=# HELP )", page.decode(), flags=re.MULTILINE):
            lines = block.splitlines()
            head = [line for line in lines if line.startswith("#")]
            samples = families.setdefault("\n".join(head), [])
            samples += [_labeled(line, number) for line in lines if line and not line.startswith("#")]
    return "".join("\n".join([head, *samples]) + "\n" for head, samples in families.items() if head).encode()


def _labeled(sample: str, number: int) -> str:
    found = _SAMPLE.fullmatch(sample)
    if found is None:
        raise ValueError(f"no sample of the text format: {sample[:80]!r}")
    name, labels, rest = found.groups()
    return f'{name}{{worker="{number}"{"," if labels else ""}{labels or ""}}}{rest}'
