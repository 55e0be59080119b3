// serve_keys.h: the keys that clients show.
#ifndef SERVE_KEYS_H
#define SERVE_KEYS_H
#include <stddef.h>
#include <stdint.h>

struct keys {
  char (*hashes)[65]; // SHA-256
  size_t count;
};
// Reads a file of one key a line; lines that begin with # and empty ones do not count. Prints a message and returns an
// exit code.
int keys_read(const char *path, struct keys *keys);
void keys_free(struct keys *keys);
// The number of the key, from 1, that the header's value "Bearer KEY" shows; 0: none of them. It takes the same time
// for every wrong key of a length.
size_t keys_find(const struct keys *keys, const char *header);
#endif
