"""The language of a segment, by its letters: a reply may change language."""

import re

_WITHOUT_LATIN = frozenset(("zh", "ja", "ko"))
_LATIN = re.compile("[A-Za-z]")
_KANA = re.compile("[\u3041-\u3096\u30a1-\u30fa\uff66-\uff9d]")
_HANGUL = re.compile("[\u1100-\u11ff\uac00-\ud7a3]")
_HAN = re.compile("[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")


def language_of(text: str, session: str) -> str:
    """The session's language tag, or `en`, `zh`, `ja`, `ko` where the letters of the text are of another script."""
    primary = session.replace("_", "-").partition("-")[0].lower()
    latin = len(_LATIN.findall(text))
    if text.isascii():
        return "en" if latin > 1 and primary in _WITHOUT_LATIN else session
    kana, hangul, han = (len(pattern.findall(text)) for pattern in (_KANA, _HANGUL, _HAN))
    if primary in _WITHOUT_LATIN:
        return "en" if latin > 1 and not (kana or hangul or han) else session
    if kana + hangul + han <= latin // 4:
        return session
    if hangul > kana + han:
        return "ko"
    return "ja" if kana else "zh"
