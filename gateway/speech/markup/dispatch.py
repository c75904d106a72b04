"""Which rules are asked at which character, in order of precedence."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache, partial

from gateway.speech.emotion import FACES
from gateway.speech.markup import code, directions, links, marks, tags
from gateway.speech.markup.pieces import Place, Verdict
from gateway.speech.markup.rules import MarkupRules

Rule = Callable[[Place], Verdict]


@lru_cache(maxsize=32)
def rules_by_mark(rules: MarkupRules) -> Mapping[str, tuple[Rule, ...]]:
    """The rules that may apply at each character; a character without an entry is plain text."""
    table: dict[str, list[Rule]] = {}

    def ask(rule: Rule, characters: str) -> None:
        for mark in sorted(set(characters + characters.lower() + characters.upper())):
            table.setdefault(mark, []).append(rule)

    ask(partial(tags.read_reasoning, rules=rules), "".join(tag[0] for pair in rules.reasoning for tag in pair))
    ask(partial(marks.read_pattern, rules=rules), "".join(pattern[0] for pattern in rules.patterns))
    ask(links.read_autolink, "<")
    ask(partial(tags.read_tag, rules=rules), "<")
    ask(code.read_code, "`~")
    ask(links.read_rule_line, "|-=*_+:")
    ask(links.read_link, "[!")
    ask(links.read_address, "hw")
    if rules.stage_directions:
        ask(directions.read_direction, "".join(directions.CLOSERS))
    if rules.emoji == "segment":
        ask(marks.read_face, "".join(FACES))
    return {mark: tuple(found) for mark, found in table.items()}


@lru_cache(maxsize=32)
def trigger(rules: MarkupRules) -> re.Pattern[str]:
    """Where a rule may apply: any other character is text at once."""
    return re.compile("[" + "".join(map(re.escape, sorted(rules_by_mark(rules)))) + "]")


@lru_cache(maxsize=32)
def suspicion(rules: MarkupRules) -> re.Pattern[str]:
    """The same for whole stretches of text: the letters that begin an address count only where one may begin."""
    table = rules_by_mark(rules)
    marks = [re.escape(mark) for mark in sorted(table) if mark not in "hHwW" or len(table[mark]) > 1]
    return re.compile("[" + "".join(marks) + "]|[hH](?:[tT]|\\Z)|[wW](?:[wW]|\\Z)")
