// input: reads a file's beginning, or any part of it. See input.h.
#include "input.h"

#include "option_structs.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

deltaic_status input_source(deltaic_source *to, const deltaic_source *from, const char *function) {
  deltaic_status status = options_read(to, sizeof *to, from, "deltaic_source");
  if (!status && (!to->open || !to->read))
    status = fail(DELTAIC_INVALID_ARGUMENT, "%s: the source's %s is NULL", function, to->open ? "read" : "open");
  return status;
}

static deltaic_status open_source(struct input *in) {
  const deltaic_source *s = in->source;
  deltaic_status status = s->open(s->user, in->name, &in->file, &in->view.bytes);
  switch (status) {
  case DELTAIC_OK: return DELTAIC_OK;
  case DELTAIC_NOT_FOUND: return fail(status, "%s: the source has no such file", in->name);
  case DELTAIC_CANCELLED: return fail(status, "%s: the source cancelled its opening", in->name);
  default: return fail(DELTAIC_IO, "%s: the source could not open it", in->name);
  }
}

deltaic_status input_open(const deltaic_source *source, const char *name, struct input *out) {
  *out = (struct input){.source = source, .name = name};
  deltaic_status status = source ? open_source(out) : file_map(name, &out->view);
  out->mapped = !source && !status;
  if (out->mapped) out->held = out->view.bytes;
  if (status) *out = (struct input){0};
  return status;
}

deltaic_status input_open_whole(const deltaic_source *source, const char *name, struct input *out) {
  deltaic_status status = input_open(source, name, out);
  if (!status) status = input_hold(out, out->view.bytes);
  if (status) input_close(out);
  return status;
}

deltaic_status input_open_if(const deltaic_source *source, const char *name, struct input *out, bool *found) {
  *out = (struct input){0};
  *found = source || file_exists(name);
  deltaic_status status = *found ? input_open_whole(source, name, out) : DELTAIC_OK;
  if (!source || status != DELTAIC_NOT_FOUND) return status;
  *found = false;
  return DELTAIC_OK;
}

void input_close(struct input *in) {
  if (in->mapped) file_unmap(&in->view);
  if (in->source && in->source->close) in->source->close(in->source->user, in->file);
  if (in->source) free((char *)in->view.data);
  *in = (struct input){0};
}

struct input input_memory(const char *name, const void *data, uint64_t bytes) {
  return (struct input){.name = name, .view = {data, bytes}, .held = bytes};
}

deltaic_status input_hold(struct input *in, uint64_t bytes) {
  const uint64_t wanted = bytes < in->view.bytes ? bytes : in->view.bytes;
  if (wanted <= in->held) return DELTAIC_OK;
  char *grown = wanted <= SIZE_MAX ? realloc((char *)in->view.data, (size_t)wanted) : NULL;
  if (!grown) return fail_memory(in->name, wanted);
  in->view.data = grown;
  deltaic_status status = input_read(in, in->held, grown + in->held, wanted - in->held);
  if (!status) in->held = wanted;
  return status;
}

deltaic_status input_read(struct input *in, uint64_t at, void *to, uint64_t bytes) {
  if (!in->source) {
    if (bytes) memcpy(to, in->view.data + at, bytes);
    return DELTAIC_OK;
  }
  const uint64_t got = bytes ? in->source->read(in->source->user, in->file, at, to, bytes) : 0;
  if (got == bytes) return DELTAIC_OK;
  deltaic_status status = fail(DELTAIC_IO, "%s: the source read %llu of %llu bytes at byte %llu", in->name,
                               (unsigned long long)got, (unsigned long long)bytes, (unsigned long long)at);
  if (!in->status) in->status = status;
  return status;
}

bool input_is_gguf(const char *name) {
  const size_t length = strlen(name);
  return length > 5 && !strcasecmp(name + length - 5, ".gguf");
}
