"""What a shell, a container and a compose file put around a vLLM command: found, and taken off.

Pure. Understands continuations (also Windows'), comments, a word processor's quotation marks, `&&`, pipes, redirections, `bash -c "..."`,
`docker run ... IMAGE arguments`, and lists as in `CMD ["vllm", "serve"]`.
"""

from __future__ import annotations

import itertools
import json
import re
import shlex

from msgspec import Struct

from engine.api import EngineSetupError

ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_CONTINUED = re.compile(r"[\\^`][ \t]*\r?\n")
_COMMENT = re.compile(r"(?m)^\s*#.*$|\s#\s[^'\"\n]*$")
_QUOTES = str.maketrans({"\u201c": '"', "\u201d": '"', "\u2018": "'", "\u2019": "'"})
_DASH = re.compile(r"(?<!\S)[\u2013\u2014](?=[A-Za-z])")  # a word processor's dash in the place of two hyphens
_LIST = re.compile(r"(?:(?:command|args|cmd|entrypoint)\s*:?\s*)?(\[.*\])", re.IGNORECASE | re.DOTALL)
_END = re.compile(r"(\d?&?>{1,2}|<).*|&|\||&&|\|\||;")
_RUNNERS = frozenset({"docker", "podman", "nerdctl"})
_SWITCHES = frozenset(
    {"--rm", "--init", "--privileged", "--detach", "--interactive", "--tty", "--read-only", "--no-healthcheck", "--oom-kill-disable"}
)
_SHELLS = frozenset({"bash", "sh", "zsh"})


class Program(Struct, frozen=True, kw_only=True):
    """`name`: `vllm serve`, or the module behind `python -m`; empty for bare flags. `words`: its arguments."""

    name: str
    words: list[str]
    environment: dict[str, str]


def find(text: str) -> Program:
    """The vLLM program in a pasted text. Raises `EngineSetupError` for text without one."""
    words = _words(text)
    start = next(
        (place for place, word in enumerate(words) if not ASSIGNMENT.match(word) and word not in ("env", "sudo", "export")), len(words)
    )
    found = _find(words)
    if found is None and words[start:] and words[start].startswith("-"):
        found = Program(name="", words=words[start:], environment=_assigned(words[:start]))
    if found is None:
        raise EngineSetupError(
            f"this is no vLLM command: got {' '.join(words)[:60]!r}, expected `vllm serve MODEL`, `python -m vllm...` or flags"
        )
    return Program(name=found.name, words=_until_end(found.words), environment=found.environment)


def _words(text: str) -> list[str]:
    text = _DASH.sub("--", text.translate(_QUOTES)).strip()
    if (listed := _LIST.fullmatch(text)) is not None:
        try:
            return [str(word) for word in json.loads(listed[1])]
        except ValueError:
            pass
    text = _CONTINUED.sub(" ", _COMMENT.sub("", _CONTINUED.sub(" ", text)))
    try:
        return shlex.split(text)
    except ValueError as error:
        raise EngineSetupError(f"the command cannot be read ({error}); is a quotation mark missing?") from error


def _find(words: list[str]) -> Program | None:
    for place, word in enumerate(words):
        behind, name = words[place + 1 :], word.lower().rsplit("/", 1)[-1]
        if name in _RUNNERS and behind[:1] == ["run"]:
            return _in_container(behind[1:])
        if name in _SHELLS and (inner := _in_shell(behind)) is not None:
            return inner
        if name == "vllm" and behind[:1] == ["serve"]:
            return Program(name="vllm serve", words=behind[1:], environment=_assigned(words[:place]))
        if word == "-m" and behind and behind[0].lower().startswith("vllm"):
            return Program(name=behind[0], words=_less_serve(behind[1:]), environment=_assigned(words[:place]))
        if word.endswith("vllm/entrypoints/openai/api_server.py"):
            return Program(name="vllm.entrypoints.openai.api_server", words=behind, environment=_assigned(words[:place]))
        if "vllm-openai" in word.lower():
            return Program(name="vllm serve", words=behind, environment=_assigned(words[:place]))
    return None


def _in_container(words: list[str]) -> Program | None:
    """`docker run`'s options, the image, and what runs in it: the image's own server where nothing else is named."""
    place, given, entry = 0, [], ""
    while place < len(words) and words[place].startswith("-"):
        option, equals, attached = words[place].partition("=")
        place += 1
        if equals or option in _SWITCHES or re.fullmatch(r"-[ditqP]+", option):
            value = attached
        else:
            value, place = (words[place] if place < len(words) else ""), place + 1
        if option in ("-e", "--env"):
            given.append(value)
        if option == "--entrypoint":
            entry = value
    if place >= len(words):
        return None
    image, behind = words[place], [*([entry] if entry else []), *words[place + 1 :]]
    inner = _find(behind)
    if inner is None and "vllm" in image.lower() and not entry:
        inner = Program(name="vllm serve", words=_less_serve(behind), environment={})
    return None if inner is None else Program(name=inner.name, words=inner.words, environment=_assigned(given) | inner.environment)


def _in_shell(behind: list[str]) -> Program | None:
    for option, text in itertools.pairwise(behind):
        if re.fullmatch(r"-[a-z]*c", option):
            return _find(_words(text))
    return None


def _less_serve(words: list[str]) -> list[str]:
    return words[1:] if words[:1] == ["serve"] else words


def _assigned(words: list[str]) -> dict[str, str]:
    """The assignments among `words`; the last of a name counts."""
    return dict(word.removesuffix(";").split("=", 1) for word in words if ASSIGNMENT.match(word))


def _until_end(words: list[str]) -> list[str]:
    """The words up to a pipe, a redirection or the next command."""
    kept: list[str] = []
    for word in words:
        if _END.fullmatch(word):
            break
        kept += [word.removesuffix(";")] if word != "-" else []  # a list in YAML
        if word.endswith(";"):
            break
    return kept
