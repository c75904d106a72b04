"""`stretto replay FILE`: tell a kept conversation, or have it again with a gateway and compare.

Exit codes: 0 told (and had again), 1 the conversation broke off, 2 the file or the request cannot work, 3 no gateway there or it is full.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import ssl
import sys
from pathlib import Path

from gateway.client import ConnectFailed, ConversationError, ConversationLost, Refused
from gateway.client.dialing import Dialer
from gateway.replay.again import Again
from gateway.replay.story import compared, told
from gateway.replay.tape import BadTape, Tape, read, turns_of

OK, FAILED, WRONG, ABSENT = 0, 1, 2, 3
CONNECT_S = 10.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, metavar="FILE", help="a kept conversation, from the folder that capture.folder names")
    parser.add_argument("--all", action="store_true", help="every message, with all its fields but sound")
    parser.add_argument("--against", metavar="URL", help="send the client's side to this gateway, at the same pace, and compare")
    parser.add_argument("--key", default=os.environ.get("STRETTO_KEY"), help="its key; default: the variable STRETTO_KEY")
    parser.add_argument("--insecure", action="store_true", help="accept a self-signed certificate (wss://)")


def run(args: argparse.Namespace) -> int:
    """Print the conversation, or both and what differs."""
    try:
        tape = read(args.file)
        if args.against is None:
            for line in told(tape, everything=args.all):
                print(line)
            return OK
        return asyncio.run(_again(args, tape))
    except BadTape as error:
        return _complain(WRONG, str(error))
    except ConnectFailed as error:
        return _complain(ABSENT if error.retryable else WRONG, str(error))
    except Refused as error:
        return _complain(ABSENT if error.retryable else WRONG, str(error))
    except (ConversationLost, ConversationError) as error:
        return _complain(FAILED, str(error))
    except BrokenPipeError:  # `| head` has seen enough
        sys.stdout = None  # nothing more is written at exit
        return OK


async def _again(args: argparse.Namespace, tape: Tape) -> int:
    again = Again(tape)
    if not tape.header.audio and any(line.body["type"] == "audio" and line.by == "client" for line in tape.lines):
        print("no sound was kept: what was understood is sent as text", file=sys.stderr)
    said = await again.run(Dialer(args.against, key=args.key, timeout_s=CONNECT_S, tls=_tls(args)))
    if args.all:
        for line in told(Tape(tape.header, said), everything=True):
            print(line)
    for text in compared(turns_of(tape.lines), turns_of(said)):
        print(text)
    return OK


def _tls(args: argparse.Namespace) -> ssl.SSLContext | None:
    if not args.insecure:
        return None
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _complain(code: int, message: str) -> int:
    print(message, file=sys.stderr)
    return code
