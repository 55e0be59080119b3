"""Deltaic: delta-rule language models on any GPU through Vulkan, or on the CPU (docs/python.md).

    import deltaic
    model = deltaic.Model("models/novelist")
    for text in model.generate("The old house", tokens=64):
        print(text, end="", flush=True)
"""
from .generation import Generation
from .library import LIBRARY, Cancelled, ContextFull, Error, InvalidArgument, OutOfMemory, Status
from .model import Context, Device, Model, Session, inspect
from .structs import DeviceKind, Logits, Precision, Sampling, Thinking
from .text import Decoder, Stops, Template, Tokenizer, templates

__version__ = LIBRARY.deltaic_version().decode()
