// chat_file: a conversation in a file: a line that says what it is, a line of JSON, and the bytes of the model's state
// after the last turn. The library checks that the state is whole and belongs to the model.
#include "chat.h"
#include "common.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char head[] = "deltaic chat 1\n";

// ---------------------------------------------------------------- saving

static json_t *turns_json(const struct node *leaf) {
  json_t *turns = json_array();
  for (const struct node *n = leaf; n->parent; n = n->parent)
    json_array_insert_new(turns, 0,
                          json_pack("{s:o, s:o}", "question", json_stringn(n->question.data, n->question.size),
                                    "answer", json_stringn(n->answer.data, n->answer.size)));
  return turns;
}

static char *describe(const struct chat *c, const struct node *leaf) {
  const struct node *first = leaf;
  json_t *pending = json_array();
  while (first->parent) first = first->parent;
  for (size_t i = 0; i < leaf->pending_count; ++i) json_array_append_new(pending, json_integer(leaf->pending[i]));
  json_t *object =
      json_pack("{s:s, s:o, s:o, s:o, s:I}", "template", c->info.name, "system",
                first->has_system ? json_stringn(first->question.data, first->question.size) : json_null(), "turns",
                turns_json(leaf), "pending", pending, "state_bytes", (json_int_t)leaf->state_bytes);
  char *text = object ? json_dumps(object, JSON_COMPACT) : NULL;
  json_decref(object);
  return text;
}

static bool write_all(FILE *f, const char *text, const struct node *leaf) {
  if (fputs(head, f) == EOF || fputs(text, f) == EOF || fputc('\n', f) == EOF) return false;
  return !leaf->state_bytes || fwrite(leaf->state, 1, leaf->state_bytes, f) == leaf->state_bytes;
}

int chat_save(struct chat *c, const char *path) {
  const struct node *leaf = chat_leaf(c);
  struct new_file file;
  char *text = describe(c, leaf);
  int code = text ? new_file_begin(&file, path) : ENOMEM;
  if (!code) code = new_file_end(&file, write_all(file.stream, text, leaf) ? 0 : errno);
  free(text);
  return code ? complain(EXIT_FAILED, "%s: cannot be written: %s", path, errno_text(code)) : EXIT_OK;
}

// ---------------------------------------------------------------- loading

static int malformed(const char *path, const char *what) {
  return complain(EXIT_FAILED, "%s: is no conversation of 'deltaic chat': %s", path, what);
}

static bool take_text(const json_t *value, struct bytes *out) {
  if (!json_is_string(value)) return false;
  bytes_add(out, json_string_value(value), json_string_length(value));
  return true;
}

// The last node of the file's turns, without a state; NULL: they are malformed.
static struct node *take_turns(struct chat *c, const json_t *object) {
  const json_t *system = json_object_get(object, "system"), *turns = json_object_get(object, "turns");
  if (!json_is_array(turns) || !(json_is_null(system) || json_is_string(system))) return NULL;
  struct node *node = node_first(json_string_value(system), json_string_length(system));
  for (size_t i = 0; i < json_array_size(turns); ++i) {
    const json_t *turn = json_array_get(turns, i);
    struct bytes question = {0}, answer = {0};
    bool good =
        take_text(json_object_get(turn, "question"), &question) && take_text(json_object_get(turn, "answer"), &answer);
    struct node *next = good ? node_after(node, &question, &answer) : NULL;
    free(question.data);
    free(answer.data);
    if (!good) {
      node_use(node);
      node_drop(c, node);
      return NULL;
    }
    node = next;
  }
  return node;
}

static bool take_pending(const json_t *pending, int32_t vocabulary, struct node *node) {
  const size_t n = json_array_size(pending);
  int32_t *ids = must_resize(NULL, n * sizeof *ids);
  bool good = json_is_array(pending);
  for (size_t i = 0; i < n && good; ++i) {
    const json_t *id = json_array_get(pending, i);
    const json_int_t value = json_is_integer(id) ? json_integer_value(id) : -1;
    good = value >= 0 && value < vocabulary;
    ids[i] = good ? (int32_t)value : 0;
  }
  if (good) node_set_pending(node, ids, n);
  free(ids);
  return good;
}

// A conversation whose state was not kept has none in the file: its next question evaluates it again.
static int take_state(struct chat *c, const char *path, struct node *node, const json_t *object, const char *state,
                      size_t bytes) {
  const json_t *size = json_object_get(object, "state_bytes");
  if (node->parent && !bytes && json_is_integer(size) && !json_integer_value(size)) {
    node->counted = false;
    return EXIT_OK;
  }
  if (!node->parent)
    return bytes ? complain(EXIT_FAILED, "%s: bytes follow a conversation without turns", path) : EXIT_OK;
  if (!json_is_integer(size) || (uint64_t)json_integer_value(size) != bytes)
    return complain(EXIT_FAILED, "%s: the conversation's state is cut off", path);
  deltaic_status status = deltaic_session_load(c->session, state, bytes);
  if (status == DELTAIC_DEVICE_LOST) return complain_status(status);
  if (status) return complain(EXIT_FAILED, "%s: %s", path, deltaic_last_error());
  char *copy = must_resize(NULL, bytes);
  memcpy(copy, state, bytes);
  node_keep(c, node, copy, bytes);
  c->loaded = node;
  return EXIT_OK;
}

static int take_object(struct chat *c, const char *path, const json_t *object, const char *state, size_t bytes) {
  const char *name = json_string_value(json_object_get(object, "template"));
  if (!name || strcmp(name, c->info.name) != 0)
    return complain(EXIT_FAILED, "%s: has the template %s, and this conversation has %s", path, name ? name : "of none",
                    c->info.name);
  struct node *node = take_turns(c, object);
  if (!node) return malformed(path, "its turns");
  node_use(node);
  int code = EXIT_OK;
  c->loaded = NULL; // loading changes the session
  if (!take_pending(json_object_get(object, "pending"), c->engine.model_info.vocabulary, node))
    code = malformed(path, "its pending tokens");
  if (!code) code = take_state(c, path, node, object, state, bytes);
  if (!code && !chat_open_branch(c, node)) code = EXIT_FAILED;
  node_drop(c, node);
  return code;
}

int chat_load(struct chat *c, const char *path) {
  size_t bytes;
  char *data = file_read(path, &bytes);
  if (!data) return EXIT_FAILED;
  const size_t begin = sizeof head - 1;
  char *line = bytes >= begin && !memcmp(data, head, begin) ? data + begin : NULL;
  char *end = line ? memchr(line, '\n', bytes - begin) : NULL;
  json_error_t error;
  json_t *object = NULL;
  if (end) object = json_loadb(line, (size_t)(end - line), JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
  int code;
  if (!end)
    code = malformed(path, "its first lines");
  else if (!json_is_object(object))
    code = malformed(path, object ? "not an object" : error.text);
  else
    code = take_object(c, path, object, end + 1, bytes - (size_t)(end + 1 - data));
  json_decref(object);
  free(data);
  return code;
}
