"""Who is transcribed next. Pure.

Finals go before partials, because somebody waits for the answer to them. Among equals the session goes first that has been served
longest ago, so that one that asks often does not hold back the others; among finals, that whose last final was longest ago: who was lucky
with a partial must not lose the answer for it. An utterance has one partial in line: a newer one takes its place, since it holds the same
audio and more.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, Protocol, TypeVar

from engine.api import EngineBusy, Transcription

_KNOWN_SESSIONS = 4096  # whose last service is remembered; a forgotten one counts as never served


class Entry(Protocol):
    """Something that waits for a transcription."""

    @property
    def wanted(self) -> Transcription: ...


E = TypeVar("E", bound=Entry)


class Line(Generic[E]):
    """At most `room` finals and `room` partials wait."""

    def __init__(self, room: int) -> None:
        self._room = room
        self._finals: OrderedDict[str, E] = OrderedDict()  # by utterance, in order of arrival
        self._partials: OrderedDict[str, E] = OrderedDict()
        self._served: OrderedDict[str, int] = OrderedDict()  # session -> when, as a count of services
        self._answered: OrderedDict[str, int] = OrderedDict()  # the same of finals that got their answer
        self._n_served = 0

    def __len__(self) -> int:
        return len(self._finals) + len(self._partials)

    def add(self, entry: E) -> list[E]:
        """Take a place; returns those that this entry makes needless. Raises `EngineBusy`."""
        utterance = entry.wanted.utterance
        places = self._finals if entry.wanted.is_final else self._partials
        if utterance not in places and len(places) >= self._room:
            kind = "finals" if entry.wanted.is_final else "partials"
            raise EngineBusy(f"{len(places)} {kind} wait for their transcription, at most {self._room} may")
        needless = [places[utterance]] if utterance in places else []
        places[utterance] = entry  # of an utterance that waits already: its place
        if entry.wanted.is_final and utterance in self._partials:
            needless.append(self._partials.pop(utterance))
        return needless

    def take(self, finals_only: bool) -> E | None:
        """The next one; it leaves the line."""
        places = self._finals if self._finals or finals_only else self._partials
        if not places:
            return None
        entry = min(places.values(), key=self._rank)  # the first of equals came first
        del places[entry.wanted.utterance]
        self._note(self._served, entry.wanted.session)
        return entry

    def _rank(self, entry: E) -> tuple[int, int]:
        session = entry.wanted.session
        return (self._answered.get(session, -1) if entry.wanted.is_final else -1), self._served.get(session, -1)

    def answered(self, entry: E) -> None:
        """It was served to its end."""
        if entry.wanted.is_final:
            self._note(self._answered, entry.wanted.session)

    def remove(self, entry: E) -> None:
        """Whoever waited has gone."""
        for places in (self._finals, self._partials):
            if places.get(entry.wanted.utterance) is entry:
                del places[entry.wanted.utterance]

    def remove_utterance(self, utterance: str) -> list[E]:
        """All that wait for an utterance."""
        return [places.pop(utterance) for places in (self._finals, self._partials) if utterance in places]

    def _note(self, served: OrderedDict[str, int], session: str) -> None:
        self._n_served += 1
        served[session] = self._n_served
        served.move_to_end(session)
        while len(served) > _KNOWN_SESSIONS:
            served.popitem(last=False)
