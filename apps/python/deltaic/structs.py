"""The structs of deltaic.h. tests/python/test_layout.py compares their layouts with a C compiler's."""
import ctypes
import enum
import types
from ctypes import POINTER, c_bool, c_char, c_char_p, c_double, c_float, c_int, c_int32, c_size_t, c_uint8, c_uint32
from ctypes import c_uint64, c_void_p

from .library import PROGRESS


class DeviceKind(enum.IntEnum):
    DISCRETE = 0
    INTEGRATED = 1
    VIRTUAL = 2
    SOFTWARE = 3
    CPU = 4


class Logits(enum.IntEnum):
    NONE = 0
    LAST = 1
    ALL = 2


class Precision(enum.IntEnum):
    FAST = 0
    FLOAT32 = 1


class Role(enum.IntEnum):
    SYSTEM = 0
    USER = 1
    ASSISTANT = 2


class Thinking(enum.IntEnum):
    DEFAULT = 0
    ON = 1
    OFF = 2


class Record(types.SimpleNamespace):
    """A struct that the library has filled in, with texts as str."""


class Struct(ctypes.Structure):
    def record(self):
        return Record(**{name: python_value(getattr(self, name)) for name, *_ in self._fields_})


def python_value(value):
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, ctypes.Array):
        return bytes(value)
    return value.record() if isinstance(value, Struct) else value


class Options(Struct):
    """An options struct: its size is set, and what is not given is zero, which selects the default."""

    def __init__(self, **fields):
        super().__init__(size=ctypes.sizeof(self), **fields)

    def __setattr__(self, name, value):
        if name not in (field for field, *_ in self._fields_):
            raise TypeError(f"{type(self).__name__} has no field {name}")
        super().__setattr__(name, value)
        if isinstance(value, int) and getattr(self, name) != value:  # ctypes wraps what does not fit
            raise OverflowError(f"{name} cannot be {value}")

    def __repr__(self):
        return f"{type(self).__name__}({', '.join(f'{n}={getattr(self, n)!r}' for n, *_ in self._fields_[1:])})"


LOG = ctypes.CFUNCTYPE(None, c_void_p, c_int, c_char_p)


class ContextOptions(Options):
    _fields_ = [
        ("size", c_size_t),
        ("log", LOG),
        ("log_user", c_void_p),
        ("validate", c_bool),
        ("cache_dir", c_char_p),
    ]


class DeviceInfo(Struct):
    _fields_ = [
        ("index", c_int32),
        ("kind", c_int),
        ("usable", c_bool),
        ("name", c_char * 256),
        ("driver", c_char * 256),
        ("reason", c_char * 256),
        ("memory_bytes", c_uint64),
        ("free_bytes", c_uint64),
        ("uuid", c_uint8 * 16),
        ("luid", c_uint8 * 8),
        ("pci", c_char * 16),
    ]


class DeviceOptions(Options):
    _fields_ = [
        ("size", c_size_t),
        ("index", c_int32),
        ("threads", c_uint32),
        ("uuid", POINTER(c_uint8)),
        ("background", c_bool),
        ("compiling", PROGRESS),
        ("compiling_user", c_void_p),
    ]


class ModelOptions(Options):
    _fields_ = [
        ("size", c_size_t),
        ("progress", PROGRESS),
        ("progress_user", c_void_p),
        ("attention_window", c_uint32),
        ("source", c_void_p),
        ("adapter", c_char_p),
    ]


class ModelInfo(Struct):
    _fields_ = [
        ("architecture", c_char * 64),
        ("layers_text", c_char * 256),
        ("vocabulary", c_int32),
        ("width", c_int32),
        ("layers", c_int32),
        ("heads", c_int32),
        ("value_heads", c_int32),
        ("key_size", c_int32),
        ("value_size", c_int32),
        ("mlp_width", c_int32),
        ("parameters", c_uint64),
        ("formats", c_char * 160),
        ("context", c_int32),
        ("grows", c_bool),
        ("bos_token", c_int32),
        ("eos_token", c_int32),
        ("fingerprint", c_uint64),
        ("experts", c_int32),
        ("experts_per_token", c_int32),
        ("expert_width", c_int32),
        ("active_parameters", c_uint64),
        ("expert_bytes", c_uint64),
    ]


class Memory(Struct):
    _fields_ = [
        ("weights_bytes", c_uint64),
        ("state_bytes", c_uint64),
        ("scratch_bytes", c_uint64),
        ("cache_per_token", c_uint64),
    ]


class SessionOptions(Options):
    _fields_ = [
        ("size", c_size_t),
        ("context", c_uint32),
        ("batch", c_uint32),
        ("rule", c_int),
        ("precision", c_int),
        ("sequences", c_uint32),
    ]


class Sampling(Options):
    """How the next token is drawn. Sampling() takes the likeliest."""

    _fields_ = [
        ("size", c_size_t),
        ("temperature", c_float),
        ("top_p", c_float),
        ("min_p", c_float),
        ("repetition_penalty", c_float),
        ("top_k", c_uint32),
        ("seed", c_uint64),
    ]


class Score(Struct):
    _fields_ = [("log_probability", c_float), ("likeliest", c_bool)]


class Piece(Struct):
    _fields_ = [
        ("sequence", c_uint32),
        ("tokens", ctypes.POINTER(c_int32)),
        ("count", c_size_t),
        ("logits", c_int),
        ("out", ctypes.POINTER(c_float)),
        ("targets", ctypes.POINTER(c_int32)),
        ("scores", ctypes.POINTER(Score)),
    ]


class TemplateInfo(Struct):
    _fields_ = [
        ("name", c_char_p),
        ("models", c_char_p),
        ("answer", c_char_p),
        ("end", c_char_p),
        ("thinks", c_bool),
        ("thinking_on", c_bool),
        ("thinking_off", c_bool),
        ("drops_thinking", c_bool),
    ]


class Message(Struct):
    _fields_ = [("role", c_int), ("text", c_char_p), ("bytes", c_size_t)]


class RenderOptions(Options):
    _fields_ = [
        ("size", c_size_t),
        ("first", c_size_t),
        ("answer", c_bool),
        ("earlier", c_bool),
        ("thinking", c_int),
    ]


class Ids(Struct):
    _fields_ = [("ids", ctypes.POINTER(c_int32)), ("capacity", c_size_t), ("count", ctypes.POINTER(c_size_t))]


class Rank(Struct):
    _fields_ = [
        ("stable_rank", c_double),
        ("utilization", c_double),
        ("entropy_rank", c_double),
        ("condition", c_double),
        ("rank", c_int32),
    ]


# The C names, for the test of layouts.
NAMES = {
    "deltaic_context_options": ContextOptions,
    "deltaic_device_info": DeviceInfo,
    "deltaic_device_options": DeviceOptions,
    "deltaic_model_options": ModelOptions,
    "deltaic_model_info": ModelInfo,
    "deltaic_memory": Memory,
    "deltaic_session_options": SessionOptions,
    "deltaic_sampling": Sampling,
    "deltaic_score": Score,
    "deltaic_piece": Piece,
    "deltaic_template_info": TemplateInfo,
    "deltaic_message": Message,
    "deltaic_render_options": RenderOptions,
    "deltaic_ids": Ids,
    "deltaic_rank": Rank,
}
