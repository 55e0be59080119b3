// plugin_windows: loads the plugin, which is beside the program.
#include "plugin.h"

#include <stdio.h>
#include <stdlib.h>
#include <windows.h>

plugin_command plugin_load(const char **error) {
  static char sentence[128];
  HMODULE plugin = LoadLibraryExW(L"deltaic_commands.dll", NULL, LOAD_LIBRARY_SEARCH_DEFAULT_DIRS);
  FARPROC command = plugin ? GetProcAddress(plugin, "deltaic_command") : NULL;
  snprintf(sentence, sizeof sentence, "deltaic_commands.dll beside the program: error %lu of Windows", GetLastError());
  *error = sentence;
  return (plugin_command)(void (*)(void))command;
}
