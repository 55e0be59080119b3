// serve_resident: states in free slots. Only the batch thread changes them, except `used`. The batch's lock protects
// all access from other threads.
#include "serve_slots.h"

#include <string.h>

// Whether this is the state that the text continues. A text that waited for another one's prompt continues that one's
// state instead.
bool resident_continues(const struct resident *r, const struct task *t) {
  return t->base_count && (!t->state || t->cached == t->base_count) && *r->key && !strcmp(r->key, t->base_key);
}

uint32_t slot_free(struct batch *b, const struct task *t) {
  uint32_t best = b->slots;
  pthread_mutex_lock(&b->lock);
  for (uint32_t i = 0; i < b->slots; ++i) {
    if (b->tasks[i] || move_active(b, i)) continue;
    const struct resident *r = &b->residents[i], *other = &b->residents[best < b->slots ? best : i];
    if (t && resident_continues(r, t)) {
      best = i;
      break;
    }
    if (best == b->slots || (!r->holder && (other->holder || r->used < other->used))) best = i;
  }
  pthread_mutex_unlock(&b->lock);
  return best;
}

static struct resident *find(struct batch *b, const char *key) {
  for (uint32_t i = 0; i < b->slots; ++i)
    if (*b->residents[i].key && !strcmp(b->residents[i].key, key)) return &b->residents[i];
  return NULL;
}

bool batch_has_state(struct batch *b, const char *key) {
  pthread_mutex_lock(&b->lock);
  struct resident *r = find(b, key);
  if (r) r->used = ++b->stayed;
  pthread_mutex_unlock(&b->lock);
  return r;
}

bool resident_missed(struct batch *b, const struct call *call) {
  for (size_t i = 0; i < call->task_count; ++i) {
    const struct task *t = &call->tasks[i];
    if (t->in_slot && !t->state) return !find(b, t->base_key); // the others continue the same one
  }
  return false;
}

bool resident_copied(struct batch *b, const struct task *t) {
  const struct resident *r = t->in_slot && !t->state ? find(b, t->base_key) : NULL;
  return r && move_active(b, (uint32_t)(r - b->residents));
}

void resident_set(struct batch *b, uint32_t slot, struct resident resident) {
  pthread_mutex_lock(&b->lock);
  if (*resident.key) resident.used = ++b->stayed;
  b->residents[slot] = resident;
  pthread_mutex_unlock(&b->lock);
}

// Whether a text of the queue continues the state and has no copy of it.
static bool wants(const struct task *t, const char *key) {
  return t->in_slot && !t->state && !t->leader && !strcmp(t->base_key, key);
}

bool resident_wanted(struct batch *b, uint32_t slot) {
  const char *key = b->residents[slot].key;
  bool wanted = false;
  pthread_mutex_lock(&b->lock);
  for (const struct task *t = *key ? b->first : NULL; t && !wanted; t = t->next) wanted = wants(t, key);
  pthread_mutex_unlock(&b->lock);
  return wanted;
}

void resident_leave(struct batch *b, uint32_t slot, struct blob *copy) {
  struct resident *r = &b->residents[slot];
  pthread_mutex_lock(&b->lock);
  for (struct task *t = copy ? b->first : NULL; t; t = t->next) {
    if (wants(t, r->key)) task_set_base_state(t, copy);
  }
  *r = (struct resident){0};
  pthread_mutex_unlock(&b->lock);
}
