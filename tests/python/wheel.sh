#!/bin/bash
# Makes the wheel with what Debian has, installs it into a folder and uses it there: wheel.sh PYTHON TOP FOLDER
set -euo pipefail
python=$1 top=$2 folder=$3
rm -rf "$folder/wheel" && mkdir -p "$folder/wheel"
cp -r "$top/apps/python" "$folder/wheel/source" # setuptools writes into its sources
cd "$folder/wheel"
"$python" -m pip --disable-pip-version-check wheel -q --no-index --no-deps --no-build-isolation -w . ./source
"$python" -m pip --disable-pip-version-check install -q --no-index --no-deps --target installed deltaic-*.whl
[[ $(echo *.whl) == deltaic-*-py3-none-any.whl ]]
unset PYTHONPATH
# Without DELTAIC_LIBRARY, the library beside the module is found, under its usual name.
cp "$DELTAIC_LIBRARY" "installed/deltaic/libdeltaic.so.$("$python" -c 'import sys; sys.path.insert(0, "installed")
from deltaic.library import VERSION
print(VERSION)')"
unset DELTAIC_LIBRARY
text=$(PYTHONPATH=installed "$python" -c "import deltaic
print(deltaic.__file__)
print(deltaic.Model('$top/models/novelist', deltaic.Device(-1)).generate('It was', tokens=8).text())")
echo "$text"
[[ $text == "$folder/wheel/installed/"* && $(wc -w <<<"$text") -gt 4 ]]
