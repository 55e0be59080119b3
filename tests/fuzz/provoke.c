// provoke [leak|overflow|undefined]: does what a sanitizer must report; without an argument, nothing wrong.
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// The compiler does not see how many there are: the address sanitizer is to find out.
__attribute__((noinline)) static volatile int *numbers(void) { return malloc(4 * sizeof(int)); }

int main(int argc, char **argv) {
  const char *what = argc > 1 ? argv[1] : "";
  volatile int *n = numbers();
  volatile int last = 3, most = INT_MAX - 1;
  if (!n) return 2;
  for (int i = 0; i < 4; i++) n[i] = i;
  if (!strcmp(what, "overflow")) last++;
  if (!strcmp(what, "undefined")) most++;
  printf("%d %d\n", n[last], most + 1);
  if (strcmp(what, "leak")) free((void *)n);
  n = NULL;
  return 0;
}
