// chat_template: the published chat templates of the families, as data, and their rendering for plain messages of
// systems, users and assistants. tests/vectors/chat compares it with the templates' own text.
#include "chat_template.h"

#include "hash.h"

#define CHATML_STARTS                                                                                                  \
  { "<|im_start|>system\n", "<|im_start|>user\n", "<|im_start|>assistant\n" }
#define CHATML .start = CHATML_STARTS, .end = "<|im_end|>", .after = "\n"
#define NO_THINK "<think>\n\n</think>\n\n"
#define NO_FUNCTIONS " You do not currently have access to any functions. <functions></functions>"
#define BY_AI2(date)                                                                                                   \
  " Your date cutoff is " date " 2024, and your model weights are available at https://huggingface.co/allenai."
#define OLMO CHATML, .last = "<|endoftext|>", .fallback_unless_any = true
#define QWEN35 CHATML, .think = "<think>\n", .no_think = NO_THINK, .drops_thinking = true, .trims = true, .strict = true

static const deltaic_template templates[] = {
    {.name = "chatml", .models = "Qwen3 Instruct 2507, Qwen3-Next Instruct, Qwen3-Coder-Next", CHATML},
    {.name = "qwen2.5",
     .models = "Qwen2.5 Instruct",
     CHATML,
     .fallback = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."},
    {.name = "qwen3",
     .models = "Qwen3",
     CHATML,
     .think = "",
     .no_think = NO_THINK,
     .thinks = true,
     .drops_thinking = true,
     .trailing = TRAILING_THINK},
    {.name = "qwen3-thinking",
     .models = "Qwen3 Thinking 2507, Qwen3-Next Thinking",
     CHATML,
     .think = "<think>\n",
     .thinks = true,
     .drops_thinking = true,
     .trailing = TRAILING_THINK},
    {.name = "qwen3.5",
     .models = "Qwen3.5 of 4B and more, Qwen3.6",
     QWEN35,
     .thinks = true,
     .trailing = TRAILING_ALWAYS},
    {.name = "qwen3.5-small", .models = "Qwen3.5 of 0.8B and 2B", QWEN35, .trailing = TRAILING_ALWAYS},
    {.name = "olmo3",
     .models = "OLMo 3 Instruct",
     OLMO,
     .fallback = "You are a helpful function-calling AI assistant." NO_FUNCTIONS},
    {.name = "olmo3.1",
     .models = "OLMo 3.1 Instruct",
     OLMO,
     .fallback = "You are Olmo, a helpful AI assistant built by Ai2." BY_AI2("December") NO_FUNCTIONS},
    {.name = "olmo3-think",
     .models = "OLMo 3 Think",
     OLMO,
     .system_end = NO_FUNCTIONS,
     .fallback = "You are OLMo, a helpful function-calling AI assistant built by Ai2." BY_AI2("November") NO_FUNCTIONS,
     .think = "<think>",
     .thinks = true},
    {.name = "olmo3-think-sft",
     .models = "OLMo 3 Think SFT",
     OLMO,
     .system_end = NO_FUNCTIONS,
     .fallback = "You are Olmo, a helpful AI assistant built by Ai2." BY_AI2("December"),
     .think = "<think>",
     .thinks = true},
    {.name = "kimi",
     .models = "Kimi K2",
     .start = {"<|im_system|>system<|im_middle|>", "<|im_user|>user<|im_middle|>",
               "<|im_assistant|>assistant<|im_middle|>"},
     .end = "<|im_end|>",
     .after = "",
     .fallback = "You are a helpful assistant"},
};
enum { TEMPLATES = sizeof templates / sizeof *templates };

// ---------------------------------------------------------------- which template

// hash_bytes() of the published texts without carriage returns and without the white space at their ends. The comments
// name the files in tests/vectors/chat/templates.
static const struct {
  uint64_t hash;
  const char *name;
} published[] = {
    {0x3e10ac2d6bfc1e96, "chatml"},          // qwen3-next-instruct
    {0xdb0da8eca7c72684, "chatml"},          // qwen3-coder-next
    {0xee1f970b1e64df87, "qwen2.5"},         // qwen2.5
    {0xa04664bea7f7f831, "qwen2.5"},         // qwen2.5-gguf
    {0xe176c7d266c1e62b, "qwen3"},           // qwen3
    {0xfdd4aef067221d3b, "qwen3"},           // qwen3-first
    {0x1913b9c419a4a5fe, "qwen3-thinking"},  // qwen3-next-thinking
    {0x259d11e3216d8806, "qwen3.5"},         // qwen3.5
    {0x716655f351a67a69, "qwen3.5"},         // qwen3.6
    {0xe0724dba24b2b253, "qwen3.5-small"},   // qwen3.5-small
    {0x2e2d03de0199235b, "olmo3"},           // olmo3-instruct
    {0xb4a7442aae66a00b, "olmo3"},           // olmo3-instruct-sft
    {0x07bfa980e23d6144, "olmo3.1"},         // olmo3.1-instruct
    {0xbce5389e4ec50242, "olmo3-think"},     // olmo3-think
    {0xe39e6ccc70056df8, "olmo3-think-sft"}, // olmo3-think-sft
    {0x320acf83ac5bbff9, "kimi"},            // kimi-k2
};

const deltaic_template *deltaic_template_at(size_t index) { return index < TEMPLATES ? &templates[index] : NULL; }

const deltaic_template *chat_template_find(const char *name) {
  for (size_t i = 0; i < TEMPLATES; i++)
    if (!strcmp(templates[i].name, name)) return &templates[i];
  return NULL;
}

const deltaic_template *chat_template_recognize(const char *text, size_t bytes) {
  char *copy = malloc(bytes + 1);
  size_t n = 0;
  for (size_t i = 0; i < bytes && copy; i++)
    if (text[i] != '\r') copy[n++] = text[i];
  while (copy && n && copy[n - 1] && strchr(" \t\n", copy[n - 1])) n--;
  const uint64_t hash = copy ? hash_bytes(HASH_BEGIN, copy, n) : 0;
  free(copy);
  for (size_t i = 0; i < sizeof published / sizeof *published; i++)
    if (published[i].hash == hash) return chat_template_find(published[i].name);
  return NULL;
}

// ---------------------------------------------------------------- texts

struct view {
  const char *text;
  size_t bytes;
};

static void add(struct chat_parts *parts, const char *text, size_t bytes, enum trust trust) {
  if (parts->failed || !bytes) return;
  if (parts->count == parts->capacity) {
    size_t capacity = 2 * parts->capacity + 16;
    struct chat_part *grown = realloc(parts->items, capacity * sizeof *grown);
    parts->failed = !grown;
    if (!grown) return;
    parts->items = grown;
    parts->capacity = capacity;
  }
  parts->items[parts->count++] = (struct chat_part){text, bytes, trust};
}

static void add_own(struct chat_parts *parts, const char *text) { add(parts, text, strlen(text), TRUST_TEMPLATE); }

static bool blank(uint32_t c) { return is_space(c) || (c >= 0x1C && c <= 0x1F); } // what Python's strip() removes

static struct view trimmed(struct view v) {
  while (v.bytes && blank(utf8_decode(v.text))) {
    size_t n = utf8_length(v.text[0]);
    v.text += n;
    v.bytes -= n;
  }
  while (v.bytes) {
    size_t at = v.bytes - 1;
    while (at && ((unsigned char)v.text[at] & 0xC0) == 0x80) at--;
    if (!blank(utf8_decode(v.text + at))) break;
    v.bytes = at;
  }
  return v;
}

static struct view without_newlines(struct view v, bool left, bool right) {
  for (; left && v.bytes && v.text[0] == '\n'; v.text++) v.bytes--;
  while (right && v.bytes && v.text[v.bytes - 1] == '\n') v.bytes--;
  return v;
}

// Where the mark is first or last; NULL: nowhere.
static const char *find(struct view v, const char *mark, bool last) {
  const size_t n = strlen(mark);
  const char *found = NULL;
  for (size_t at = 0; at + n <= v.bytes && (last || !found); at++)
    if (!memcmp(v.text + at, mark, n)) found = v.text + at;
  return found;
}

static struct view behind(struct view v, const char *mark, size_t length) {
  const char *rest = mark + length;
  return (struct view){rest, v.bytes - (size_t)(rest - v.text)};
}

// Takes the thinking off an answer, as the templates do: it ends at the first </think>, the text begins behind the
// last.
static struct view take_thinking(struct view *content) {
  const char *first = find(*content, "</think>", false), *last = find(*content, "</think>", true);
  if (!first) return (struct view){"", 0};
  struct view thinking = without_newlines((struct view){content->text, (size_t)(first - content->text)}, false, true);
  const char *open = find(thinking, "<think>", true);
  if (open) thinking = behind(thinking, open, 7);
  *content = without_newlines(behind(*content, last, 8), true, false);
  return without_newlines(thinking, true, false);
}

// ---------------------------------------------------------------- messages

static struct view content_of(const deltaic_template *t, const deltaic_message *m) {
  struct view v = {m->text ? m->text : "", m->bytes};
  return t->trims ? trimmed(v) : v;
}

// A tool's answer in a user's message asks nothing.
static bool asks(const deltaic_template *t, const deltaic_message *m) {
  static const char open[] = "<tool_response>", close[] = "</tool_response>";
  const size_t begin = sizeof open - 1, end = sizeof close - 1;
  struct view v = content_of(t, m);
  if (m->role != DELTAIC_ROLE_USER) return false;
  return v.bytes < begin || v.bytes < end || memcmp(v.text, open, begin) != 0 ||
         memcmp(v.text + v.bytes - end, close, end) != 0;
}

// What renders an assistant's message depends on.
struct place {
  bool answered; // a user asks later
  bool last;     // no message follows
};

static void add_answer(const deltaic_template *t, struct view content, struct place at, struct chat_parts *out) {
  struct view thinking = {"", 0};
  if (t->drops_thinking) thinking = take_thinking(&content);
  if (t->trims) thinking = trimmed(thinking);
  const bool part = !at.answered &&
                    (t->trailing == TRAILING_ALWAYS || (t->trailing == TRAILING_THINK && (at.last || thinking.bytes)));
  if (part) {
    if (!t->trims) thinking = without_newlines(thinking, true, true);
    if (!t->trims) content = without_newlines(content, true, false);
    add_own(out, "<think>\n");
    add(out, thinking.text, thinking.bytes, TRUST_PLAIN);
    add_own(out, "\n</think>\n\n");
  }
  add(out, content.text, content.bytes, TRUST_PLAIN);
}

static void add_message(const deltaic_template *t, const deltaic_message *m, struct place at, struct chat_parts *out) {
  struct view content = content_of(t, m);
  const bool answer = m->role == DELTAIC_ROLE_ASSISTANT;
  add_own(out, t->start[m->role]);
  if (answer)
    add_answer(t, content, at, out);
  else
    add(out, content.text, content.bytes, TRUST_NONE);
  if (m->role == DELTAIC_ROLE_SYSTEM && t->system_end) add_own(out, t->system_end);
  if (answer && at.last && t->last) {
    add_own(out, t->last);
    return;
  }
  add_own(out, t->end);
  add_own(out, t->after);
}

static void add_fallback(const deltaic_template *t, const deltaic_message *messages, size_t n, struct chat_parts *out) {
  bool given = n && messages[0].role == DELTAIC_ROLE_SYSTEM;
  for (size_t i = 0; i < n && t->fallback_unless_any; i++) given |= messages[i].role == DELTAIC_ROLE_SYSTEM;
  if (given || !t->fallback) return;
  add_own(out, t->start[DELTAIC_ROLE_SYSTEM]);
  add_own(out, t->fallback);
  add_own(out, t->end);
  add_own(out, t->after);
}

static deltaic_status add_opening(const deltaic_template *t, deltaic_thinking thinking, struct chat_parts *out) {
  const bool on = thinking == DELTAIC_THINKING_ON || (thinking == DELTAIC_THINKING_DEFAULT && t->thinks);
  if (on && !t->think) return fail(DELTAIC_UNSUPPORTED, "template %s: it cannot turn thinking on", t->name);
  if (!on && t->think && !t->no_think)
    return fail(DELTAIC_UNSUPPORTED, "template %s: it cannot turn thinking off", t->name);
  add_own(out, t->start[DELTAIC_ROLE_ASSISTANT]);
  if (on)
    add_own(out, t->think);
  else if (t->no_think)
    add_own(out, t->no_think);
  return DELTAIC_OK;
}

static deltaic_status check_order(const deltaic_template *t, const deltaic_message *messages, size_t n) {
  bool asked = false;
  if (!t->strict) return DELTAIC_OK;
  for (size_t i = 0; i < n; i++) {
    if (i && messages[i].role == DELTAIC_ROLE_SYSTEM)
      return fail(DELTAIC_INVALID_ARGUMENT, "template %s: message %zu is a system message; only the first may be one",
                  t->name, i + 1);
    asked |= asks(t, &messages[i]);
  }
  return asked ? DELTAIC_OK : fail(DELTAIC_INVALID_ARGUMENT, "template %s: there is no message of a user", t->name);
}

deltaic_status chat_template_parts(const deltaic_template *t, const deltaic_message *messages, size_t n,
                                   const deltaic_render_options *o, struct chat_parts *out) {
  size_t query = n ? n - 1 : 0; // the last message that asks
  deltaic_status status = check_order(t, messages, n);
  for (size_t i = n; i-- > 0;)
    if (asks(t, &messages[i])) {
      query = i;
      break;
    }
  if (o->first == 0) add_fallback(t, messages, n, out);
  for (size_t i = o->first; i < n && !status; i++)
    add_message(t, &messages[i], (struct place){o->earlier || i <= query, !o->earlier && i + 1 == n}, out);
  if (o->answer && !status) status = add_opening(t, o->thinking, out);
  return status || !out->failed ? status : fail_memory("a conversation", out->capacity * sizeof *out->items);
}
