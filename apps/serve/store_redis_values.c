// store_redis_values: commands for turns, states and their blocks.
//
// A state's blocks are written before it, so that a state that is found has had all of them. With an upper size, three
// keys say what is there: :z: (members by their last use), :n: (their bytes) and :total:. A script keeps them and
// removes those that were not used for longest; what has expired leaves them later.
#include "store_redis_values.h"
#include "common.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

// The store copies what is asked for before it sends it, so few blocks are asked for at once.
enum { NAME = 160, BLOCK_BYTES = 128 << 20, ASKED_BLOCKS = 2 };

struct name {
  char text[NAME];
};

static struct name name_of(const struct values *v, char letter, const char *id) {
  struct name name;
  snprintf(name.text, sizeof name.text, "deltaic:{%016" PRIx64 "}:%c:%s", v->layout->fingerprint, letter, id);
  return name;
}

// ---------------------------------------------------------------- replies

// Frees the reply. An error is said once a minute. *fine: it is none.
static bool take(const struct values *v, redisReply *reply, bool *fine) {
  static _Thread_local time_t said;
  if (!reply) return false;
  const bool error = reply->type == REDIS_REPLY_ERROR;
  if (error) {
    metrics_add(v->metrics, METRIC_STORE_ERRORS, 1);
    if (time(NULL) - said >= 60) complain(EXIT_OK, "the store refuses: %s", reply->str), said = time(NULL);
  }
  if (fine) *fine = !error;
  freeReplyObject(reply);
  return true;
}

bool values_ping(const struct values *v) {
  const struct wire_arg ping = wire_text("PING");
  return take(v, wire_command(v->wire, &ping, 1), NULL);
}

// Queues GET. Its reply, a value of at least one byte or NULL, is from got(); false: broken.
static bool ask(const struct values *v, const struct name *name) {
  const struct wire_arg get[] = {wire_text("GET"), wire_text(name->text)};
  return wire_send(v->wire, get, 2);
}

static bool got(const struct values *v, redisReply **value) {
  redisReply *reply = wire_reply(v->wire);
  *value = NULL;
  if (!reply) return false;
  if (reply->type == REDIS_REPLY_STRING && reply->len > 0) {
    *value = reply;
    return true;
  }
  return take(v, reply, NULL);
}

static bool set(const struct values *v, const struct name *name, const void *data, size_t bytes) {
  char seconds[16];
  snprintf(seconds, sizeof seconds, "%" PRIu32, v->options->seconds);
  const struct wire_arg value = {data, bytes}, get = wire_text("SET"), key = wire_text(name->text);
  const struct wire_arg ever[] = {get, key, value};
  // SETEX, as its value comes last: wire_send() copies no large last argument.
  const struct wire_arg expiring[] = {wire_text("SETEX"), key, wire_text(seconds), value};
  return v->options->seconds ? wire_send(v->wire, expiring, 4) : wire_send(v->wire, ever, 3);
}

static void refuse(const struct values *v) { metrics_add(v->metrics, METRIC_STORE_REFUSED, 1); }

static void count_put(const struct values *v, size_t bytes) {
  metrics_add(v->metrics, METRIC_STORE_PUTS, 1);
  metrics_add(v->metrics, METRIC_STORE_PUT_BYTES, (int64_t)bytes);
}

// ---------------------------------------------------------------- the index

// Members and their bytes. A member is the letter and the id of a key: "s:...".
struct members {
  struct {
    char text[PACK_ID + 4];
    uint64_t bytes;
  } items[PACK_BLOCKS + 1];
  size_t count;
};

static void add_member(struct members *m, char letter, const char *id, uint64_t bytes) {
  snprintf(m->items[m->count].text, sizeof m->items[0].text, "%c:%s", letter, id);
  m->items[m->count++].bytes = bytes;
}

// ARGV: now in microseconds, seconds, limit, the keys' beginning, then members and bytes; a member of 0 bytes was
// dropped.
static const char index_script[] =
    "local z,n,t,pre=KEYS[1],KEYS[2],KEYS[3],ARGV[4]\n"
    "local total=tonumber(redis.call('GET',t) or '0')\n"
    "local function out(m)\n"
    "  total=total-tonumber(redis.call('HGET',n,m) or '0')\n"
    "  redis.call('HDEL',n,m) redis.call('ZREM',z,m)\n"
    "end\n"
    "if tonumber(ARGV[2])>0 then\n"
    "  for _,m in ipairs(redis.call('ZRANGEBYSCORE',z,'-inf',ARGV[1]-ARGV[2]*1000000,'LIMIT',0,1000)) do out(m) end\n"
    "end\n"
    "for i=5,#ARGV,2 do\n"
    "  out(ARGV[i])\n"
    "  local b=tonumber(ARGV[i+1])\n"
    "  if b>0 then redis.call('HSET',n,ARGV[i],b) redis.call('ZADD',z,ARGV[1],ARGV[i]) total=total+b end\n"
    "end\n"
    "local gone=0\n"
    "while total>tonumber(ARGV[3]) do\n"
    "  local m=redis.call('ZRANGE',z,0,0)[1]\n"
    "  if not m then break end\n"
    "  out(m) redis.call('UNLINK',pre..m) gone=gone+1\n"
    "end\n"
    "redis.call('SET',t,total)\n"
    "if tonumber(ARGV[2])>0 then\n"
    "  for _,k in ipairs(KEYS) do redis.call('EXPIRE',k,2*ARGV[2]) end\n"
    "end\n"
    "return gone\n";

static struct name now_text(void) {
  struct timespec now;
  struct name text;
  clock_gettime(CLOCK_REALTIME, &now); // replicas share it
  snprintf(text.text, sizeof text.text, "%lld", (long long)now.tv_sec * 1000000 + now.tv_nsec / 1000);
  return text;
}

// Tells the index what was written. Parts of at most 40 members, for a command's arguments.
static bool index_add(const struct values *v, const struct members *m) {
  for (size_t done = 0; v->options->bytes && done < m->count;) {
    const struct name z = name_of(v, 'z', ""), n = name_of(v, 'n', ""), t = name_of(v, 'i', "total"), now = now_text();
    struct name before = name_of(v, 's', "");
    before.text[strlen(before.text) - 2] = 0; // without the letter
    char seconds[24], limit[24], sizes[40][24];
    snprintf(seconds, sizeof seconds, "%" PRIu32, v->options->seconds);
    snprintf(limit, sizeof limit, "%" PRIu64, v->options->bytes);
    struct wire_arg args[WIRE_ARGS] = {
        wire_text("EVAL"), wire_text(index_script), wire_text("3"),     wire_text(z.text), wire_text(n.text),
        wire_text(t.text), wire_text(now.text),     wire_text(seconds), wire_text(limit),  wire_text(before.text)};
    size_t count = 10;
    for (size_t i = 0; i < 40 && done < m->count; i++, done++) {
      snprintf(sizes[i], sizeof sizes[i], "%" PRIu64, m->items[done].bytes);
      args[count++] = wire_text(m->items[done].text);
      args[count++] = wire_text(sizes[i]);
    }
    redisReply *reply = wire_command(v->wire, args, count);
    if (reply && reply->type == REDIS_REPLY_INTEGER) metrics_add(v->metrics, METRIC_STORE_EVICTED, reply->integer);
    if (!take(v, reply, NULL)) return false;
  }
  return true;
}

// Makes the key live as long as a new one. *there: there is one.
static bool renew(const struct values *v, char letter, const char *id, bool *there) {
  const struct name name = name_of(v, letter, id), z = name_of(v, 'z', ""), now = now_text();
  char seconds[16], member[PACK_ID + 4];
  snprintf(seconds, sizeof seconds, "%" PRIu32, v->options->seconds);
  snprintf(member, sizeof member, "%c:%s", letter, id);
  const struct wire_arg expire[] = {wire_text("EXPIRE"), wire_text(name.text), wire_text(seconds)};
  const struct wire_arg exists[] = {wire_text("EXISTS"), wire_text(name.text)};
  const struct wire_arg used[] = {wire_text("ZADD"), wire_text(z.text), wire_text("XX"), wire_text(now.text),
                                  wire_text(member)};
  if (!(v->options->seconds ? wire_send(v->wire, expire, 3) : wire_send(v->wire, exists, 2)) ||
      (v->options->bytes && !wire_send(v->wire, used, 5)))
    return false;
  redisReply *reply = wire_reply(v->wire);
  *there = reply && reply->type == REDIS_REPLY_INTEGER && reply->integer == 1;
  return take(v, reply, NULL) && (!v->options->bytes || take(v, wire_reply(v->wire), NULL));
}

// ---------------------------------------------------------------- turns

struct turn_head {
  char magic[8];
  uint64_t fingerprint, checksum; // of the turn's bytes
};
static const char turn_magic[8] = "DLTTURN1";

bool values_put_turn(const struct values *v, const char *key, const struct blob *blob) {
  struct turn_head head = {.fingerprint = v->layout->fingerprint, .checksum = pack_sum(blob->bytes, blob->size)};
  const struct name name = name_of(v, 't', key);
  struct members members = {.count = 0};
  const size_t bytes = sizeof head + blob->size;
  memcpy(head.magic, turn_magic, sizeof head.magic);
  char *value = malloc(bytes);
  if (!value) return true;
  memcpy(value, &head, sizeof head);
  memcpy(value + sizeof head, blob->bytes, blob->size);
  bool fine = false;
  const bool sent = set(v, &name, value, bytes) && take(v, wire_reply(v->wire), &fine);
  free(value);
  if (!sent || !fine) return sent;
  count_put(v, bytes);
  add_member(&members, 't', key, bytes);
  return index_add(v, &members);
}

bool values_get_turn(const struct values *v, const char *key, struct blob **blob) {
  const struct name name = name_of(v, 't', key);
  redisReply *value;
  struct turn_head head;
  if (!ask(v, &name) || !got(v, &value)) return false;
  if (!value) return true;
  const size_t bytes = (size_t)value->len;
  if (bytes >= sizeof head) memcpy(&head, value->str, sizeof head);
  if (bytes < sizeof head || memcmp(head.magic, turn_magic, sizeof head.magic) ||
      head.fingerprint != v->layout->fingerprint ||
      head.checksum != pack_sum(value->str + sizeof head, bytes - sizeof head)) {
    refuse(v);
  } else if ((*blob = blob_create(bytes - sizeof head))) {
    memcpy((*blob)->bytes, value->str + sizeof head, bytes - sizeof head);
  }
  freeReplyObject(value);
  bool there;
  if (!*blob || renew(v, 't', key, &there)) return true;
  blob_drop(*blob); // it is asked for again
  *blob = NULL;
  return false;
}

// ---------------------------------------------------------------- states

// The blocks that the state shares with the one before it: the same positions with the same numbers, still there.
static bool shared_blocks(const struct values *v, const char *after, const struct pack_state *s,
                          struct pack_blocks *out) {
  const struct name name = name_of(v, 's', after);
  char last[16];
  snprintf(last, sizeof last, "%d", PACK_HEAD - 1);
  const struct wire_arg range[] = {wire_text("GETRANGE"), wire_text(name.text), wire_text("0"), wire_text(last)};
  redisReply *head;
  uint64_t position;
  struct pack_blocks blocks;
  if (!wire_send(v->wire, range, 4) || !got(v, &head)) return false;
  const bool known = head && pack_read_blocks(v->layout, head->str, (size_t)head->len, &blocks, &position);
  if (head) freeReplyObject(head);
  for (size_t i = 0; known && i < blocks.count && blocks.items[i].end <= s->position; i++) {
    const struct pack_block *b = &blocks.items[i];
    bool there;
    if (pack_checksum(v->layout, s, b->first, b->end) != b->checksum) break;
    if (!renew(v, 'b', b->id, &there)) return false;
    if (!there) break;
    out->items[out->count++] = *b;
  }
  return true;
}

static bool put_value(const struct values *v, struct members *members, char letter, const char *id,
                      struct pack_bytes value, bool *fine) {
  const struct name name = name_of(v, letter, id);
  const bool answered = !value.data || (set(v, &name, value.data, value.bytes) && take(v, wire_reply(v->wire), fine));
  if (!value.data) *fine = false;
  free(value.data);
  if (answered && *fine) {
    count_put(v, value.bytes);
    add_member(members, letter, id, value.bytes);
  }
  return answered;
}

static bool put_blocks(const struct values *v, const char *key, const struct pack_state *s, struct pack_blocks *blocks,
                       struct members *members, bool *fine) {
  const uint64_t step = BLOCK_BYTES / state_position_bytes(v->layout) + 1;
  uint64_t at = blocks->count ? blocks->items[blocks->count - 1].end : 0;
  if (blocks->count + (s->position - at + step - 1) / step > PACK_BLOCKS) blocks->count = 0, at = 0; // one again
  for (; at < s->position && *fine; at = blocks->items[blocks->count - 1].end) {
    if (blocks->count == PACK_BLOCKS) *fine = false;
    if (!*fine) return true;
    struct pack_block *b = &blocks->items[blocks->count++];
    b->first = at;
    b->end = s->position - at < step ? s->position : at + step;
    b->checksum = pack_checksum(v->layout, s, b->first, b->end);
    snprintf(b->id, sizeof b->id, "%.64s-%016" PRIx64, key, b->checksum);
    if (!put_value(v, members, 'b', b->id, pack_grown(v->layout, s, b->first, b->end), fine)) return false;
  }
  return true;
}

bool values_put_state(const struct values *v, const char *key, const char *after, struct blob *blob) {
  struct pack_state s = {.state = blob, .bits = v->options->bits};
  const struct span head = blob_span(blob, 0);
  struct pack_blocks blocks = {.count = 0};
  struct members members = {.count = 0};
  bool fine = true;
  if (deltaic_state_position(head.bytes, head.size, &s.position)) return true;
  if (v->layout->grows) {
    if (*after && !shared_blocks(v, after, &s, &blocks)) return false;
    if (!put_blocks(v, key, &s, &blocks, &members, &fine)) return false;
  }
  if (fine && !put_value(v, &members, 's', key, pack_fixed(v->layout, &s, &blocks), &fine)) return false;
  return index_add(v, &members);
}

// Puts the state together. *state NULL: a block is gone, damaged or another model's.
static bool assemble(const struct values *v, const redisReply *value, struct blob **state) {
  struct pack_blocks blocks = {.count = 0};
  uint64_t position;
  const size_t size = (size_t)value->len;
  *state = NULL;
  if (pack_read_blocks(v->layout, value->str, size, &blocks, &position))
    *state = pack_open(v->layout, value->str, size);
  if (!*state) {
    refuse(v);
    return true;
  }
  bool whole = true;
  for (size_t i = 0, asked = 0; i < blocks.count; i++) {
    redisReply *block;
    for (; asked < blocks.count && asked < i + ASKED_BLOCKS; asked++) {
      const struct name name = name_of(v, 'b', blocks.items[asked].id);
      if (!ask(v, &name)) return false;
    }
    if (!got(v, &block)) return false;
    const struct pack_bytes have = {block ? block->str : NULL, block ? (size_t)block->len : 0};
    if (whole && block && !pack_add(*state, &blocks.items[i], &have)) refuse(v), whole = false;
    whole = whole && block;
    if (block) freeReplyObject(block);
  }
  bool there;
  for (size_t i = 0; whole && i < blocks.count; i++)
    if (!renew(v, 'b', blocks.items[i].id, &there)) return false;
  if (whole) return true;
  blob_drop(*state);
  *state = NULL;
  return true;
}

bool values_get_state(const struct values *v, const char *key, struct blob **blob) {
  const struct name name = name_of(v, 's', key);
  redisReply *value;
  struct blob *state = NULL;
  bool there;
  if (!ask(v, &name) || !got(v, &value)) return false;
  if (!value) return true;
  bool fine = assemble(v, value, &state);
  freeReplyObject(value);
  if (fine && state) fine = renew(v, 's', key, &there);
  if (fine && state)
    *blob = state;
  else
    blob_drop(state);
  return fine;
}

bool values_drop(const struct values *v, enum store_kind kind, const char *key) {
  const char letter = kind == STORE_TURN ? 't' : 's';
  const struct name name = name_of(v, letter, key);
  const struct wire_arg unlink[] = {wire_text("UNLINK"), wire_text(name.text)};
  struct members members = {.count = 0};
  add_member(&members, letter, key, 0);
  return take(v, wire_command(v->wire, unlink, 2), NULL) && index_add(v, &members);
}
