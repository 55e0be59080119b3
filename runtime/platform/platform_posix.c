// platform_posix: platform.h for POSIX systems.
#include "platform.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

// ---------------------------------------------------------------- paths

bool platform_separator(char c) { return c == '/'; }

size_t platform_folder(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash ? (size_t)(slash + 1 - path) : 0;
}

static struct path_facts facts_of(const struct stat *about) {
  return (struct path_facts){
      .kind = S_ISREG(about->st_mode)   ? PATH_FILE
              : S_ISDIR(about->st_mode) ? PATH_FOLDER
                                        : PATH_OTHER,
      .bytes = (uint64_t)about->st_size,
      .volume = (uint64_t)about->st_dev,
      .index = (uint64_t)about->st_ino,
  };
}

int platform_facts(const char *path, bool follow, struct path_facts *out) {
  struct stat about;
  if (follow ? stat(path, &about) : lstat(path, &about)) return errno;
  *out = facts_of(&about);
  return 0;
}

bool platform_is(const char *path, enum path_kind kind) {
  struct path_facts facts = {0};
  return !platform_facts(path, true, &facts) && facts.kind == kind;
}

int platform_writable(const char *path) {
  return access(path, platform_is(path, PATH_FOLDER) ? W_OK | X_OK : W_OK) ? errno : 0;
}

char *platform_variable(const char *name) {
  const char *value = getenv(name);
  return value && *value ? strdup(value) : NULL;
}

char *platform_cache_folder(void) {
  const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
  if (cache && cache[0] == '/') return strdup(cache);
  if (!home || home[0] != '/') return NULL;
  size_t bytes = strlen(home) + sizeof "/.cache";
  char *folder = malloc(bytes);
  if (folder) snprintf(folder, bytes, "%s/.cache", home);
  return folder;
}

char *platform_temporary_folder(void) {
  const char *folder = getenv("TMPDIR");
  return strdup(folder && *folder ? folder : "/tmp");
}

// ---------------------------------------------------------------- files

static FILE *open_with(const char *path, int flags, const char *mode) {
  int file = open(path, flags | O_CLOEXEC | O_NOCTTY, 0666);
  FILE *stream = file < 0 ? NULL : fdopen(file, mode);
  if (file >= 0 && !stream) close(file);
  return stream;
}

FILE *platform_open(const char *path, const char *mode) {
  if (mode[0] == 'r') return open_with(path, mode[1] == '+' ? O_RDWR : O_RDONLY, mode);
  if (mode[0] == 'a') return open_with(path, O_WRONLY | O_CREAT | O_APPEND, "ab");
  return open_with(path, O_WRONLY | O_CREAT | (strchr(mode, 'x') ? O_EXCL : O_TRUNC), "wb");
}

FILE *platform_create(const char *path, const char *like) {
  struct stat about;
  FILE *stream = platform_open(path, "wbx");
  if (stream && !stat(like, &about)) fchmod(fileno(stream), about.st_mode & 0777);
  return stream;
}

int platform_seek(FILE *file, uint64_t offset) { return fseeko(file, (off_t)offset, SEEK_SET) ? errno : 0; }

int platform_sync(FILE *file) { return fflush(file) || fsync(fileno(file)) ? errno : 0; }

int platform_lock(FILE *file) { return flock(fileno(file), LOCK_EX | LOCK_NB) ? errno : 0; }

char *platform_target(const char *path) {
  struct stat about;
  char *target = realpath(path, NULL);
  if (target || errno != ENOENT) return target;
  if (lstat(path, &about)) return strdup(path);
  FILE *made = platform_open(path, "ab"); // where a broken link leads
  if (!made) return NULL;
  fclose(made);
  return realpath(path, NULL);
}

// The rename is on disk only when its folder is. If the file system cannot sync a folder, the new file may not survive
// a crash right after the call.
static void sync_folder_of(const char *path) {
  size_t length = platform_folder(path);
  char *folder = length ? strndup(path, length) : NULL;
  int file = open(folder ? folder : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (file >= 0) {
    fsync(file);
    close(file);
  }
  free(folder);
}

int platform_rename(const char *from, const char *to) {
  if (rename(from, to)) return errno;
  sync_folder_of(to);
  return 0;
}

int platform_remove(const char *path) { return unlink(path) ? errno : 0; }

int platform_make_folder(const char *path, bool for_user) { return mkdir(path, for_user ? 0700 : 0777) ? errno : 0; }

int platform_remove_folder(const char *path) { return rmdir(path) ? errno : 0; }

int platform_list(const char *folder, int (*each)(void *user, const char *name), void *user) {
  DIR *dir = opendir(folder);
  if (!dir) return errno;
  int code = 0;
  while (!code) {
    errno = 0;
    struct dirent *e = readdir(dir);
    if (!e) {
      code = errno;
      break;
    }
    if (strcmp(e->d_name, ".") && strcmp(e->d_name, "..")) code = each(user, e->d_name);
  }
  closedir(dir);
  return code;
}

static int map(int file, const char **data, uint64_t *bytes) {
  struct stat about;
  if (fstat(file, &about)) return errno;
  if (!S_ISREG(about.st_mode)) return S_ISDIR(about.st_mode) ? EISDIR : ENODEV;
  *bytes = (uint64_t)about.st_size;
  if (!*bytes) return 0;
  void *there = mmap(NULL, (size_t)*bytes, PROT_READ, MAP_PRIVATE, file, 0);
  if (there == MAP_FAILED) return errno;
  *data = there;
  return 0;
}

int platform_map(const char *path, const char **data, uint64_t *bytes) {
  *data = NULL;
  *bytes = 0;
  // O_NONBLOCK: opening a named pipe must not wait for a writer.
  int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (file < 0) return errno;
  int code = map(file, data, bytes);
  close(file);
  return code;
}

void platform_unmap(const char *data, uint64_t bytes) { munmap((void *)data, (size_t)bytes); }

// ---------------------------------------------------------------- memory, threads, time

enum { HUGE_PAGE = 2 << 20 };

void *platform_alloc(size_t bytes, size_t align) {
  void *memory;
  if (posix_memalign(&memory, bytes < HUGE_PAGE ? align : HUGE_PAGE, bytes)) return NULL;
#ifdef MADV_HUGEPAGE // fewer faults when it is first written, and fewer walks through page tables when it is read
  if (bytes >= HUGE_PAGE) madvise(memory, bytes, MADV_HUGEPAGE);
#endif
  return memory;
}

void platform_free(void *memory) { free(memory); }

uint64_t platform_memory(void) {
  long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
  return pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page : 0;
}

// Linux tells, file caches included.
uint64_t platform_free_memory(void) {
  FILE *f = fopen("/proc/meminfo", "r");
  char line[128];
  unsigned long long kib = 0;
  while (f && fgets(line, sizeof line, f))
    if (sscanf(line, "MemAvailable: %llu kB", &kib) == 1) break;
  if (f) fclose(f);
  return (uint64_t)kib << 10;
}

uint32_t platform_cores(void) {
  long cores = sysconf(_SC_NPROCESSORS_ONLN);
  return cores > 0 ? (uint32_t)cores : 1;
}

uint32_t platform_process(void) { return (uint32_t)getpid(); }

static void signals_to_block(sigset_t *set) {
  static const int faults[] = {SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGSYS, SIGTRAP};
  sigfillset(set);
  for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) sigdelset(set, faults[i]);
}

int platform_thread(pthread_t *thread, size_t stack_bytes, void *(*run)(void *), void *argument) {
  pthread_attr_t attr;
  sigset_t blocked, before;
  int code = pthread_attr_init(&attr);
  if (code) return code;
  pthread_attr_setstacksize(&attr, stack_bytes);
  signals_to_block(&blocked);
  pthread_sigmask(SIG_SETMASK, &blocked, &before); // the new thread inherits this mask
  code = pthread_create(thread, &attr, run, argument);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  pthread_attr_destroy(&attr);
  return code;
}

uint64_t platform_clock_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

void platform_sleep_ns(uint64_t ns) {
  struct timespec t = {.tv_sec = (time_t)(ns / 1000000000), .tv_nsec = (long)(ns % 1000000000)};
  nanosleep(&t, NULL);
}
