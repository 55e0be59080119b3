// console_windows: console.h for Windows.
#include "console.h"

#include <errno.h>
#include <fcntl.h>
#include <io.h>
#include <stdlib.h>
#include <string.h>
#include <windows.h>

enum { STOP_INTERRUPT = 130, STOP_HANGUP = 129 };

// ---------------------------------------------------------------- arguments and streams

static UINT output_before, input_before; // the console's code pages

static void restore_console(void) {
  SetConsoleOutputCP(output_before);
  SetConsoleCP(input_before);
}

static void start_console(void) {
  static const DWORD handles[] = {STD_OUTPUT_HANDLE, STD_ERROR_HANDLE};
  output_before = GetConsoleOutputCP();
  input_before = GetConsoleCP();
  if (output_before) {
    SetConsoleOutputCP(CP_UTF8);
    SetConsoleCP(CP_UTF8);
    atexit(restore_console);
  }
  for (int i = 0; i < 2; ++i) { // the line of progress clears itself by an escape sequence
    HANDLE handle = GetStdHandle(handles[i]);
    DWORD mode;
    if (GetConsoleMode(handle, &mode)) SetConsoleMode(handle, mode | ENABLE_VIRTUAL_TERMINAL_PROCESSING);
  }
}

// The arguments live as long as the program. Where there is no memory for them, they stay as they are.
static void read_arguments(int *argc, char ***argv) {
  int count;
  LPWSTR *wide = CommandLineToArgvW(GetCommandLineW(), &count);
  char **arguments = wide ? calloc((size_t)count + 1, sizeof *arguments) : NULL;
  bool good = arguments;
  for (int i = 0; i < count && good; ++i) {
    int length = WideCharToMultiByte(CP_UTF8, 0, wide[i], -1, NULL, 0, NULL, NULL);
    good = length && (arguments[i] = malloc((size_t)length));
    if (good) WideCharToMultiByte(CP_UTF8, 0, wide[i], -1, arguments[i], length, NULL, NULL);
  }
  LocalFree(wide);
  if (!good) return;
  *argc = count;
  *argv = arguments;
}

void console_start(int *argc, char ***argv) {
  FILE *const streams[] = {stdin, stdout, stderr};
  for (int i = 0; i < 3; ++i) _setmode(_fileno(streams[i]), _O_BINARY);
  start_console();
  read_arguments(argc, argv);
}

// A console, and not another character device, such as NUL.
bool console_is_terminal(FILE *stream) {
  DWORD mode;
  return GetConsoleMode((HANDLE)_get_osfhandle(_fileno(stream)), &mode);
}

// ---------------------------------------------------------------- a line of input

static bool make_room(char **line, size_t *room, size_t bytes) {
  if (bytes <= *room) return true;
  char *larger = realloc(*line, 2 * bytes);
  if (!larger) return false;
  *line = larger;
  *room = 2 * bytes;
  return true;
}

static HANDLE stopped; // is set when `on_stop` was called

// A console's input is UTF-16; its own conversion to UTF-8 loses characters.
static ptrdiff_t console_input(char **line, size_t *room) {
  HANDLE console = GetStdHandle(STD_INPUT_HANDLE);
  wchar_t wide[1024];
  size_t length = 0;
  DWORD taken;
  do {
    DWORD kept = 0;
    if (!ReadConsoleW(console, wide, 1023, &taken, NULL) || !taken) {
      if (GetLastError() == ERROR_OPERATION_ABORTED && stopped)
        WaitForSingleObject(stopped, 1000); // Ctrl-C: on_control()
      return -1;
    }
    if (wide[taken - 1] >= 0xd800 && wide[taken - 1] < 0xdc00) // half of a character
      if (!ReadConsoleW(console, wide + taken, 1, &kept, NULL)) return -1;
    taken += kept;
    int bytes = WideCharToMultiByte(CP_UTF8, 0, wide, (int)taken, NULL, 0, NULL, NULL);
    if (!make_room(line, room, length + (size_t)bytes + 1)) return -1;
    WideCharToMultiByte(CP_UTF8, 0, wide, (int)taken, *line + length, bytes, NULL, NULL);
    length += (size_t)bytes;
  } while ((*line)[length - 1] != '\n');
  (*line)[length] = 0;
  return (*line)[0] == 26 ? -1 : (ptrdiff_t)length; // Ctrl-Z is the end
}

ptrdiff_t console_line(char **line, size_t *room) {
  if (console_is_terminal(stdin)) return console_input(line, room);
  size_t length = 0;
  for (int c = 0; c != '\n' && (c = getc(stdin)) != EOF;) {
    if (!make_room(line, room, length + 2)) return -1;
    (*line)[length++] = (char)c;
  }
  if (!length) return -1;
  (*line)[length] = 0;
  return (ptrdiff_t)length;
}

// ---------------------------------------------------------------- Ctrl-C and the closed console

static void (*on_stop)(int code);
static bool keep;
static volatile LONG stops;

// Windows calls this in a thread of its own, and ends the program when it returns for a console that is closed; after
// five seconds it ends it in any case.
static BOOL WINAPI on_control(DWORD event) {
  bool interrupt = event == CTRL_C_EVENT || event == CTRL_BREAK_EVENT;
  if (InterlockedIncrement(&stops) > 1 && !(keep && interrupt)) return FALSE;
  on_stop(interrupt ? STOP_INTERRUPT : STOP_HANGUP);
  if (stopped) SetEvent(stopped);
  if (!interrupt) Sleep(INFINITE);
  return TRUE;
}

void console_catch(void (*stop)(int code), bool always) {
  bool first = !on_stop;
  on_stop = stop;
  keep = always;
  if (first) SetConsoleCtrlHandler(on_control, TRUE);
}

const char *console_stop_name(int code) { return code == STOP_HANGUP ? "the closed console" : "Ctrl-C"; }

int console_prepare(void) {
  stopped = CreateEventW(NULL, TRUE, FALSE, NULL);
  return stopped ? 0 : ENOMEM;
}

// A pipe cannot be waited for. A console's read ends by itself.
void console_wait(void) {
  HANDLE input = GetStdHandle(STD_INPUT_HANDLE);
  DWORD ready = 0;
  if (GetFileType(input) != FILE_TYPE_PIPE) return;
  while (PeekNamedPipe(input, NULL, 0, NULL, &ready, NULL) && !ready)
    if (WaitForSingleObject(stopped, 10) == WAIT_OBJECT_0) return;
}

void console_forget(void) {
  ResetEvent(stopped);
  InterlockedExchange(&stops, 0);
}
