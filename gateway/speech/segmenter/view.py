"""What a rule may look at: the text since the last cut, and what is known of the time before."""

from typing import NamedTuple

from gateway.speech.segmenter.rules import Rules


class View(NamedTuple):
    """`sentence`: where the sentence began in `text`. `carried`: the character before `text` where the sentence began earlier,
    "" otherwise. `final`: no more text comes. (A tuple: made at every mark, and half the price of a frozen dataclass.)"""

    text: str
    sentence: int
    carried: str
    final: bool
    rules: Rules

    def before(self, at: int) -> str:
        return self.text[at - 1] if at else self.carried
