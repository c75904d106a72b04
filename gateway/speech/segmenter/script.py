"""The language of a segment, by its letters: a reply may change language."""

from gateway.speech.segmenter.characters import is_han, is_hangul

_WITHOUT_LATIN = frozenset(("zh", "ja", "ko"))


def language_of(text: str, session: str) -> str:
    """The session's language tag, or `en`, `zh`, `ja`, `ko` where the letters of the text are of another script."""
    primary = session.replace("_", "-").partition("-")[0].lower()
    kana = sum(1 for char in text if "\u3041" <= char <= "\u30ff")
    hangul = sum(map(is_hangul, text))
    han = sum(1 for char in text if is_han(char) and char.isalpha()) - kana
    latin = sum(1 for char in text if char.isascii() and char.isalpha())
    if primary in _WITHOUT_LATIN:
        return "en" if latin > 1 and not (kana or hangul or han) else session
    if kana + hangul + han <= latin // 4:
        return session
    if hangul > kana + han:
        return "ko"
    return "ja" if kana else "zh"
