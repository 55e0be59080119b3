// test_eval: `deltaic eval` against lm-evaluation-harness's arithmetic over float64 logits (vectors/make_eval.py), and
// what scores must not depend on: neighbours, shared beginnings, lanes.
#include "eval.h"
#include "eval_prefix.h"
#include "eval_text.h"
#include "lanes.h"
#include "lines.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

static const char model[] = MODELS_DIR "/novelist", folder[] = TESTS_DIR "/vectors/eval/";

// The CPU and, where the tests may use Vulkan, its first device.
static const char *const devices[] = {"cpu", "1"};
static bool is_used(const char *device) {
  const char *only = getenv("DELTAIC_TEST_DEVICE");
  return !only || !strcmp(only, "cpu") == !strcmp(device, "cpu");
}

static struct eval_options options_for(const char *device) {
  struct eval_options o = {.engine = ENGINE_EXACT, .new_tokens = 16};
  o.engine.device = device;
  o.engine.quiet = true;
  return o;
}

// ---------------------------------------------------------------- the harness

static void check_near(double got, double expected, double tolerance, const char *task, const char *what) {
  if (fabs(got - expected) <= tolerance * fmax(1, fabs(expected))) return;
  print_error("%s, %s: %.9g, expected %.9g\n", task, what, got, expected);
  fail();
}

static void check_scores(const char *name, const struct eval_task *task, const struct eval_result *r,
                         const json_t *expected) {
  const json_t *ll = json_object_get(expected, "ll");
  assert_int_equal(json_array_size(ll), task->count);
  for (size_t i = 0; i < task->count; i++) {
    assert_int_equal(json_array_size(json_array_get(ll, i)), task->cases[i].choices);
    for (size_t k = 0; k < task->cases[i].choices; k++)
      check_near(r->scores[i].choice[k].ll, json_number_value(json_array_get(json_array_get(ll, i), k)), 1e-4, name,
                 "log-likelihood");
  }
}

// Errors of means are exact; the harness's bootstrap of a perplexity is itself only sure to a percent or two.
static void check_metrics(const char *name, const struct eval_task *task, const struct eval_result *r,
                          const json_t *expected) {
  const struct eval_metric *metrics;
  size_t count = eval_metrics(task, &metrics), compared = 0, group_count;
  struct eval_group *groups = eval_groups(task, &group_count);
  double x[64], w[64];
  for (size_t m = 0; m < count; m++) {
    const json_t *pair = json_object_get(json_object_get(expected, "metrics"), metrics[m].name);
    if (!pair) continue;
    struct eval_value v = eval_value_of(&metrics[m], x, w, eval_samples(task, r, &groups[group_count], m, x, w));
    const json_t *error = json_array_get(pair, 1);
    check_near(v.value, json_number_value(json_array_get(pair, 0)), 1e-4, name, metrics[m].name);
    if (json_is_number(error))
      check_near(v.error, json_number_value(error), metrics[m].transform == EVAL_MEAN ? 1e-9 : 0.02, name, "its error");
    compared++;
  }
  assert_int_equal(compared, json_object_size(json_object_get(expected, "metrics")));
  eval_groups_free(groups);
}

static void check_task(const char *device, const char *name, const char *task_name, const char *file, bool no_bos,
                       const json_t *all) {
  char path[600];
  struct eval_options o = options_for(device);
  struct eval_task task = {0};
  struct eval_result result = {.checkpoint = model};
  const json_t *expected = json_object_get(all, name);
  assert_non_null(expected);
  o.max_length = (uint32_t)json_integer_value(json_object_get(all, "max_length"));
  o.no_bos = no_bos;
  snprintf(path, sizeof path, "%s%s", folder, file);
  assert_int_equal(eval_task_read(task_name ? task_name : path, task_name ? path : NULL, &o, &task), 0);
  assert_int_equal(eval_run(&task, &o, NULL, &result), 0);
  check_scores(name, &task, &result, expected);
  check_metrics(name, &task, &result, expected);
  eval_result_free(&task, &result);
  eval_task_free(&task);
}

static void scores_are_the_harness_s_over_float64_logits(void **state) {
  static const struct {
    const char *name, *task, *file;
    bool no_bos, vulkan; // vulkan: lavapipe too, where the others would take long
  } tasks[] = {{"lambada", "lambada", "lambada.jsonl", false, true},
               {"lambada without begin tokens", "lambada", "lambada.jsonl", true, false},
               {"wikitext", "wikitext", "wikitext.raw", false, true},
               {"piqa", "piqa", "piqa.jsonl", false, false},
               {"hellaswag", "hellaswag", "hellaswag.jsonl", false, false},
               {"winogrande", "winogrande", "winogrande.jsonl", false, false},
               {"arc", "arc", "arc.jsonl", false, false},
               {"boolq", "boolq", "boolq.jsonl", false, false},
               {"siqa", "siqa", "siqa.jsonl", false, false},
               {"cases", NULL, "cases.jsonl", false, false}};
  char path[600];
  snprintf(path, sizeof path, "%sexpected.json", folder);
  json_t *all = json_load_file(path, 0, NULL);
  assert_non_null(all);
  for (size_t d = 0; d < 2; d++)
    for (size_t i = 0; i < sizeof tasks / sizeof *tasks && is_used(devices[d]); i++)
      if (!d || tasks[i].vulkan)
        check_task(devices[d], tasks[i].name, tasks[i].task, tasks[i].file, tasks[i].no_bos, all);
  json_decref(all);
}

// ---------------------------------------------------------------- what scores do not depend on

enum { TEXTS = 24, LENGTH = 90, MADE = 6 };

struct kept {
  double ll[TEXTS];
  bool greedy[TEXTS];
  int32_t made[TEXTS][MADE];
  int calls[TEXTS];
};

static bool keep(void *user, const struct request *request, const struct request_score *score) {
  struct kept *k = user;
  k->ll[request->index] = score->ll;
  k->greedy[request->index] = score->greedy;
  k->calls[request->index]++;
  assert_int_equal(score->made_count, request->make);
  for (uint32_t i = 0; i < score->made_count; i++) k->made[request->index][i] = score->made[i];
  return true;
}

// Texts that share 0, 20, 40 or 60 tokens with others, in no order, of different lengths; every third is continued.
static void make_texts(struct requests *out, int32_t vocabulary) {
  *out = (struct requests){.items = calloc(TEXTS, sizeof *out->items)};
  for (uint32_t i = 0; i < TEXTS; i++) {
    uint32_t place = (i * 7) % TEXTS, shared = place % 4 * 20, n = LENGTH - place % 5;
    struct request *r = &out->items[out->count++];
    *r = (struct request){.index = i, .count = n, .context = 65 + place % 9, .make = i % 3 ? 0 : MADE};
    if (r->make) r->context = n;
    r->ids = malloc(n * sizeof *r->ids);
    for (uint32_t t = 0; t < n; t++)
      r->ids[t] = (int32_t)((t < shared ? 17 * t + 5 : 31 * t + 101 * i + 7) % (uint32_t)vocabulary);
  }
}

static uint64_t score_all(const struct engine *engine, struct requests *requests, struct kept *kept) {
  struct engine_options o = ENGINE_EXACT;
  o.model = model;
  struct progress quiet = {.quiet = true};
  struct scorer s = {.engine = engine, .options = &o, .progress = &quiet, .done = keep, .user = kept};
  assert_int_equal(score_requests(&s, requests), 0);
  assert_int_equal(s.evaluated, s.planned);
  return s.evaluated;
}

static void check_alone(const char *device) {
  struct eval_options o = options_for(device);
  struct engine engine;
  struct requests all;
  static struct kept together, alone;
  uint64_t separate = 0;
  memset(&together, 0, sizeof together);
  memset(&alone, 0, sizeof alone);
  o.engine.model = model;
  assert_int_equal(engine_open(&o.engine, &engine), 0);
  make_texts(&all, engine.model_info.vocabulary);
  for (size_t i = 0; i < all.count; i++) separate += all.items[i].count - !all.items[i].make + all.items[i].make;
  assert_true(score_all(&engine, &all, &together) < separate); // beginnings were read once
  for (size_t i = 0; i < all.count; i++) {
    if (all.items[i].index % 8 > 1) continue; // one that is scored, one that is continued
    struct requests one = {.items = &all.items[i], .count = 1};
    score_all(&engine, &one, &alone);
  }
  for (size_t i = 0; i < TEXTS; i++) {
    assert_int_equal(together.calls[i], 1);
    if (!alone.calls[i]) continue;
    // Slices of other lengths add in another order: float32's rounding over 6 layers and 25 tokens.
    check_near(together.ll[i], alone.ll[i], 1e-5, device, "a text beside others");
    assert_int_equal(together.greedy[i], alone.greedy[i]);
    assert_memory_equal(together.made[i], alone.made[i], sizeof alone.made[i]);
  }
  requests_free(&all);
  assert_int_equal(engine_close(&engine, 0), 0);
}

static void a_text_s_score_does_not_depend_on_the_texts_beside_it(void **state) {
  for (size_t d = 0; d < 2; d++)
    if (is_used(devices[d])) check_alone(devices[d]);
}

// ---------------------------------------------------------------- attention limited to a window

enum { READ = 100, WINDOW = 16 };
static const char growing[] = TESTS_DIR "/vectors/models/tiny_delta_net_global", limited[] = "./test_eval_window";

static void copy_tensors(void) {
  char from[700], to[100], buffer[4096];
  snprintf(from, sizeof from, "%s/model.safetensors", growing);
  snprintf(to, sizeof to, "%s/model.safetensors", limited);
  FILE *in = fopen(from, "rb"), *out = fopen(to, "wb");
  assert_non_null(in);
  assert_non_null(out);
  for (size_t n; (n = fread(buffer, 1, sizeof buffer, in));) assert_int_equal(fwrite(buffer, 1, n, out), n);
  fclose(in);
  assert_int_equal(fclose(out), 0);
}

// The same checkpoint, its config with the window.
static void make_limited(void) {
  char path[700];
  snprintf(path, sizeof path, "%s/config.json", growing);
  json_t *config = json_load_file(path, 0, NULL);
  assert_non_null(config);
  json_object_set_new(json_object_get(config, "attn"), "window_size", json_integer(WINDOW));
  mkdir(limited, 0777);
  copy_tensors();
  snprintf(path, sizeof path, "%s/config.json", limited);
  assert_int_equal(json_dump_file(config, path, 0), 0);
  json_decref(config);
}

static uint64_t read_text(const char *device, const char *path, uint32_t window, float *logits) {
  struct eval_options o = options_for(device);
  struct engine engine;
  deltaic_session *session;
  int32_t ids[READ];
  o.engine.model = path;
  o.engine.attention_window = window;
  assert_int_equal(engine_open(&o.engine, &engine), 0);
  for (int i = 0; i < READ; i++) ids[i] = 40 + i * 37 % 200;
  assert_int_equal(session_create(&engine, &o.engine, &session), 0);
  assert_int_equal(deltaic_session_eval(session, ids, READ, DELTAIC_LOGITS_LAST, logits), 0);
  assert_int_equal(engine.model_info.grows, !window && path == growing);
  uint64_t fingerprint = engine.model_info.fingerprint;
  deltaic_session_free(session);
  assert_int_equal(engine_close(&engine, 0), 0);
  return fingerprint;
}

static void attention_window_is_the_config_s(void **state) {
  static float config[512], option[512], global[512];
  make_limited();
  for (size_t d = 0; d < 2; d++) {
    if (!is_used(devices[d])) continue;
    read_text(devices[d], limited, 0, config);
    uint64_t fingerprint = read_text(devices[d], growing, WINDOW, option);
    assert_memory_equal(config, option, 259 * sizeof *config);
    assert_int_equal(fingerprint, read_text(devices[d], growing, 0, global)); // the checkpoint's, not the window's
    assert_memory_not_equal(global, option, 259 * sizeof *global);
  }
  assert_int_equal(remove("./test_eval_window/config.json"), 0);
  assert_int_equal(remove("./test_eval_window/model.safetensors"), 0);
  assert_int_equal(rmdir(limited), 0);
}

// ---------------------------------------------------------------- the tree of beginnings

// Every request's tokens lie on its path, in order and whole; inner nodes end before the first logits.
static void check_path(const struct prefix_tree *tree, const struct prefix_node *leaf, const struct request *r) {
  uint32_t end = r->make ? r->count : r->count - 1;
  assert_int_equal(leaf->end, end);
  assert_true(leaf->begin < r->context);
  for (const struct prefix_node *n = leaf;; n = &tree->nodes[n->parent]) {
    assert_int_equal(n->end, end);
    assert_true(n->begin < n->end);
    assert_memory_equal(n->ids + n->begin, r->ids + n->begin, (n->end - n->begin) * sizeof *r->ids);
    end = n->begin;
    if (n->parent == PREFIX_ROOT) break;
    assert_true(n->parent < (uint32_t)(n - tree->nodes));
  }
  assert_int_equal(end, 0);
}

static void paths_of_the_tree_are_the_requests(void **state) {
  for (uint32_t depth = 1; depth < 6; depth++) {
    struct requests all;
    struct prefix_tree tree;
    uint32_t children[2 * TEXTS] = {0};
    size_t leaves = 0;
    make_texts(&all, 4096);
    prefix_tree_make(&tree, all.items, all.count, depth);
    assert_true(tree.depth <= depth && tree.count < 2 * TEXTS);
    for (size_t i = 0; i < tree.count; i++) {
      if (tree.nodes[i].parent != PREFIX_ROOT) children[tree.nodes[i].parent]++;
      if (tree.nodes[i].request == PREFIX_NONE) continue;
      check_path(&tree, &tree.nodes[i], &all.items[tree.nodes[i].request]);
      leaves++;
    }
    for (size_t i = 0; i < tree.count; i++) assert_int_equal(children[i], tree.nodes[i].children);
    assert_int_equal(leaves, TEXTS);
    prefix_tree_free(&tree);
    requests_free(&all);
  }
}

// ---------------------------------------------------------------- lanes

static void lanes_fill_half_of_what_is_free(void **state) {
  deltaic_device_info card = {.memory_bytes = 1000};
  deltaic_memory memory = {.weights_bytes = 300, .scratch_bytes = 100, .state_bytes = 10};
  assert_int_equal(lanes_within(&card, &memory), 30);
  card.free_bytes = 500; // with the weights there, another program has 200
  assert_int_equal(lanes_within(&card, &memory), 20);
  card.free_bytes = 50;
  assert_int_equal(lanes_within(&card, &memory), 1);
}

// ---------------------------------------------------------------- groups

static void groups_come_in_the_order_of_their_first_cases(void **state) {
  static const char *const names[] = {"b", "a", "", "b", "c", "a", "b"};
  struct eval_task task = {0};
  size_t count;
  for (int i = 0; i < 7; i++) strcpy(eval_task_add(&task, 1, 1)->group, names[i]);
  struct eval_group *groups = eval_groups(&task, &count);
  assert_int_equal(count, 3);
  assert_string_equal(groups[0].name, "b");
  assert_string_equal(groups[1].name, "a");
  assert_string_equal(groups[2].name, "c");
  assert_int_equal(groups[0].count, 3);
  assert_memory_equal(groups[0].cases, ((size_t[]){0, 3, 6}), 3 * sizeof(size_t));
  assert_memory_equal(groups[1].cases, ((size_t[]){1, 5}), 2 * sizeof(size_t));
  assert_true(!groups[3].name && groups[3].count == 7 && groups[3].cases[6] == 6);
  eval_groups_free(groups);
  eval_task_free(&task);
}

// 200,000 of one case each: comparing each with all others would take minutes.
static void as_many_groups_as_cases_take_no_time(void **state) {
  enum { CASES = 200000 };
  struct eval_task task = {0};
  size_t count;
  for (int i = 0; i < CASES; i++) sprintf(eval_task_add(&task, 1, 1)->group, "%d", i * 7919 % CASES);
  clock_t begin = clock();
  struct eval_group *groups = eval_groups(&task, &count);
  assert_int_equal(count, CASES);
  for (size_t g = 0; g < count; g++) assert_true(groups[g].count == 1 && groups[g].cases[0] == g);
  assert_true((double)(clock() - begin) / CLOCKS_PER_SEC < 10);
  eval_groups_free(groups);
  eval_task_free(&task);
}

// ---------------------------------------------------------------- text

static void check_text(char *got, const char *expected) {
  assert_string_equal(got, expected);
  free(got);
}

static void texts_are_cleaned_as_python_would(void **state) {
  check_text(text_detokenize("a @-@ b ( c , d ) ( e = = x = = \n \" y \" 's \xc2\xb0 C"),
             "a-b (c, d) ( e == x ==\n\"y\"'s\xc2\xb0"
             "C");
  check_text(text_detokenize("1 @,@ 000 [ x ( ] ) { } N s '"), "1,000 [x (]) {} 1 s'");
  check_text(text_capitalize("\xc3\x89T\xc3\x89 Iv"), "\xc3\x89t\xc3\xa9 iv");
  check_text(text_strip("\xc2\xa0\n x \xe3\x80\x80"), "x");
  check_text(text_wikihow(" a [title] b [x\ny] [step]c  d"), "a. b [x\ny] c d");
  assert_int_equal(split_words(" a  b\n", 6), 4); // re.split gives empty words at both ends
  assert_int_equal(split_words("", 0), 1);
  assert_int_equal(utf8_error("ab\xc3\xa9\xc3", 5), 4);
  assert_int_equal(utf8_error("\xed\xa0\x80", 3), 0); // a surrogate
  assert_int_equal(utf8_characters("\xc3\xa9x", 3), 2);
}

static void sha256_is_fips_180_s(void **state) {
  static const struct {
    const char *text;
    size_t repeat;
    const char *hex;
  } cases[] = {{"", 1, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
               {"abc", 1, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
               {"a", 1000000, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct sha256 h;
    char hex[65];
    sha256_begin(&h);
    for (size_t n = 0; n < cases[i].repeat; n++) sha256_add(&h, cases[i].text, strlen(cases[i].text));
    sha256_end(&h, hex);
    assert_string_equal(hex, cases[i].hex);
  }
}

// ---------------------------------------------------------------- errors

// A mean's error is the sample's deviation over sqrt(n). A perplexity's is the bootstrap's in the limit: compared with
// all 3^3 draws of three values.
static void errors_are_the_harness_s(void **state) {
  static const struct eval_metric mean = {"mean", EVAL_MEAN, false},
                                  perplexity = {"perplexity", EVAL_PERPLEXITY, false};
  const double x[3] = {-1, -2, -4.5}, one[3] = {1, 1, 1};
  struct eval_value v = eval_value_of(&mean, x, one, 3);
  assert_float_equal(v.value, -2.5, 1e-12);
  assert_float_equal(v.error, sqrt((2.25 + 0.25 + 4) / 2 / 3), 1e-12);
  double sum = 0, squares = 0;
  for (int i = 0; i < 27; i++) {
    double value = exp(-(x[i % 3] + x[i / 3 % 3] + x[i / 9]) / 3);
    sum += value;
    squares += value * value;
  }
  v = eval_value_of(&perplexity, x, one, 3);
  assert_float_equal(v.value, exp(2.5), 1e-9);
  assert_float_equal(v.error, sqrt(squares / 27 - sum * sum / 27 / 27), 1e-9);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(lanes_fill_half_of_what_is_free),
      cmocka_unit_test(groups_come_in_the_order_of_their_first_cases),
      cmocka_unit_test(as_many_groups_as_cases_take_no_time),
      cmocka_unit_test(texts_are_cleaned_as_python_would),
      cmocka_unit_test(sha256_is_fips_180_s),
      cmocka_unit_test(errors_are_the_harness_s),
      cmocka_unit_test(attention_window_is_the_config_s),
      cmocka_unit_test(paths_of_the_tree_are_the_requests),
      cmocka_unit_test(a_text_s_score_does_not_depend_on_the_texts_beside_it),
      cmocka_unit_test(scores_are_the_harness_s_over_float64_logits),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
