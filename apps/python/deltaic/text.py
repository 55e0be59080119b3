"""Text and token ids: tokenizers, decoders of streams, stop strings, chat templates."""
import array
import ctypes
from ctypes import POINTER, byref, c_bool, c_char, c_char_p, c_int32, c_size_t

from .library import HANDLE, STATUS, Object, filled, function, c_text
from .structs import Ids, Message, RenderOptions, Role, TemplateInfo, Thinking

IDS = POINTER(c_int32)
TEXT_OUT = POINTER(POINTER(c_char)), POINTER(c_size_t)
tokenizer_open = function("deltaic_tokenizer_open", STATUS, c_char_p, POINTER(HANDLE))
tokenizer_close = function("deltaic_tokenizer_close", None, HANDLE)
tokenizer_size = function("deltaic_tokenizer_size", c_int32, HANDLE)
tokenizer_kind = function("deltaic_tokenizer_kind", c_char_p, HANDLE)
tokenizer_find = function("deltaic_tokenizer_find", c_int32, HANDLE, c_char_p)
tokenizer_encode = function(
    "deltaic_tokenizer_encode", STATUS, HANDLE, c_char_p, c_size_t, c_bool, IDS, c_size_t, POINTER(c_size_t)
)
tokenizer_decode = function(
    "deltaic_tokenizer_decode", STATUS, HANDLE, IDS, c_size_t, c_bool, POINTER(c_char), c_size_t, POINTER(c_size_t)
)
decoder_create = function("deltaic_decoder_create", STATUS, HANDLE, c_bool, POINTER(HANDLE))
decoder_free = function("deltaic_decoder_free", None, HANDLE)
decoder_push = function("deltaic_decoder_push", STATUS, HANDLE, c_int32, *TEXT_OUT)
decoder_finish = function("deltaic_decoder_finish", STATUS, HANDLE, *TEXT_OUT)
stops_create = function("deltaic_stops_create", STATUS, POINTER(c_char_p), c_size_t, POINTER(HANDLE))
stops_free = function("deltaic_stops_free", None, HANDLE)
stops_push = function("deltaic_stops_push", STATUS, HANDLE, c_char_p, c_size_t, *TEXT_OUT)
stops_finish = function("deltaic_stops_finish", STATUS, HANDLE, *TEXT_OUT)
stops_found = function("deltaic_stops_found", c_int32, HANDLE)
template_at = function("deltaic_template_at", HANDLE, c_size_t)
template_find = function("deltaic_template_find", STATUS, c_char_p, POINTER(HANDLE))
template_read = function("deltaic_template_read", STATUS, c_char_p, POINTER(HANDLE))
template_get_info = function("deltaic_template_get_info", None, HANDLE, POINTER(TemplateInfo))
template_render = function(
    "deltaic_template_render",
    STATUS,
    HANDLE,
    POINTER(Message),
    c_size_t,
    POINTER(RenderOptions),
    POINTER(c_char),
    c_size_t,
    POINTER(c_size_t),
)
template_encode = function(
    "deltaic_template_encode",
    STATUS,
    HANDLE,
    HANDLE,
    POINTER(Message),
    c_size_t,
    POINTER(RenderOptions),
    POINTER(Ids),
)


def token_array(tokens):
    """Token ids as a C array: (array, count). array checks that each is an integer of 32 bits; ctypes would wrap."""
    if isinstance(tokens, (str, bytes, bytearray)):
        raise TypeError("token ids are integers; Tokenizer.encode makes them from text")
    numbers = array.array("i", tokens)
    return (c_int32 * len(numbers)).from_buffer(numbers), len(numbers)


def text_of(call, *arguments):
    """Calls what hands out text as a pointer and a length."""
    text, count = POINTER(c_char)(), c_size_t()
    call(*arguments, byref(text), byref(count))
    return ctypes.string_at(text, count.value).decode(errors="replace") if count.value else ""


class Tokenizer(Object):
    """The tokenizer of a model's folder, of a tokenizer.json, or of a GGUF file."""

    def __init__(self, path):
        handle = HANDLE()
        tokenizer_open(c_text(path), byref(handle))
        self.own(handle, tokenizer_close)

    def __len__(self):
        return tokenizer_size(self.pointer)

    @property
    def kind(self):
        return tokenizer_kind(self.pointer).decode()

    def find(self, token):
        """The id of a token's exact text, or None."""
        found = tokenizer_find(self.pointer, c_text(token))
        return found if found >= 0 else None

    def encode(self, text, special=True):
        """Token ids. special: add <s> and the like, as the tokenizer's file says."""
        data = text.encode()
        guess = len(data) + 16
        return filled(lambda *out: tokenizer_encode(self.pointer, data, len(data), special, *out), c_int32, guess)

    def decode(self, ids, skip_special=False):
        """The text of ids, which must be all of it; Decoder is for streams."""
        tokens, n = token_array(ids)
        text = filled(lambda *out: tokenizer_decode(self.pointer, tokens, n, skip_special, *out), c_char)
        return text.decode(errors="replace")


class Decoder(Object):
    """Decodes text token by token. What it has returned never changes, and never ends inside a character."""

    def __init__(self, tokenizer, skip_special=True):
        handle = HANDLE()
        decoder_create(tokenizer.pointer, skip_special, byref(handle))
        self.own(handle, decoder_free, tokenizer)

    def push(self, token):
        return text_of(decoder_push, self.pointer, token)

    def finish(self):
        return text_of(decoder_finish, self.pointer)


class Stops(Object):
    """Finds stop strings in text that arrives in parts."""

    def __init__(self, stops):
        if isinstance(stops, str):
            stops = [stops]
        self.strings = list(stops)
        handle = HANDLE()
        texts = [c_text(stop) for stop in self.strings]
        stops_create((c_char_p * len(texts))(*texts), len(texts), byref(handle))
        self.own(handle, stops_free)

    def push(self, text):
        """The text that is no part of a stop string."""
        data = text.encode()
        return text_of(stops_push, self.pointer, data, len(data))

    def finish(self):
        """The text that is held back, when the text has ended."""
        return text_of(stops_finish, self.pointer)

    @property
    def found(self):
        """The stop string that was found, or None."""
        index = stops_found(self.pointer)
        return self.strings[index] if index >= 0 else None


class Template:
    """How a family of models writes a conversation: a list of {"role": "user", "content": "..."}."""

    def __init__(self, path):
        """The template of the model at path."""
        handle = HANDLE()
        template_read(c_text(path), byref(handle))
        self.pointer = handle.value

    @classmethod
    def named(cls, name):
        handle = HANDLE()
        template_find(c_text(name), byref(handle))
        return cls.of(handle.value)

    @classmethod
    def of(cls, pointer):
        template = cls.__new__(cls)
        template.pointer = pointer
        return template

    @property
    def info(self):
        info = TemplateInfo()
        template_get_info(self.pointer, byref(info))
        return info.record()

    def render(self, messages, answer=True, first=0, earlier=False, thinking=Thinking.DEFAULT):
        """The conversation as text. answer: with the beginning of an answer; first: without the messages before."""
        array = message_array(messages)
        options = RenderOptions(first=first, answer=answer, earlier=earlier, thinking=thinking)
        text = filled(lambda *out: template_render(self.pointer, array, len(array), byref(options), *out), c_char)
        return text.decode(errors="replace")

    def encode(self, tokenizer, messages, answer=True, first=0, earlier=False, thinking=Thinking.DEFAULT):
        """The conversation as token ids; messages cannot spell special tokens."""
        array = message_array(messages)
        options = RenderOptions(first=first, answer=answer, earlier=earlier, thinking=thinking)

        def encode(buffer, capacity, count):
            ids = Ids(ids=ctypes.cast(buffer, IDS), capacity=capacity, count=ctypes.cast(count, POINTER(c_size_t)))
            template_encode(self.pointer, tokenizer.pointer, array, len(array), byref(options), byref(ids))

        return filled(encode, c_int32)


def message_array(messages):
    array = (Message * len(messages))()
    for message, given in zip(array, messages):
        text = given["content"].encode()
        message.role, message.text, message.bytes = Role[given["role"].upper()], text, len(text)
    return array


def templates():
    """The chat templates that the library knows."""
    found = []
    while template_at(len(found)):
        found.append(Template.of(template_at(len(found))))
    return found
