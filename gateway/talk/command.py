"""`stretto talk`: one question to a running gateway; prints each segment as it arrives, plays or writes the sound.

Exit codes: 0 the reply is complete, 1 it failed, 2 the request cannot work (address, key, voice), 3 no gateway there or it is
full (try again), 130 stopped by Ctrl-C.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import ssl
import sys
from contextlib import ExitStack
from pathlib import Path

from gateway.client import ConnectFailed, Conversation, ConversationError, ConversationLost, NoAnswer, Refused, Reply, connect
from gateway.client.conversation import DEFAULT_URL
from gateway.events import StartSession, TurnDone
from gateway.talk.sound import Sink, sink
from gateway.talk.transcript import Transcript

OK, FAILED, WRONG, ABSENT, STOPPED = 0, 1, 2, 3, 130


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("text", help='what to say, as in: stretto talk "Tell me something about the sea."; - reads standard input')
    parser.add_argument("--url", default=DEFAULT_URL, help="the gateway (default %(default)s)")
    parser.add_argument("--key", default=os.environ.get("STRETTO_KEY"), help="its key; default: the variable STRETTO_KEY")
    parser.add_argument("--out", type=Path, metavar="FILE.wav", help="write the sound into this file and play nothing")
    parser.add_argument("--text-only", action="store_true", help="ask for text alone")
    parser.add_argument("--voice", help="a voice's id; a wrong one lists those there are")
    parser.add_argument("--language", help="language of the conversation, as in en or zh")
    parser.add_argument("--insecure", action="store_true", help="accept a self-signed certificate (wss://)")


def run(args: argparse.Namespace) -> int:
    """Have the conversation; everything a newcomer must know is printed."""
    text = sys.stdin.read() if args.text == "-" else args.text
    try:
        with ExitStack() as stack:
            speaker = None if args.text_only else sink(args.out, stack)
            return asyncio.run(_talk(args, text, speaker))
    except KeyboardInterrupt:
        return STOPPED
    except OSError as error:
        return _complain(WRONG, f"cannot write {args.out}: {error.strerror or error}")
    except ConnectFailed as error:
        return _complain(ABSENT if error.retryable else WRONG, f"{error}\n{_advice(error, args)}")
    except Refused as error:
        return _complain(ABSENT if error.retryable else WRONG, str(error))
    except (ConversationLost, NoAnswer) as error:
        return _complain(FAILED, str(error))
    except ConversationError as error:
        return _complain(FAILED, str(error))


def _advice(error: ConnectFailed, args: argparse.Namespace) -> str:
    if error.status == 401:
        return "Give its key with --key, or set STRETTO_KEY." if not args.key else "Ask the gateway's owner for a valid key."
    if error.status == 503:
        return "Try again in a moment."
    if error.status is None and error.retryable:
        return "Is the gateway running? `make serve` starts one here; --url names another."
    return "Check --url."


def _complain(code: int, message: str) -> int:
    print(f"stretto talk: {message}", file=sys.stderr)
    return code


async def _talk(args: argparse.Namespace, text: str, speaker: Sink | None) -> int:
    start = StartSession(language=args.language, voice=args.voice, output="text" if args.text_only else "audio")
    async with connect(args.url, key=args.key, start=start, player=speaker, tls=_tls(args)) as conversation:
        _greet(args.url, conversation)
        if speaker is not None:
            speaker.open(conversation.ready.audio_out.rate_hz)
        show = Transcript(print)
        code = await _listen(await conversation.text(text), show)
        if speaker is not None:
            await asyncio.to_thread(speaker.close)
            show.end(speaker.description)
        else:
            show.end(None)
        return code


def _tls(args: argparse.Namespace) -> ssl.SSLContext | None:
    if not args.url.startswith("wss:"):
        return None
    context = ssl.create_default_context()
    if args.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _greet(url: str, conversation: Conversation) -> None:
    voices = ", ".join(voice.id for voice in conversation.ready.voices) or "none"
    print(f"connected to {url}; voices: {voices}")


async def _listen(reply: Reply, show: Transcript) -> int:
    code = FAILED
    async for at_ms, event in reply.timed():
        show.add(at_ms, event)
        if isinstance(event, TurnDone):
            code = OK if event.status == "completed" and not show.has_failed else FAILED
    return code
