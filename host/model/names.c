// names: looks up roles in a family's table of names (names.h).
#include "names.h"
#include "text.h"

#include <assert.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_BYTES = 256 }; // longer than any name in a table

static void write_name(const char *pattern, const char *prefix, uint32_t layer, uint32_t item, char *text,
                       size_t capacity) {
  size_t used = 0;
  text[0] = 0;
  for (; *pattern && used < capacity; pattern++) {
    char *to = text + used;
    const size_t room = capacity - used;
    if (*pattern == '*')
      used += (size_t)snprintf(to, room, "%s", prefix);
    else if (*pattern == '#' || *pattern == '@')
      used += (size_t)snprintf(to, room, "%u", *pattern == '#' ? layer : item);
    else
      used += (size_t)snprintf(to, room, "%c", *pattern);
  }
}

struct named_tensor names_look(const struct names *names, names_lookup look, void *context, uint32_t layer,
                               enum role role, int64_t item) {
  char text[NAME_BYTES];
  for (const struct names *n = names; n; n = n->base)
    for (const struct tensor_name *t = n->tensors; t->pattern; t++) {
      if (t->role != role || (item >= 0) != (strchr(t->pattern, '@') != NULL)) continue;
      for (int p = 0; names->prefixes[p]; p++) {
        write_name(t->pattern, names->prefixes[p], layer, (uint32_t)item, text, sizeof text);
        struct file_tensor *found = look(context, text);
        if (found) return (struct named_tensor){found, t->rows, t->plus, t->minus_exp, t->row_order, t->column_order};
      }
    }
  return (struct named_tensor){0};
}

static struct file_tensor *look_up(void *checkpoint, const char *name) {
  return checkpoint ? checkpoint_find(checkpoint, name) : NULL;
}

struct named_tensor names_find(const struct names *names, struct checkpoint *checkpoint, uint32_t layer,
                               enum role role) {
  return names_look(names, look_up, checkpoint, layer, role, -1);
}

struct named_tensor names_item(const struct names *names, struct checkpoint *checkpoint, uint32_t layer, enum role role,
                               uint32_t m) {
  return names_look(names, look_up, checkpoint, layer, role, m);
}

const struct tensor_name *names_usual(const struct names *names, enum role role) {
  for (const struct names *n = names; n; n = n->base)
    for (const struct tensor_name *t = n->tensors; t->pattern; t++)
      if (t->role == role) return t;
  return NULL;
}

void names_write(const struct names *names, uint32_t layer, enum role role, char *text, size_t capacity) {
  const struct tensor_name *usual = names_usual(names, role);
  assert(usual);
  write_name(usual->pattern, names->prefixes[0], layer, 0, text, capacity);
}

// Stores the layer's index in *layer.
static bool matches(const char *pattern, const char *prefix, const char *name, uint32_t *layer) {
  for (; *pattern; pattern++) {
    if (*pattern == '*') {
      if (strncmp(name, prefix, strlen(prefix))) return false;
      name += strlen(prefix);
    } else if (*pattern == '#' || *pattern == '@') {
      if (!isdigit((unsigned char)*name)) return false;
      unsigned long number = strtoul(name, (char **)&name, 10);
      if (*pattern == '#') *layer = number < UINT32_MAX ? (uint32_t)number : UINT32_MAX;
    } else if (*name++ != *pattern)
      return false;
  }
  return !*name;
}

bool names_match(const struct names *names, const char *name, const enum role *roles, size_t count, enum role *role,
                 uint32_t *layer) {
  for (const struct names *n = names; n; n = n->base)
    for (const struct tensor_name *t = n->tensors; t->pattern; t++)
      for (size_t r = 0; r < count; r++)
        for (int p = 0; roles[r] == t->role && names->prefixes[p]; p++)
          if (matches(t->pattern, names->prefixes[p], name, layer)) {
            *role = t->role;
            return true;
          }
  return false;
}

bool names_ignored(const struct names *names, const char *name) {
  for (int i = 0; names->ignored && names->ignored[i]; i++)
    if (text_like(name, names->ignored[i])) return true;
  return false;
}

bool role_is_projection(enum role role) {
  switch (role) {
  case ROLE_HEAD:
  case ROLE_FFN_GATE:
  case ROLE_FFN_UP:
  case ROLE_FFN_DOWN:
  case ROLE_ROUTER:
  case ROLE_SHARED_SCALE:
  case ROLE_SHARED_GATE:
  case ROLE_SHARED_UP:
  case ROLE_SHARED_DOWN:
  case ROLE_Q:
  case ROLE_K:
  case ROLE_V:
  case ROLE_GATE:
  case ROLE_BETA:
  case ROLE_DECAY:
  case ROLE_MASK:
  case ROLE_Z:
  case ROLE_XBC:
  case ROLE_DT:
  case ROLE_OUTPUT: return true;
  default: return false;
  }
}
