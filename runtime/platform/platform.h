// platform: what operating systems do differently. platform_posix.c and platform_windows.c implement it, and CMake
// takes one of them. Paths are UTF-8. Functions that return an int return 0 or an errno; those that return a pointer
// set errno.
#ifndef PLATFORM_H
#define PLATFORM_H
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

// ---------------------------------------------------------------- paths

bool platform_separator(char c);          // whether it separates the names in a path
size_t platform_folder(const char *path); // the length of the path up to its last name; 0: it is one name

enum path_kind { PATH_FILE, PATH_FOLDER, PATH_OTHER }; // other: a device, a pipe, or a link that is not followed
struct path_facts {
  enum path_kind kind;
  uint64_t bytes;
  uint64_t volume, index; // two paths of one file have the same
};
int platform_facts(const char *path, bool follow, struct path_facts *out); // follow: of what a link leads to
bool platform_is(const char *path, enum path_kind kind);                   // false if nothing is there
int platform_writable(const char *path); // whether the file can be written, or files in the folder; a guess

// Environment variables, as a copy that the caller frees. NULL: it is not set, or empty.
char *platform_variable(const char *name);
char *platform_cache_folder(void);     // where this user's programs cache files; NULL: nowhere
char *platform_temporary_folder(void); // where temporary files belong; NULL: out of memory

// ---------------------------------------------------------------- files

// fopen() with one of the modes rb, wb, ab, wbx and r+b. Child processes do not inherit the file.
FILE *platform_open(const char *path, const char *mode);
// The same for a file that is new ("wbx") and gets the permissions of the file `like`, if that exists.
FILE *platform_create(const char *path, const char *like);
int platform_seek(FILE *file, uint64_t offset);
int platform_sync(FILE *file);           // until the disk has what was written
int platform_lock(FILE *file);           // against this call of others until it is closed; EAGAIN: another has it
char *platform_target(const char *path); // what the path's links lead to, which need not exist; the caller frees it
// Renames a file or a folder, and waits until the disk has it. A file that is at `to` is replaced.
int platform_rename(const char *from, const char *to);
int platform_remove(const char *path);                     // a file
int platform_make_folder(const char *path, bool for_user); // for_user: nobody else may read it
int platform_remove_folder(const char *path);              // an empty one
// Calls `each` for every name in a folder until a call does not return 0; that is returned.
int platform_list(const char *folder, int (*each)(void *user, const char *name), void *user);
// Maps a file for reading; an empty file has data NULL. EISDIR: it is a folder; ENODEV: it is not a regular file.
int platform_map(const char *path, const char **data, uint64_t *bytes);
void platform_unmap(const char *data, uint64_t bytes);

// ---------------------------------------------------------------- memory, threads, time

void *platform_alloc(size_t bytes, size_t align); // in large pages where there are some; platform_free() frees it
void platform_free(void *memory);
uint64_t platform_memory(void);      // bytes of main memory; 0: unknown
uint64_t platform_free_memory(void); // bytes that can be had without swapping; 0: unknown
uint32_t platform_cores(void);
uint32_t platform_process(void); // the number of this process
// Starts a thread that gets no signals except those of its own faults, which are the host program's.
int platform_thread(pthread_t *thread, size_t stack_bytes, void *(*run)(void *), void *argument);
uint64_t platform_clock_ns(void); // monotonic
void platform_sleep_ns(uint64_t ns);
#endif
