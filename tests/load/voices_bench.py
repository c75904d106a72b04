"""How fast and how safe the voices are, against local doubles and real local engines.

    python -m tests.load.voices_bench first-audio     segment decided -> first word heard: edge double, HTTP double
    python -m tests.load.voices_bench local           the same for espeak-ng, Piper, Kokoro (needs their weights)
    python -m tests.load.voices_bench round-trip      what Whisper understands of the local voices, alone and joined, and how loud they are
    python -m tests.load.voices_bench failures        1,000 segments with a service that fails in every known way 20 % of the time
    python -m tests.load.voices_bench cancel          how long a canceled voice stays busy

Prints Markdown. Measures and asserts nothing but that no word is lost: figures belong to the machine and its load.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
import time
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing, asynccontextmanager

import edge_tts
import edge_tts.communicate
import numpy as np

from engine.api import EngineError, SpeechChunk, Synthesis, Synthesizer
from engine.audio import peak
from engine.audio_codecs.mp3 import Mp3Decoder
from engine.settings import EdgeSettings, HttpVoice, SpeechServer
from engine.tts.chain import VoiceChain
from engine.tts.chain.breaker import BreakerSettings
from engine.tts.edge import EdgeVoices
from engine.tts.openai import HttpVoices
from engine.tts.voice_table import TableVoice, VoiceTable
from tests.doubles.edge_service import GOOD, Behavior, EdgeService
from tests.doubles.openai_speech import Answer, FakeSpeechServer
from tests.doubles.spoken_tones import listen, tone_of, words_of
from tests.doubles.tone_voice import ToneVoice

ARIA = "edge/en-US-AriaNeural"
TABLE = VoiceTable(voices={ARIA: TableVoice(languages=("en",))})
TEXT = "Of course, I can help you with that right away."
SHORT, LONG = "Hello, how can I help you today?", "The sea covers most of our planet, and we have seen less of it than of the moon."
CHINESE = "你好，今天天气怎么样？我们一起出去走走吧。"
SERVICE_SPEED = 8.0  # the double sends its audio so many times faster than real time, as the real service about does


def ask(text: str, voice: str, name: str = "bench") -> Synthesis:
    return Synthesis(request_id=name, text=text, voice=voice, language="en")


async def first_ms(voices: Synthesizer, synthesis: Synthesis) -> float:
    """Milliseconds to the first word heard: to the first audio and through its leading silence. The rest is taken too."""
    started, first_ms, sound = time.perf_counter(), 0.0, b""
    async with aclosing(voices.synthesize(synthesis)) as chunks:
        async for chunk in chunks:
            first_ms = first_ms or (time.perf_counter() - started) * 1000
            sound += chunk.pcm
    return first_ms + silence_ms(sound)


def silence_ms(pcm: bytes) -> float:
    """Milliseconds before the first sound."""
    return float(np.flatnonzero(np.abs(np.frombuffer(pcm, "<i2").astype(int)) > 330)[0]) / 24


async def several(n: int, one: Callable[[], Awaitable[float]], pause_s: float) -> str:
    """ "p50 / p99" of `n` runs, with a pause between them as between segments that are played."""
    took = []
    for _ in range(n):
        took.append(await one())
        await asyncio.sleep(pause_s)
    return row_of(took)


def row_of(took: Sequence[float]) -> str:
    ordered = sorted(took)
    return f"{ordered[len(ordered) // 2]:.1f} / {ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))]:.1f}"


@asynccontextmanager
async def edge_voices(service: EdgeService, **settings: object) -> AsyncGenerator[EdgeVoices, None]:
    voices = EdgeVoices(EdgeSettings(**settings), TABLE.listed("edge"), TABLE.manners, url=service.url)  # type: ignore[arg-type]  # the bench's own
    await voices.start()
    try:
        yield voices
    finally:
        await voices.close()


async def with_package(url: str) -> float:
    """The same through edge-tts's own client: a new connection for each text."""
    vars(edge_tts.communicate)["WSS_URL"] = url  # its only seam; no TLS then, as for our client here
    started, first, data = time.perf_counter(), 0.0, b""
    async for message in edge_tts.Communicate(TEXT, "en-US-AriaNeural").stream():
        if message["type"] == "audio":
            first = first or (time.perf_counter() - started) * 1000
            data += message["data"]
    return first + silence_ms(Mp3Decoder().feed(data))


async def first_audio() -> None:
    print(f"load average {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores; double at {SERVICE_SPEED:.0f} times real time\n")
    print("| voice | network round trip | p50 / p99 ms |\n|---|---|---|")
    for round_trip_ms in (20, 200):
        pause_s, n = 0.1 + round_trip_ms * 0.004, 40 if round_trip_ms < 100 else 20
        async with EdgeService(one_way_s=round_trip_ms / 2000, speed=SERVICE_SPEED).running() as service:
            row = f"{round_trip_ms} ms"
            print(f"| edge-tts's own client | {row} | {await several(n, lambda s=service: with_package(s.url), pause_s)} |")  # type: ignore[misc]  # bound now
            for open_ahead in (False, True):
                async with edge_voices(service, open_ahead=open_ahead) as voices:
                    if open_ahead:
                        voices.expect(ARIA)
                        await asyncio.sleep(pause_s)
                    got = await several(n, lambda v=voices: first_ms(v, ask(TEXT, ARIA)), pause_s)  # type: ignore[misc]  # bound now
                    print(f"| edge, {'opened ahead' if open_ahead else 'opened when needed'} | {row} | {got} |")
    async with FakeSpeechServer().running() as server:
        for kind in ("pcm", "wav", "mp3", "opus"):
            server.default = Answer(piece_bytes=4800, piece_s=0.001, format=kind)
            settings = SpeechServer(url=server.base_url, voices=(HttpVoice(name="amy"),), format=kind)
            http = HttpVoices("studio", settings, {}, {})
            await http.start()
            print(f"| HTTP, {kind} | 0 ms | {await several(40, lambda h=http: first_ms(h, ask(TEXT, 'studio/amy')), 0.02)} |")  # type: ignore[misc]  # bound now
            await http.close()


async def local() -> None:
    from engine.tts.espeak import Espeak
    from engine.tts.kokoro import Kokoro
    from engine.tts.piper import Piper
    from engine.weights import KOKORO, PIPER_JOE
    from tests.e2e.local_engines import weights

    folder = weights(KOKORO).parent
    engines: list[tuple[Synthesizer, str, tuple[str, ...], int]] = [
        (Espeak(), "espeak/en", (SHORT, LONG), 20),
        (Piper([weights(PIPER_JOE)]), "piper/en_US-joe-medium", (SHORT, LONG), 12),
        (Kokoro(folder, ("af_heart",)), "kokoro/af_heart", (SHORT, LONG), 6),
        (Kokoro(folder, ("zf_xiaobei",)), "kokoro/zf_xiaobei", (CHINESE,), 6),
    ]
    print(f"load average {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores, one thread an inference\n")
    print("| voice | text | first audio p50 / p99 ms | RTF p50 | CPU s per s | RSS MB |\n|---|---|---|---|---|---|")
    for engine, voice, texts, n in engines:
        await engine.start()
        pid = getattr(engine, "pid", None)
        for text in texts:
            firsts, factors, cpu, sound_s = [], [], _cpu_s(pid), 0.0
            for i in range(n):
                first, total_ms, audio_ms = await _whole(engine, ask(text, voice, f"{i}"))
                firsts.append(first)
                factors.append(total_ms / audio_ms)
                sound_s += audio_ms / 1000
            used = (_cpu_s(pid) - cpu) / sound_s
            print(f"| {voice} | {text[:24]}… | {row_of(firsts)} | {sorted(factors)[n // 2]:.2f} | {used:.2f} | {_rss_mb(pid):.0f} |")
        await engine.close()


async def _whole(engine: Synthesizer, synthesis: Synthesis) -> tuple[float, float, float]:
    """First audio, all audio, and its length, in milliseconds."""
    started, first, n_bytes = time.perf_counter(), 0.0, 0
    async with aclosing(engine.synthesize(synthesis)) as chunks:
        async for chunk in chunks:
            first = first or (time.perf_counter() - started) * 1000
            n_bytes += len(chunk.pcm)
    return first, (time.perf_counter() - started) * 1000, n_bytes / 48


ENGLISH_LINES = (
    "Of course, I can help you with that.",
    "The weather will be sunny in the morning and rainy in the afternoon.",
    "Please remember to bring your coat and a good book.",
    "She opened the window, looked at the garden, and smiled.",
    "We are going to meet at the station at half past seven.",
    "I think the blue one looks better than the green one.",
    "That is a very good question, let me think about it.",
    "The museum is closed today, but the park is open.",
    "My brother works in a small bakery near the river.",
    "We should leave early, because the road is often full.",
    "Could you tell me where the nearest pharmacy is?",
    "The children played outside until it was dark.",
    "I have never seen such a beautiful lake before.",
    "Dinner is ready, and everyone is already sitting down.",
    "He forgot his keys again and had to climb through the window.",
    "The train to the coast leaves every hour.",
    "My favorite season is autumn, when the leaves turn red.",
    "Let us take a short break and drink some tea.",
    "The doctor said that you should rest for a few days.",
    "Nobody knew the answer, so we looked it up.",
    "There is a small shop on the corner that sells fresh bread.",
    "I am sorry to hear that, it must have been hard.",
    "The new bridge will be finished next summer.",
    "Please speak a little slower, I want to write it down.",
    "After the concert we walked home along the canal.",
    "The old man told us a long story about his ship.",
    "You can borrow my bicycle if you bring it back tonight.",
    "It is too warm in here, could you open a window?",
    "They moved to another city when she was ten years old.",
    "Thank you for calling, have a nice evening.",
)
CHINESE_LINES = (
    "你好，今天天气怎么样？",
    "我们下午一起去公园散步吧。",
    "这本书非常有意思，你应该看看。",
    "请把门关上，外面很冷。",
    "他每天早上都喝一杯牛奶。",
    "明天我要去北京开会。",
    "这家餐厅的面条很好吃。",
    "我的妹妹喜欢画画和唱歌。",
    "火车马上就要开了，快一点。",
    "昨天晚上我们看了一部电影。",
    "老师让我们写一篇短文章。",
    "你能告诉我怎么去火车站吗？",
    "春天来了，花园里开满了花。",
    "我觉得这件红色的衣服更好看。",
    "医生说你需要多休息几天。",
    "孩子们在操场上跑来跑去。",
    "他们去年搬到了一个新城市。",
    "下雨了，记得带上雨伞。",
    "我已经把饭做好了，快来吃吧。",
    "这个问题很难，让我想一想。",
    "爷爷每天都去河边钓鱼。",
    "谢谢你的帮助，我非常感激。",
    "图书馆星期一不开门。",
    "我想买两张去上海的票。",
    "她笑着打开了那封信。",
    "别担心，一切都会好起来的。",
    "请你说慢一点，我要写下来。",
    "晚上的月亮又大又圆。",
    "我们坐在窗边聊了很久。",
    "祝你生日快乐，身体健康。",
)


async def round_trip() -> None:
    """Errors per word (Chinese: per character) of what Whisper hears, each segment alone and three joined as a listener hears them."""
    from engine.api import Transcription
    from engine.asr.whisper import Whisper
    from engine.audio import Resampler
    from engine.tts.kokoro import Kokoro
    from engine.tts.piper import Piper
    from engine.weights import KOKORO, PIPER_JOE, WHISPER_BASE
    from tests.e2e.local_engines import weights

    ear = Whisper(weights(WHISPER_BASE).parent)
    await ear.start()

    async def hear(pcm: bytes, language: str, name: str) -> list[str]:
        resampler = Resampler(24_000, 16_000)
        sound = bytes(16_000) + resampler.feed(pcm) + resampler.flush() + bytes(16_000)
        transcript = await ear.transcribe(Transcription(utterance=name, session="bench", pcm=sound, language=language, is_final=True))
        return _tokens(transcript.text if transcript else "", language)

    print("| voice | segments | errors alone | errors joined | loudness of speech dBFS | peak |\n|---|---|---|---|---|---|")
    for engine, voice, language, lines in (
        (Piper([weights(PIPER_JOE)]), "piper/en_US-joe-medium", "en", ENGLISH_LINES),
        (Kokoro(weights(KOKORO).parent, ("af_heart",)), "kokoro/af_heart", "en", ENGLISH_LINES),
        (Kokoro(weights(KOKORO).parent, ("zf_xiaobei",)), "kokoro/zf_xiaobei", "zh", CHINESE_LINES),
    ):
        await engine.start()
        sounds = [b"".join([c.pcm async for c in engine.synthesize(ask(line, voice, f"{i}"))]) for i, line in enumerate(lines)]
        await engine.close()
        errors = {1: 0, 3: 0}
        for size in errors:
            for at in range(0, len(lines), size):
                heard = await hear(b"".join(sounds[at : at + size]), language, f"{voice}{size}{at}")
                errors[size] += _distance(_tokens(" ".join(lines[at : at + size]), language), heard)
        n, sound = len(_tokens(" ".join(lines), language)), b"".join(sounds)
        print(f"| {voice} | {len(lines)} | {errors[1] / n:.1%} | {errors[3] / n:.1%} | {_loudness_db(sound):.1f} | {peak(sound):.2f} |")
    await ear.close()


def _tokens(text: str, language: str) -> list[str]:
    """Words in small letters; Chinese as syllables, because Whisper mixes simplified and traditional characters."""
    if language == "zh":
        from pypinyin import lazy_pinyin

        return [syllable for syllable in lazy_pinyin("".join(c for c in text if c.isalnum())) if syllable]
    return "".join(c for c in text.lower().replace("-", " ") if c.isalnum() or c in " '").split()


def _distance(want: Sequence[str], got: Sequence[str]) -> int:
    """Levenshtein distance."""
    row = list(range(len(got) + 1))
    for i, word in enumerate(want, 1):
        above, row = row, [i]
        for j, other in enumerate(got, 1):
            row.append(min(above[j] + 1, row[j - 1] + 1, above[j - 1] + (word != other)))
    return row[-1]


def _loudness_db(pcm: bytes) -> float:
    """Level of the parts that are speech: 20 ms windows within 30 dB of the loudest."""
    samples = np.frombuffer(pcm, "<i2").astype(float)[: len(pcm) // 960 * 480].reshape(-1, 480) / 32_768
    power = (samples**2).mean(axis=1)
    return float(10 * np.log10(power[power > power.max() / 1000].mean()))


def _cpu_s(pid: int | None) -> float:
    """User and system time of a process. Source: proc(5)."""
    if pid is None:
        return 0.0
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _rss_mb(pid: int | None) -> float:
    if pid is None:
        return 0.0
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def a_way_to_fail(rng: random.Random) -> Behavior:
    """Any known one, at a random place of the audio."""
    n_bytes = rng.randrange(0, 9) * 720
    return rng.choice(
        [
            Behavior(drop_at_request=True),
            Behavior(drop_after_bytes=n_bytes),
            Behavior(stall_after_bytes=n_bytes),
            Behavior(end_after_bytes=n_bytes),
            *(Behavior(garbage=kind) for kind in ("audio", "text", "header", "metadata", "html")),
        ]
    )


def a_refusal(rng: random.Random) -> Behavior:
    status = rng.choice([403, 429, 503])
    return Behavior(refuse_status=status, retry_after="1" if status == 429 else None)


WORDS = ("river", "stone", "garden", "window", "music", "winter", "summer", "yellow", "letter", "dinner", "planet", "doctor", "silver")


class Tally:
    """What became of the segments."""

    def __init__(self) -> None:
        self.lost = self.twice = self.disordered = self.unspoken = 0
        self.by_engine: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        self.changes = 0

    def on_voice_fault(self, engine: str, kind: str, rests: bool) -> None:
        self.faults[kind] += 1

    def on_voice_change(self, asked: str, spoken_by: str) -> None:
        self.changes += 1

    def judge(self, text: str, chunks: Sequence[SpeechChunk]) -> None:
        expected = [tone_of(word) for word in words_of(text)]
        heard = listen(b"".join(chunk.pcm for chunk in chunks))
        want, got = Counter(expected), Counter(heard)
        self.lost += sum((want - got).values())
        self.twice += sum((got - want).values())
        self.disordered += want == got and heard != expected
        self.by_engine[" + ".join(dict.fromkeys((chunk.voice or "?").partition("/")[0] for chunk in chunks if chunk.pcm))] += 1


async def failures(n_segments: int = 1000, n_sessions: int = 8, share: float = 0.2) -> None:
    head = ("rest", "segments", "words lost", "words twice", "order broken", "unspoken", "spoken by", "faults", "changes told")
    print(f"| {' | '.join(head)} |\n{'|---' * len(head)}|")
    for rest_s in (1e-6, 2.0):
        tally, rng = Tally(), random.Random(5)
        async with EdgeService().running() as service:
            service.choose = lambda text: a_way_to_fail(rng) if rng.random() < share else GOOD  # noqa: B023  # this turn's
            settings = EdgeSettings(connect_s=1.0, first_audio_s=0.5, next_s=0.3, streams=n_sessions, open_ahead=True)
            edge = EdgeVoices(settings, TABLE.listed("edge"), TABLE.manners, url=service.url)
            chain = VoiceChain([edge, ToneVoice("local")], TABLE, BreakerSettings(rest_s=rest_s, longest_rest_s=4 * rest_s), tally)
            await chain.start()
            texts = [" ".join(rng.choice(WORDS) for _ in range(rng.randint(2, 7))) + "." for _ in range(n_segments)]
            started = time.perf_counter()
            await asyncio.gather(*(_session(chain, service, rng, texts[i::n_sessions], tally) for i in range(n_sessions)))
            await chain.close()
        shares = ", ".join(f"{name} {count}" for name, count in tally.by_engine.most_common())
        faults = ", ".join(f"{kind} {count}" for kind, count in tally.faults.most_common())
        print(
            f"| {rest_s:g} s | {n_segments} in {time.perf_counter() - started:.0f} s | {tally.lost} | {tally.twice} | {tally.disordered} "
            f"| {tally.unspoken} | {shares} | {faults} | {tally.changes} |"
        )
        assert tally.lost == tally.unspoken == tally.twice == tally.disordered == 0, "a word was lost, repeated or moved"


async def _session(chain: VoiceChain, service: EdgeService, rng: random.Random, texts: Sequence[str], tally: Tally) -> None:
    for i, text in enumerate(texts):
        if rng.random() < 0.05:
            service.handshakes.append(a_refusal(rng))
        try:
            async with aclosing(chain.synthesize(ask(text, ARIA, f"{id(texts)}-{i}"))) as stream:
                tally.judge(text, [chunk async for chunk in stream])
        except EngineError:
            tally.unspoken += 1


async def cancel() -> None:
    print("| voice | closing the stream, p50 / p99 ms | the service sees it after, p50 / p99 ms |\n|---|---|---|")
    async with EdgeService(speed=2.0).running() as service, edge_voices(service, open_ahead=False) as voices:
        closing, seen = [], []
        for _ in range(30):
            stream = voices.synthesize(ask(TEXT, ARIA))
            await anext(stream)
            started = time.perf_counter()
            await stream.aclose()
            closing.append((time.perf_counter() - started) * 1000)
            while service.open_sockets:
                await asyncio.sleep(0.001)
            seen.append((time.perf_counter() - started) * 1000)
        print(f"| edge | {row_of(closing)} | {row_of(seen)} |")
    async with FakeSpeechServer().running() as server:
        server.default = Answer(piece_s=0.05)
        http = HttpVoices("studio", SpeechServer(url=server.base_url, voices=(HttpVoice(name="amy"),)), {}, {})
        await http.start()
        closing, seen = [], []
        for _ in range(30):
            stream = http.synthesize(ask(TEXT, "studio/amy"))
            await anext(stream)
            started = time.perf_counter()
            await stream.aclose()
            closing.append((time.perf_counter() - started) * 1000)
            while server.n_running:
                await asyncio.sleep(0.001)
            seen.append((time.perf_counter() - started) * 1000)
        await http.close()
        print(f"| HTTP | {row_of(closing)} | {row_of(seen)} |")


def main() -> None:
    known = {"first-audio": first_audio, "local": local, "round-trip": round_trip, "failures": failures, "cancel": cancel}
    chosen = known.get(sys.argv[1] if len(sys.argv) == 2 else "")
    if chosen is None:
        sys.exit(f"expected one of {', '.join(known)}")
    asyncio.run(chosen())


if __name__ == "__main__":
    main()
