// send_ctrl_c CODE LINE: runs the command LINE in a console of its own, waits until it writes something, presses Ctrl-C
// there, and fails unless it then ends with the exit code CODE within twenty seconds. For tests under Wine, whose
// consoles end their programs without a word when they are closed, so that only Ctrl-C can be tried.
#define _WIN32_WINNT 0x0A00
#include <stdio.h>
#include <stdlib.h>
#include <windows.h>

static BOOL WINAPI stay(DWORD event) {
  (void)event;
  return TRUE;
}

static int fails(const char *what) {
  fprintf(stderr, "send_ctrl_c: %s: error %lu\n", what, (unsigned long)GetLastError());
  return 1;
}

int main(int argc, char **argv) {
  if (argc != 3) return fputs("usage: send_ctrl_c CODE LINE\n", stderr), 2;
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
  if (!CreateProcessA(NULL, argv[2], NULL, NULL, TRUE, 0, NULL, NULL, &start, &child))
    return fails("cannot run the program");
  CloseHandle(to);
  if (!ReadFile(from, bytes, 1, &got, NULL) || !got) return fails("the program wrote nothing");
  SetConsoleCtrlHandler(stay, TRUE); // the event goes to every program of the console
  if (!GenerateConsoleCtrlEvent(CTRL_C_EVENT, 0)) return fails("cannot send");
  const ULONGLONG begin = GetTickCount64();
  while (ReadFile(from, bytes, sizeof bytes, &got, NULL) && got) // a full pipe would hold the program
    if (GetTickCount64() - begin > 20000) TerminateProcess(child.hProcess, 99);
  WaitForSingleObject(child.hProcess, INFINITE);
  GetExitCodeProcess(child.hProcess, &code);
  fprintf(stderr, "send_ctrl_c: exit code %lu\n", (unsigned long)code);
  return code == (DWORD)atoi(argv[1]) ? 0 : 1;
}
