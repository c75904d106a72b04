"""The signs that Kokoro reads, and their numbers. Source: Kokoro-82M v1.0, `config.json` (Apache-2.0)."""

from __future__ import annotations

# Runs of signs whose numbers follow each other, by the first one's number.
_RUNS = {
    1: ';:,.!?', 9: '—…"()“”', 16: " \u0303ʣʥʦʨᵝ\uab67AI", 31: "O", 33: "Q", 35: "ST", 39: "W", 41: "Yᵊabcdef",
    50: "hijklmnopqrstuvwxyzɑɐɒæ", 75: "βɔɕç", 80: "ɖðʤə", 85: "ɚɛɜ", 90: "ɟ",
    92: "ɡ", 99: "ɥ", 101: "ɨɪʝ", 110: "ɯɰŋɳɲɴø", 118: "ɸθœ", 123: "ɹ", 125: "ɾɻ",
    128: "ʁɽʂʃʈʧ", 135: "ʊʋ", 138: "ʌɣɤ", 142: "χʎ", 147: "ʒʔ", 156: "ˈˌː", 162: "ʰ", 164: "ʲ", 169: "↓", 171: "→↗↘", 177: "ᵻ",
}  # fmt: skip
NUMBERS = {sign: first + i for first, run in _RUNS.items() for i, sign in enumerate(run)}
LONGEST = 510  # signs in one inference; the model's context is 512 with a mark at each end


def numbers_of(phonemes: str) -> list[int]:
    """The model's input; signs that it does not know are left out."""
    return [NUMBERS[sign] for sign in phonemes if sign in NUMBERS]
