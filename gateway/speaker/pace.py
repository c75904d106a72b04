"""How far ahead a voice has to work, by how fast it is. Pure.

Learns each voice's RTF (time to make over length of audio, the wait for its first sound included) from whole segments, over all turns of
this process. A voice well under real time makes one segment while another one plays; that is enough and wastes least when the listener
interrupts. A slower one starts on the next segment at once, beside the one it is making, but only while that helps: an engine that takes
one text at a time makes both half as fast, and then others would wait for nothing. What is longer than real time all the same is heard as
one pause before the segment instead of a gap in every word.
"""

from __future__ import annotations

AHEAD = 2  # segments on the way from a fast voice: the one being sent, and the next one being made
_SLOW_AHEAD = 4
_SLOW_RTF = 0.8  # from here on the wait for a next segment's first sound may be longer than what still plays
_TOO_SLOW_RTF = 1.1  # up to here what a voice takes before its first sound is mistaken for slowness
_USEFUL = 1.5  # two at once may each take so many times as long; at 2.0 nothing is gained
_SHORTEST_S = 1.0  # of audio; the wait for the first sound says too much about a shorter one
_NEW = 0.3  # weight of the newest segment: a voice's pace changes with its load within a minute
_SPARE_MS = 100.0  # sound comes in pieces of about this length
_LONGEST_HOLD_MS = 1500  # of audio; a listener who hears nothing for longer thinks that we have gone


class VoicePace:
    """What has been learned; one for the process."""

    def __init__(self) -> None:
        self._alone: dict[str, float] = {}
        self._beside: dict[str, float] = {}

    def learn(self, voice: str, made_s: float, audio_s: float, *, alone: bool) -> None:
        """A segment of `audio_s` took `made_s`; `alone`: no other one of its reply was made meanwhile."""
        if audio_s < _SHORTEST_S:
            return
        known = self._alone if alone else self._beside
        rtf = made_s / audio_s
        known[voice] = known.get(voice, rtf) + _NEW * (rtf - known.get(voice, rtf))

    def rtf(self, voice: str) -> float:
        """Of one segment made alone; 0.0 for a voice that is not known yet."""
        return self._alone.get(voice, 0.0)

    def at_once(self, voice: str) -> int:
        """How many segments of one reply are made at the same time."""
        alone = self.rtf(voice)
        beside = self._beside.get(voice, alone)
        return 2 if alone > _SLOW_RTF and beside <= _USEFUL * alone else 1

    def on_the_way(self, voice: str) -> int:
        """How many segments may be made or being made and not sent yet."""
        return _SLOW_AHEAD if self.rtf(voice) > _SLOW_RTF else AHEAD

    def hold_ms(self, voice: str, audio_ms: float, made_ms: float, ahead_ms: float) -> float:
        """How much of a segment of about `audio_ms` to have before it begins, so that it is heard without a gap; 0 to begin now.

        `made_ms` of it is there, and `ahead_ms` still plays in front of it. Where these do not last, waiting until they are played out
        would not help: the pause comes anyway, and is long enough when the segment begins with what it lacks.
        """
        rtf = self.rtf(voice)
        if rtf <= _TOO_SLOW_RTF:
            return 0.0
        lacks_ms = min(_LONGEST_HOLD_MS, (1 - 1 / rtf) * audio_ms + _SPARE_MS)
        return lacks_ms if made_ms + ahead_ms / rtf < lacks_ms else 0.0
