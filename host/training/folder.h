// folder.h: writes the folder of a checkpoint in a folder beside its final path, which is renamed when it is complete.
#ifndef FOLDER_H
#define FOLDER_H
#include "status.h"

// Checks that `out` may be written. `source` is the checkpoint's folder, which is never replaced. force: a folder at
// `out` with the file `marker`, such as config.json, is replaced.
deltaic_status folder_check(const char *source, const char *out, const char *marker, bool force);
// A unique name beside `out`, which the caller frees; NULL after a failure, with its message.
char *folder_beside(const char *out);
// Writes a new file.
deltaic_status folder_write(const char *path, const void *text, size_t bytes);
// Whether a file of this name holds weights.
bool folder_weights(const char *name);
// Copies the wanted files of a folder, but no folders in it.
deltaic_status folder_copy(const char *from, const char *to, bool (*wanted)(const void *user, const char *name),
                           const void *user);
// Renames `folder` to `out`, which folder_check() has accepted, and removes what was there.
deltaic_status folder_rename(const char *folder, const char *out);
// Removes a folder that contains only files.
deltaic_status folder_remove(const char *folder);
#endif
