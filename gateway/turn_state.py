"""Who holds the floor: every (state, event) of a session's floor turn is decided here, and nowhere else.

Pure data. Attached or detached is orthogonal: a turn does not care whether its socket lives. Turns without the floor
(out-of-band replies) and a reply that merely plays out behind a newer one do not pass through this table.
"""

from __future__ import annotations

from enum import StrEnum, auto


class State(StrEnum):
    """Of the floor turn; LISTENING: there is none."""

    LISTENING = auto()
    DRAFTING = auto()  # a draft reply is generated and held while the end of speech is not sure
    THINKING = auto()  # committed, nothing audible yet
    SPEAKING = auto()
    HELD = auto()  # paused: the user may be interrupting
    AWAITING_TOOL = auto()
    PLAYING_OUT = auto()  # everything is sent; the client still plays


class Event(StrEnum):
    """What can happen to the floor."""

    TEXT = auto()  # a typed utterance
    REPLY_REQUESTED = auto()  # say, or reply.create
    CANCELLED = auto()
    SPEECH_STARTED = auto()
    SPEECH_CONFIRMED = auto()  # it was words, not a cough
    SPEECH_DISMISSED = auto()  # a cough or backchannel
    DRAFT_STARTED = auto()
    COMMITTED = auto()  # a spoken utterance is final
    FIRST_SENT = auto()  # the first audio frame (or text) of the reply left
    TOOL_CALLED = auto()
    TOOL_RETURNED = auto()
    REPLY_SENT = auto()
    PLAYED_OUT = auto()
    FAILED = auto()


class Action(StrEnum):
    """What the session does about it."""

    START = auto()  # begin a turn
    REPLACE = auto()  # interrupt the floor turn, then begin one
    INTERRUPT = auto()  # stop the floor turn
    DROP = auto()  # throw the draft away, silently
    HOLD = auto()  # pause the client's player
    RELEASE = auto()  # let it play on
    FINISH = auto()  # the turn is over
    PROCEED = auto()  # note the new state, nothing to do
    IGNORE = auto()  # nothing changes
    REFUSE = auto()  # error `turn_active`
    NO_TURN = auto()  # error `unknown_turn`
    BUG = auto()  # cannot happen; if it does, it is ours


S, E, A = State, Event, Action

_COMMON: dict[Event, tuple[State | None, Action]] = {
    E.TEXT: (S.THINKING, A.REPLACE),
    E.REPLY_REQUESTED: (None, A.REFUSE),
    E.CANCELLED: (S.LISTENING, A.INTERRUPT),
    E.SPEECH_STARTED: (None, A.IGNORE),
    E.SPEECH_CONFIRMED: (S.LISTENING, A.INTERRUPT),
    E.SPEECH_DISMISSED: (None, A.IGNORE),
    E.DRAFT_STARTED: (None, A.IGNORE),
    E.COMMITTED: (S.THINKING, A.REPLACE),
    E.FIRST_SENT: (None, A.IGNORE),
    E.TOOL_CALLED: (S.AWAITING_TOOL, A.PROCEED),
    E.TOOL_RETURNED: (None, A.IGNORE),
    E.REPLY_SENT: (S.PLAYING_OUT, A.PROCEED),
    E.PLAYED_OUT: (None, A.BUG),
    E.FAILED: (S.LISTENING, A.FINISH),
}
"""How a turn on the floor meets an event unless its state says otherwise; None keeps the state."""

_SPECIAL: dict[State, dict[Event, tuple[State | None, Action]]] = {
    S.LISTENING: {
        E.TEXT: (S.THINKING, A.START),
        E.REPLY_REQUESTED: (S.THINKING, A.START),
        E.CANCELLED: (None, A.NO_TURN),
        E.SPEECH_CONFIRMED: (None, A.IGNORE),
        E.DRAFT_STARTED: (S.DRAFTING, A.PROCEED),
        E.COMMITTED: (S.THINKING, A.START),
        E.TOOL_CALLED: (None, A.BUG),
        E.REPLY_SENT: (None, A.BUG),
        E.FAILED: (None, A.BUG),
    },
    S.DRAFTING: {
        E.TEXT: (S.THINKING, A.REPLACE),
        E.REPLY_REQUESTED: (None, A.REFUSE),
        E.CANCELLED: (S.LISTENING, A.DROP),
        E.SPEECH_STARTED: (S.LISTENING, A.DROP),
        E.SPEECH_CONFIRMED: (S.LISTENING, A.DROP),
        E.COMMITTED: (S.THINKING, A.PROCEED),
        E.TOOL_CALLED: (None, A.IGNORE),  # the tool of a draft waits for the commit
        E.FIRST_SENT: (None, A.BUG),
        E.REPLY_SENT: (None, A.BUG),
        E.FAILED: (S.LISTENING, A.DROP),
    },
    S.THINKING: {E.FIRST_SENT: (S.SPEAKING, A.PROCEED), E.SPEECH_STARTED: (S.HELD, A.HOLD)},
    S.SPEAKING: {E.SPEECH_STARTED: (S.HELD, A.HOLD)},
    S.HELD: {
        E.SPEECH_DISMISSED: (S.SPEAKING, A.RELEASE),
        E.REPLY_SENT: (None, A.IGNORE),
        E.PLAYED_OUT: (S.LISTENING, A.FINISH),  # the client had played its last sample when it was told to pause
    },
    S.AWAITING_TOOL: {
        E.SPEECH_STARTED: (S.HELD, A.HOLD),
        E.TOOL_CALLED: (None, A.IGNORE),
        E.TOOL_RETURNED: (S.THINKING, A.PROCEED),
    },
    S.PLAYING_OUT: {
        E.REPLY_REQUESTED: (S.THINKING, A.START),  # the old reply plays out in front of the new one
        E.SPEECH_STARTED: (S.HELD, A.HOLD),
        E.TOOL_CALLED: (None, A.BUG),
        E.REPLY_SENT: (None, A.BUG),
        E.PLAYED_OUT: (S.LISTENING, A.FINISH),
    },
}

TABLE: dict[tuple[State, Event], tuple[State, Action]] = {
    (state, event): (after or state, action)
    for state in State
    for event in Event
    for after, action in [_SPECIAL[state].get(event, _COMMON[event])]
}


def decide(state: State, event: Event) -> tuple[State, Action]:
    """The state that follows, and what to do."""
    return TABLE[state, event]
