"""The closed lists of stage directions, English and Chinese.

English verbs are given in the third person; gerunds and base forms follow from them.
"""

from __future__ import annotations

import re


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


_VERBS = """
applauds beams bites blinks blows blushes bounces bows breathes bursts chokes chuckles clasps claps clears closes coughs covers
cries crosses cringes curtsies dances ducks exhales facepalms fidgets flinches frowns furrows gasps gazes gestures giggles glances
glares grimaces grins groans growls grumbles gulps hesitates hiccups hugs hums hushes inhales jumps kisses laughs leans licks
looks mumbles murmurs mutters nods nudges pants pats pauses peeks pokes points ponders pouts puffs purrs raises reaches rolls rubs
sighs scoffs scratches screams shakes shivers shouts shrieks shrugs shudders sings sips sits smiles smirks snaps snickers sniffles
sniffs snorts snores sobs squeals squeezes stammers stares stretches stutters swallows sways tilts trembles turns twirls wags
waves weeps whimpers whines whispers whistles wiggles winces winks wipes yawns yelps
"""
# Verbs whose plain form is no action by itself, or a word of every day: only the third person in stars counts.
_NOT_BARE = _set(
    """
    bites blows bounces bows bursts closes clears covers crosses ducks furrows jumps leans licks looks points puffs raises
    reaches rolls rubs shakes sings sits snaps stretches turns waves wipes breathes pants clasps pats pokes nudges rises
    """
)


def _base(verb: str) -> str:
    if verb in ("cries", "curtsies"):
        return verb[:-3] + "y"
    return verb[:-2] if verb.endswith(("shes", "ches", "sses")) else verb[:-1]


def _gerund(verb: str) -> str:
    base = _base(verb)
    if base.endswith("e") and not base.endswith("ee"):
        return base[:-1] + "ing"
    double = base in {"grin", "hum", "nod", "pat", "sip", "sit", "snap", "sob", "hug", "wag", "clap"}
    return base + (base[-1] if double else "") + "ing"


THIRD = frozenset(_VERBS.split())
BASE = frozenset(_base(verb) for verb in THIRD - _NOT_BARE) | _set("pause beat silence laughter applause music")
GERUNDS = frozenset(_gerund(verb) for verb in THIRD - _NOT_BARE)

MANNER = _set(
    """
    softly quietly gently warmly nervously playfully sarcastically sadly happily angrily excitedly sheepishly dryly deadpan
    seriously tenderly thoughtfully shyly teasingly dramatically jokingly
    """
)
ADVERBS = MANNER | _set(
    """
    again heavily deeply slightly slowly lightly loudly brightly awkwardly wistfully knowingly mischievously hesitantly suddenly
    briefly innocently happily wearily tiredly dreamily smugly fondly sweetly weakly bitterly wryly faintly dramatically
    sympathetically reassuringly encouragingly apologetically contentedly cheerfully gleefully enthusiastically just still then
    """
)
REST = _set(
    """
    a an the to at in with and of for up down out away over back around under his her my your their its him you them me himself
    herself myself themselves itself little bit head eyes eye brow brows eyebrow shoulders lips hand hands throat hair arms
    breath nose tears tongue chin finger fingers amusement relief delight joy disbelief excitement frustration sympathy agreement
    surprise embarrassment deep long small soft moment loud quietly once twice too air hard
    """
)
ARTICLES = frozenset(("a", "an"))
PREPOSITIONS = frozenset(("in", "with", "under"))
NOUNS = _set(
    """
    sigh laugh chuckle giggle smile grin smirk gasp pause wink nod shrug whisper breath yawn groan hug kiss sob cough tone voice
    laughter
    """
)
PRONOUNS = _set("he she they i we it")
SUBJECTS = PRONOUNS | _set(
    """
    who which that this everyone everybody someone somebody nobody anyone one always never often only also really usually
    sometimes just still then him her his my your their its the a an these those two three many of
    """
)
FIRST = THIRD | BASE | GERUNDS | ADVERBS | ARTICLES | PREPOSITIONS | PRONOUNS
# What a direction may begin with, complete or not: anything else is let go at the letter that rules it out.
BEGINNINGS = frozenset(word[:n] for word in FIRST for n in range(1, len(word) + 1))

_HOW = (
    "轻轻|微微|悄悄|偷偷|默默|小声|大声|低声|轻声|柔声|忍不住|忍俊不禁|有些|有点|稍稍|缓缓|慢慢|静静|噗嗤|扑哧|哈哈|嘿嘿|呵呵|嘻嘻|无奈|尴尬|害羞|羞涩|温柔|温和|开心|"
    "高兴|兴奋|激动|难过|伤心|生气|委屈|得意|调皮|俏皮|认真|严肃|平静|惊讶|吃惊|惊喜|神秘|亲切|深情|宠溺|疲惫|慵懒|懒懒|淡淡|甜甜|狡黠|坏坏|傻傻|苦|冷|又|再次|突然"
)
_ACT = (
    "轻笑|微笑|大笑|苦笑|偷笑|坏笑|傻笑|憨笑|冷笑|狂笑|浅笑|笑|叹气|叹息|叹口气|叹了口气|叹了一口气|长叹|叹|点头|点点头|点了点头|摇头|摇摇头|摇了摇头|歪头|歪着头|歪歪头|歪了歪头|"
    "眨眼|眨眨眼|眨眨眼睛|眨了眨眼|眨了眨眼睛|眨巴眼睛|挠头|挠挠头|挠了挠头|耸肩|耸耸肩|耸了耸肩|脸红|红着脸|红了脸|撒娇|嘟嘴|嘟着嘴|嘟起嘴|噘嘴|撅嘴|咳嗽|轻咳|清嗓子|清清嗓子|清了清嗓子|"
    "沉默|停顿|顿了顿|沉思|思考|想了想|思索|拥抱|抱抱|抱抱你|抱住你|摸头|摸摸头|摸摸你的头|摸了摸你的头|拍手|拍拍手|鼓掌|挥手|挥挥手|招手|哭|大哭|哭泣|抽泣|哽咽|啜泣|流泪|擦眼泪|擦了擦眼泪|"
    "打哈欠|打了个哈欠|伸懒腰|伸了个懒腰|吐舌头|吐了吐舌头|吐吐舌头|捂嘴|捂嘴笑|捂着嘴|捂着嘴笑|捂脸|低头|低下头|抬头|抬起头|皱眉|皱了皱眉|皱皱眉|扶额|鞠躬|握拳|比心|飞吻|亲亲|"
    "吸气|深吸一口气|深呼吸|呼气|松了口气|松了一口气|愣住|愣了一下|愣了愣|瞪大眼睛|睁大眼睛|翻白眼|翻了个白眼|托腮|托着腮|拍拍你的肩|拍了拍你的肩膀|拍拍你的肩膀|耳语|低语|嘀咕|"
    "哼歌|哼了一声|吹口哨|坏笑着|笑了笑|笑着|笑了|笑出声|笑出了声"
)
_HOW_THEN = f"(?:(?:{_HOW})[地的]?)"
_THEN = "(?:了起来|起来|出声|出声来|一下|一声|两声|几声|了一下|了一声|了几声|状|了|着|中|地?说道|地?说|道)"
_ONE = f"(?:{_HOW_THEN}{{0,3}}(?:{_ACT}){_THEN}{{0,2}})"
CHINESE = re.compile(f"{_ONE}(?:[，、,]?{_ONE}){{0,3}}|(?:{_HOW})地(?:说道?|道|回答|问)?|(?:小声|大声|低声|轻声|柔声)(?:说道?|道|问)?")
CHINESE_FEELING = re.compile(f"(?:{_HOW})的?")
CHINESE_FIRST = frozenset(word[0] for words in (_HOW, _ACT) for word in words.split("|"))
