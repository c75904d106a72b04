"""The label that machines read, at both doors: there where it is wanted, and nowhere else."""

from __future__ import annotations

import pytest
from websockets.typing import Subprotocol

from gateway.codecs.native import SUBPROTOCOL
from tests.protocol.peer import connect
from tests.running import gateway


@pytest.mark.may_block  # starts and stops a gateway
@pytest.mark.parametrize(("marker", "header"), [("true", "audio"), ("false", None)])
async def test_each_handshake_says_whether_sound_is_generated(marker: str, header: str | None) -> None:
    with gateway({"STRETTO_LABEL__MARKER": marker}) as running:
        for path, offers in (("voice", [Subprotocol(SUBPROTOCOL)]), ("realtime", None)):
            async with connect(running.voice_url.replace("voice", path), subprotocols=offers) as socket:
                assert socket.response is not None
                assert socket.response.headers.get("x-generated-content") == header
