"""What markup takes out of speech and captions, and that nothing about it depends on how text arrives."""

from __future__ import annotations

import pytest

from gateway.speech.markup import DEFAULT, Emotion, MarkupReader, MarkupRules, Piece


def read(text: str, rules: MarkupRules = DEFAULT, size: int | None = None) -> list[Piece]:
    """The pieces of a text fed in deltas of `size` characters, neighbouring text and hidden pieces joined."""
    reader = MarkupReader(rules)
    pieces: list[Piece] = []
    for start in range(0, len(text), size or len(text) or 1):
        pieces += reader.feed(text[start : start + (size or len(text))])
    return joined(pieces + reader.flush())


def joined(pieces: list[Piece]) -> list[Piece]:
    out: list[Piece] = []
    for piece in pieces:
        if out and piece.kind in ("text", "hidden") and out[-1].kind == piece.kind:
            last = out.pop()
            piece = Piece(piece.kind, last.text + piece.text, last.raw_start, piece.raw_end)
        out.append(piece)
    return out


def caption(text: str, rules: MarkupRules = DEFAULT) -> str:
    return "".join(piece.text for piece in read(text, rules))


def emotions(text: str, rules: MarkupRules = DEFAULT) -> list[str]:
    return [str(piece.emotion) for piece in read(text, rules) if piece.emotion]


def atoms(text: str) -> list[tuple[str, str | None]]:
    return [(piece.text, piece.spoken) for piece in read(text) if piece.kind == "atom"]


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("<think>hm</think>Hi.", "Hi."),
        ("<THINK>hm</Think>Hi.", "Hi."),
        ("<thinking>a < b</thinking>Hi.", "Hi."),
        ("<reasoning>\n\n</reasoning>\n\nHi.", "\n\nHi."),
        ("<think>say `</think>` Hi.", "` Hi."),
        ("Wait <think>no</think> yes", "Wait  yes"),
        ("[THINK]x[/THINK]Hi", "Hi"),
        ("◁think▷x◁/think▷Hi", "Hi"),
        ("late</think>Hi", "lateHi"),
        ("Hi<|im_end|>", "Hi"),
        ("<answer>Hi</answer>", "Hi"),
        ("<laugh>Hi <sigh/> there", "Hi  there"),
        ("<think>never closed", ""),
        ("a <thi", "a <thi"),
        ("vector<int> a<b <foo>", "vector<int> a<b <foo>"),
        ("`<think>` is a tag", "`<think>` is a tag"),
        ("```\n<think>\n[happy]\n```\n", "```\n<think>\n[happy]\n```\n"),
    ],
)
def test_reasoning_and_control_tags_are_neither_shown_nor_said(raw: str, shown: str) -> None:
    assert caption(raw) == shown


def test_end_of_reasoning_breaks_the_segment() -> None:
    kinds = [piece.kind for piece in read("Well<think>x</think>Hi")]
    assert kinds == ["text", "hidden", "break", "text"]


def test_template_may_have_opened_the_reasoning() -> None:
    rules = MarkupRules(starts_in_reasoning=True)
    assert caption("so the user wants tea</think>Tea it is.", rules) == "Tea it is."


@pytest.mark.parametrize(
    ("raw", "found", "shown"),
    [
        ("[happy] Hi", ["happy"], " Hi"),
        ("[Happy]Hi", ["happy"], "Hi"),
        ("[joyful] Hi", ["happy"], " Hi"),
        ("[开心]你好", ["happy"], "你好"),
        ("Oh. [sad] No.", ["sad"], "Oh.  No."),
        ('"[angry] Out!" he said', ["angry"], '" Out!" he said'),
        ('<emotion value="sad">Oh.', ["sad"], "Oh."),
        ("<emotion value='sad'/>Oh.", ["sad"], "Oh."),
        ("<emotion value=sad>Oh.</emotion> Hi", ["sad", "neutral"], "Oh. Hi"),
        ("[calm]a<emotion value='sad'>b</emotion>c", ["calm", "sad", "calm"], "abc"),
        ("<Emotion Value='HAPPY' >Hi", ["happy"], "Hi"),
        ('<emotion value="bored">Hi', [], "Hi"),
        ("😊 Hi", ["happy"], " Hi"),
        ("😢😢 Oh", ["sad"], " Oh"),
        ("Hi.\n😡 Out!", ["angry"], "Hi.\n Out!"),
        ("Hi. 😢 I missed you.", ["sad"], "Hi.  I missed you."),
        ("<think>x</think>😊 Hi", ["happy"], " Hi"),
        ("Hi 😊 there", [], "Hi 😊 there"),
        ("Hi! 😊", [], "Hi! 😊"),
        ("Hi! 😊\nBye", [], "Hi! 😊\nBye"),
        ("😊", [], "😊"),
        ("🚗 Cars", [], "🚗 Cars"),
        ("[foo] a[0] [12]", [], "[foo] a[0] [12]"),
        ("[happy", [], "[happy"),
        ("[hap\npy]", [], "[hap\npy]"),
        ("【开心】你好", [], "【开心】你好"),
    ],
)
def test_emotion_marks_are_taken_out_and_unknown_brackets_stay(raw: str, found: list[str], shown: str) -> None:
    assert (emotions(raw), caption(raw)) == (found, shown)


@pytest.mark.parametrize(
    ("pattern", "raw"),
    [("【{}】", "【开心】好"), ("({})", "(温柔地)好"), ("（{}）", "（生气）好"), ("*{}*", "*sad*好"), ("<<{}>>", "<<calm>>好")],
)
def test_patterns_of_the_settings_are_marks(pattern: str, raw: str) -> None:
    rules = MarkupRules(patterns=(pattern,))
    assert len(emotions(raw, rules)) == 1
    assert caption(raw, rules) == "好"


def test_words_of_the_settings_replace_the_vocabulary() -> None:
    rules = MarkupRules(patterns=("【{}】",), words={"耍赖": Emotion.PLAYFUL})
    assert emotions("【耍赖】哼", rules) == ["playful"]
    assert emotions("【开心】哼", rules) == []


def test_emoji_marks_can_be_switched_off() -> None:
    assert caption("😊 Hi", MarkupRules(emoji="off")) == "😊 Hi"


@pytest.mark.parametrize("pattern", ["happy", "{}", "[{}", "{}]", "[{}][{}]", " {} "])
def test_bad_patterns_are_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match="expected a mark"):
        MarkupRules(patterns=(pattern,))


@pytest.mark.parametrize(
    "raw",
    [
        "*sighs*",
        "*Sighs deeply*",
        "**laughs**",
        "_giggles_",
        "*she smiles softly*",
        "*laughs at your joke and shakes his head*",
        "*a soft laugh*",
        "(laughs)",
        "(laughing)",
        "(chuckles softly)",
        "(sighs and shrugs)",
        "(clears his throat)",
        "(in a whisper)",
        "(softly)",
        "(pause)",
        "[laughs]",
        "[sighs]",
        "（轻笑）",
        "（笑）",
        "（叹了口气）",
        "(轻轻地叹气)",
        "*歪头*",
        "（微笑着说）",
        "（温柔地）",
        "（眨了眨眼睛，笑着）",
        "（忍不住笑出声）",
        "【叹气】",
        "（摸摸头）",
        "（小声嘀咕）",
        "（沉默了一下）",
    ],
)
def test_stage_directions_are_hidden(raw: str) -> None:
    assert caption(f"Well. {raw} Yes.") == "Well.  Yes."
    assert caption(f"{raw}好的。") == "好的。"


@pytest.mark.parametrize(
    "raw",
    [
        "I *really* mean it",
        "a *smile* helps",
        "He *laughs* at me",
        "who *cries* most",
        "*not* today",
        "3 * 4 * 5",
        "2*sighs",
        "*note* this",
        "(laughs are free)",
        "(smile more)",
        "(I think)",
        "(see below)",
        "(2024)",
        "(optional)",
        "(the pause is long)",
        "speak (softly spoken)",
        "（笑点很低）",
        "（2024年）",
        "（注意）",
        "（叹气是不好的习惯）",
        "他（张三）来了",
        "（温柔地方）",
        "（笑话集）",
        "（微笑服务月）",
        "【通知】",
        "[1]",
        "snake_case_x",
        "*",
        "**",
        "(",
        "（",
        "(laughs",
        "*sighs",
        "*sighs\nloudly*",
        "* sighs *",
        "*important note about verbs*",
    ],
)
def test_emphasis_and_ordinary_parentheses_stay(raw: str) -> None:
    assert caption(raw) == raw


def test_stage_directions_can_be_kept() -> None:
    assert caption("*sighs* Hi", MarkupRules(stage_directions=False)) == "*sighs* Hi"


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ("see `x = 1`.", [("`x = 1`", "x = 1")]),
        ("``a ` b``", [("``a ` b``", "a ` b")]),
        ("```inline```", [("```inline```", "inline")]),
        ("an ` open one\n`", []),
        ("[the docs](https://a.b/c)", [("[the docs](https://a.b/c)", "the docs")]),
        ("[a (b)](http://x.y/z_(w))", [("[a (b)](http://x.y/z_(w))", "a (b)")]),
        ('[a](/b "t i") c', [('[a](/b "t i")', "a")]),
        ("![a cat](cat.png)", [("![a cat](cat.png)", "a cat")]),
        ("[happy](https://x.y)", [("[happy](https://x.y)", "happy")]),
        ("[note](see below)", []),
        ("fact[^1].", [("[^1]", "")]),
        ("go to https://a.io/b?c=d.", [("https://a.io/b?c=d", None)]),
        ("(www.a.org)", [("www.a.org", None)]),
        ("**http://a.org**", [("http://a.org", None)]),
        ("看https://a.cn/好", [("https://a.cn/", None)]),
        ("https://", []),
        ("www. is", []),
        ("<https://a.b>", [("<https://a.b>", None)]),
        ("| a |\n|---|\n| 1 |", [("|---|", "")]),
        ("a\n\n---\nb", [("---", "")]),
        ("* * *\n", [("* * *", "")]),
        ("- a\n- b", []),
        ("<b>x</b><br/>", [("<b>", ""), ("</b>", ""), ("<br/>", "")]),
        ("~~~\nx\n~~~", [("~~~\n", ""), ("x\n", ""), ("~~~", "")]),
        ("```py\nx\n````\n", [("```py\n", ""), ("x\n", ""), ("````\n", "")]),
        ("Code: ```py\nx", [("```py\n", ""), ("x", "")]),
        ("1. a\n   ```\n   x\n   ```\nb", [("```\n", ""), ("   x\n", ""), ("   ```\n", "")]),
        ("~~strike~~", []),
    ],
)
def test_atoms_and_what_is_said_for_them(raw: str, expected: list[tuple[str, str | None]]) -> None:
    assert atoms(raw) == expected
    assert caption(raw) == raw


def test_end_of_a_fence_breaks_the_segment() -> None:
    assert [piece.kind for piece in read("a\n```\nx\n```\nb")] == ["text", "atom", "atom", "atom", "break", "text"]


def test_code_notice_is_said_once_for_a_fence() -> None:
    pieces = read("```\nx\ny\n```\n", MarkupRules(code_notice="Here is some code."))
    assert [piece.spoken for piece in pieces if piece.kind == "atom"] == ["Here is some code.", "", "", ""]


def test_text_without_a_mark_leaves_at_once() -> None:
    reader = MarkupReader()
    for delta in ["Good", " morning", ", how", " are you", "?", " 你好", "。"]:
        assert [piece.text for piece in reader.feed(delta)] == [delta]


def test_plain_emphasis_is_let_go_at_the_first_letter_that_rules_a_direction_out() -> None:
    reader = MarkupReader()
    assert reader.feed("*i") == []
    assert [piece.text for piece in reader.feed("m")] == ["*im"]


def test_reader_is_usable_after_a_flush() -> None:
    reader = MarkupReader()
    reader.feed("a [hap")
    assert [piece.text for piece in reader.flush()] == ["[hap"]
    assert [(piece.raw_start, piece.emotion) for piece in reader.feed("[sad]b") if piece.emotion] == [(6, "sad")]
