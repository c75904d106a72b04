"""What a rule may look at: the text since the last cut, and what is known of the time before."""

from dataclasses import dataclass

from gateway.speech.segmenter.rules import Rules


@dataclass(frozen=True, slots=True)
class View:
    """`sentence`: where the sentence began in `text`. `carried`: the character before `text` where the sentence began earlier,
    "" otherwise. `final`: no more text comes."""

    text: str
    sentence: int
    carried: str
    final: bool
    rules: Rules

    def before(self, at: int) -> str:
        return self.text[at - 1] if at else self.carried
