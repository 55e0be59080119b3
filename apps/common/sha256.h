// sha256.h: computes SHA-256 (FIPS 180-4) in the format of sha256sum; it identifies task files and sets of cases.
#ifndef SHA256_H
#define SHA256_H
#include <stddef.h>
#include <stdint.h>

struct sha256 {
  uint32_t state[8];
  uint64_t bytes;
  uint8_t block[64];
};
void sha256_begin(struct sha256 *h);
void sha256_add(struct sha256 *h, const void *data, size_t bytes);
void sha256_end(struct sha256 *h, char hex[65]);
#endif
