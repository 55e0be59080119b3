// plugin_windows: loads a plugin, which is beside the program.
#include "plugin.h"

#include <stdio.h>
#include <stdlib.h>
#include <windows.h>

plugin_command plugin_load(enum plugin which, const char **error) {
  static const wchar_t *const names[] = {[PLUGIN_COMMANDS] = L"deltaic_commands.dll",
                                         [PLUGIN_SERVE] = L"deltaic_serve.dll"};
  static char sentence[128];
  HMODULE plugin = LoadLibraryExW(names[which], NULL, LOAD_LIBRARY_SEARCH_DEFAULT_DIRS);
  FARPROC command = plugin ? GetProcAddress(plugin, "deltaic_command") : NULL;
  snprintf(sentence, sizeof sentence, "%ls beside the program: error %lu of Windows", names[which], GetLastError());
  *error = sentence;
  return (plugin_command)(void (*)(void))command;
}
