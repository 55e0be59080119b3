// quant_write.h: encodes tensors and appends them to the file.
#ifndef QUANT_WRITE_H
#define QUANT_WRITE_H
#include "quantize.h"

// progress: bytes of the tensors; may be NULL. A failure leaves an existing file unchanged.
deltaic_status quant_write(const struct quant *q, const char *out, uint32_t threads, deltaic_progress progress,
                           void *user);
#endif
