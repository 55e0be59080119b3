// chat_tree: turns and branches. A turn that no branch reaches is freed.
#include "chat.h"
#include "common.h"

#include <stdlib.h>
#include <string.h>

void bytes_add(struct bytes *bytes, const char *data, size_t size) {
  bytes->data = must_resize(bytes->data, bytes->size + size + 1);
  if (size) memcpy(bytes->data + bytes->size, data, size);
  bytes->size += size;
  bytes->data[bytes->size] = 0;
}

struct node *chat_leaf(const struct chat *c) {
  return c->branches[c->branch];
}

static struct node *node_new(void) {
  struct node *node = must_resize(NULL, sizeof *node);
  *node = (struct node){.parent = NULL};
  return node;
}

struct node *node_first(const char *system, size_t bytes) {
  struct node *node = node_new();
  node->counted = true;
  node->has_system = system != NULL;
  if (system) bytes_add(&node->question, system, bytes);
  return node;
}

struct node *node_after(struct node *parent, const struct bytes *question, const struct bytes *answer) {
  struct node *node = node_new();
  node->parent = parent;
  node_use(parent);
  bytes_add(&node->question, question->data, question->size);
  bytes_add(&node->answer, answer->data, answer->size);
  return node;
}

void node_use(struct node *node) { ++node->uses; }

static void forget_state(struct chat *c, struct node *node) {
  for (size_t i = 0; i < c->kept_count; ++i)
    if (c->kept[i] == node) c->kept[i--] = c->kept[--c->kept_count];
  c->kept_bytes -= node->state_bytes;
  free(node->state);
  free(node->pending);
  node->state = NULL;
  node->state_bytes = 0;
  node->pending = NULL;
  node->pending_count = 0;
  node->counted = !node->parent;
}

void node_drop(struct chat *c, struct node *node) {
  while (node && !--node->uses) {
    struct node *parent = node->parent;
    if (c->loaded == node) c->loaded = NULL;
    forget_state(c, node);
    free(node->question.data);
    free(node->answer.data);
    free(node);
    node = parent;
  }
}

void node_keep(struct chat *c, struct node *node, void *state, size_t bytes) {
  c->kept = must_resize(c->kept, (c->kept_count + 1) * sizeof *c->kept);
  c->kept[c->kept_count++] = node;
  node->state = state;
  node->state_bytes = bytes;
  node->age = ++c->ages;
  c->kept_bytes += bytes;
  while (c->kept_count > c->request->keep || c->kept_bytes > c->most_bytes) {
    struct node *oldest = c->kept[0];
    for (size_t i = 1; i < c->kept_count; ++i)
      if (c->kept[i]->age < oldest->age) oldest = c->kept[i];
    if (oldest == node) return;
    forget_state(c, oldest);
    if (c->loaded == oldest) c->loaded = NULL;
  }
}

void node_set_pending(struct node *node, const int32_t *ids, size_t count) {
  node->pending = must_resize(node->pending, count * sizeof *ids);
  if (count) memcpy(node->pending, ids, count * sizeof *ids);
  node->pending_count = count;
  node->counted = true;
}

void chat_move(struct chat *c, struct node *node) {
  struct node *before = chat_leaf(c);
  node_use(node);
  c->branches[c->branch] = node;
  node_drop(c, before);
}

bool chat_open_branch(struct chat *c, struct node *node) {
  node_use(node);
  if (c->branch_count == BRANCHES) {
    complain(EXIT_FAILED, "there are %d branches already, which is the most", BRANCHES);
    node_drop(c, node);
    return false;
  }
  c->branch = c->branch_count++;
  c->branches[c->branch] = node;
  return true;
}

uint32_t node_turns(const struct node *node) {
  uint32_t turns = 0;
  for (; node->parent; node = node->parent) ++turns;
  return turns;
}

static deltaic_message message(deltaic_role role, const struct bytes *text) {
  return (deltaic_message){role, text->data, text->size};
}

deltaic_message *node_messages(const struct node *node, size_t *count) {
  size_t turns = node_turns(node), at = 2 * turns;
  deltaic_message *out = must_resize(NULL, (2 * turns + 3) * sizeof *out);
  const struct node *first = node;
  while (first->parent) first = first->parent;
  if (first->has_system) {
    out[0] = message(DELTAIC_ROLE_SYSTEM, &first->question);
    ++at;
  }
  *count = at;
  for (; node->parent; node = node->parent) {
    out[--at] = message(DELTAIC_ROLE_ASSISTANT, &node->answer);
    out[--at] = message(DELTAIC_ROLE_USER, &node->question);
  }
  return out;
}
