"""Devices, models and sessions."""
import ctypes
from ctypes import POINTER, byref, c_bool, c_char_p, c_double, c_float, c_int32, c_size_t, c_uint8, c_uint32, c_uint64
from ctypes import c_void_p

from . import structs
from .generation import Generation
from .library import HANDLE, PROGRESS, RAISED, STATUS, Object, filled, function, c_text, progress_of
from .structs import Logits, Sampling
from .text import IDS, Template, Tokenizer, token_array

FLOATS = POINTER(c_float)
SESSION_OPTIONS = POINTER(structs.SessionOptions)
context_create = function("deltaic_context_create", STATUS, POINTER(structs.ContextOptions), POINTER(HANDLE))
context_free = function("deltaic_context_free", None, HANDLE)
list_devices = function(
    "deltaic_devices", STATUS, HANDLE, POINTER(structs.DeviceInfo), c_size_t, POINTER(c_size_t)
)
device_open = function("deltaic_device_open", STATUS, HANDLE, POINTER(structs.DeviceOptions), POINTER(HANDLE))
device_close = function("deltaic_device_close", None, HANDLE)
device_compile_seconds = function("deltaic_device_compile_seconds", c_double, HANDLE)
device_get_info = function("deltaic_device_get_info", None, HANDLE, POINTER(structs.DeviceInfo))
model_inspect = function(
    "deltaic_model_inspect",
    STATUS,
    HANDLE,
    c_char_p,
    SESSION_OPTIONS,
    POINTER(structs.ModelInfo),
    POINTER(structs.Memory),
)
model_open = function("deltaic_model_open", STATUS, HANDLE, c_char_p, POINTER(structs.ModelOptions), POINTER(HANDLE))
model_close = function("deltaic_model_close", None, HANDLE)
model_get_info = function("deltaic_model_get_info", None, HANDLE, POINTER(structs.ModelInfo))
model_get_memory = function(
    "deltaic_model_get_memory", STATUS, HANDLE, SESSION_OPTIONS, POINTER(structs.Memory)
)
model_ends = function("deltaic_model_ends", STATUS, HANDLE, IDS, c_size_t, POINTER(c_size_t))
model_sampling = function("deltaic_model_sampling", c_bool, HANDLE, POINTER(Sampling))
session_create = function("deltaic_session_create", STATUS, HANDLE, SESSION_OPTIONS, POINTER(HANDLE))
session_free = function("deltaic_session_free", None, HANDLE)
session_eval_batch = function("deltaic_session_eval_batch", STATUS, HANDLE, POINTER(structs.Piece), c_size_t)
session_next_batch = function(
    "deltaic_session_next_batch", STATUS, HANDLE, POINTER(c_uint32), c_size_t, POINTER(Sampling), IDS, FLOATS
)
session_reset = function("deltaic_session_reset", STATUS, HANDLE)
session_fork = function("deltaic_session_fork", STATUS, HANDLE, POINTER(HANDLE))
session_save_file = function("deltaic_session_save_file", STATUS, HANDLE, c_char_p)
session_load_file = function("deltaic_session_load_file", STATUS, HANDLE, c_char_p)
session_cancel = function("deltaic_session_cancel", None, HANDLE)
session_prepare = function("deltaic_session_prepare", STATUS, HANDLE)
sequence_position = function("deltaic_sequence_position", c_uint64, HANDLE, c_uint32)
sequence_logits = function("deltaic_sequence_logits", STATUS, HANDLE, c_uint32, FLOATS)
sequence_reset = function("deltaic_sequence_reset", STATUS, HANDLE, c_uint32)
sequence_copy = function("deltaic_sequence_copy", STATUS, HANDLE, c_uint32, c_uint32)
sequence_state_size = function("deltaic_sequence_state_size", STATUS, HANDLE, c_uint32, POINTER(c_size_t))
sequence_save = function(
    "deltaic_sequence_save", STATUS, HANDLE, c_uint32, c_void_p, c_size_t, POINTER(c_size_t)
)
sequence_load = function("deltaic_sequence_load", STATUS, HANDLE, c_uint32, c_char_p, c_size_t)


class Context(Object):
    """Finds devices. log(level, line) may be called by any thread, and must not call the library."""

    def __init__(self, log=None, validate=False, cache_dir=None):
        def call(_, level, line):
            log(level, line.decode(errors="replace"))

        callback = structs.LOG(call) if log else structs.LOG()
        options = structs.ContextOptions(
            log=callback, validate=validate, cache_dir=None if cache_dir is None else c_text(cache_dir)
        )
        handle = HANDLE()
        context_create(byref(options), byref(handle))
        self.own(handle, context_free)
        self.handle.log = callback  # lives as long as the library may call it

    def devices(self):
        """The Vulkan devices, best first, then the CPU."""
        infos = filled(lambda *out: list_devices(self.pointer, *out), structs.DeviceInfo)
        return [info.record() for info in infos]


class Device(Object):
    """index 0: a GPU, else the CPU; 1, 2, ...: a Vulkan device; -1: the CPU, with `threads` (0: all cores).
    uuid: 16 bytes, the Vulkan device that has it. background: other programs use the device first. compiling(done) is
    called before each pipeline is compiled, or taken from the cache; False stops the evaluation, and so does an
    exception, which the evaluation then raises."""

    def __init__(self, index=0, threads=0, context=None, uuid=None, background=False, compiling=None):
        context = context or Context()
        handle = HANDLE()

        def call(_, done, total):
            try:
                return compiling(done) is not False
            except BaseException as failure:
                RAISED.failure = failure
                return False

        callback = PROGRESS(call) if compiling else PROGRESS()
        options = structs.DeviceOptions(index=index, threads=threads, background=background, compiling=callback)
        if uuid is not None:
            options.uuid = (c_uint8 * 16)(*uuid)
        device_open(context.pointer, byref(options), byref(handle))
        self.own(handle, device_close, context)
        self.handle.compiling = callback  # lives as long as the library may call it

    @property
    def compile_seconds(self):
        """The time spent so far on making pipelines."""
        return device_compile_seconds(self.pointer)

    @property
    def info(self):
        info = structs.DeviceInfo()
        device_get_info(self.pointer, byref(info))
        return info.record()


def inspect(path, device=None, **options):
    """(info, memory) of a model and a session of it, from its files alone."""
    info, memory = structs.ModelInfo(), structs.Memory()
    pointer = device.pointer if device else None
    model_inspect(pointer, c_text(path), byref(structs.SessionOptions(**options)), byref(info), byref(memory))
    return info.record(), memory.record()


class Model(Object):
    """A model's folder or GGUF file on a device, by default the best one. progress(done, total): bytes of weights;
    False stops. adapter: a folder with LoRA adapters."""

    def __init__(self, path, device=None, progress=None, attention_window=0, adapter=None):
        self.path, self.device = path, device or Device()
        handle = HANDLE()
        with progress_of(progress) as callback:
            options = structs.ModelOptions(progress=callback, attention_window=attention_window)
            options.adapter = c_text(adapter) if adapter else None
            model_open(self.device.pointer, c_text(path), byref(options), byref(handle))
            self.own(handle, model_close, self.device)
        info = structs.ModelInfo()
        model_get_info(self.pointer, byref(info))
        self.info = info.record()
        self.ends = set(filled(lambda *out: model_ends(self.pointer, *out), c_int32))
        self.__tokenizer = None

    @property
    def tokenizer(self):
        if self.__tokenizer is None:
            self.__tokenizer = Tokenizer(self.path)
        return self.__tokenizer

    @property
    def template(self):
        return Template(self.path)

    @property
    def sampling(self):
        """What the model's generation_config.json recommends, or else Sampling(): the likeliest token."""
        sampling = Sampling()
        model_sampling(self.pointer, byref(sampling))
        return sampling

    def memory(self, **options):
        memory = structs.Memory()
        model_get_memory(self.pointer, byref(structs.SessionOptions(**options)), byref(memory))
        return memory.record()

    def session(self, **options):
        """options: context, batch, precision, sequences, rule."""
        return Session(self, **options)

    def generate(self, prompt, **options):
        """Session.generate() of a new session."""
        return self.session().generate(prompt, **options)


def float_rows(buffer, *shape):
    """Floats as a memoryview of this shape, which numpy.asarray takes as it is."""
    return memoryview(buffer).cast("B").cast("f", shape)


class Session(Object):
    """Sequences of tokens with their states. One thread uses a session at a time, except for cancel()."""

    def __init__(self, model, **options):
        self.model = model
        handle = HANDLE()
        session_create(model.pointer, byref(structs.SessionOptions(**options)), byref(handle))
        self.own(handle, session_free, model)

    def eval(self, tokens, logits=Logits.NONE, sequence=0):
        """Advances a sequence by tokens. LAST: the logits after them; ALL: (n, vocabulary), after each."""
        return self.eval_batch([(sequence, tokens)], logits)[0]

    def eval_batch(self, pieces, logits=Logits.NONE):
        """eval() of several sequences at once; pieces: (sequence, tokens) of each. Returns a list."""
        array, out, logits = (structs.Piece * len(pieces))(), [], Logits(logits)
        vocabulary = self.model.info.vocabulary
        for piece, (sequence, tokens) in zip(array, pieces):
            piece.sequence, (piece.tokens, piece.count), piece.logits = number(sequence), token_array(tokens), logits
            rows = {Logits.NONE: 0, Logits.LAST: 1, Logits.ALL: piece.count}[logits]
            buffer = (c_float * (rows * vocabulary))() if rows else None
            piece.out = buffer
            shape = (vocabulary,) if logits == Logits.LAST else (rows, vocabulary)
            out.append(float_rows(buffer, *shape) if rows else None)
        session_eval_batch(self.pointer, array, len(pieces))
        return out

    def score(self, tokens, sequence=0):
        """Advances a sequence by tokens. Returns the natural logarithm of each one's probability, but the first's."""
        ids, n = token_array(tokens)
        targets, scores = (c_int32 * n)(*[*ids[1:], -1][:n]), (structs.Score * n)()
        piece = structs.Piece(sequence=number(sequence), tokens=ids, count=n, targets=targets, scores=scores)
        session_eval_batch(self.pointer, byref(piece), 1)
        return [score.log_probability for score in scores[: n - 1]]

    def next(self, sampling=None, sequence=0):
        """Draws the next token, by default the likeliest, and advances by it."""
        return self.next_batch([sequence], [sampling] if sampling else None)[0]

    def next_batch(self, sequences, samplings=None):
        """next() of several sequences in one submission."""
        n = len(sequences)
        if samplings is not None and len(samplings) != n:
            raise ValueError("there is one sampling for each sequence")
        numbers = (c_uint32 * n)(*map(number, sequences))
        tokens = (c_int32 * n)()
        choice = (Sampling * n)(*(sampling or Sampling() for sampling in samplings)) if samplings else None
        session_next_batch(self.pointer, numbers, n, choice, tokens, None)
        return list(tokens)

    def logits(self, sequence=0):
        """What next() would draw from."""
        buffer = (c_float * self.model.info.vocabulary)()
        sequence_logits(self.pointer, number(sequence), buffer)
        return float_rows(buffer, len(buffer))

    def position(self, sequence=0):
        return sequence_position(self.pointer, number(sequence))

    def reset(self, sequence=None):
        """Empties a sequence, or all. After a failure it makes the session usable again."""
        if sequence is None:
            session_reset(self.pointer)
        else:
            sequence_reset(self.pointer, number(sequence))

    def copy(self, to, from_):
        sequence_copy(self.pointer, number(to), number(from_))

    def fork(self):
        """A session with the same contents."""
        handle = HANDLE()
        session_fork(self.pointer, byref(handle))
        other = Session.__new__(Session)
        other.model = self.model
        other.own(handle, session_free, self.model)
        return other

    def save(self, sequence=0):
        """The state as bytes."""
        size = c_size_t()
        sequence_state_size(self.pointer, number(sequence), byref(size))
        buffer = ctypes.create_string_buffer(size.value)
        sequence_save(self.pointer, number(sequence), buffer, size.value, byref(size))
        return buffer.raw[: size.value]

    def load(self, state, sequence=0):
        state = bytes(state)
        sequence_load(self.pointer, number(sequence), state, len(state))

    def save_file(self, path):
        """Saves sequence 0. An interrupted save leaves an existing file as it is."""
        session_save_file(self.pointer, c_text(path))

    def load_file(self, path):
        session_load_file(self.pointer, c_text(path))

    def cancel(self):
        """Ends the eval in progress, or the next one, with Cancelled; any thread may call it."""
        session_cancel(self.pointer)

    def prepare(self):
        """Compiles the pipelines of later calls, so that none of them waits for a compiler; on the CPU there are none."""
        session_prepare(self.pointer)

    def generate(self, prompt="", **options):
        """Continues sequence 0 by a prompt, text or token ids, and returns the text after it as an iterator of str."""
        return Generation(self, prompt, **options)


def number(sequence):
    """A sequence's number; ctypes would wrap a negative one."""
    if not 0 <= sequence < 2**32:
        raise ValueError(f"there is no sequence {sequence}")
    return sequence
