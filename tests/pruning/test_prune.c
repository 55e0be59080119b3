// test_prune: pruning from end to end: what is written, that it runs, and what it costs, against references in float64
// (vectors/make_prune_nll.py).
#define _GNU_SOURCE // nftw, mkdtemp
#include "checkpoint.h"
#include "file.h"
#include "json.h"
#include "rewrite.h"

#include "deltaic_prune.h"
#include "prune_folder.h"

#include <math.h>
#include <sys/stat.h>

#define TINY TESTS_DIR "/vectors/models/"

static int entries_in(const char *path) {
  int count = 0;
  char command[512], line[512];
  snprintf(command, sizeof command, "ls -A '%s' 2>/dev/null", path);
  FILE *list = popen(command, "r");
  while (fgets(line, sizeof line, list)) count++;
  pclose(list);
  return count;
}

// ---------------------------------------------------------------- steps

// Tokens below the tiny models' 259.
static int32_t *make_text(size_t count) {
  uint32_t x = 7;
  int32_t *text = malloc(count * sizeof *text);
  for (size_t i = 0; i < count; i++) text[i] = 3 + (int32_t)((x = x * 1664525u + 1013904223u) >> 16) % 256;
  return text;
}

static void write_selection(const char *path, deltaic_selection *selection, const char *out) {
  deltaic_pruning *p;
  assert_ok(deltaic_pruning_begin(path, selection, out, NULL, &p));
  assert_ok(deltaic_pruning_commit(p));
  deltaic_pruning_free(p);
  deltaic_selection_free(selection);
}

static void assert_same_tensors(const char *a, const char *b) {
  struct checkpoint *x, *y;
  assert_ok(checkpoint_open(a, &x));
  assert_ok(checkpoint_open(b, &y));
  assert_int_equal(checkpoint_count(x), checkpoint_count(y));
  for (uint64_t i = 0; i < checkpoint_count(x); i++) {
    struct file_tensor *t = checkpoint_at(x, i), *u = checkpoint_at(y, i);
    assert_string_equal(t->name, u->name);
    assert_int_equal(t->dtype, u->dtype);
    assert_int_equal(t->rank, u->rank);
    assert_memory_equal(t->shape, u->shape, sizeof t->shape);
    assert_int_equal(t->bytes, u->bytes);
    assert_memory_equal(t->data, u->data, t->bytes);
  }
  checkpoint_close(x);
  checkpoint_close(y);
}

static float *logits_of(deltaic_device *device, const char *path, const int32_t *text, size_t n, size_t *count) {
  deltaic_model *model = open_model(device, path);
  *count = n * (size_t)info_of(model).vocabulary;
  float *out = malloc(*count * sizeof *out);
  deltaic_session *session = open_session(model, &exact);
  assert_ok(deltaic_session_eval(session, text, n, DELTAIC_LOGITS_ALL, out));
  close_session(session, model);
  return out;
}

static double relative(const float *a, const float *b, size_t count) {
  double error = 0, size = 0;
  for (size_t i = 0; i < count; i++) {
    error += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
    size += (double)b[i] * b[i];
  }
  return sqrt(error / size);
}

// ---------------------------------------------------------------- files

static void keeping_every_channel_leaves_every_byte(void **state) {
  static const char *const models[] = {MODELS_DIR "/novelist", TINY "tiny_delta_product", TINY "tiny_delta_net_swa",
                                       TINY "tiny_gated_deltanet_h2"};
  for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
    char name[16];
    snprintf(name, sizeof name, "all-%zu", i);
    write_selection(models[i], select_cut(models[i], NULL, "l1", 0), place(name));
    assert_same_tensors(models[i], place(name));
  }
}

// Every third of four channels, and so on: ascending sets that differ between heads.
static void make_sets(int heads, int d, int keep, int32_t *out) {
  for (int h = 0; h < heads; h++)
    for (int j = 0; j < keep; j++) out[h * keep + j] = j * (d - 1 - h % 2) / (keep - 1) + (j ? h % 2 : 0);
}

static void cutting_twice_is_cutting_once(void **state) {
  enum { HEADS = 8, D = 32, FIRST = 20, SECOND = 9 }; // 4 layers of 2 heads
  static const char *const models[] = {TINY "tiny_delta_product", TINY "tiny_delta_net",
                                       TINY "tiny_gated_deltanet_gva"};
  int32_t first[HEADS * FIRST], second[HEADS * SECOND], both[HEADS * SECOND];
  make_sets(HEADS, D, FIRST, first);
  make_sets(HEADS, FIRST, SECOND, second);
  for (int i = 0; i < HEADS * SECOND; i++) both[i] = first[i / SECOND * FIRST + second[i]];
  for (size_t m = 0; m < sizeof models / sizeof *models; m++) {
    char names[3][32];
    deltaic_selection *s;
    for (int i = 0; i < 3; i++) snprintf(names[i], sizeof names[i], "twice-%zu-%d", m, i);
    assert_ok(deltaic_select_given(models[m], NULL, "given", FIRST, first, HEADS * FIRST, &s));
    write_selection(models[m], s, place(names[0]));
    assert_ok(deltaic_select_given(place(names[0]), NULL, "given", SECOND, second, HEADS * SECOND, &s));
    write_selection(place(names[0]), s, place(names[1]));
    assert_ok(deltaic_select_given(models[m], NULL, "given", SECOND, both, HEADS * SECOND, &s));
    write_selection(models[m], s, place(names[2]));
    assert_same_tensors(place(names[1]), place(names[2]));
  }
}

static void pruned_files_run_alike(deltaic_device *device) {
  static const char *const models[] = {TINY "tiny_delta_product", TINY "tiny_gated_deltanet_h1", TINY "tiny_delta_net"};
  static const double cuts[] = {0.3, 0.75, 0.97};
  static int serial;
  int32_t *text = make_text(70);
  for (size_t m = 0; m < 3; m++) {
    char name[16];
    size_t n;
    snprintf(name, sizeof name, "run-%d", serial++);
    write_selection(models[m], select_cut(models[m], NULL, "random", cuts[m]), place(name));
    float *want = logits_of(cpu, place(name), text, 70, &n), *got = logits_of(device, place(name), text, 70, &n);
    assert_true(relative(got, want, n) < 1e-4); // f32 on both, other orders of sums
    free(want);
    free(got);
  }
  free(text);
}

// ---------------------------------------------------------------- configs

static void ratios_survive_truncation(void **state) {
  static const int sizes[] = {32, 64, 128, 256, 512}, hidden[] = {512, 768, 1024, 1536, 2048, 2560};
  int fixed = 0;
  for (int s = 0; s < 5; s++)
    for (int d = 1; d <= sizes[s]; d++) {
      assert_int_equal((int)(d * rewrite_ratio(sizes[s], d)), sizes[s]);
      fixed += sizes[s] == 128 && (int)(d * ((double)sizes[s] / d)) != sizes[s];
    }
  assert_int_equal(fixed, 4); // 49, 98, 103, 107
  for (int s = 0; s < 6; s++)
    for (int key = 1; key <= hidden[s]; key++) assert_int_equal((int)(hidden[s] * rewrite_ratio(key, hidden[s])), key);
}

// The sizes that the config alone gives, as fla reads it.
static void configs_say_what_the_tensors_are(void **state) {
  static const char *const models[] = {TINY "tiny_gated_deltanet", TINY "tiny_delta_net", TINY "tiny_delta_product"};
  for (size_t m = 0; m < 3; m++)
    for (uint32_t keep = 1; keep <= 32; keep++) {
      struct source source;
      deltaic_select_options o = {.size = sizeof o, .method = "random", .keep = &keep, .keep_count = 1};
      deltaic_selection *s;
      struct model_spec spec;
      char *text;
      assert_ok(source_open(models[m], &source));
      assert_ok(deltaic_select(models[m], NULL, &o, &s));
      assert_ok(rewrite_config(&source, s, &text));
      json_t *config = json_loads(text, 0, NULL);
      double expand_v = json_number_value(json_object_get(config, "expand_v"));
      int head_dim = (int)json_integer_value(json_object_get(config, "head_dim"));
      double expand_k = json_number_value(json_object_get(config, "expand_k"));
      int hidden = (int)json_integer_value(json_object_get(config, "hidden_size"));
      if (m != 1) assert_int_equal(head_dim, keep);
      if (m != 1) assert_int_equal((int)(head_dim * expand_v), source.layers[0].Dv);
      if (m == 1) assert_int_equal((int)(hidden * expand_k), (int)keep * source.layers[0].H);
      assert_null(json_object_get(config, "key_sizes"));
      assert_ok(model_spec_parse("config.json", text, strlen(text), NULL, &spec));
      model_spec_free(&spec);
      json_decref(config);
      free(text);
      deltaic_selection_free(s);
      source_close(&source);
    }
}

static void layers_may_differ(void **state) {
  static const uint32_t keep[] = {8, 32, 5, 17};
  deltaic_select_options o = {.size = sizeof o, .method = "l1", .keep = keep, .keep_count = 4};
  deltaic_selection *s;
  struct file_view view;
  json_t *config;
  size_t n;
  assert_ok(deltaic_select(TINY "tiny_gated_deltanet", NULL, &o, &s));
  write_selection(TINY "tiny_gated_deltanet", s, place("layers"));
  assert_ok(file_map(place("layers/config.json"), &view));
  assert_ok(json_parse("config.json", view.data, view.bytes, &config));
  const json_t *list = json_object_get(config, "key_sizes");
  assert_int_equal(json_array_size(list), 4);
  for (size_t i = 0; i < 4; i++) assert_int_equal(json_integer_value(json_array_get(list, i)), keep[i]);
  json_decref(config);
  file_unmap(&view);
  int32_t *text = make_text(20);
  free(logits_of(cpu, place("layers"), text, 20, &n));
  free(text);
}

// OLMo-Hybrid has keys of its own for the sizes; its config is read strictly. Qwen3.5 has q and k in one tensor.
static void released_families_are_pruned_or_refused(void **state) {
  static const uint32_t alike[] = {7, 7}, apart[] = {7, 4};
  const char *olmo = TINY "released_olmo_hybrid", *names[] = {place("olmo-alike"), place("olmo-apart")};
  deltaic_select_options o = {.size = sizeof o, .method = "l1", .keep_count = 2};
  deltaic_selection *s;
  int32_t *text = make_text(20);
  for (int i = 0; i < 20; i++) text[i] %= 64;
  for (int i = 0; i < 2; i++) {
    size_t n;
    o.keep = i ? apart : alike;
    assert_ok(deltaic_select(olmo, NULL, &o, &s));
    write_selection(olmo, s, names[i]);
    free(logits_of(cpu, names[i], text, 20, &n));
    deltaic_model *model = open_model(cpu, names[i]);
    assert_int_equal(info_of(model).key_size, 7);
    assert_int_equal(info_of(model).value_size, 22);
    deltaic_model_close(model);
  }
  free(text);
  assert_int_equal(deltaic_select(TINY "released_qwen3_5", NULL, &o, &s), DELTAIC_UNSUPPORTED);
  assert_non_null(strstr(deltaic_last_error(), "in_proj_qkv.weight holds more than queries"));
  assert_int_equal(deltaic_select(TINY "gguf_qwen3_5/model.gguf", NULL, &o, &s), DELTAIC_UNSUPPORTED);
  assert_non_null(strstr(deltaic_last_error(), "is a GGUF file; give the model's folder instead"));
}

// ---------------------------------------------------------------- planted channels

// A copy of a tiny model in which half of the channels of every head, the odd ones of even heads and so on, are zero in
// q_proj and every step's k_proj, and whose norms have no eps to speak of.
static void plant(const char *from, const char *to) {
  char path[512], *at;
  struct file_view view;
  struct checkpoint *c;
  mkdir(to, 0777);
  snprintf(path, sizeof path, "%s/config.json", from);
  assert_ok(file_map(path, &view));
  char *config = strndup(view.data, view.bytes);
  file_unmap(&view);
  assert_non_null(at = strstr(config, "1e-06"));
  memcpy(at, "1e-20", 5);
  snprintf(path, sizeof path, "%s/config.json", to);
  assert_ok(file_replace(path, config, strlen(config)));
  snprintf(path, sizeof path, "%s/model.safetensors", from);
  assert_ok(file_map(path, &view));
  char *bytes = malloc(view.bytes);
  memcpy(bytes, view.data, view.bytes);
  assert_ok(checkpoint_parse("planted", bytes, view.bytes, &c));
  for (uint64_t i = 0; i < checkpoint_count(c); i++) {
    const struct file_tensor *t = checkpoint_at(c, i);
    if (!strstr(t->name, "attn.q_proj") && !strstr(t->name, "attn.k_proj")) continue;
    size_t row = t->bytes / t->shape[0];
    for (uint64_t r = 0; r < t->shape[0]; r++)
      if ((r + r / 32 % 2) % 2) memset((char *)t->data + r * row, 0, row);
  }
  checkpoint_close(c);
  snprintf(path, sizeof path, "%s/model.safetensors", to);
  assert_ok(file_replace(path, bytes, view.bytes));
  file_unmap(&view);
  free(bytes);
  free(config);
}

static void planted_channels_are_found_and_not_missed(void **state) {
  static const char *const models[] = {TINY "tiny_gated_deltanet", TINY "tiny_delta_net", TINY "tiny_delta_product"};
  static const char *const methods[] = {"l1", "s-wanda", "drrqr"};
  int32_t *text = make_text(200);
  for (int m = 0; m < 3; m++) {
    char name[32];
    size_t n;
    snprintf(name, sizeof name, "planted-%d", m);
    const char *from = place(name);
    plant(models[m], from);
    deltaic_statistics *s = measure(from, text, 200, 100);
    float *want = logits_of(cpu, from, text, 60, &n);
    for (int i = 0; i < 3; i++) {
      deltaic_selection *selection = select_cut(from, s, methods[i], 0.5);
      for (size_t h = 0; h < deltaic_selection_count(selection); h++) {
        deltaic_selected_head head;
        assert_ok(deltaic_selection_at(selection, h, &head));
        for (int j = 0; j < head.keep; j++) assert_int_equal(head.kept[j], 2 * j + head.head % 2);
        if (i == 2) assert_int_equal(head.dead, 16);
        assert_true(head.measured && head.after.condition <= head.before.condition * (1 + 1e-9));
      }
      char out[48];
      snprintf(out, sizeof out, "planted-%d-%d", m, i);
      write_selection(from, selection, place(out));
      float *got = logits_of(cpu, place(out), text, 60, &n);
      assert_true(relative(got, want, n) < 1e-5); // but for f32 rounding nothing changes
      free(got);
    }
    free(want);
    deltaic_statistics_free(s);
  }
  free(text);
}

// ---------------------------------------------------------------- calibration

static bool stop_at(void *user, uint64_t done, uint64_t total) { return done < *(uint64_t *)user; }

static void assert_same_files(const char *a, const char *b) {
  struct file_view x, y;
  assert_ok(file_map(a, &x));
  assert_ok(file_map(b, &y));
  assert_int_equal(x.bytes, y.bytes);
  assert_memory_equal(x.data, y.data, x.bytes);
  file_unmap(&x);
  file_unmap(&y);
}

static void resumed_statistics_are_those_of_one_pass(void **state) {
  const char *path = TINY "tiny_gated_deltanet_gva";
  deltaic_calibration_options o = {.size = sizeof o, .window = 64, .unit = true, .rows = 100, .seed = 5};
  int32_t *text = make_text(330);
  deltaic_model *model = open_model(cpu, path);
  deltaic_statistics *s;
  for (int together = 0; together < 2; together++) {
    o.rows_together = together;
    assert_ok(deltaic_statistics_create(path, &o, &s));
    assert_ok(deltaic_calibrate(s, model, text, 330, NULL, NULL));
    assert_ok(deltaic_statistics_save(s, place("once")));
    deltaic_statistics_free(s);
    uint64_t stop = 128;
    assert_ok(deltaic_statistics_create(path, &o, &s));
    assert_int_equal(deltaic_calibrate(s, model, text, 330, stop_at, &stop), DELTAIC_CANCELLED);
    assert_ok(deltaic_statistics_save(s, place("part")));
    deltaic_statistics_free(s);
    assert_ok(deltaic_statistics_load(path, place("part"), &s));
    deltaic_statistics_info info;
    deltaic_statistics_get_info(s, &info);
    assert_int_equal(info.tokens, 128);
    text[0]++;
    assert_int_equal(deltaic_calibrate(s, model, text, 330, NULL, NULL), DELTAIC_INVALID_ARGUMENT); // another text
    text[0]--;
    assert_ok(deltaic_calibrate(s, model, text, 330, NULL, NULL));
    assert_ok(deltaic_statistics_save(s, place("part")));
    assert_same_files(place("once"), place("part"));
    deltaic_statistics_free(s);
  }
  assert_int_equal(deltaic_statistics_load(TINY "tiny_delta_net", place("once"), &s), DELTAIC_INVALID_ARGUMENT);
  assert_int_equal(deltaic_statistics_load(path, TINY "tiny_delta_net", &s), DELTAIC_BAD_FILE);
  deltaic_model_close(model);
  free(text);
}

// All rows, sampled or not, are what the Gram matrices are made of.
static void statistics_know_their_text(void **state) {
  enum { WINDOW = 32, DONE = 2 * WINDOW, ALL = 100 };
  int32_t *text = make_text(ALL);
  deltaic_statistics *s = measure(TINY "tiny_gated_deltanet", text, DONE, WINDOW);
  assert_true(deltaic_statistics_begun_with(s, text, DONE) && deltaic_statistics_begun_with(s, text, ALL));
  assert_false(deltaic_statistics_begun_with(s, text, DONE - 1));
  assert_false(deltaic_statistics_begun_with(NULL, text, ALL));
  assert_false(deltaic_statistics_begun_with(s, NULL, ALL));
  text[DONE]++;
  assert_true(deltaic_statistics_begun_with(s, text, ALL));
  text[DONE - 1]++;
  assert_false(deltaic_statistics_begun_with(s, text, ALL));
  deltaic_statistics_free(s);
  s = measure(TINY "tiny_gated_deltanet", text, DONE + 1, WINDOW); // ends within a window
  assert_true(deltaic_statistics_begun_with(s, text, DONE + 1));
  assert_false(deltaic_statistics_begun_with(s, text, ALL));
  deltaic_statistics_free(s);
  free(text);
}

static void rows_and_gram_matrices_choose_alike(void **state) {
  const char *path = TINY "tiny_delta_product";
  deltaic_calibration_options c = {.size = sizeof c, .window = 64, .rows = 5000, .rows_together = true};
  deltaic_select_options o = {.size = sizeof o, .cut = 0.5};
  int32_t *text = make_text(300);
  deltaic_model *model = open_model(cpu, path);
  deltaic_statistics *s;
  deltaic_selection *a, *b;
  assert_ok(deltaic_statistics_create(path, &c, &s));
  assert_ok(deltaic_calibrate(s, model, text, 300, NULL, NULL));
  assert_ok(deltaic_select(path, s, &o, &a));
  o.rows = o.like_reference = true;
  assert_ok(deltaic_select(path, s, &o, &b));
  for (size_t i = 0; i < deltaic_selection_count(a); i++) {
    deltaic_selected_head x, y;
    assert_ok(deltaic_selection_at(a, i, &x));
    assert_ok(deltaic_selection_at(b, i, &y));
    assert_memory_equal(x.kept, y.kept, (size_t)x.keep * sizeof *x.kept);
  }
  deltaic_selection_free(a);
  deltaic_selection_free(b);
  o = (deltaic_select_options){.size = sizeof o, .rule = DELTAIC_KEEP_ENTROPY, .per_layer = true};
  assert_ok(deltaic_select(path, s, &o, &a));
  o = (deltaic_select_options){.size = sizeof o, .rule = DELTAIC_KEEP_VOLUME, .volume_lost = 0.2};
  assert_ok(deltaic_select(path, s, &o, &b));
  for (size_t i = 1; i < deltaic_selection_count(b); i++) {
    deltaic_selected_head x, y;
    assert_ok(deltaic_selection_at(b, 0, &x));
    assert_ok(deltaic_selection_at(b, i, &y));
    assert_true(x.keep == y.keep && x.keep < x.size);
  }
  deltaic_selection_free(a);
  deltaic_selection_free(b);
  deltaic_statistics_free(s);
  deltaic_model_close(model);
  free(text);
}

// Head-in-Head: every block of a head keeps as many.
static void blocks_keep_as_many_each(void **state) {
  static const char *const methods[] = {"l1", "random", "drrqr"};
  const char *path = TINY "tiny_gated_deltanet";
  int32_t *text = make_text(150);
  deltaic_statistics *s = measure(path, text, 150, 50);
  struct source source;
  assert_ok(source_open(path, &source));
  for (int i = 0; i < source.count; i++) source.layers[i].blocks = 4;
  for (int m = 0; m < 3; m++) {
    deltaic_select_options o = {.size = sizeof o, .method = methods[m], .cut = 0.3};
    struct deltaic_selection *selection;
    assert_ok(choose(&source, s, &o, &selection));
    for (size_t h = 0; h < deltaic_selection_count(selection); h++) {
      deltaic_selected_head head;
      int each[4] = {0};
      assert_ok(deltaic_selection_at(selection, h, &head));
      assert_int_equal(head.keep, 20); // floor(32 * 0.7) = 22, rounded down to fours
      for (int j = 0; j < head.keep; j++) each[head.kept[j] / 8]++;
      for (int b = 0; b < 4; b++) assert_int_equal(each[b], 5);
    }
    deltaic_selection_free(selection);
  }
  source_close(&source);
  deltaic_statistics_free(s);
  free(text);
}

// ---------------------------------------------------------------- refusals

static bool never(void *user, uint64_t done, uint64_t total) { return done < 1000; }

static void what_is_interrupted_leaves_nothing(void **state) {
  const char *path = TINY "tiny_delta_net";
  deltaic_prune_write_options o = {.size = sizeof o, .progress = never};
  deltaic_selection *s = select_cut(path, NULL, "l1", 0.5);
  deltaic_pruning *p;
  mkdir(place("quiet"), 0777);
  assert_int_equal(deltaic_pruning_begin(path, s, place("quiet/out"), &o, &p), DELTAIC_CANCELLED);
  assert_int_equal(entries_in(place("quiet")), 0);
  assert_ok(deltaic_pruning_begin(path, s, place("quiet/out"), NULL, &p));
  assert_int_equal(entries_in(place("quiet")), 1); // under its temporary name
  assert_false(file_exists(place("quiet/out")));
  deltaic_pruning_free(p);
  assert_int_equal(entries_in(place("quiet")), 0);
  deltaic_selection_free(s);
}

// The unpruned model is the teacher.
static void recovery_compares_tokens(void **state) {
  const char *path = TINY "tiny_gated_deltanet";
  const deltaic_recover_options o = {.size = sizeof o, .window = 24, .batch = 1};
  int32_t *text = make_text(24);
  char tokenizer[512];
  deltaic_selection *s = select_cut(path, NULL, "l1", 0.5);
  deltaic_pruning *p;
  assert_ok(deltaic_pruning_begin(path, s, place("taught"), NULL, &p));
  assert_ok(deltaic_pruning_recover(p, text, 24, &o, NULL, NULL));
  snprintf(tokenizer, sizeof tokenizer, "%s/tokenizer.json", deltaic_pruning_path(p));
  swap_tokens(TINY "tiny_gated_deltanet/tokenizer.json", tokenizer);
  assert_int_equal(deltaic_pruning_recover(p, text, 24, &o, NULL, NULL), DELTAIC_INVALID_ARGUMENT);
  assert_non_null(strstr(deltaic_last_error(), "tiny_gated_deltanet: has other tokens than"));
  deltaic_pruning_free(p);
  deltaic_selection_free(s);
  free(text);
}

static void outputs_are_replaced_only_by_force(void **state) {
  const char *path = TINY "tiny_delta_net", *out = place("forced");
  deltaic_prune_write_options force = {.size = sizeof force, .force = true};
  deltaic_selection *s = select_cut(path, NULL, "l1", 0.5);
  deltaic_pruning *p;
  write_selection(path, select_cut(path, NULL, "random", 0.3), out);
  assert_int_equal(deltaic_pruning_begin(path, s, out, NULL, &p), DELTAIC_INVALID_ARGUMENT);
  assert_int_equal(deltaic_pruning_begin(path, s, NULL, NULL, &p), DELTAIC_INVALID_ARGUMENT);
  assert_string_equal(deltaic_last_error(), "deltaic_pruning_begin: out is NULL");
  assert_ok(deltaic_pruning_begin(path, s, out, &force, &p));
  assert_ok(deltaic_pruning_commit(p));
  deltaic_pruning_free(p);
  write_selection(path, s, place("unforced"));
  assert_same_tensors(out, place("unforced"));
  assert_int_equal(deltaic_pruning_check(path, path, true), DELTAIC_INVALID_ARGUMENT);   // itself
  assert_int_equal(deltaic_pruning_check(path, folder, true), DELTAIC_INVALID_ARGUMENT); // no checkpoint
  assert_ok(deltaic_pruning_check(path, place("nothing"), false));
}

static void nonsense_is_refused(void **state) {
  const char *path = TINY "tiny_delta_net";
  static const uint32_t none = 0, many = 33, three[3] = {8, 8, 8};
  static const struct {
    deltaic_select_options o;
    const char *says; // NULL: anything
  } bad[] = {{{.method = "l1", .cut = 1}, NULL},
             {{.method = "l1", .cut = -0.1}, NULL},
             {{.method = "l1", .cut = NAN}, NULL},
             {{.method = "l1", .keep = &none, .keep_count = 1}, NULL},
             {{.method = "l1", .keep = &many, .keep_count = 1}, NULL},
             {{.method = "l1", .keep = three, .keep_count = 3}, NULL},
             {{.method = "l2", .cut = 0.5}, NULL},
             {{.method = "drrqr", .cut = 0.5}, NULL}, // no statistics
             {{.method = "drrqr", .cut = 0.5, .tolerance = 0.5}, NULL},
             {{.method = "l1", .rule = DELTAIC_KEEP_ENTROPY}, NULL},
             {{.method = "l1", .cut = 0.5, .side = (deltaic_prune_side)7}, "options: side is 7"},
             {{.method = "drrqr", .cut = 0.5, .swap_limit = UINT32_MAX}, "options: swap_limit is 4294967295"}};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    deltaic_select_options o = bad[i].o;
    deltaic_selection *s;
    o.size = sizeof o;
    assert_int_equal(deltaic_select(path, NULL, &o, &s), DELTAIC_INVALID_ARGUMENT);
    assert_true(strlen(deltaic_last_error()) > 0);
    if (bad[i].says) assert_non_null(strstr(deltaic_last_error(), bad[i].says));
  }
  deltaic_statistics *s;
  deltaic_calibration_options c = {.size = sizeof c};
  assert_int_equal(deltaic_statistics_create(TINY "ablation_transformer", &c, &s), DELTAIC_UNSUPPORTED);
  assert_int_equal(deltaic_statistics_create(TINY "tiny_mamba2", &c, &s), DELTAIC_UNSUPPORTED);
  deltaic_model *model = open_model(cpu, path);
  int32_t *text = make_text(10);
  assert_ok(deltaic_statistics_create(path, &c, &s));
  assert_int_equal(deltaic_calibrate(s, model, text, 0, NULL, NULL), DELTAIC_INVALID_ARGUMENT);
  assert_int_equal(deltaic_calibrate(s, model, text, 10, NULL, NULL), DELTAIC_INVALID_ARGUMENT); // below 32 channels
  deltaic_statistics_free(s);
  deltaic_model_close(model);
  free(text);
}

// ---------------------------------------------------------------- main

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(keeping_every_channel_leaves_every_byte),
      cmocka_unit_test(cutting_twice_is_cutting_once),
      device_test(pruned_files_run_alike),
      cmocka_unit_test(ratios_survive_truncation),
      cmocka_unit_test(configs_say_what_the_tensors_are),
      cmocka_unit_test(layers_may_differ),
      cmocka_unit_test(released_families_are_pruned_or_refused),
      cmocka_unit_test(planted_channels_are_found_and_not_missed),
      cmocka_unit_test(resumed_statistics_are_those_of_one_pass),
      cmocka_unit_test(statistics_know_their_text),
      cmocka_unit_test(rows_and_gram_matrices_choose_alike),
      cmocka_unit_test(blocks_keep_as_many_each),
      cmocka_unit_test(what_is_interrupted_leaves_nothing),
      cmocka_unit_test(outputs_are_replaced_only_by_force),
      cmocka_unit_test(recovery_compares_tokens),
      cmocka_unit_test(nonsense_is_refused),
  };
  return cmocka_run_group_tests(tests, begin, end);
}
