"""Smaller states: the functions of deltaic_prune.h, from libdeltaic_prune or from a libdeltaic that has them."""
import ctypes
from ctypes import (
    POINTER, byref, c_bool, c_char_p, c_double, c_float, c_int, c_int32, c_size_t, c_uint32, c_uint64, c_void_p
)
from enum import IntEnum

from . import library
from .library import HANDLE, PROGRESS, STATUS, Object, c_text, progress_of
from .structs import Options, Rank, Struct
from .text import IDS, token_array

LIBRARY = library.load_prune()


def function(name, result, *arguments):
    return library.function(name, result, *arguments, library=LIBRARY)


class Side(IntEnum):
    JOINT = 0
    KEYS = 1
    QUERIES = 2


class KeepRule(IntEnum):
    GIVEN = 0
    ENTROPY = 1
    STABLE = 2
    RANK = 3
    VOLUME = 4


class Method(Struct):
    _fields_ = [
        ("name", c_char_p),
        ("about", c_char_p),
        ("text", c_bool),
        ("unit", c_bool),
        ("rows", c_bool),
        ("gradients", c_bool),
    ]


class CalibrationOptions(Options):
    _fields_ = [
        ("size", c_size_t),
        ("window", c_uint32),
        ("rows", c_uint32),
        ("rows_together", c_bool),
        ("unit", c_bool),
        ("seed", c_uint64),
    ]


class StatisticsInfo(Struct):
    _fields_ = [
        ("tokens", c_uint64),
        ("hash", c_uint64),
        ("gradient_tokens", c_uint64),
        ("gradient_hash", c_uint64),
        ("window", c_uint32),
        ("rows", c_uint32),
        ("unit", c_bool),
        ("rows_together", c_bool),
    ]


class SelectOptions(Options):
    _fields_ = [
        ("size", c_size_t),
        ("method", c_char_p),
        ("side", c_int),
        ("cut", c_double),
        ("keep", POINTER(c_uint32)),
        ("keep_count", c_size_t),
        ("rule", c_int),
        ("per_layer", c_bool),
        ("volume_lost", c_double),
        ("seed", c_uint64),
        ("tolerance", c_double),
        ("swap_limit", c_uint32),
        ("rows", c_bool),
        ("adversarial", c_bool),
        ("like_reference", c_bool),
    ]


class HeadMeasures(Struct):
    _fields_ = [("condition", c_double), ("utilization", c_double), ("log_volume", c_double)]


class SelectedHead(Struct):
    _fields_ = [
        ("layer", c_int32),
        ("head", c_int32),
        ("size", c_int32),
        ("keep", c_int32),
        ("kept", POINTER(c_int32)),
        ("measured", c_bool),
        ("before", HeadMeasures),
        ("after", HeadMeasures),
        ("dead", c_int32),
        ("rank", c_int32),
        ("swaps", c_int32),
        ("rho", c_double),
        ("settled", c_bool),
    ]


class RefitOptions(Options):
    _fields_ = [("size", c_size_t), ("ridge", c_double), ("window", c_uint32), ("memory", c_uint64)]


class WriteOptions(Options):
    _fields_ = [
        ("size", c_size_t),
        ("force", c_bool),
        ("refit", POINTER(RefitOptions)),
        ("progress", PROGRESS),
        ("progress_user", c_void_p),
    ]


class RecoverOptions(Options):
    _fields_ = [
        ("size", c_size_t),
        ("window", c_uint32),
        ("batch", c_uint32),
        ("rank", c_uint32),
        ("threads", c_uint32),
        ("rate", c_double),
        ("seed", c_uint64),
        ("device", HANDLE),
        ("precision", c_int),
    ]


# The C names, for the test of layouts.
NAMES = {
    "deltaic_prune_method": Method,
    "deltaic_calibration_options": CalibrationOptions,
    "deltaic_statistics_info": StatisticsInfo,
    "deltaic_select_options": SelectOptions,
    "deltaic_head_measures": HeadMeasures,
    "deltaic_selected_head": SelectedHead,
    "deltaic_refit_options": RefitOptions,
    "deltaic_recover_options": RecoverOptions,
    "deltaic_prune_write_options": WriteOptions,
}

method_at = function("deltaic_prune_method_at", c_bool, c_int32, POINTER(Method))
matrix_rank = function(
    "deltaic_matrix_rank", STATUS, POINTER(c_float), c_size_t, c_size_t, c_double, POINTER(Rank), POINTER(c_double)
)
recover = function(
    "deltaic_pruning_recover", STATUS, HANDLE, IDS, c_size_t, POINTER(RecoverOptions), PROGRESS, c_void_p
)
statistics_create = function(
    "deltaic_statistics_create", STATUS, c_char_p, POINTER(CalibrationOptions), POINTER(HANDLE)
)
statistics_load = function("deltaic_statistics_load", STATUS, c_char_p, c_char_p, POINTER(HANDLE))
statistics_save = function("deltaic_statistics_save", STATUS, HANDLE, c_char_p)
statistics_free = function("deltaic_statistics_free", None, HANDLE)
statistics_get_info = function("deltaic_statistics_get_info", None, HANDLE, POINTER(StatisticsInfo))
calibrate = function("deltaic_calibrate", STATUS, HANDLE, HANDLE, IDS, c_size_t, PROGRESS, c_void_p)
calibrate_gradients = function(
    "deltaic_calibrate_gradients", STATUS, HANDLE, HANDLE, c_char_p, IDS, c_size_t, PROGRESS, c_void_p
)
select = function("deltaic_select", STATUS, c_char_p, HANDLE, POINTER(SelectOptions), POINTER(HANDLE))
select_given = function(
    "deltaic_select_given", STATUS, c_char_p, HANDLE, c_char_p, c_uint32, IDS, c_size_t, POINTER(HANDLE)
)
selection_free = function("deltaic_selection_free", None, HANDLE)
selection_count = function("deltaic_selection_count", c_size_t, HANDLE)
selection_at = function("deltaic_selection_at", STATUS, HANDLE, c_size_t, POINTER(SelectedHead))
pruning_check = function("deltaic_pruning_check", STATUS, c_char_p, c_char_p, c_bool)
pruning_begin = function(
    "deltaic_pruning_begin", STATUS, c_char_p, HANDLE, c_char_p, POINTER(WriteOptions), POINTER(HANDLE)
)
pruning_path = function("deltaic_pruning_path", c_char_p, HANDLE)
pruning_refit = function(
    "deltaic_pruning_refit", STATUS, HANDLE, HANDLE, HANDLE, IDS, c_size_t, POINTER(RefitOptions), PROGRESS, c_void_p
)
pruning_commit = function("deltaic_pruning_commit", STATUS, HANDLE)
pruning_free = function("deltaic_pruning_free", None, HANDLE)


def methods():
    """name, about and needs of every method."""
    found, method = [], Method()
    while method_at(len(found), byref(method)):
        found.append(method.record())
    return found


def rank(rows, zero=1e-6):
    """How much of a matrix is used: its ranks, and its singular values. rows: lists, or a buffer of floats."""
    if not isinstance(rows, memoryview):
        rows = [[float(x) for x in row] for row in rows]
        height, width = len(rows), len(rows[0]) if rows else 0
        if any(len(row) != width for row in rows):
            raise ValueError("the rows have different lengths")
        numbers = (c_float * (height * width))(*(x for row in rows for x in row))
    else:
        if rows.ndim != 2 or rows.format.lstrip("<=@") != "f":
            raise ValueError("not two dimensions of float32")
        height, width = rows.shape
        numbers = (c_float * (height * width)).from_buffer_copy(rows.tobytes())
    result, values = Rank(), (c_double * min(height, width))()
    matrix_rank(numbers, height, width, zero, byref(result), values)
    return result.record(), list(values)


class Statistics(Object):
    """Measurements of the model at path. load: a file of save(). options: those of deltaic_calibration_options."""

    def __init__(self, path, load=None, **options):
        handle = HANDLE()
        if load is None:
            statistics_create(c_text(path), byref(CalibrationOptions(**options)), byref(handle))
        else:
            statistics_load(c_text(path), c_text(load), byref(handle))
        self.own(handle, statistics_free)

    def calibrate(self, model, tokens, progress=None):
        """Goes on over a text's tokens from where it stands; progress(done, total) returning False stops it."""
        ids, n = token_array(tokens)
        with progress_of(progress) as callback:
            calibrate(self.pointer, model.pointer, ids, n, callback, None)

    def calibrate_gradients(self, path, tokens, device=None, progress=None):
        """Measures the gradients that the method grad needs. device: None: the CPU. progress(done, total) returning
        False stops it."""
        ids, n = token_array(tokens)
        with progress_of(progress) as callback:
            calibrate_gradients(self.pointer, device and device.pointer, c_text(path), ids, n, callback, None)

    def save(self, file):
        statistics_save(self.pointer, c_text(file))

    @property
    def info(self):
        info = StatisticsInfo()
        statistics_get_info(self.pointer, byref(info))
        return info.record()


class Selection(Object):
    """The channels that every head keeps, in self.heads.

    cut      the share removed
    keep     the channels kept: a number for all layers, or a list with one for each
    options  the others of deltaic_select_options
    given    in place of these: the channels of every head in order, chosen already"""

    def __init__(self, path, statistics=None, method=None, cut=0.0, keep=(), given=None, **options):
        handle, data = HANDLE(), statistics.pointer if statistics else None
        if given is None:
            counts = [keep] if isinstance(keep, int) else list(keep)
            name = c_text(method) if method else None
            o = SelectOptions(
                method=name, cut=cut, keep=(c_uint32 * len(counts))(*counts), keep_count=len(counts), **options
            )
            select(c_text(path), data, byref(o), byref(handle))
        else:
            ids, n = token_array(channel for head in given for channel in head)
            width = len(given[0]) if given else 0
            if any(len(head) != width for head in given):
                raise ValueError("all heads keep the same number of channels")
            select_given(c_text(path), data, c_text(method or "given"), width, ids, n, byref(handle))
        self.own(handle, selection_free)
        self.heads = [self.head(i) for i in range(selection_count(self.pointer))]

    def head(self, i):
        head = SelectedHead()
        selection_at(self.pointer, i, byref(head))
        record = head.record()
        record.kept = head.kept[: head.keep] if head.kept else None
        return record


class Pruning(Object):
    """A smaller checkpoint beside its final place `out`: refit(), try it at self.path, then commit(). Without that,
    nothing stays."""

    def __init__(self, path, selection, out, force=False, refit=None, progress=None):
        handle = HANDLE()
        with progress_of(progress) as callback:
            options = WriteOptions(force=force, progress=callback)
            if refit is not None:
                options.refit = ctypes.pointer(RefitOptions(**refit))
            pruning_begin(c_text(path), selection.pointer, c_text(out), byref(options), byref(handle))
            self.own(handle, pruning_free)

    @property
    def path(self):
        return pruning_path(self.pointer).decode()

    def refit(self, device, model, tokens, progress=None, **options):
        """New output projections, from a text's tokens. model: the unpruned one; device: for the pruned one."""
        ids, n = token_array(tokens)
        with progress_of(progress) as callback:
            o = RefitOptions(**options)
            pruning_refit(self.pointer, device.pointer, model.pointer, ids, n, byref(o), callback, None)

    def recover(self, tokens, device=None, progress=None, **options):
        """Trains the pruned model on a text's tokens, with the unpruned one as its teacher. device: None: the CPU."""
        ids, n = token_array(tokens)
        with progress_of(progress) as callback:
            o = RecoverOptions(device=device and device.pointer, **options)
            recover(self.pointer, ids, n, byref(o), callback, None)

    def commit(self):
        pruning_commit(self.pointer)


def check(path, out, force=False):
    """Whether Pruning() would accept these, before long work."""
    pruning_check(c_text(path), c_text(out), force)
