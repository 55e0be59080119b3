// platform_windows: platform.h for Windows 10 and later.
#include "platform.h"

#include <errno.h>
#include <fcntl.h>
#include <io.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <windows.h>

// ---------------------------------------------------------------- text and errors

// Copies that the caller frees; NULL with errno if there is no memory or the text is malformed.
static wchar_t *widen(const char *text) {
  int length = MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, text, -1, NULL, 0);
  wchar_t *wide = length ? malloc((size_t)length * sizeof *wide) : NULL;
  if (wide) MultiByteToWideChar(CP_UTF8, 0, text, -1, wide, length);
  if (!wide) errno = length ? ENOMEM : ENOENT; // no file has a name that is no text
  return wide;
}

static char *narrow(const wchar_t *wide) {
  int length = WideCharToMultiByte(CP_UTF8, 0, wide, -1, NULL, 0, NULL, NULL);
  char *text = length ? malloc((size_t)length) : NULL;
  if (text) WideCharToMultiByte(CP_UTF8, 0, wide, -1, text, length, NULL, NULL);
  if (!text) errno = ENOMEM;
  return text;
}

static int errno_of(DWORD error) {
  switch (error) {
  case ERROR_SUCCESS: return 0;
  case ERROR_FILE_NOT_FOUND:
  case ERROR_PATH_NOT_FOUND:
  case ERROR_INVALID_NAME:
  case ERROR_INVALID_DRIVE:
  case ERROR_BAD_PATHNAME:
  case ERROR_BAD_NETPATH:
  case ERROR_BAD_NET_NAME: return ENOENT;
  case ERROR_ACCESS_DENIED:
  case ERROR_SHARING_VIOLATION:
  case ERROR_LOCK_VIOLATION:
  case ERROR_WRITE_PROTECT:
  case ERROR_USER_MAPPED_FILE: return EACCES;
  case ERROR_ALREADY_EXISTS:
  case ERROR_FILE_EXISTS: return EEXIST;
  case ERROR_DIR_NOT_EMPTY: return ENOTEMPTY;
  case ERROR_DIRECTORY: return ENOTDIR;
  case ERROR_DISK_FULL:
  case ERROR_HANDLE_DISK_FULL: return ENOSPC;
  case ERROR_NOT_ENOUGH_MEMORY:
  case ERROR_OUTOFMEMORY:
  case ERROR_COMMITMENT_LIMIT: return ENOMEM;
  case ERROR_TOO_MANY_OPEN_FILES: return EMFILE;
  default: return EIO;
  }
}

static int last_errno(void) { return errno_of(GetLastError()); }

// ---------------------------------------------------------------- paths

bool platform_separator(char c) { return c == '/' || c == '\\'; }

size_t platform_folder(const char *path) {
  size_t n = strlen(path);
  while (n && !platform_separator(path[n - 1]) && path[n - 1] != ':') n--;
  return n;
}

static HANDLE open_handle(const char *path, DWORD access, DWORD flags) {
  const DWORD share = FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE;
  wchar_t *wide = widen(path);
  if (!wide) {
    SetLastError(errno == ENOMEM ? ERROR_OUTOFMEMORY : ERROR_INVALID_NAME);
    return INVALID_HANDLE_VALUE;
  }
  HANDLE handle = CreateFileW(wide, access, share, NULL, OPEN_EXISTING, FILE_FLAG_BACKUP_SEMANTICS | flags, NULL);
  free(wide);
  return handle;
}

// A link that is not followed is neither a file nor a folder; other reparse points are what they stand for.
static int facts_of(HANDLE handle, bool follow, struct path_facts *out) {
  BY_HANDLE_FILE_INFORMATION about;
  *out = (struct path_facts){.kind = PATH_OTHER};
  if (GetFileType(handle) != FILE_TYPE_DISK) return 0;
  if (!GetFileInformationByHandle(handle, &about)) return last_errno();
  if (follow || !(about.dwFileAttributes & FILE_ATTRIBUTE_REPARSE_POINT))
    out->kind = about.dwFileAttributes & FILE_ATTRIBUTE_DIRECTORY ? PATH_FOLDER : PATH_FILE;
  out->bytes = (uint64_t)about.nFileSizeHigh << 32 | about.nFileSizeLow;
  out->volume = about.dwVolumeSerialNumber;
  out->index = (uint64_t)about.nFileIndexHigh << 32 | about.nFileIndexLow;
  return 0;
}

int platform_facts(const char *path, bool follow, struct path_facts *out) {
  HANDLE handle = open_handle(path, FILE_READ_ATTRIBUTES, follow ? 0 : FILE_FLAG_OPEN_REPARSE_POINT);
  if (handle == INVALID_HANDLE_VALUE) return last_errno();
  int code = facts_of(handle, follow, out);
  CloseHandle(handle);
  return code;
}

bool platform_is(const char *path, enum path_kind kind) {
  struct path_facts facts = {0};
  return !platform_facts(path, true, &facts) && facts.kind == kind;
}

// Folders have access control lists, which only the attempt evaluates; a file has an attribute too.
int platform_writable(const char *path) {
  wchar_t *wide = widen(path);
  if (!wide) return errno;
  DWORD attributes = GetFileAttributesW(wide);
  int code = attributes == INVALID_FILE_ATTRIBUTES ? last_errno() : 0;
  free(wide);
  bool file = !code && !(attributes & FILE_ATTRIBUTE_DIRECTORY);
  return file && attributes & FILE_ATTRIBUTE_READONLY ? EACCES : code;
}

char *platform_variable(const char *name) {
  wchar_t *wide = widen(name), *value = wide ? _wgetenv(wide) : NULL;
  char *text = value && *value ? narrow(value) : NULL;
  free(wide);
  return text;
}

char *platform_cache_folder(void) { return platform_variable("LOCALAPPDATA"); }

char *platform_temporary_folder(void) {
  wchar_t folder[MAX_PATH + 2];
  DWORD length = GetTempPathW(MAX_PATH + 1, folder);
  while (length > 1 && folder[length - 1] == L'\\') folder[--length] = 0;
  return narrow(length ? folder : L".");
}

// ---------------------------------------------------------------- files

FILE *platform_open(const char *path, const char *mode) {
  int flags = _O_BINARY | _O_NOINHERIT, file = -1;
  if (mode[0] == 'r')
    flags |= mode[1] == '+' ? _O_RDWR : _O_RDONLY;
  else if (mode[0] == 'a')
    flags |= _O_WRONLY | _O_CREAT | _O_APPEND;
  else
    flags |= _O_WRONLY | _O_CREAT | (strchr(mode, 'x') ? _O_EXCL : _O_TRUNC);
  wchar_t *wide = widen(path);
  if (!wide) return NULL;
  file = _wopen(wide, flags, _S_IREAD | _S_IWRITE);
  int code = errno;
  free(wide);
  if (file < 0) {
    errno = platform_is(path, PATH_FOLDER) ? EISDIR : code;
    return NULL;
  }
  FILE *stream = _fdopen(file, mode[0] == 'r' ? mode : mode[0] == 'a' ? "ab" : "wb");
  if (!stream) _close(file);
  return stream;
}

FILE *platform_create(const char *path, const char *like) {
  (void)like; // a file inherits the permissions of its folder
  return platform_open(path, "wbx");
}

int platform_seek(FILE *file, uint64_t offset) { return _fseeki64(file, (int64_t)offset, SEEK_SET) ? errno : 0; }

int platform_sync(FILE *file) { return fflush(file) || _commit(_fileno(file)) ? errno : 0; }

int platform_lock(FILE *file) {
  const DWORD how = LOCKFILE_EXCLUSIVE_LOCK | LOCKFILE_FAIL_IMMEDIATELY;
  OVERLAPPED start = {0};
  if (LockFileEx((HANDLE)_get_osfhandle(_fileno(file)), how, 0, 1, 0, &start)) return 0;
  return GetLastError() == ERROR_LOCK_VIOLATION ? EAGAIN : last_errno();
}

char *platform_target(const char *path) { return _strdup(path); }

// The function of one name, or of two.
static int with_names(const char *a, const char *b, BOOL (*call)(const wchar_t *a, const wchar_t *b)) {
  wchar_t *first = widen(a), *second = first && b ? widen(b) : NULL;
  int code = !first || (b && !second) ? errno : call(first, second) ? 0 : last_errno();
  free(first);
  free(second);
  return code;
}

static BOOL move(const wchar_t *from, const wchar_t *to) {
  return MoveFileExW(from, to, MOVEFILE_REPLACE_EXISTING | MOVEFILE_WRITE_THROUGH);
}
static BOOL delete_file(const wchar_t *path, const wchar_t *unused) {
  (void)unused;
  return DeleteFileW(path);
}
static BOOL make_folder(const wchar_t *path, const wchar_t *unused) {
  (void)unused;
  return CreateDirectoryW(path, NULL);
}
static BOOL remove_folder(const wchar_t *path, const wchar_t *unused) {
  (void)unused;
  return RemoveDirectoryW(path);
}

int platform_rename(const char *from, const char *to) { return with_names(from, to, move); }

int platform_remove(const char *path) { return with_names(path, NULL, delete_file); }

int platform_make_folder(const char *path, bool for_user) {
  (void)for_user; // folders below the user's are the user's
  return with_names(path, NULL, make_folder);
}

int platform_remove_folder(const char *path) { return with_names(path, NULL, remove_folder); }

static int list(const wchar_t *pattern, int (*each)(void *user, const char *name), void *user) {
  WIN32_FIND_DATAW entry;
  HANDLE find = FindFirstFileW(pattern, &entry);
  if (find == INVALID_HANDLE_VALUE) return last_errno();
  int code = 0;
  do {
    if (!wcscmp(entry.cFileName, L".") || !wcscmp(entry.cFileName, L"..")) continue;
    char *name = narrow(entry.cFileName);
    code = name ? each(user, name) : ENOMEM;
    free(name);
  } while (!code && FindNextFileW(find, &entry));
  if (!code && GetLastError() != ERROR_NO_MORE_FILES) code = last_errno();
  FindClose(find);
  return code;
}

int platform_list(const char *folder, int (*each)(void *user, const char *name), void *user) {
  size_t bytes = strlen(folder) + sizeof "\\*";
  char *pattern = malloc(bytes);
  if (!pattern) return ENOMEM;
  snprintf(pattern, bytes, "%s\\*", folder);
  wchar_t *wide = widen(pattern);
  int code = wide ? list(wide, each, user) : errno;
  free(wide);
  free(pattern);
  return code;
}

static int map(HANDLE file, const char **data, uint64_t *bytes) {
  struct path_facts facts;
  int code = facts_of(file, true, &facts);
  if (code) return code;
  if (facts.kind != PATH_FILE) return facts.kind == PATH_FOLDER ? EISDIR : ENODEV;
  *bytes = facts.bytes;
  if (!*bytes) return 0;
  HANDLE mapping = CreateFileMappingW(file, NULL, PAGE_READONLY, 0, 0, NULL);
  if (!mapping) return last_errno();
  *data = MapViewOfFile(mapping, FILE_MAP_READ, 0, 0, 0);
  code = *data ? 0 : last_errno();
  CloseHandle(mapping); // the view keeps it
  return code;
}

int platform_map(const char *path, const char **data, uint64_t *bytes) {
  *data = NULL;
  *bytes = 0;
  HANDLE file = open_handle(path, GENERIC_READ, 0);
  if (file == INVALID_HANDLE_VALUE) return last_errno();
  int code = map(file, data, bytes);
  CloseHandle(file);
  return code;
}

void platform_unmap(const char *data, uint64_t bytes) {
  (void)bytes;
  UnmapViewOfFile(data);
}

// ---------------------------------------------------------------- memory, threads, time

void *platform_alloc(size_t bytes, size_t align) { return _aligned_malloc(bytes, align); }

void platform_free(void *memory) { _aligned_free(memory); }

static MEMORYSTATUSEX memory_status(void) {
  MEMORYSTATUSEX status = {.dwLength = sizeof status};
  if (!GlobalMemoryStatusEx(&status)) status.ullTotalPhys = status.ullAvailPhys = 0;
  return status;
}

uint64_t platform_memory(void) { return memory_status().ullTotalPhys; }

uint64_t platform_free_memory(void) { return memory_status().ullAvailPhys; }

uint32_t platform_cores(void) {
  SYSTEM_INFO system;
  GetSystemInfo(&system);
  return system.dwNumberOfProcessors;
}

uint32_t platform_process(void) { return GetCurrentProcessId(); }

int platform_thread(pthread_t *thread, size_t stack_bytes, void *(*run)(void *), void *argument) {
  pthread_attr_t attr;
  int code = pthread_attr_init(&attr);
  if (code) return code;
  pthread_attr_setstacksize(&attr, stack_bytes);
  code = pthread_create(thread, &attr, run, argument);
  pthread_attr_destroy(&attr);
  return code;
}

uint64_t platform_clock_ns(void) {
  LARGE_INTEGER now, frequency;
  QueryPerformanceFrequency(&frequency);
  QueryPerformanceCounter(&now);
  uint64_t ticks = (uint64_t)now.QuadPart, second = (uint64_t)frequency.QuadPart;
  return ticks / second * 1000000000 + ticks % second * 1000000000 / second;
}

#ifndef CREATE_WAITABLE_TIMER_HIGH_RESOLUTION
#define CREATE_WAITABLE_TIMER_HIGH_RESOLUTION 2
#endif

// Sleep() is exact to 16 ms only. Before Windows 10 1803 there is nothing better.
void platform_sleep_ns(uint64_t ns) {
  LARGE_INTEGER due = {.QuadPart = -(int64_t)(ns / 100 + 1)};
  HANDLE timer = CreateWaitableTimerExW(NULL, NULL, CREATE_WAITABLE_TIMER_HIGH_RESOLUTION, TIMER_ALL_ACCESS);
  if (timer && SetWaitableTimer(timer, &due, 0, NULL, NULL, FALSE))
    WaitForSingleObject(timer, INFINITE);
  else
    Sleep((DWORD)(ns / 1000000 + 1));
  if (timer) CloseHandle(timer);
}
