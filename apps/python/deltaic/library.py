"""Finds and loads the shared library, turns its statuses into exceptions, and owns its objects."""
import contextlib
import ctypes
import enum
import os
import sys
import threading

VERSION = "0.2"  # the struct layouts below belong to this minor version (deltaic.h, "Binaries")


class Status(enum.IntEnum):
    OK = 0
    INVALID_ARGUMENT = -1
    NOT_FOUND = -2
    IO = -3
    BAD_FILE = -4
    BAD_SHAPE = -5
    UNSUPPORTED = -6
    OUT_OF_MEMORY = -7
    NO_DEVICE = -8
    DEVICE_LOST = -9
    CONTEXT_FULL = -10
    CANCELLED = -11
    BAD_STATE = -12
    BUFFER_TOO_SMALL = -13
    INTERNAL = -14


class Error(Exception):
    """A call failed. str(error) is the library's sentence, error.status a Status."""

    def __init__(self, status, sentence):
        super().__init__(sentence)
        self.status = status


class InvalidArgument(Error, ValueError):
    pass


class OutOfMemory(Error, MemoryError):
    pass


class ContextFull(Error):
    pass


class Cancelled(Error):
    pass


KINDS = {
    Status.INVALID_ARGUMENT: InvalidArgument,
    Status.OUT_OF_MEMORY: OutOfMemory,
    Status.CONTEXT_FULL: ContextFull,
    Status.CANCELLED: Cancelled,
}

# ---------------------------------------------------------------- loading


def file_names(name):
    """What the library NAME is called, the best first."""
    if sys.platform == "win32":
        return [f"{name}.dll", f"lib{name}.dll"]
    if sys.platform == "darwin":
        return [f"lib{name}.{VERSION}.dylib", f"lib{name}.dylib"]
    return [f"lib{name}.so.{VERSION}", f"lib{name}.so"]


def load(name, folders):
    """Loads from the first folder that has the library, or else from where the system's loader finds it."""
    for folder in folders:
        for file in file_names(name):
            path = os.path.join(folder, file)
            if os.path.exists(path):
                return ctypes.CDLL(path)
    for file in file_names(name):
        with contextlib.suppress(OSError):
            return ctypes.CDLL(file)
    raise ImportError(
        f"there is no shared library {file_names(name)[0]}: install it (cmake -DBUILD_SHARED_LIBS=ON), "
        "or let DELTAIC_LIBRARY name the file"
    )


def load_deltaic():
    path = os.environ.get("DELTAIC_LIBRARY")
    if path:
        library = ctypes.CDLL(os.path.abspath(path))
    else:
        library = load("deltaic", [os.path.dirname(os.path.abspath(__file__))])
    library.deltaic_version.restype = ctypes.c_char_p
    version = library.deltaic_version().decode()
    if version.rsplit(".", 1)[0] != VERSION:
        raise ImportError(f"the library is version {version}; this module fits {VERSION}")
    return library


LIBRARY = load_deltaic()


def load_prune():
    """The library with deltaic_prune.h: one of its own, or this one."""
    if hasattr(LIBRARY, "deltaic_select"):
        return LIBRARY
    folder = os.path.dirname(LIBRARY._name)
    return load("deltaic_prune", [folder] if folder else [os.path.dirname(os.path.abspath(__file__))])


# ---------------------------------------------------------------- functions

HANDLE = ctypes.c_void_p
STATUS = "status"  # in place of a result's type: a failure is raised
FUNCTIONS = {}  # name: (result, arguments), as declared; tests compare them with the headers


def status_error(status):
    sentence = LIBRARY.deltaic_last_error().decode(errors="replace")
    known = Status(status) if status in Status._value2member_map_ else status
    return KINDS.get(known, Error)(known, sentence)


RAISED = threading.local()  # .failure: what a callback has raised, for the call that it stops


def check(status, function, arguments):
    failure = RAISED.__dict__.pop("failure", None)
    if status:
        raise failure or status_error(status)
    return status


def function(name, result, *arguments, library=LIBRARY):
    """Declares a function of the library."""
    FUNCTIONS[name] = result, arguments
    found = getattr(library, name)
    found.argtypes = arguments
    found.restype = ctypes.c_int if result is STATUS else result
    if result is STATUS:
        found.errcheck = check
    return found


last_error = function("deltaic_last_error", ctypes.c_char_p)

# ---------------------------------------------------------------- objects


class Handle:
    """A pointer of the library's, and the handles that it borrows from. It is freed when neither its object nor a
    borrower uses it any more, in whatever order Python drops them."""

    lock = threading.RLock()

    def __init__(self, pointer, free, lenders):
        self.pointer, self.free, self.lenders, self.users = pointer, free, lenders, 1
        with Handle.lock:
            for lender in lenders:
                lender.users += 1

    def drop(self):
        with Handle.lock:
            self.users -= 1
            if self.users:
                return
        self.free(self.pointer)
        for lender in self.lenders:
            lender.drop()


class Object:
    """What owns a handle. close() or the end of a `with` gives it back; so does Python, when nothing refers to it."""

    handle = None

    def own(self, pointer, free, *lenders):
        self.handle = Handle(pointer.value, free, [lender.handle for lender in lenders])

    @property
    def pointer(self):
        if self.handle is None:
            raise ValueError(f"this {type(self).__name__} is closed")
        return self.handle.pointer

    def close(self):
        handle, self.handle = self.handle, None
        if handle:
            handle.drop()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    __del__ = close


# ---------------------------------------------------------------- arguments and results

PROGRESS = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint64)


@contextlib.contextmanager
def progress_of(report):
    """A deltaic_progress that calls report(done, total) until that returns False. What it raises is raised again when
    the call has ended."""
    failures = []

    def call(_, done, total):
        try:
            return report(done, total) is not False
        except BaseException as failure:
            failures.append(failure)
            return False

    try:
        yield PROGRESS(call) if report else PROGRESS()
    except Cancelled:
        if not failures:
            raise
    if failures:
        raise failures[0]


def c_text(text):
    """A string of C, which ends at its first NUL."""
    data = os.fsencode(text)
    if b"\0" in data:
        raise ValueError(f"{text!r} has a NUL")
    return data


def filled(call, type_, capacity=0):
    """What call(buffer, capacity, count) writes, as a list or bytes. It is called again where `count` says that the
    capacity was too small."""
    count = ctypes.c_size_t()
    while True:
        buffer = (type_ * capacity)()
        try:
            call(buffer if capacity else None, capacity, ctypes.byref(count))
        except Error as error:
            if error.status != Status.BUFFER_TOO_SMALL or count.value <= capacity:
                raise
        if count.value <= capacity:
            return buffer[: count.value]
        capacity = count.value
