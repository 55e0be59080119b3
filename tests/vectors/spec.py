"""What the makers of some fixtures begin with: their arguments, the first of which is SPEC, and the float64 reference in
it. SPEC is a folder of the project's own that is not in this repository: who builds, tests or uses deltaic needs none of
it, for what the scripts made lies beside them. They are here to be read, and for who makes the fixtures anew."""
import importlib, os, sys


def arguments(doc, least):
    """sys.argv's, at least so many; else the usage line of the script's own doc."""
    if len(sys.argv) <= least:
        sys.exit(next(line for line in doc.splitlines() if line.startswith("usage: ")))
    return sys.argv[1:]


def modules(spec, *names):
    missing = [name + ".py" for name in names if not os.path.isfile(os.path.join(spec, name + ".py"))]
    if missing:
        sys.exit(f"{sys.argv[0]}: {spec} has no {', '.join(missing)}: the float64 reference that fixtures are made with "
                 "is not in this repository; nothing but this script needs it")
    sys.path.insert(0, spec)
    return [importlib.import_module(name) for name in names]
