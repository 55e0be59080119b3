// test_tune_plan: the memory of trainings (deltaic_tune_plan()): the plan is what a step takes; and of those that no
// machine here has memory for: a checkpoint without data, and limits of devices from tests/tools/caps_devices.h.
#define _GNU_SOURCE // nftw, mkdtemp
#include "caps_devices.h"
#include "deltaic_tune.h"
#include "device_handle.h"
#include "platform.h"
#include "vulkan_backend.h"

#include "prune_folder.h"

#include <stdio.h>
#include <unistd.h>

// ---------------------------------------------------------------- small models

static void a_step_takes_the_planned_memory(deltaic_device *device) {
  enum { ROWS = 2, T = 24 };
  static const char *const names[] = {"tiny_gated_deltanet", "tiny_delta_net_swa", "tiny_hh_gated_dynamic",
                                      "tiny_mamba2", "tiny_gated_delta_product"};
  int32_t tokens[ROWS * (T + 1)];
  for (int i = 0; i < ROWS * (T + 1); i++) tokens[i] = 3 + i * 7 % 40;
  for (int i = 0; i < (test_all_on(device) ? 10 : 2); i++) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s", TESTS_DIR "/vectors/models", names[i / 2]);
    deltaic_tune_options o = {.size = sizeof o,
                              .device = device,
                              .everything = i % 2,
                              .adapt = "proj",
                              .whole = "",
                              .teacher = i == 1 ? path : NULL,
                              .keep_bytes = i % 2 ? UINT64_MAX : 0};
    const deltaic_tune_batch batch = {.size = sizeof batch, .tokens = tokens, .rows = ROWS, .length = T};
    deltaic_tune_memory planned, used;
    deltaic_tune *tune;
    assert_ok(deltaic_tune_plan(path, &o, ROWS, T, &planned));
    assert_true((planned.kept > 0) == (o.keep_bytes > 0));
    o.keep_bytes = planned.kept;
    assert_ok(deltaic_tune_create(path, &o, &tune));
    assert_ok(deltaic_tune_measure(tune, &batch, NULL));
    assert_ok(deltaic_tune_add(tune, &batch, 1, NULL));
    assert_ok(deltaic_tune_step(tune, 1e-3, NULL));
    deltaic_tune_get_memory(tune, &used);
    assert_memory_equal(&planned, &used, sizeof used);
    assert_true(used.total > 0 && (used.teacher > 0) == (i == 1));
    deltaic_tune_free(tune);
  }
}

// ---------------------------------------------------------------- a large model

enum { LAYERS = 24, WIDTH = 2048, INNER = 5632, VOCABULARY = 32000 };

static char *header;
static size_t header_bytes;
static FILE *header_file;
static uint64_t data_bytes;

static void tensor(const char *name, uint64_t rows, uint64_t cols) {
  const uint64_t bytes = rows * (cols ? cols : 1) * 2;
  fprintf(header_file, "%s\"%s\":{\"dtype\":\"BF16\",\"shape\":[%llu", data_bytes ? "," : "{", name,
          (unsigned long long)rows);
  if (cols) fprintf(header_file, strstr(name, "conv1d") ? ",1,%llu" : ",%llu", (unsigned long long)cols);
  fprintf(header_file, "],\"data_offsets\":[%llu,%llu]}", (unsigned long long)data_bytes,
          (unsigned long long)(data_bytes + bytes));
  data_bytes += bytes;
}

static void layer_tensor(int layer, const char *name, uint64_t rows, uint64_t cols) {
  char full[128];
  snprintf(full, sizeof full, "model.layers.%d.%s.weight", layer, name);
  tensor(full, rows, cols);
}

static void write_config(const char *path) {
  FILE *f = fopen(path, "wb");
  assert_non_null(f);
  fprintf(f,
          "{\"model_type\": \"delta_net\", \"hidden_size\": %d, \"num_hidden_layers\": %d, \"num_heads\": 16, "
          "\"expand_k\": 1.0, \"expand_v\": 1.0, \"use_gate\": false, \"use_beta\": true, \"use_short_conv\": true, "
          "\"conv_size\": 4, \"qk_norm\": \"l2\", \"qk_activation\": \"silu\", \"intermediate_size\": %d, "
          "\"hidden_act\": \"swish\", \"norm_eps\": 1e-06, \"tie_word_embeddings\": false, \"vocab_size\": %d}",
          WIDTH, LAYERS, INNER, VOCABULARY);
  fclose(f);
}

// A delta_net of 1.37 B: the file has a header, and a hole for the data.
static void write_model(void) {
  static const char *const names[] = {"q", "k", "v"};
  header_file = open_memstream(&header, &header_bytes);
  data_bytes = 0;
  tensor("model.embeddings.weight", VOCABULARY, WIDTH);
  for (int i = 0; i < LAYERS; i++) {
    char name[32];
    for (int k = 0; k < 3; k++) {
      snprintf(name, sizeof name, "attn.%s_proj", names[k]);
      layer_tensor(i, name, WIDTH, WIDTH);
      snprintf(name, sizeof name, "attn.%s_conv1d", names[k]);
      layer_tensor(i, name, WIDTH, 4);
    }
    layer_tensor(i, "attn.b_proj", 16, WIDTH);
    layer_tensor(i, "attn.o_norm", WIDTH / 16, 0);
    layer_tensor(i, "attn.o_proj", WIDTH, WIDTH);
    layer_tensor(i, "attn_norm", WIDTH, 0);
    layer_tensor(i, "mlp_norm", WIDTH, 0);
    layer_tensor(i, "mlp.gate_proj", INNER, WIDTH);
    layer_tensor(i, "mlp.up_proj", INNER, WIDTH);
    layer_tensor(i, "mlp.down_proj", WIDTH, INNER);
  }
  tensor("model.norm.weight", WIDTH, 0);
  tensor("lm_head.weight", VOCABULARY, WIDTH);
  fputs("}", header_file);
  fclose(header_file);
  assert_int_equal(platform_make_folder(place("large"), false), 0);
  write_config(place("large/config.json"));
  FILE *f = fopen(place("large/model.safetensors"), "wb");
  const uint64_t length = header_bytes;
  assert_non_null(f);
  assert_int_equal(fwrite(&length, 8, 1, f), 1);
  assert_int_equal(fwrite(header, header_bytes, 1, f), 1);
  assert_int_equal(fflush(f), 0);
  assert_int_equal(ftruncate(fileno(f), (off_t)(8 + length + data_bytes)), 0);
  fclose(f);
  free(header);
}

static uint64_t free_now;
static uint64_t free_bytes(const struct backend *b) { return free_now; }

// A device that is not there: its limits, and so much memory.
static void fake(struct vulkan_backend *b, struct device *d, const struct device_caps *caps, uint64_t memory) {
  static const struct backend_functions functions = {
      .name = "vulkan", .imagine = vulkan_imagine, .free_bytes = free_bytes};
  d->caps = *caps;
  plan_make(&d->caps, &d->plan);
  b->device = d;
  b->base = (struct backend){.functions = &functions,
                             .max_buffer_bytes = d->plan.block_bytes,
                             .max_binding_bytes = d->plan.binding_bytes,
                             .tiles = true,
                             .replays = true};
  vulkan_backend_plan(b);
  free_now = b->base.info.memory_bytes = memory;
  snprintf(b->base.info.name, sizeof b->base.info.name, "%s", caps->name);
}

static void print(const char *what, const deltaic_tune_memory *m) {
  const double MB = 1e6;
  print_message("%-24s %6.0f MB: weights %.0f, gradients %.0f, moments %.0f, adapters %.0f, streams %.0f, layer %.0f, "
                "states %.0f, scratch %.0f, teacher %.0f\n",
                what, (double)m->total / MB, (double)m->weights / MB, (double)m->gradients / MB,
                (double)m->moments / MB, (double)m->adapters / MB, (double)m->streams / MB, (double)m->layer / MB,
                (double)m->states / MB, (double)m->scratch / MB, (double)m->teacher / MB);
}

static void defaults_can_be_planned(void **state) {
  char path[512];
  deltaic_tune_memory m;
  snprintf(path, sizeof path, "%s/vectors/models/tiny_gated_deltanet", TESTS_DIR);
  assert_ok(deltaic_tune_plan(path, NULL, 1, 8, &m));
  assert_true(m.total > m.weights && m.weights > 0);
}

static void sixteen_gigabytes_are_enough_for_lora(void **state) {
  static const struct device_caps *const caps[] = {&caps_h200, &caps_rdna3_radv};
  write_model();
  for (int i = 0; i < 4; i++) {
    struct vulkan_backend b = {0};
    struct device d = {0};
    deltaic_device device = {.backend = &b.base};
    deltaic_tune_memory m;
    fake(&b, &d, caps[i / 2], 16000000000);
    const deltaic_tune_options o = {
        .size = sizeof o, .device = &device, .precision = i % 2 ? DELTAIC_PRECISION_FLOAT32 : DELTAIC_PRECISION_FAST};
    const deltaic_status status = deltaic_tune_plan(place("large"), &o, 4, 2048, &m);
    print(b.base.info.name, &m);
    assert_ok(status);
    assert_true(m.total <= 16000000000);
    // Everything needs more, and the message says what.
    const deltaic_tune_options all = {.size = sizeof all, .device = &device, .everything = true};
    assert_int_equal(deltaic_tune_plan(place("large"), &all, 4, 2048, &m), DELTAIC_OUT_OF_MEMORY);
    print("everything", &m);
    assert_non_null(strstr(deltaic_last_error(), "; with adapters it would take 13."));
    free_now = 12000000000;
    assert_int_equal(deltaic_tune_plan(place("large"), &o, 4, 2048, &m), DELTAIC_OUT_OF_MEMORY);
    assert_non_null(strstr(deltaic_last_error(), " of 2048 tokens would take "));
    free_now = 4000000000;
    assert_int_equal(deltaic_tune_plan(place("large"), &o, 4, 2048, &m), DELTAIC_OUT_OF_MEMORY);
    assert_non_null(strstr(deltaic_last_error(), "; the model and what is trained alone take "));
  }
}

// As many layers as fit into nine tenths of a graphics card's free memory or half of the host's, and into keep_bytes.
static void layers_are_kept_in_what_is_left(void **state) {
  static const struct {
    deltaic_device_kind kind;
    uint64_t memory, free, keep, least, most; // least, most: of the total
  } cases[] = {
      {DELTAIC_DEVICE_DISCRETE, 48000000000, 48000000000, UINT64_MAX, 41000000000, 43200000000},
      {DELTAIC_DEVICE_DISCRETE, 48000000000, 30000000000, UINT64_MAX, 25000000000, 27000000000},
      {DELTAIC_DEVICE_DISCRETE, 48000000000, 48000000000, 4000000000, 17200000000, 18000000000},
      {DELTAIC_DEVICE_INTEGRATED, 48000000000, 48000000000, UINT64_MAX, 22000000000, 24000000000},
      {DELTAIC_DEVICE_INTEGRATED, 96000000000, 40000000000, UINT64_MAX, 18000000000, 20000000000},
      {DELTAIC_DEVICE_DISCRETE, 200000000000, 200000000000, UINT64_MAX, 52700000000, 53100000000}, // all 24
      {DELTAIC_DEVICE_DISCRETE, 17000000000, 17000000000, UINT64_MAX, 14000000000, 15000000000},   // none
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct vulkan_backend b = {0};
    struct device d = {0};
    deltaic_device device = {.backend = &b.base};
    deltaic_tune_memory m;
    fake(&b, &d, &caps_h200, cases[i].memory);
    b.base.info.kind = cases[i].kind;
    free_now = cases[i].free;
    const deltaic_tune_options o = {.size = sizeof o, .device = &device, .keep_bytes = cases[i].keep};
    assert_ok(deltaic_tune_plan(place("large"), &o, 4, 2048, &m));
    print_message("%llu of %llu\n", (unsigned long long)m.kept, (unsigned long long)m.total);
    assert_in_range(m.total, cases[i].least, cases[i].most);
    assert_true((m.kept > 0) == (i < 6));
  }
}

// A batch for which a layer's values have no room in one buffer.
static void a_batch_that_no_buffer_holds_is_refused_with_what_would_fit(void **state) {
  struct vulkan_backend b = {0};
  struct device d = {0};
  deltaic_device device = {.backend = &b.base};
  deltaic_tune_memory m;
  fake(&b, &d, &caps_intel_integrated, 16000000000);
  const deltaic_tune_options o = {.size = sizeof o, .device = &device};
  const deltaic_status status = deltaic_tune_plan(place("large"), &o, 4, 8192, &m);
  print_message("%s\n", deltaic_last_error());
  assert_int_equal(status, DELTAIC_OUT_OF_MEMORY);
  assert_non_null(strstr(deltaic_last_error(), "training on 4 texts of 8192 tokens: "));
  assert_non_null(strstr(deltaic_last_error(), "weights take 5.1 GiB, what is trained 2.4 GiB"));
  assert_non_null(strstr(deltaic_last_error(), "; a batch of "));
  assert_true(m.weights > 5000000000 && m.total >= m.weights + m.moments);
}

// Whoever calls one finds all functions but that which imagines.
static void imagined_backends_have_every_function(void **state) {
  struct vulkan_backend b = {0};
  struct device d = {0};
  struct backend *real, *on[2];
  fake(&b, &d, &caps_h200, 16000000000);
  assert_ok(backend_open_cpu(1, &real));
  assert_ok(real->functions->imagine(real, &on[0]));
  assert_ok(vulkan_imagine(&b.base, &on[1]));
  for (int i = 0; i < 2; i++) {
    struct backend_functions f = *on[i]->functions;
    f.imagine = real->functions->imagine;
    for (size_t k = 0; k < sizeof f / sizeof(void (*)(void)); k++) {
      static const char none[sizeof(void (*)(void))];
      assert_memory_not_equal((const char *)&f + k * sizeof none, none, sizeof none);
    }
    on[i]->functions->close(on[i]);
  }
  real->functions->close(real);
}

static void plans_of_nothing_are_refused(void **state) {
  deltaic_tune_memory m;
  assert_int_equal(deltaic_tune_plan("no/such", NULL, 0, 8, &m), DELTAIC_INVALID_ARGUMENT);
  assert_non_null(strstr(deltaic_last_error(), "a batch of 0 rows of 8 tokens: both must be above 0"));
  assert_int_equal(deltaic_tune_plan("no/such", NULL, 2, 0, &m), DELTAIC_INVALID_ARGUMENT);
  assert_non_null(strstr(deltaic_last_error(), "a batch of 2 rows of 0 tokens"));
  assert_int_equal(deltaic_tune_plan(NULL, NULL, 2, 8, &m), DELTAIC_INVALID_ARGUMENT);
  assert_non_null(strstr(deltaic_last_error(), "path is NULL"));
}

int main(void) {
  const struct CMUnitTest tests[] = {device_test(a_step_takes_the_planned_memory),
                                     cmocka_unit_test(plans_of_nothing_are_refused),
                                     cmocka_unit_test(defaults_can_be_planned),
                                     cmocka_unit_test(sixteen_gigabytes_are_enough_for_lora),
                                     cmocka_unit_test(layers_are_kept_in_what_is_left),
                                     cmocka_unit_test(a_batch_that_no_buffer_holds_is_refused_with_what_would_fit),
                                     cmocka_unit_test(imagined_backends_have_every_function)};
  return cmocka_run_group_tests(tests, begin, end);
}
