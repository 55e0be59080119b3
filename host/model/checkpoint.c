// checkpoint: finds a checkpoint's files, and tensors in them by name. safetensors.c and gguf_tensors.c read the
// files.
#include "checkpoint.h"

#include "gguf.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct checkpoint {
  char *path;
  const deltaic_source *source; // NULL: the file system
  struct shard *shards;
  size_t shard_count;
  struct file_tensor *tensors; // sorted by name once open
  uint64_t count;
};

static int by_name(const void *a, const void *b) {
  return strcmp(((const struct file_tensor *)a)->name, ((const struct file_tensor *)b)->name);
}

// Also lets the tensors know their files, which have their places now.
static deltaic_status sort_tensors(struct checkpoint *c) {
  for (uint64_t i = 0; i < c->count; i++) c->tensors[i].input = &c->shards[c->tensors[i].shard].input;
  if (c->count) qsort(c->tensors, c->count, sizeof *c->tensors, by_name);
  for (uint64_t i = 1; i < c->count; i++)
    if (!by_name(&c->tensors[i - 1], &c->tensors[i]))
      return fail(DELTAIC_BAD_FILE, "%s: tensor %.200s is in two shards", c->path, c->tensors[i].name);
  return DELTAIC_OK;
}

static struct checkpoint *create(const deltaic_source *source, const char *path, size_t shards) {
  struct checkpoint *c = calloc(1, sizeof *c);
  if (!c) return NULL;
  c->source = source;
  c->path = strdup(*path ? path : "the model");
  c->shards = calloc(shards, sizeof *c->shards);
  if (c->path && c->shards) return c;
  checkpoint_close(c);
  return NULL;
}

// A tensor that is in memory with the header is never read again.
static deltaic_status read_shard(struct checkpoint *c, struct shard *s) {
  enum { FIRST = 4096 }; // more than what tells the formats apart
  const uint64_t before = c->count;
  deltaic_status status = input_hold(&s->input, FIRST);
  if (status) return status;
  status = gguf_is((struct file_view){s->input.view.data, s->input.held}) ? shard_read_gguf(s, &c->tensors, &c->count)
                                                                          : shard_read(s, &c->tensors, &c->count);
  for (uint64_t i = before; i < c->count && !status; i++) {
    struct file_tensor *t = &c->tensors[i];
    t->shard = (size_t)(s - c->shards);
    if (t->at <= s->input.held && t->bytes <= s->input.held - t->at) t->data = s->input.view.data + t->at;
  }
  return status;
}

// Owns `path` from here on, even after a failure.
static deltaic_status open_shard(struct checkpoint *c, char *path) {
  if (!path) return fail_memory("a file name", 0);
  struct shard *s = &c->shards[c->shard_count++];
  s->path = path;
  deltaic_status status = input_open(c->source, path, &s->input);
  return status ? status : read_shard(c, s);
}

// ---------------------------------------------------------------- parts of a GGUF file

// The name of part `index` of `count`, from that of the first; NULL: out of memory.
static char *part_name(const char *first, int64_t index, int64_t count) {
  const size_t end = strlen("-00001-of-00001.gguf"), stem = strlen(first) - end;
  char *name = malloc(stem + 64);
  if (!name) return NULL;
  memcpy(name, first, stem);
  snprintf(name + stem, 64, "-%05lld-of-%05lld.gguf", (long long)(index + 1), (long long)count);
  return name;
}

static deltaic_status check_part(const struct shard *s, int64_t index, int64_t count) {
  struct json_reader r = {.file = s->path};
  const int64_t no = json_int(&r, s->header, "split.no", 0, 0, INT32_MAX);
  const int64_t of = json_int(&r, s->header, "split.count", 1, 0, INT32_MAX);
  if (r.status) return r.status;
  if (no == index && of == count) return DELTAIC_OK;
  return fail(DELTAIC_BAD_FILE, "%s: is part %lld of %lld, expected part %lld of %lld", s->path, (long long)no + 1,
              (long long)of, (long long)index + 1, (long long)count);
}

static deltaic_status open_part(struct checkpoint *c, int64_t index, int64_t count) {
  deltaic_status status = open_shard(c, part_name(c->shards[0].path, index, count));
  if (status == DELTAIC_NOT_FOUND)
    return fail(DELTAIC_NOT_FOUND, "%s: part %lld of %lld is missing from the folder", c->shards[0].path,
                (long long)index + 1, (long long)count);
  return status ? status : check_part(&c->shards[index], index, count);
}

// Opens the other parts of a file of which the first is open.
static deltaic_status open_parts(struct checkpoint *c) {
  enum { PARTS_MOST = 99999 }; // as the names have five digits
  const struct shard *first = &c->shards[0];
  struct json_reader r = {.file = first->path};
  const int64_t count = json_int(&r, first->header, "split.count", 1, 0, PARTS_MOST);
  const int64_t tensors = json_int(&r, first->header, "split.tensors.count", -1, 0, INT32_MAX);
  char end[64];
  if (r.status || count <= 1) return r.status;
  snprintf(end, sizeof end, "-00001-of-%05lld.gguf", (long long)count);
  const size_t length = strlen(first->path), tail = strlen(end);
  if (length < tail || strcmp(first->path + length - tail, end))
    return fail(DELTAIC_BAD_FILE, "%s: is one of %lld parts; give the first, whose name ends in %s", first->path,
                (long long)count, end);
  deltaic_status status = check_part(first, 0, count);
  struct shard *grown = status ? NULL : realloc(c->shards, (size_t)count * sizeof *grown);
  if (status) return status;
  if (!grown) return fail_memory("a checkpoint", (uint64_t)count * sizeof *grown);
  memset(grown + 1, 0, (size_t)(count - 1) * sizeof *grown);
  c->shards = grown;
  for (int64_t i = 1; i < count && !status; i++) status = open_part(c, i, count);
  if (!status && tensors >= 0 && (uint64_t)tensors != c->count)
    return fail(DELTAIC_BAD_FILE, "%s: its parts have %llu tensors, expected %lld", c->path,
                (unsigned long long)c->count, (long long)tensors);
  return status;
}

static deltaic_status open_single(const deltaic_source *source, const char *path, char *file, struct checkpoint **out) {
  struct checkpoint *c = *out = create(source, path, 1);
  if (!c) {
    free(file);
    return fail_memory("a checkpoint", sizeof *c);
  }
  deltaic_status status = open_shard(c, file);
  if (!status && checkpoint_keys(c)) status = open_parts(c);
  return status ? status : sort_tensors(c);
}

// ---------------------------------------------------------------- shards and their index

// A shard must be in the folder of its index: refuses names with a path.
static bool plain_name(const char *name) {
  return *name && strcmp(name, ".") && strcmp(name, "..") && !strpbrk(name, "/\\");
}

// Fills `files`, an empty object, with the names of the shards, each once.
static deltaic_status list_shards(const char *index, const json_t *map, json_t *files) {
  const char *name;
  json_t *value;
  json_object_foreach((json_t *)map, name, value) {
    const char *file = json_string_value(value);
    if (!file) return fail(DELTAIC_BAD_FILE, "%s: weight_map: %.200s must be a file name", index, name);
    if (!plain_name(file))
      return fail(DELTAIC_BAD_FILE, "%s: weight_map: \"%.200s\" must be the name of a file in the same folder", index,
                  file);
    if (json_object_set_new(files, file, json_true())) return fail_memory("a list of shards", 0);
  }
  if (json_object_size(files) == 0) return fail(DELTAIC_BAD_FILE, "%s: weight_map names no file", index);
  return DELTAIC_OK;
}

// c: has room for the files.
static deltaic_status open_listed(struct checkpoint *c, const char *folder, const char *index, const json_t *map,
                                  json_t *files) {
  const char *name;
  json_t *value;
  json_object_foreach(files, name, value) {
    deltaic_status status = open_shard(c, path_join(folder, name));
    if (status == DELTAIC_NOT_FOUND)
      return fail(DELTAIC_NOT_FOUND, "%s: shard %.200s is missing from the folder", index, name);
    if (status) return status;
  }
  deltaic_status status = sort_tensors(c);
  if (status) return status;
  json_object_foreach((json_t *)map, name, value) {
    if (!checkpoint_find(c, name))
      return fail(DELTAIC_BAD_FILE, "%s: tensor %.200s is in none of the shards", index, name);
  }
  return DELTAIC_OK;
}

static deltaic_status open_index(const deltaic_source *source, const char *folder, const char *index,
                                 struct checkpoint **out) {
  json_t *root = NULL, *files = NULL;
  struct input in;
  deltaic_status status = input_open_whole(source, index, &in);
  if (status) return status;
  status = json_parse(index, in.view.data, in.view.bytes, &root);
  if (status) goto done;
  const json_t *map = json_object_get(root, "weight_map");
  if (!json_is_object(map)) {
    status = fail(DELTAIC_BAD_FILE, "%s: weight_map must be an object of tensor and file names", index);
    goto done;
  }
  files = json_object();
  status = files ? list_shards(index, map, files) : fail_memory("a list of shards", 0);
  if (status) goto done;
  *out = create(source, folder, json_object_size(files));
  status = *out ? open_listed(*out, folder, index, map, files) : fail_memory("a checkpoint", sizeof **out);
done:
  json_decref(files);
  json_decref(root);
  input_close(&in);
  return status;
}

static deltaic_status fail_folder(const char *path) {
  return fail(DELTAIC_NOT_FOUND, "%s: has neither model.safetensors nor model.safetensors.index.json", path);
}

static deltaic_status open_folder(const char *path, struct checkpoint **out) {
  char *file = path_join(path, "model.safetensors"), *index = path_join(path, "model.safetensors.index.json");
  deltaic_status status;
  if (!file || !index)
    status = fail_memory("a file name", 0);
  else if (file_exists(file)) {
    status = open_single(NULL, path, file, out);
    file = NULL;
  } else
    status = file_exists(index) ? open_index(NULL, path, index, out) : fail_folder(path);
  free(file);
  free(index);
  return status;
}

deltaic_status checkpoint_open(const char *path, struct checkpoint **out) {
  struct checkpoint *c = NULL;
  bool folder = platform_is(path, PATH_FOLDER);
  char *copy = folder ? NULL : strdup(path);
  *out = NULL;
  if (!folder && !copy) return fail_memory("a file name", 0);
  deltaic_status status = folder ? open_folder(path, &c) : open_single(NULL, path, copy, &c);
  if (status)
    checkpoint_close(c);
  else
    *out = c;
  return status;
}

// The message names the folder of the file if that is a model's.
deltaic_status checkpoint_open_folder(const char *path, struct checkpoint **out) {
  if (!platform_is(path, PATH_FILE) || gguf_is_file(path)) return checkpoint_open(path, out);
  *out = NULL;
  char *folder = path_parent(path), *config = folder ? path_join(folder, "config.json") : NULL;
  bool named = config && file_exists(config);
  deltaic_status status = fail(DELTAIC_BAD_FILE, "%s: is no GGUF file; give the model's folder instead%s%s", path,
                               named ? ": " : "", named ? folder : "");
  free(config);
  free(folder);
  return status;
}

// Whether a file exists shows when it is opened. A shard that is missing is no missing model.safetensors.
static deltaic_status open_source(const deltaic_source *source, const char *path, struct checkpoint **out) {
  const bool gguf = input_is_gguf(path);
  char *file = gguf ? strdup(path) : path_join(path, "model.safetensors");
  char *index = gguf ? NULL : path_join(path, "model.safetensors.index.json");
  deltaic_status status;
  if (!file || (!gguf && !index)) {
    free(file);
    status = fail_memory("a file name", 0);
  } else
    status = open_single(source, path, file, out);
  if (status == DELTAIC_NOT_FOUND && !gguf) {
    checkpoint_close(*out);
    *out = NULL;
    status = open_index(source, path, index, out);
    if (status == DELTAIC_NOT_FOUND && !*out) status = fail_folder(*path ? path : "the source");
  }
  free(index);
  return status;
}

deltaic_status checkpoint_open_from(const deltaic_source *source, const char *path, struct checkpoint **out) {
  struct checkpoint *c = NULL;
  if (!source) return checkpoint_open_folder(path, out);
  deltaic_status status = open_source(source, path, &c);
  if (status) checkpoint_close(c);
  *out = status ? NULL : c;
  return status;
}

deltaic_status checkpoint_parse(const char *name, const void *data, size_t bytes, struct checkpoint **out) {
  *out = NULL;
  struct checkpoint *c = create(NULL, name, 1);
  if (!c) return fail_memory("a checkpoint", sizeof *c);
  struct shard *s = &c->shards[c->shard_count++];
  s->path = strdup(name);
  s->input = input_memory(s->path, data, bytes);
  deltaic_status status = s->path ? read_shard(c, s) : fail_memory("a file name", 0);
  if (!status) status = sort_tensors(c);
  if (status)
    checkpoint_close(c);
  else
    *out = c;
  return status;
}

// ---------------------------------------------------------------- tensors

void checkpoint_close(struct checkpoint *c) {
  if (!c) return;
  for (uint64_t i = 0; i < c->count; i++) file_tensor_unload(&c->tensors[i]);
  for (size_t i = 0; i < c->shard_count; i++) {
    struct shard *s = &c->shards[i];
    json_decref(s->header);
    json_decref(s->names);
    input_close(&s->input);
    free(s->path);
  }
  free(c->shards);
  free(c->tensors);
  free(c->path);
  free(c);
}

uint64_t checkpoint_count(const struct checkpoint *c) { return c->count; }

struct file_tensor *checkpoint_at(struct checkpoint *c, uint64_t i) {
  assert(i < c->count);
  return &c->tensors[i];
}

struct file_tensor *checkpoint_find(struct checkpoint *c, const char *name) {
  struct file_tensor key = {.name = name};
  return c->count ? bsearch(&key, c->tensors, c->count, sizeof key, by_name) : NULL;
}

struct file_tensor *checkpoint_findf(struct checkpoint *c, const char *format, ...) {
  char name[256]; // longer than any name that this library looks up
  va_list args;
  va_start(args, format);
  int length = vsnprintf(name, sizeof name, format, args);
  va_end(args);
  assert(length >= 0 && length < (int)sizeof name);
  (void)length;
  return checkpoint_find(c, name);
}

const json_t *checkpoint_keys(const struct checkpoint *c) { return c->shards[0].names ? c->shards[0].header : NULL; }

bool checkpoint_next(const struct checkpoint *c, struct gguf_list *list, struct gguf_element *out) {
  return gguf_next(list, c->shards[0].input.view, out);
}

struct gguf_list checkpoint_list(const struct checkpoint *c, const char *name) {
  for (int i = 0; i < GGUF_LISTS; i++)
    if (c->shards[0].lists[i].name && !strcmp(c->shards[0].lists[i].name, name)) return c->shards[0].lists[i];
  return (struct gguf_list){0};
}

const char *checkpoint_path(const struct checkpoint *c) { return c->path; }

const deltaic_source *checkpoint_source(const struct checkpoint *c) { return c->source; }

deltaic_status checkpoint_status(const struct checkpoint *c) {
  deltaic_status status = DELTAIC_OK;
  for (size_t i = 0; i < c->shard_count && !status; i++) status = c->shards[i].input.status;
  return status;
}

deltaic_status checkpoint_spare(const struct checkpoint *c, const char *path) {
  static const char *const others[] = {"config.json",    "generation_config.json", "model.safetensors.index.json",
                                       "tokenizer.json", "tokenizer_config.json",  "chat_template.jinja"};
  bool found = false;
  for (size_t i = 0; i < c->shard_count; i++) found |= file_same(c->shards[i].path, path);
  for (size_t i = 0; i < sizeof others / sizeof *others && !checkpoint_keys(c); i++) {
    char *other = path_join(c->path, others[i]);
    if (!other) return DELTAIC_OUT_OF_MEMORY;
    found |= file_same(other, path);
    free(other);
  }
  return found ? fail(DELTAIC_INVALID_ARGUMENT, "%s: is the model that is to be read", path) : DELTAIC_OK;
}

const char *checkpoint_metadata(const struct checkpoint *c, const char *key) {
  for (size_t i = 0; i < c->shard_count; i++) {
    const char *text = json_string_value(json_object_get(json_object_get(c->shards[i].header, "__metadata__"), key));
    if (text) return text;
  }
  return NULL;
}
