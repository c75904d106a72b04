"""`stretto talk`: a question to a running gateway, in writing, from a WAV file or by microphone; prints each segment as it arrives,
plays or writes the sound.

Exit codes: 0 the reply is complete, 1 it failed or nothing was understood, 2 the request cannot work (address, key, voice, file,
device), 3 no gateway there or it is full (try again), 130 stopped by Ctrl-C.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import ssl
import sys
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

from gateway.client import ConnectFailed, Conversation, ConversationError, ConversationLost, NoAnswer, Refused, connect
from gateway.client.conversation import DEFAULT_URL
from gateway.events import AudioIn, StartSession, TurnDone
from gateway.talk.device import DeviceMicrophone, DeviceSpeaker, NoDevice, load
from gateway.talk.recording import RecordedMicrophone, WrongSound, read_wav
from gateway.talk.sound import Sink, sink
from gateway.talk.spoken import Dialogue
from gateway.talk.transcript import Transcript

LONG_S = 90.0  # endpointing.longest_utterance_s as it is by default
OK, FAILED, WRONG, ABSENT, STOPPED = 0, 1, 2, 3, 130


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "text", nargs="?", help='what to say, as in: stretto talk "Tell me something about the sea."; - reads standard input'
    )
    parser.add_argument("--wav", type=Path, metavar="FILE.wav", help="say what is in this file, at the pace at which it was said")
    parser.add_argument("--fast", action="store_true", help="with --wav: send it at once, as one utterance, without waiting for its end")
    parser.add_argument("--mic", action="store_true", help="talk by this machine's microphone, hands-free, until Ctrl-C (wear a headset)")
    parser.add_argument("--url", default=DEFAULT_URL, help="the gateway (default %(default)s)")
    parser.add_argument("--key", default=os.environ.get("STRETTO_KEY"), help="its key; default: the variable STRETTO_KEY")
    parser.add_argument("--out", type=Path, metavar="FILE.wav", help="write the sound into this file and play nothing")
    parser.add_argument("--text-only", action="store_true", help="ask for text alone")
    parser.add_argument("--voice", help="a voice's id; --voices has them all")
    parser.add_argument("--voices", action="store_true", help="list the gateway's voices and what they speak; say nothing")
    parser.add_argument("--language", help="language of the conversation, as in en or zh")
    parser.add_argument("--insecure", action="store_true", help="accept a self-signed certificate (wss://)")


def run(args: argparse.Namespace) -> int:
    """Have the conversation; everything a newcomer must know is printed."""
    if [args.text is not None, args.wav is not None, args.mic, args.voices].count(True) != 1:
        return _complain(WRONG, "expected one of: a text, --wav FILE.wav, --mic, --voices")
    if args.fast and args.wav is None:
        return _complain(WRONG, "--fast goes with --wav FILE.wav")
    try:
        with ExitStack() as stack:
            return asyncio.run(_list_voices(args) if args.voices else _talk(args, *_equipment(args, stack)))
    except KeyboardInterrupt:
        return STOPPED
    except (WrongSound, NoDevice) as error:
        return _complain(WRONG, str(error))
    except OSError as error:
        return _complain(WRONG, f"cannot write {args.out or error.filename or 'the sound'}: {error.strerror or error}")
    except ConnectFailed as error:
        return _complain(ABSENT if error.retryable else WRONG, f"{error}\n{_advice(error, args)}".rstrip())
    except Refused as error:
        advice = "\n`stretto talk --voices` lists them all." if error.code == "unknown_voice" else ""
        return _complain(ABSENT if error.retryable else WRONG, f"{error}{advice}")
    except (ConversationLost, NoAnswer) as error:
        return _complain(FAILED, str(error))
    except ConversationError as error:
        return _complain(FAILED, str(error))


def _advice(error: ConnectFailed, args: argparse.Namespace) -> str:
    if error.status == 401:
        return "Give its key with --key, or set STRETTO_KEY." if not args.key else "Ask the gateway's owner for a valid key."
    if error.status == 503:
        return "Try again in a moment."
    if isinstance(error.__cause__, ssl.SSLCertVerificationError):
        return ""  # told already
    if error.status is None and error.retryable:
        if not isinstance(error.__cause__, OSError) and args.url.startswith("ws:"):  # somebody listens, and hangs up
            return "Does it speak TLS (--tls)? Then its address begins with wss://."
        return "Is the gateway running? `make serve` starts one here; --url names another."
    path, usual = urlsplit(args.url).path, urlsplit(DEFAULT_URL).path
    return "Check --url." if path == usual else f"Check --url: its path is {path or '/'}, a gateway's is {usual}."


def _complain(code: int, message: str) -> int:
    print(f"stretto talk: {message}", file=sys.stderr)
    return code


def _equipment(args: argparse.Namespace, stack: ExitStack) -> tuple[RecordedMicrophone | DeviceMicrophone | None, Sink | None]:
    """What it takes to be heard and to hear. Raises `WrongSound`, `NoDevice`, `OSError`."""
    if args.mic:
        sounddevice = load()
        own = None if args.text_only else DeviceSpeaker(sounddevice, stack) if args.out is None else sink(args.out, stack)
        return DeviceMicrophone(sounddevice), own
    source = None if args.wav is None else RecordedMicrophone(read_wav(args.wav), fast=args.fast)
    if source is not None and args.fast and source.length_s > LONG_S:
        print(f"{args.wav} has {source.length_s:.0f} s; usually the last {LONG_S:.0f} of one utterance are understood.")
    return source, None if args.text_only else sink(args.out, stack)


async def _talk(args: argparse.Namespace, source: RecordedMicrophone | DeviceMicrophone | None, speaker: Sink | None) -> int:
    async with connect(args.url, key=args.key, start=_start(args, source), player=speaker, tls=_tls(args)) as conversation:
        await _greet(args.url, conversation)
        if speaker is not None:
            speaker.open(conversation.ready.audio_out.rate_hz)
        if source is None:
            text = await asyncio.to_thread(sys.stdin.read) if args.text == "-" else args.text
            code = await _write(conversation, text, speaker)
        else:
            code = await _speak(conversation, source, speaker, str(args.wav))
        if speaker is not None:
            await asyncio.to_thread(speaker.close)
        return code


def _start(args: argparse.Namespace, source: RecordedMicrophone | DeviceMicrophone | None) -> StartSession:
    return StartSession(
        language=args.language,
        voice=args.voice,
        output="text" if args.text_only else "audio",
        audio_in=None if source is None else AudioIn(rate_hz=source.rate_hz),
        turn_detection="push_to_talk" if source is not None and source.is_pushed else "auto",
    )


async def _speak(conversation: Conversation, source: RecordedMicrophone | DeviceMicrophone, player: Sink | None, name: str) -> int:
    if isinstance(source, DeviceMicrophone):
        print("Listening. Talk, interrupt, and end with Ctrl-C.")
    dialogue = Dialogue(conversation, source, print, player)
    why = await dialogue.run()
    if why is not None:
        return _complain(FAILED, f"{why} in {name}")
    return OK if dialogue.last is not None and dialogue.last.status == "completed" and not dialogue.has_failed else FAILED


def _tls(args: argparse.Namespace) -> ssl.SSLContext | None:
    if not args.url.startswith("wss:"):
        return None
    context = ssl.create_default_context()
    if args.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


async def _greet(url: str, conversation: Conversation) -> None:
    voices = conversation.ready.voices
    if not voices:
        print(f"connected to {url}; no voice: replies are text")
        return
    in_use = (await conversation.update()).voice
    others = f" of {len(voices)}; --voices lists them" if len(voices) > 1 else ""
    print(f"connected to {url}; voice {in_use}{others}")


async def _list_voices(args: argparse.Namespace) -> int:
    async with connect(args.url, key=args.key, start=_start(args, None), tls=_tls(args)) as conversation:
        for voice in conversation.ready.voices:
            print(f"{voice.id:<40} {', '.join(voice.languages)}")
        if not conversation.ready.voices:
            print("the gateway has no voice", file=sys.stderr)
    return OK


async def _write(conversation: Conversation, text: str, player: Sink | None) -> int:
    show, code = Transcript(print), FAILED
    reply = await conversation.text(text)
    async for at_ms, event in reply.timed():
        show.add(at_ms, event)
        if isinstance(event, TurnDone):
            code = OK if event.status == "completed" and not show.has_failed else FAILED
    show.end(None if player is None else player.description)
    return code
