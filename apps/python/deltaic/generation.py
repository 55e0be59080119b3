"""Text that streams from a session."""
import random
import threading

from .library import Cancelled
from .structs import Sampling
from .text import Decoder, Stops

PROMPT_TOKENS = 512  # evaluated at once, so that Ctrl-C reaches Python in between


class Generation:
    """An iterator of new text, which Session.generate() returns.

    tokens      the most tokens that it draws
    stop        a text, or several, before which it ends
    sampling    a Sampling; without it, what the model recommends. Its fields can also be given by themselves
    seed        of the draws; without it and `sampling`, a new one
    ignore_eos  go on after a token that ends a text
    special     begin a new sequence with <s> and the like, as the tokenizer's file says

    ids: the tokens drawn. sampling: what they are drawn with. end: None, then "tokens", "eos", "stop" or "cancelled".
    """

    def __init__(self, session, prompt, tokens=256, stop=(), sampling=None, ignore_eos=False, special=True, **fields):
        model = session.model
        if sampling is None:
            sampling, fields = model.sampling, {"seed": random.getrandbits(31), **fields}
        self.sampling = Sampling.from_buffer_copy(sampling)
        for name, value in fields.items():
            setattr(self.sampling, name, value)
        self.session, self.limit, self.ignore_eos = session, tokens, ignore_eos
        self.ids, self.end = [], None
        begins = session.position() == 0
        if isinstance(prompt, str):
            prompt = model.tokenizer.encode(prompt, special and begins)
        self.prompt = list(prompt)
        self.decoder, self.stops = Decoder(model.tokenizer), Stops(stop)
        # Some tokenizers write a word's space only inside a text, so the decoder must know that there is one before.
        for token in self.prompt if begins else model.tokenizer.encode("a", False):
            self.decoder.push(token)
        self.lock = threading.Lock()
        self.asked = self.sent = self.busy = False
        self.texts = self.run()

    def __iter__(self):
        return self

    def __next__(self):
        return next(self.texts)

    def text(self):
        """All of the text that is left."""
        return "".join(self)

    def cancel(self):
        """Ends the text, as soon as the device has finished what was submitted; any thread may call it. When this
        interrupts the prompt, the session must be reset or loaded before it goes on."""
        with self.lock:
            self.asked = True
            if self.busy:
                self.session.cancel()
                self.sent = True

    def cancelled(self):
        """A cancel that was sent to the session is reported by its next call, which must therefore be made."""
        return self.asked and not self.sent

    def read_prompt(self):
        for at in range(0, len(self.prompt), PROMPT_TOKENS):
            with self.lock:
                if self.cancelled():
                    return
                self.busy = True
            try:
                self.session.eval(self.prompt[at : at + PROMPT_TOKENS])
            finally:
                with self.lock:
                    self.busy = False

    def draw(self):
        """The text of the next token."""
        token = self.session.next(self.sampling)
        self.ids.append(token)
        if token in self.session.model.ends and not self.ignore_eos:
            self.end = "eos"
            return ""
        return self.stops.push(self.decoder.push(token))

    def run(self):
        try:
            self.read_prompt()
            while self.end is None and self.stops.found is None and (self.sent or len(self.ids) < self.limit):
                if self.cancelled():
                    self.end = "cancelled"
                    break
                text = self.draw()
                if text:
                    yield text
        except Cancelled:
            if not self.sent:
                raise
            self.end = "cancelled"
        text = self.stops.push(self.decoder.finish()) + self.stops.finish()
        self.end = "stop" if self.stops.found is not None else self.end or "tokens"
        if text:
            yield text
