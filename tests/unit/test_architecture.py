"""The architecture as data: which room stands on which level and what it may import. Change it here first, and say why.

A room is a file or a folder. It may import itself, the words (level 0), and the rooms its row names. Level 1 decides and is
pure: no loop, clock, chance, socket, log or metric. `engine/` never imports `gateway/`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec import Struct

ROOT = Path(__file__).parents[2]
LONGEST_FILE = 400
LONGEST_FUNCTION = 40


class Room(Struct, frozen=True):
    """`may` are rooms or the groups below; the words of the package are always allowed from level 1 up."""

    level: int
    may: tuple[str, ...] = ()


WORDS = ("gateway.config", "gateway.errors", "gateway.events")
RULES = (
    "gateway.codecs.native",
    "gateway.codecs",
    "gateway.codecs.realtime",
    "gateway.endpointing",
    "gateway.turn_state",
    "gateway.speculation",
    "gateway.history",
    "gateway.speech",
    "gateway.pacing",
    "gateway.admission",
    "gateway.auth",
    "gateway.tickets",
    "gateway.quota",
    "gateway.ledger",
    "gateway.fair_share",
    "gateway.shedding",
    "gateway.addresses",
    "gateway.voice_choice",
)
PROMISES = ("engine.api", "engine.settings", "engine.observer", "engine.audio")
ENGINES = ("engine.llm", "engine.tts", "engine.asr", "engine.vad", "engine.end_of_turn", "engine.fake", "engine.fake_listening")
TASKS = (
    "gateway.profile",
    "gateway.session",
    "gateway.sessions",
    "gateway.session_store",
    "gateway.redis_store",
    "gateway.settling",
    "gateway.turn",
    "gateway.outbox",
    "gateway.listener",
    "gateway.speaker",
)

ROOMS: dict[str, Room] = {
    "gateway": Room(0),
    "gateway.config": Room(0, ("engine.api", "engine.settings")),
    "gateway.errors": Room(0, ("engine.api",)),
    "gateway.events": Room(0),
    "gateway.codecs": Room(1),
    "gateway.codecs.native": Room(1),
    "gateway.codecs.realtime": Room(1),
    "gateway.endpointing": Room(1),
    "gateway.turn_state": Room(1),
    "gateway.speculation": Room(1, ("gateway.endpointing",)),  # two readings are compared as endpointing reads them
    "gateway.history": Room(1, ("engine.api",)),
    "gateway.speech": Room(1),
    "gateway.speech.emotion": Room(1),
    "gateway.speech.markup": Room(1, ("gateway.speech.emotion",)),
    "gateway.speech.segmenter": Room(1),
    "gateway.speech.segmenter.scoring": Room(1, ("gateway.speech.markup", "gateway.speech.segmenter")),  # scores a reply as a turn cuts it
    "gateway.speech.normalizer": Room(1),
    "gateway.speech.captions": Room(1, ("gateway.speech.normalizer",)),
    # the seam of the three: what a turn feeds with deltas
    "gateway.speech.stream": Room(
        1, ("gateway.speech.captions", "gateway.speech.markup", "gateway.speech.normalizer", "gateway.speech.segmenter")
    ),
    # what `say` would make of configured phrases
    "gateway.speech.phrases": Room(1, ("gateway.speech.markup", "gateway.speech.segmenter", "gateway.speech.stream")),
    "gateway.pacing": Room(1, ("engine.audio",)),
    "gateway.admission": Room(1),
    "gateway.fair_share": Room(1),  # who may have the last places
    "gateway.shedding": Room(1),  # when nobody new is let in
    "gateway.auth": Room(1),
    "gateway.addresses": Room(1),  # whose address it is, behind which proxies
    "gateway.tickets": Room(1, ("gateway.auth",)),  # a ticket's rights are a key's, narrowed
    "gateway.voice_choice": Room(1, ("engine.api",)),  # which voice speaks a segment of another language
    "gateway.quota": Room(1, ("gateway.admission",)),  # what each key has used, and what it may; who holds the house's places
    "gateway.ledger": Room(1, ("gateway.quota",)),  # what all processes that share the keys have used
    # wishes against what there is
    "gateway.profile": Room(1, ("engine.api", "gateway.auth", "gateway.endpointing", "gateway.speech", "gateway.voice_choice")),
    "gateway.metrics": Room(2),
    # decodes what a microphone sends
    "gateway.listener": Room(2, (*RULES, "engine.api", "engine.audio", "engine.audio_codecs", "gateway.metrics")),
    # finds whole frames in the MP3 that a voice made
    "gateway.speaker": Room(2, (*RULES, "engine.api", "engine.audio", "engine.audio_codecs", "gateway.metrics")),
    "gateway.voice_watch": Room(2, ("engine.api", "gateway.metrics")),  # counts what voices go through
    "gateway.key_watch": Room(2, ("gateway.quota", "gateway.turn")),  # books what turns came to
    "gateway.turn": Room(
        2, (*RULES, "engine.api", "engine.audio", "engine.decoding", "gateway.speaker", "gateway.metrics", "gateway.outbox")
    ),
    "gateway.outbox": Room(2, ("gateway.metrics",)),
    # owns the sessions' tasks, so that one that crashes ends alone
    "gateway.session_store": Room(2, ("gateway.session", "gateway.auth")),
    "gateway.redis_store": Room(
        2, ("gateway.session", "gateway.session_store", "gateway.tickets", "gateway.redis_book", "gateway.metrics")
    ),  # the store that gateways share
    "gateway.redis_book": Room(2, ("gateway.quota", "gateway.redis_store")),  # and their book, over the store's connections
    "gateway.settling": Room(2, ("gateway.quota",)),  # keeps a process's accounts and the book in step
    "gateway.sessions": Room(
        2, (*RULES, "gateway.profile", "gateway.session", "gateway.session_store", "gateway.settling", "gateway.turn", "gateway.metrics")
    ),
    "gateway.session": Room(
        2,
        (
            *RULES,
            "gateway.profile",
            "engine.decoding",
            "engine.api",
            "engine.warm_up",  # reads a conversation's prompt ahead, as the heartbeat does a persona's
            "gateway.listener",
            "gateway.turn",
            "gateway.outbox",
            "gateway.metrics",
        ),
    ),
    "gateway.capture": Room(2, ("gateway.auth", "gateway.backlog", "gateway.metrics")),  # conversations in files
    "gateway.backlog": Room(2),  # a bounded queue and its thread
    "gateway.tracing": Room(
        3, ("engine.api", "gateway.backlog", "gateway.metrics", "gateway.turn")
    ),  # OpenTelemetry, where it is asked for
    "gateway.moderation": Room(3, ("gateway.metrics", "gateway.turn")),  # asks a product whether words may be heard
    "gateway.usage": Room(3, ("gateway.backlog", "gateway.metrics", "gateway.turn")),  # a record of each turn for those who bill
    "gateway.watching": Room(
        3, ("gateway.capture", "gateway.metrics", "gateway.moderation", "gateway.tracing", "gateway.turn", "gateway.usage")
    ),  # who keeps books, as the settings say
    "gateway.logs": Room(3),
    "gateway.tls": Room(3),
    "gateway.transport": Room(3, ("gateway.addresses", "gateway.admission")),  # uvicorn's protocols with the bounds they lack
    "gateway.monitor": Room(3, (*RULES, "engine.api", "gateway.metrics", "gateway.stalls")),
    "gateway.stalls": Room(3),  # a thread that looks at the loop
    # reads what conversations begin with, beside the turns
    "gateway.heartbeat": Room(3, (*RULES, "engine.api", "engine.warm_up", "gateway.profile", "gateway.turn", "gateway.metrics")),
    "gateway.realtime_door": Room(3, RULES),  # who may come in by /v1/realtime, before the upgrade
    "gateway.connection": Room(3, (*RULES, "gateway.capture", "gateway.session", "gateway.sessions", "gateway.outbox", "gateway.metrics")),
    # several gateway processes behind one port; a carried connection is served as one that came in by the door
    "gateway.workers": Room(3, (*RULES, "gateway.tickets", "gateway.capture", "gateway.connection", "gateway.sessions", "gateway.turn")),
    "gateway.server": Room(
        3,
        (
            *RULES,
            "gateway.workers",
            *TASKS,
            *PROMISES,
            "gateway.metrics",
            "gateway.connection",
            "gateway.realtime_door",
            "gateway.heartbeat",
            "gateway.monitor",
            "gateway.transport",
            "gateway.voice_watch",
            "gateway.key_watch",
            "gateway.capture",
            "gateway.watching",
            "engine.build",
            "engine.audio_codecs",  # the threads that encode for clients
            "engine.decoding",  # and the process that decodes for them
        ),
    ),
    "gateway.client": Room(3, ("gateway.codecs.native", "engine.audio_codecs")),  # how long an MP3 frame sounds
    "gateway.talk": Room(3, ("gateway.client", "engine.audio")),  # a recording at a rate that the gateway does not take
    "gateway.bench": Room(3, ("gateway.client", "gateway.codecs.native")),
    "gateway.replay": Room(3, ("gateway.capture", "gateway.client", "gateway.codecs.native")),  # kept conversations, told and had again
    "gateway.load": Room(3, ("gateway.bench", "gateway.client", "gateway.codecs.native")),  # the bench's link, readings and own gateway
    # builds to see what would be chosen; starts nothing. Reads voice tables and limits by the rules of those who use them
    "gateway.check": Room(
        3,
        (
            *PROMISES,
            "gateway.tls",
            "gateway.load.limits",
            "gateway.speech.emotion",
            "engine.build",
            "engine.vllm_args",
            "engine.vllm_check",
        ),
    ),
    "gateway.key": Room(3, ("gateway.auth",)),
    "gateway.__main__": Room(3, ("gateway.commands",)),
    "gateway.commands": Room(
        3,
        (
            *RULES,
            *TASKS,
            *PROMISES,
            "gateway.server",
            "gateway.workers",
            "gateway.key",
            "gateway.logs",
            "gateway.tls",
            "gateway.transport",
            "gateway.client",
            "gateway.talk",
            "gateway.bench",
            "gateway.load",
            "gateway.replay",
            "gateway.check",
            "engine.build",  # `stretto fetch` prepares what the server will build
        ),
    ),
    "engine": Room(0),
    "engine.api": Room(0),
    "engine.settings": Room(0),
    "engine.observer": Room(0),  # how voices tell that one stepped in
    "engine.audio": Room(1),
    "engine.audio_codecs": Room(2, ("engine.audio",)),  # mp3 and opus, for voices that send them
    "engine.vllm_args": Room(1),
    "engine.convert_gguf": Room(2, ("engine.weights",)),  # the test model comes as GGUF
    "engine.gpus": Room(2, ("engine.vllm_args",)),  # NVML
    "engine.vllm_check": Room(2, ("engine.vllm_args", "engine.gpus")),  # reads model folders and GPUs, loads nothing
    "engine.warm_up": Room(2),  # any language model
    "engine.inherited": Room(2),  # the environment of child processes
    "engine.worker": Room(2, ("engine.audio", "engine.inherited")),
    "engine.weights": Room(2),  # pinned model files; engines are handed paths
    "engine.llm": Room(
        2, ("engine.audio", "engine.inherited", "engine.retry_after", "engine.worker", "engine.vllm_args", "engine.convert_gguf")
    ),
    "engine.retry_after": Room(1),  # a header that all HTTP services send alike
    "engine.decoding": Room(2, ("engine.audio_codecs", "engine.worker")),  # clients' compressed audio, in a process of its own
    "engine.tts": Room(2, ("engine.audio", "engine.retry_after", "engine.audio_codecs", "engine.worker")),
    "engine.mel": Room(1),  # the features of Whisper and of smart-turn
    "engine.onnx": Room(2),  # how a session is opened on few cores
    "engine.asr": Room(2, ("engine.audio", "engine.mel", "engine.retry_after", "engine.worker")),
    "engine.voice_stream": Room(2, ("engine.audio",)),  # audio on its way through a voice detector, real or scripted
    "engine.vad": Room(2, ("engine.audio", "engine.onnx", "engine.voice_stream", "engine.worker")),
    "engine.end_of_turn": Room(2, ("engine.audio", "engine.mel", "engine.onnx", "engine.worker")),
    "engine.fake": Room(2, ("engine.audio",)),
    "engine.fake_listening": Room(2, ("engine.audio", "engine.voice_stream")),  # scripted scores on the real streams
    "engine.build_listening": Room(3, (*ENGINES, "engine.weights")),  # the half of build that makes ears
    "engine.build_voices": Room(3, (*ENGINES, "engine.weights")),  # and the half that makes voices
    "engine.build": Room(
        3,
        (
            *ENGINES,
            "engine.build_listening",
            "engine.build_voices",
            "engine.worker",
            "engine.weights",
            "engine.audio",
            "engine.vllm_args",
            "engine.vllm_check",  # what cannot work is told before it is loaded
            "engine.convert_gguf",
        ),
    ),
}
# An engine's `start` begins what its `close` ends, and no block encloses both: it keeps its task by name, and its own tests show
# that none outlives `close`. Everyone else has a group.
WITHOUT_GROUP = {"engine.llm.openai.model", "engine.llm.serving.model", "engine.llm.vllm.model", "engine.tts.edge.connections"}
ALWAYS = {"gateway": WORDS, "engine": ("engine.api", "engine.settings", "engine.observer")}  # from level 1 up

# `errors` reads engine errors only; engine imports by rule files are named above
IMPURE = {
    "asyncio",
    "time",
    "random",
    "socket",
    "logging",
    "threading",
    "subprocess",
    "multiprocessing",
    "prometheus_client",
    "gateway.metrics",
}


def sources() -> dict[str, str]:
    """Module name -> source text, of everything we ship."""
    found = {}
    for path in sorted((ROOT / "gateway").rglob("*.py")) + sorted((ROOT / "engine").rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path.read_text("utf-8")
    return found


MODULES = sources()


def room_of(module: str, rooms: dict[str, Room] = ROOMS) -> str | None:
    """The room a module stands in. The bare packages hold their `__init__` alone: a new file there needs a row."""
    name = module
    while name and name not in rooms:
        name = name.rpartition(".")[0]
    is_row_missing = name in {"gateway", "engine", "gateway.codecs", "gateway.speech"} and name != module
    return None if is_row_missing or not name else name


def imports(source: str, modules: frozenset[str]) -> Iterator[tuple[int, str]]:
    """(line, module) of every import, also those in functions. `from a import b` is a.b where that is a module."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                yield node.lineno, "." * node.level + (node.module or "")
                continue
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                yield node.lineno, whole if whole in modules else str(node.module)


def import_faults(modules: dict[str, str], rooms: dict[str, Room] = ROOMS) -> list[str]:
    """Everything the table forbids."""
    known, faults = frozenset(modules), []
    for module, source in modules.items():
        name = room_of(module, rooms)
        if name is None:
            faults.append(f"{module}: no room in the table")
            continue
        for line, target in imports(source, known):
            fault = judge(name, rooms[name], target)
            if fault:
                faults.append(f"{module}:{line} imports {target}: {fault}")
    return faults


def judge(name: str, room: Room, target: str) -> str | None:
    """Why room `name` may not import `target`, or None."""
    if target.startswith("."):
        return "relative import; write the whole name"
    package, top = name.split(".")[0], target.split(".")[0]
    if room.level == 1 and (top in IMPURE or target in IMPURE):
        return "a rule file decides from its arguments alone"
    if top not in ("gateway", "engine"):
        return None
    allowed = (name, *room.may, *(ALWAYS[package] if room.level else ()))
    if any(target == a or target.startswith(a + ".") for a in allowed):
        return None
    return f"allowed are {', '.join(sorted(allowed))}"


def task_faults(module: str, source: str) -> list[str]:
    """Tasks born outside a task group, or without a name."""
    tree = ast.parse(source)
    groups = task_groups(tree)
    faults = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        if node.func.attr == "ensure_future" and module not in WITHOUT_GROUP:
            faults.append(f"{module}:{node.lineno} ensure_future: a task is born in a task group")
        if node.func.attr != "create_task":
            continue
        if ast.unparse(node.func.value) not in groups and module not in WITHOUT_GROUP:
            faults.append(f"{module}:{node.lineno} {ast.unparse(node.func)}: a task is born in a task group")
        elif not any(k.arg == "name" for k in node.keywords):
            faults.append(f"{module}:{node.lineno} {ast.unparse(node.func)}: each task is named")
    return faults


def task_groups(tree: ast.AST) -> set[str]:
    """Expressions that hold a task group: `async with TaskGroup() as x`, annotations, and plain assignments of those."""
    groups: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.withitem) and "TaskGroup" in ast.unparse(node.context_expr) and node.optional_vars is not None:
            groups.add(ast.unparse(node.optional_vars))
        elif isinstance(node, ast.arg) and node.annotation is not None and "TaskGroup" in ast.unparse(node.annotation):
            groups.add(node.arg)
        elif isinstance(node, ast.AnnAssign) and "TaskGroup" in ast.unparse(node.annotation):
            groups.update((ast.unparse(node.target), f"self.{ast.unparse(node.target)}"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and (ast.unparse(node.value) in groups or ast.unparse(node.value).endswith("TaskGroup()")):
            groups.update(ast.unparse(target) for target in node.targets)
    return groups


def length_faults(module: str, source: str) -> list[str]:
    """Files and functions over the limit."""
    n_lines = len(source.splitlines())
    faults = [f"{module}: {n_lines} lines; the limit is {LONGEST_FILE}"] if n_lines > LONGEST_FILE else []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno is not None:
            n_lines = node.end_lineno - node.lineno + 1
            if n_lines > LONGEST_FUNCTION:
                faults.append(f"{module}:{node.lineno} {node.name}: {n_lines} lines; the limit is {LONGEST_FUNCTION}")
    return faults


def report(faults: list[str]) -> None:
    if faults:
        pytest.fail("\n".join(faults), pytrace=False)


def test_every_file_has_a_room_and_imports_what_its_row_allows() -> None:
    report(import_faults(MODULES))


def test_engine_never_imports_gateway() -> None:
    known = frozenset(MODULES)
    of_engine = ((m, t) for m, s in MODULES.items() if m.startswith("engine") for _, t in imports(s, known))
    report([f"{module} imports {target}" for module, target in of_engine if target.split(".")[0] == "gateway"])


def test_only_build_knows_the_engines_and_only_the_edge_knows_build() -> None:
    """Read from the table, so that a generous new row cannot open a second way."""
    knows = {name for name, room in ROOMS.items() if any(m.startswith(ENGINES) for m in room.may)}
    assert knows == {"engine.build", "engine.build_listening", "engine.build_voices"}
    for half in ("engine.build_listening", "engine.build_voices"):
        assert {name for name, room in ROOMS.items() if half in room.may} == {"engine.build"}
    asks_build = {"gateway.server", "gateway.check", "gateway.commands"}
    assert {name for name, room in ROOMS.items() if "engine.build" in room.may} == asks_build


def test_rows_name_rooms_and_point_down_or_sideways() -> None:
    for name, room in ROOMS.items():
        for target in room.may:
            assert room_of(target) is not None, f"{name} may import {target}, which has no row"
            assert ROOMS[room_of(target) or ""].level <= room.level, f"{name} may import {target}, which stands above it"


def test_tasks_are_born_named_and_in_groups() -> None:
    report([fault for module, source in MODULES.items() for fault in task_faults(module, source)])


def test_files_and_functions_are_short() -> None:
    report([fault for module, source in MODULES.items() for fault in length_faults(module, source)])


@pytest.mark.parametrize(
    ("module", "source", "fault"),
    [
        ("gateway.helpers", "x = 1", "no room"),
        ("gateway.speech.extra", "x = 1", "no room"),
        ("gateway.pacing", "import asyncio", "a rule file"),
        ("gateway.pacing", "def f():\n    from time import monotonic", "a rule file"),
        ("gateway.turn_state", "from gateway.metrics import x", "a rule file"),
        ("gateway.turn", "from gateway import session", "allowed are"),
        ("gateway.turn", "from . import session", "relative import"),
        ("gateway.turn", "from engine.llm.vllm import Vllm", "allowed are"),
        ("gateway.events", "from gateway.config import Settings", "allowed are"),
        ("engine.tts.piper", "import gateway.events", "allowed are"),
        ("engine.worker", "from engine.tts.piper import Piper", "allowed are"),
    ],
)
def test_forbidden_imports_are_found(module: str, source: str, fault: str) -> None:
    known = {"gateway.session": "", "gateway.turn": "", module: source}
    assert [f for f in import_faults(known) if fault in f and f.startswith(module)]


@pytest.mark.parametrize(
    ("source", "is_fine"),
    [
        ("asyncio.create_task(f(), name='x')", False),
        ("asyncio.get_running_loop().create_task(f(), name='x')", False),
        ("asyncio.ensure_future(f())", False),
        ("async def g():\n async with asyncio.TaskGroup() as group:\n  group.create_task(f())", False),
        ("async def g():\n async with asyncio.TaskGroup() as group:\n  group.create_task(f(), name='x')", True),
        ("def g(tasks: asyncio.TaskGroup):\n tasks.create_task(f(), name='x')", True),
        ("def g(self, tasks: TaskGroup):\n self._tasks = tasks\n self._tasks.create_task(f(), name='x')", True),
    ],
)
def test_homeless_tasks_are_found(source: str, is_fine: bool) -> None:
    assert (task_faults("m", source) == []) is is_fine


def test_long_files_and_functions_are_found() -> None:
    assert length_faults("m", "x = 1\n" * 401) == ["m: 401 lines; the limit is 400"]
    assert length_faults("m", "def f():\n" + "    x = 1\n" * 40) == ["m:1 f: 41 lines; the limit is 40"]
