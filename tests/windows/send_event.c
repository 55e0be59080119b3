// send_event ctrl-c|close CODE LINE: runs the command LINE in a console of its own, waits until it writes something,
// presses Ctrl-C there or closes the console, and fails unless the program then ends with the exit code CODE within
// twenty seconds. For tests under Wine, whose consoles end their programs without a word when they are closed: no
// program gets CTRL_CLOSE_EVENT, be it after WM_CLOSE, SC_CLOSE or ClosePseudoConsole(). So `close` does what Windows
// does then: it starts a thread in the program that calls the program's handlers.
#define _WIN32_WINNT 0x0A00
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <windows.h>

static BOOL WINAPI stay(DWORD event) {
  (void)event;
  return TRUE;
}

static int fails(const char *what) {
  fprintf(stderr, "send_event: %s: error %lu\n", what, (unsigned long)GetLastError());
  return 1;
}

// The thread that calls the handlers; NULL: there is none.
static HANDLE close_console(HANDLE program) {
  const FARPROC handlers = GetProcAddress(GetModuleHandleA("kernel32.dll"), "CtrlRoutine"); // as in every program
  LPTHREAD_START_ROUTINE start = (LPTHREAD_START_ROUTINE)(void *)handlers;
  return start ? CreateRemoteThread(program, NULL, 0, start, (void *)CTRL_CLOSE_EVENT, 0, NULL) : NULL;
}

static BOOL press_ctrl_c(void) {
  SetConsoleCtrlHandler(stay, TRUE); // the event goes to every program of the console
  return GenerateConsoleCtrlEvent(CTRL_C_EVENT, 0);
}

int main(int argc, char **argv) {
  const BOOL closes = argc == 4 && !strcmp(argv[1], "close");
  if (argc != 4 || (!closes && strcmp(argv[1], "ctrl-c") != 0))
    return fputs("usage: send_event ctrl-c|close CODE LINE\n", stderr), 2;
  SECURITY_ATTRIBUTES inherited = {.nLength = sizeof inherited, .bInheritHandle = TRUE};
  HANDLE from, to;
  STARTUPINFOA start = {.cb = sizeof start, .dwFlags = STARTF_USESTDHANDLES};
  PROCESS_INFORMATION child;
  DWORD code, got = 0;
  char bytes[4096];
  FreeConsole(); // of a terminal of Linux, whose programs get no events
  if (!AllocConsole()) return fails("no console");
  if (!CreatePipe(&from, &to, &inherited, 0)) return fails("no pipe");
  start.hStdInput = GetStdHandle(STD_INPUT_HANDLE);
  start.hStdOutput = to;
  start.hStdError = GetStdHandle(STD_ERROR_HANDLE);
  if (!CreateProcessA(NULL, argv[3], NULL, NULL, TRUE, 0, NULL, NULL, &start, &child))
    return fails("cannot run the program");
  CloseHandle(to);
  if (!ReadFile(from, bytes, 1, &got, NULL) || !got) return fails("the program wrote nothing");
  const HANDLE handlers = closes ? close_console(child.hProcess) : NULL;
  if (closes ? !handlers : !press_ctrl_c()) return fails("cannot send");
  const ULONGLONG begin = GetTickCount64();
  while (ReadFile(from, bytes, sizeof bytes, &got, NULL) && got) // a full pipe would hold the program
    if (GetTickCount64() - begin > 20000) TerminateProcess(child.hProcess, 99);
  WaitForSingleObject(child.hProcess, INFINITE);
  GetExitCodeProcess(child.hProcess, &code);
  fprintf(stderr, "send_event: exit code %lu\n", (unsigned long)code);
  // When the handlers return, Windows ends the program at once. They must last until it ends by itself.
  DWORD last = code;
  if (handlers) GetExitCodeThread(handlers, &last);
  if (last != code)
    fprintf(stderr, "send_event: the handlers of the closed console returned %lu\n", (unsigned long)last);
  return code == (DWORD)atoi(argv[2]) && last == code ? 0 : 1;
}
