// console: what operating systems do differently with a program's arguments, its terminal and the wish to end it.
// console_posix.c and console_windows.c implement it, and CMake takes one of them.
#ifndef CONSOLE_H
#define CONSOLE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

// Comes first in main(). Makes the arguments UTF-8 and the standard streams pass bytes as they are.
void console_start(int *argc, char ***argv);
bool console_is_terminal(FILE *stream);
// Reads a line of standard input with its end into memory that realloc() can resize. Returns its length; -1: there is
// none.
ptrdiff_t console_line(char **line, size_t *room);

// Calls `stop` when someone asks the program to end, with the exit code that says how: 130 for Ctrl-C, 143 for SIGTERM,
// 129 for SIGHUP and for a console that is closed. It may interrupt any function. A second one of the same
// kind ends the program at once. always: no Ctrl-C does. Signals that the parent process ignores stay ignored.
void console_catch(void (*stop)(int code), bool always);
int console_prepare(void); // before console_wait(); 0 or an errno
void console_wait(void);   // until standard input can be read, or `stop` was called since console_forget()
void console_forget(void);
const char *console_stop_name(int code); // "Ctrl-C", "SIGTERM"
#endif
