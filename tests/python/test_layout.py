"""The module's structs, enumerations and functions against the C headers: test_layout.py CC TOP."""
import ctypes
import enum
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

from deltaic import library, prune, structs

CC, TOP = sys.argv.pop(1), pathlib.Path(sys.argv.pop(1))
HEADERS = [TOP / "include/deltaic.h", TOP / "include/deltaic_prune.h"]
TYPES = {**structs.NAMES, **prune.NAMES}
ENUMS = {
    "DELTAIC_": library.Status,
    "DELTAIC_DEVICE_": structs.DeviceKind,
    "DELTAIC_LOGITS_": structs.Logits,
    "DELTAIC_PRECISION_": structs.Precision,
    "DELTAIC_ROLE_": structs.Role,
    "DELTAIC_THINKING_": structs.Thinking,
    "DELTAIC_PRUNE_": prune.Side,
    "DELTAIC_KEEP_": prune.KeepRule,
}


def headers():
    """Both headers without comments and preprocessor lines."""
    whole = "".join(path.read_text() for path in HEADERS)
    return re.sub(r"/\*.*?\*/|//[^\n]*|^#[^\n]*(\\\n[^\n]*)*", "", whole, flags=re.S | re.M)


def fields_of(body):
    """The names of a C struct's fields, in order."""
    body = re.sub(r"\(\*(\w+)\)\([^)]*\)", r"\1", body)
    return re.findall(r"(\w+)\s*(?:\[\w+\])?\s*[;,]", body)


def c_answers(lines):
    """What a C program prints for each (name, expression)."""
    with tempfile.TemporaryDirectory() as folder:
        source, program = os.path.join(folder, "layout.c"), os.path.join(folder, "layout")
        with open(source, "w") as file:
            file.write('#include "deltaic_prune.h"\n#include <stdio.h>\nint main(void) {\n')
            for name, expression in lines:
                file.write(f'  printf("{name} %lld\\n", (long long)({expression}));\n')
            file.write("}\n")
        subprocess.run([CC, "-std=c11", f"-I{TOP}/include", source, "-o", program], check=True)
        printed = subprocess.run([program], check=True, capture_output=True, text=True).stdout
    return {name: int(value) for name, value in (line.split() for line in printed.splitlines())}


def layout(types):
    """(name, C expression, ctypes' value) of every size and offset."""
    for name, type_ in types.items():
        yield name, f"sizeof({name})", ctypes.sizeof(type_)
        for field, *_ in type_._fields_:
            place = getattr(type_, field)
            yield f"{name}.{field}", f"offsetof({name}, {field})", place.offset
            yield f"{name}.{field}.size", f"sizeof((({name} *)0)->{field})", place.size


def differences(types):
    rows = list(layout(types))
    answers = c_answers((name, expression) for name, expression, _ in rows)
    return [f"{name}: C {answers[name]}, Python {value}" for name, _, value in rows if answers[name] != value]


def kind_of_c(type_):
    """"pointer", "void" or the size and kind of a C type in a declaration."""
    if "*" in type_ or "[" in type_ or "deltaic_progress" in type_ or "deltaic_probe_function" in type_:
        return "pointer"
    type_ = re.sub(r"\bconst\b|\bDELTAIC_API\b", "", type_).split()[0]
    simple = {
        "void": "void",
        "bool": ctypes.c_bool,
        "size_t": ctypes.c_size_t,
        "int32_t": ctypes.c_int32,
        "uint32_t": ctypes.c_uint32,
        "uint64_t": ctypes.c_uint64,
        "double": ctypes.c_double,
    }
    return simple.get(type_, ctypes.c_int)  # the others are enumerations


def kind_of_python(type_):
    if type_ is None:
        return "void"
    if type_ is library.STATUS:
        return ctypes.c_int
    pointers = ctypes._Pointer, ctypes._CFuncPtr, ctypes.c_void_p, ctypes.c_char_p
    return "pointer" if issubclass(type_, pointers) else type_


def prototypes():
    """{name: (result, arguments)} of the headers."""
    found = {}
    for result, name, arguments in re.findall(r"DELTAIC(?:_PRUNE)?_API\s+([\w\s\*]+?)(\w+)\(([^;]*?)\);", headers()):
        parts = [] if arguments.strip() == "void" else re.split(r",", arguments)
        found[name] = kind_of_c(result), [kind_of_c(part) for part in parts]
    return found


class Layout(unittest.TestCase):
    def test_structs_have_the_layout_of_c(self):
        self.assertEqual(differences(TYPES), [])

    def test_a_wrong_layout_is_found(self):
        class Wrong(ctypes.Structure):
            _fields_ = [("weights_bytes", ctypes.c_uint64), ("state_bytes", ctypes.c_uint32)] + [
                (name, ctypes.c_uint64) for name in ("scratch_bytes", "cache_per_token")
            ]

        self.assertEqual(len(differences({"deltaic_memory": Wrong})), 1)

    def test_structs_have_every_field(self):
        bodies = {name: body for body, name in re.findall(r"typedef struct \w+ \{(.*?)\} (\w+);", headers(), re.S)}
        for name, type_ in TYPES.items():
            self.assertEqual([field for field, *_ in type_._fields_], fields_of(bodies[name]), name)

    def test_enumerations_have_the_values_of_c(self):
        lines = [(prefix + member.name, prefix + member.name) for prefix, kind in ENUMS.items() for member in kind]
        answers = c_answers(lines)
        for prefix, kind in ENUMS.items():
            self.assertEqual({m.name: m.value for m in kind}, {m.name: answers[prefix + m.name] for m in kind})

    def test_every_status_is_known(self):
        names = re.findall(r"X\((\w+), (-?\d+), ", HEADERS[0].read_text())
        self.assertEqual({name: int(value) for name, value in names}, {m.name: m.value for m in library.Status})

    def test_functions_are_declared_as_in_c(self):
        declared = prototypes()
        self.assertGreater(len(library.FUNCTIONS), 60)
        for name, (result, arguments) in library.FUNCTIONS.items():
            mine = kind_of_python(result), [kind_of_python(argument) for argument in arguments]
            self.assertEqual(mine, declared[name], name)

    def test_the_version_is_the_headers(self):
        version = re.search(r'DELTAIC_VERSION "([\d.]+)"', HEADERS[0].read_text())[1]
        self.assertEqual(library.VERSION, version.rsplit(".", 1)[0])
        project = (TOP / "apps/python/pyproject.toml").read_text()
        self.assertIn(f'version = "{version}"', project)

    def test_a_library_that_does_not_fit_is_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            source, old = os.path.join(folder, "old.c"), os.path.join(folder, "old.so")
            with open(source, "w") as file:
                file.write('const char *deltaic_version(void) { return "0.1.7"; }\n')
            subprocess.run([CC, "-shared", "-fPIC", source, "-o", old], check=True)
            command = [sys.executable, "-c", "import deltaic"]
            ran = subprocess.run(command, env={**os.environ, "DELTAIC_LIBRARY": old}, capture_output=True, text=True)
        self.assertIn("ImportError: the library is version 0.1.7; this module fits " + library.VERSION, ran.stderr)

    def test_a_missing_library_is_named(self):
        with self.assertRaisesRegex(ImportError, "no shared library libdeltaic_nothing.so.*DELTAIC_LIBRARY"):
            library.load("deltaic_nothing", [])


if __name__ == "__main__":
    unittest.main(verbosity=2)
