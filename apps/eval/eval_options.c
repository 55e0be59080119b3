// eval_options: declares which tasks have which options. It refuses an option that the task does not have, because
// ignoring it would be misleading.
#include "eval_made.h"

#include <string.h>

enum { CASES = 1, DATA_SET = 2, MADE = 4, COST = 8, ALL_CASES = CASES | DATA_SET | MADE };

static const char *const kind_names[] = {"files of cases", "data sets", "tasks computed now", "cost"};

// Options of several but not all tasks; an option of a single task is in the task's row (`own`).
static const struct {
  const char *option;
  unsigned kinds;
} rules[] = {
    {"data", DATA_SET},  {"limit", ALL_CASES},     {"new", CASES},          {"max-length", CASES | DATA_SET},
    {"write", MADE},     {"no-bos", ALL_CASES},    {"log", ALL_CASES},      {"skip-bad", CASES | DATA_SET},
    {"cases", MADE},     {"sequences", ALL_CASES}, {"length", MADE | COST}, {"seed", MADE},
    {"busy", ALL_CASES},
};
enum { RULES = sizeof rules / sizeof *rules };

static bool has_word(const char *words, const char *word) {
  size_t length = strlen(word);
  for (const char *at = words; at && *at; at += strcspn(at, " "), at += *at == ' ')
    if (strcspn(at, " ") == length && !memcmp(at, word, length)) return true;
  return false;
}

static unsigned kinds_of(const char *option) {
  for (size_t i = 0; i < RULES; ++i)
    if (!strcmp(rules[i].option, option)) return rules[i].kinds;
  return 0;
}

static void add_name(char *names, size_t capacity, const char *name) {
  size_t used = strlen(names);
  snprintf(names + used, capacity - used, "%s%s", used ? ", " : "", name);
}

// Sets `names` to the tasks that have the option, or to "" if all have it.
static void owners(const char *option, char *names, size_t capacity) {
  const struct made *made;
  *names = 0;
  for (size_t k = 0; k < sizeof kind_names / sizeof *kind_names; ++k)
    if (kinds_of(option) >> k & 1) add_name(names, capacity, kind_names[k]);
  for (size_t i = 0; (made = made_at(i)); ++i)
    if (has_word(made->own, option)) add_name(names, capacity, made->name);
}

int eval_options_check(const char *task, const struct arguments *arguments) {
  const struct made *made = made_find(task);
  unsigned kind = made ? MADE : !strcmp(task, "cost") ? COST : eval_is_data_set(task) ? DATA_SET : CASES;
  for (size_t i = 0; i < arguments->given_count; ++i) {
    const char *option = arguments->given[i];
    char names[200];
    owners(option, names, sizeof names);
    if (!*names || kinds_of(option) & kind || (made && has_word(made->own, option))) continue;
    return complain(EXIT_USAGE, "--task %s takes no --%s, which is for %s", task, option, names);
  }
  return EXIT_OK;
}
