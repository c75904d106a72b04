"""Web and e-mail addresses: what is said is the host, a path is for reading."""

from __future__ import annotations

import re

from gateway.speech.normalizer.rules import Rule, rule

_SCHEME = r"(?:https?://|mailto:)"
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_HOST = rf"(?:{_LABEL}\.)+[A-Za-z][A-Za-z0-9-]{{0,61}}[A-Za-z]"
_PATH = r"(?:[/?#][A-Za-z0-9\-._~:/?#\[\]@!$&'()*+,;=%]*[A-Za-z0-9/=&#_-]|/)?"
# A bare name needs a known ending: `first.second` is more often a missing space than an address.
_ENDINGS = r"(?:com|org|net|io|ai|dev|edu|gov|cn|de|fr|uk|jp|info|app|me|tv|co|xyz|eu|ch|us|ca|au|in|br|ru|kr|tech|site|online|cloud|wiki)"
_MAIL = rf"(?<![\w.])[A-Za-z0-9][\w.+-]{{0,63}}@{_HOST}"
_FULL = rf"{_SCHEME}(?:[\w.+-]{{1,64}}@)?{_LABEL}(?:\.{_LABEL})*(?::\d+)?{_PATH}"
_BARE = rf"(?<![\w@.])(?:www\.{_HOST}|(?:{_LABEL}\.)+{_ENDINGS})(?![\w-])(?::\d+)?{_PATH}"


def address_rules(at: str, dot: str, dash: str) -> tuple[Rule, ...]:
    """The rules of a language that says `@`, `.` and `-` with these words, given with the spaces around them."""

    def say_host(match: re.Match[str]) -> str:
        host = re.sub(rf"^{_SCHEME}", "", match[0], flags=re.I)
        host = re.split(r"[/?#]", host, maxsplit=1)[0]
        return _name(host.removeprefix("www.").partition(":")[0])

    def _name(text: str) -> str:
        return text.replace("@", at).replace(".", dot).replace("-", dash).replace("_", " ")

    return (
        rule("addresses", _FULL, say_host, re.I | re.A),
        rule("addresses", _MAIL, lambda match: _name(match[0]), re.A),
        rule("addresses", _BARE, say_host, re.A),
    )
