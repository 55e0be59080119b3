// test_bindings: sessions where one binding holds little: as if the device were a lesser one.
#include "test_session.h"

#include <unistd.h>

// As if the device were a lesser one: the limit that sessions ask for, and the one that recordings are held to.
static void set_binding_bytes(deltaic_device *device, uint64_t bytes) {
  struct backend *b = device->backend;
  b->max_binding_bytes = bytes;
  if (!strcmp(b->functions->name, "vulkan")) ((struct vulkan_backend *)b)->device->plan.binding_bytes = bytes;
}

static void assert_close(const float *got, const float *want, size_t n) {
  double error = 0, size = 0;
  for (size_t i = 0; i < n; i++) error += pow((double)got[i] - want[i], 2), size += pow(want[i], 2);
  assert_true(size > 0 && sqrt(error / size) < 5e-6);
}

static void a_small_binding_makes_short_slices(deltaic_device *device) {
  const uint64_t real = device->backend->max_binding_bytes;
  deltaic_session_options options = {
      .size = sizeof options, .precision = DELTAIC_PRECISION_FLOAT32, .context = 200, .batch = 512};
  float *want = malloc(sizeof(float[N][V])), *got = malloc(sizeof(float[N][V]));
  for (int k = 0; k < KINDS; k++) {
    deltaic_model *model = open_model(device, kinds[k]);
    deltaic_session *all, *some;
    uint64_t limit = k ? 128 << 10 : 64 << 10; // the table of rotations takes 128 KiB
    assert_ok(deltaic_session_create(model, &options, &all));
    assert_ok(deltaic_session_eval(all, text, N, DELTAIC_LOGITS_ALL, want));
    assert_int_equal(all->shape.batch, 512);
    set_binding_bytes(device, limit);
    assert_ok(deltaic_session_create(model, &options, &some));
    assert_in_range(some->shape.batch, 8, 128);
    assert_int_equal(some->logit_rows, k ? 64 : 32); // 64 rows take 66304 bytes
    assert_ok(deltaic_session_eval(some, text, N, DELTAIC_LOGITS_ALL, got));
    assert_close(got, want, N * V);
    set_binding_bytes(device, real);
    deltaic_session_free(some);
    close_session(all, model);
  }
  free(want), free(got);
}

static void check_large_context(deltaic_device *device) {
  const uint64_t real = device->backend->max_binding_bytes;
  deltaic_model *model = open_model(device, kinds[2]);
  deltaic_session_options options = {.size = sizeof options,
                                     .precision = DELTAIC_PRECISION_FLOAT32,
                                     .context = 4096}; // of 2 heads of 32: 1 MiB a cache
  deltaic_memory memory;
  set_binding_bytes(device, 1 << 20);
  assert_ok(deltaic_model_inspect(device, kinds[2], &options, NULL, &memory));
  deltaic_session *s = open_session(model, &options);
  deltaic_session_free(s);
  double rate; // the bandwidth's tensors shrink too
  assert_ok(deltaic_device_copy_bandwidth(device, &rate));
  assert_true(rate > 0);
  options.context = 4097;
  for (int i = 0; i < 2; i++) {
    assert_int_equal(i ? deltaic_session_create(model, &options, &s)
                       : deltaic_model_inspect(device, kinds[2], &options, NULL, &memory),
                     DELTAIC_UNSUPPORTED);
    assert_non_null(strstr(deltaic_last_error(), "layer 1 (attention): its cache for a context of 4097 tokens"));
    assert_non_null(strstr(deltaic_last_error(), "1.0 MiB that"));
    assert_non_null(strstr(deltaic_last_error(), "smaller context, at most 4096"));
  }
  set_binding_bytes(device, 64);
  assert_int_equal(deltaic_session_create(model, &options, &s), DELTAIC_UNSUPPORTED);
  assert_non_null(strstr(deltaic_last_error(), "one token's activations"));
  set_binding_bytes(device, real);
  deltaic_model_close(model);
}

static void a_cache_larger_than_a_binding_is_refused_with_a_sentence(void **state) {
  on_every_device(check_large_context);
}

enum { WIDE_V = 600000, WIDE_F = 5000, WIDE_D = 8 };

// A checkpoint of one small layer with an MLP and a vocabulary that exceed 128 MiB, the least that Vulkan promises.
static void make_wide(const char *folder) {
  static const struct {
    const char *name;
    size_t rows, cols, depth;
  } tensors[] = {{"model.embeddings.weight", WIDE_V, WIDE_D, 0},
                 {"model.norm.weight", WIDE_D, 0, 0},
                 {"model.layers.0.attn_norm.weight", WIDE_D, 0, 0},
                 {"model.layers.0.mlp_norm.weight", WIDE_D, 0, 0},
                 {"model.layers.0.mlp.gate_proj.weight", WIDE_F, WIDE_D, 0},
                 {"model.layers.0.mlp.up_proj.weight", WIDE_F, WIDE_D, 0},
                 {"model.layers.0.mlp.down_proj.weight", WIDE_D, WIDE_F, 0},
                 {"model.layers.0.attn.q_proj.weight", WIDE_D, WIDE_D, 0},
                 {"model.layers.0.attn.k_proj.weight", WIDE_D, WIDE_D, 0},
                 {"model.layers.0.attn.v_proj.weight", WIDE_D, WIDE_D, 0},
                 {"model.layers.0.attn.b_proj.weight", 1, WIDE_D, 0},
                 {"model.layers.0.attn.q_conv1d.weight", WIDE_D, 1, 4},
                 {"model.layers.0.attn.k_conv1d.weight", WIDE_D, 1, 4},
                 {"model.layers.0.attn.v_conv1d.weight", WIDE_D, 1, 4},
                 {"model.layers.0.attn.o_norm.weight", WIDE_D, 0, 0},
                 {"model.layers.0.attn.o_proj.weight", WIDE_D, WIDE_D, 0}};
  char path[128], header[4096];
  size_t length = (size_t)snprintf(header, sizeof header, "{\"__metadata__\":{}"), count = 0;
  for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++) {
    size_t rows = tensors[i].rows, cols = tensors[i].cols, depth = tensors[i].depth, from = count;
    count += rows * (cols ? cols : 1) * (depth ? depth : 1);
    length += (size_t)snprintf(header + length, sizeof header - length, ",\"%s\":{\"dtype\":\"BF16\",\"shape\":[%zu",
                               tensors[i].name, rows);
    if (cols) length += (size_t)snprintf(header + length, sizeof header - length, ",%zu", cols);
    if (depth) length += (size_t)snprintf(header + length, sizeof header - length, ",%zu", depth);
    length +=
        (size_t)snprintf(header + length, sizeof header - length, "],\"data_offsets\":[%zu,%zu]}", 2 * from, 2 * count);
  }
  header[length++] = '}';
  uint16_t *data = malloc(2 * count);
  assert_non_null(data);
  uint32_t x = 1;
  for (size_t i = 0; i < count; i++) { // of either sign, 0.03 to 0.06
    x = x * 1664525u + 1013904223u;
    data[i] = (uint16_t)(0x3d00 | (x >> 16 & 0x7f) | (x >> 31) << 15);
  }
  uint64_t header_bytes = length;
  snprintf(path, sizeof path, "%s/model.safetensors", folder);
  FILE *f = fopen(path, "wb");
  assert_non_null(f);
  assert_int_equal(fwrite(&header_bytes, 8, 1, f) + fwrite(header, length, 1, f) + fwrite(data, 2 * count, 1, f), 3);
  assert_int_equal(fclose(f), 0);
  free(data);
  snprintf(path, sizeof path, "%s/config.json", folder);
  f = fopen(path, "wb");
  assert_non_null(f);
  fprintf(f,
          "{\"model_type\":\"delta_net\",\"hidden_size\":%d,\"num_hidden_layers\":1,\"num_heads\":1,\"expand_k\":1,"
          "\"expand_v\":1,\"intermediate_size\":%d,\"vocab_size\":%d,\"use_gate\":false,\"conv_size\":4,"
          "\"tie_word_embeddings\":true,\"torch_dtype\":\"bfloat16\",\"bos_token_id\":1,\"eos_token_id\":2}",
          WIDE_D, WIDE_F, WIDE_V);
  assert_int_equal(fclose(f), 0);
}

static const char *wide; // the folder

// A slice of 4096 tokens has 156 MiB of gates, 64 rows of logits 146 MiB.
static void check_wide(deltaic_device *device) {
  enum { TOKENS = 2100, ROWS = 64 };
  deltaic_session_options options = {.size = sizeof options, .precision = DELTAIC_PRECISION_FLOAT32, .batch = 4096};
  const uint64_t limit = device->backend->max_binding_bytes;
  deltaic_model *model = open_model(device, wide);
  deltaic_session *s, *slices;
  int32_t *tokens = malloc(TOKENS * sizeof *tokens);
  float *all = malloc(sizeof(float[ROWS][WIDE_V])), *last = malloc(sizeof(float[WIDE_V]));
  assert_true(tokens && all && last);
  for (int i = 0; i < TOKENS; i++) tokens[i] = (int32_t)(i * 7919ll % WIDE_V);
  assert_ok(deltaic_session_create(model, &options, &s));
  assert_in_range(8ull * WIDE_F * s->shape.batch, 64 << 20, limit);
  assert_in_range(4ull * WIDE_V * s->logit_rows, 64 << 20, limit);
  options.batch = 512;
  assert_ok(deltaic_session_create(model, &options, &slices));
  assert_ok(deltaic_session_eval(s, tokens, TOKENS, DELTAIC_LOGITS_LAST, all));
  assert_ok(deltaic_session_eval(slices, tokens, TOKENS, DELTAIC_LOGITS_LAST, last));
  assert_close(all, last, WIDE_V);
  assert_ok(deltaic_session_eval(s, tokens, ROWS, DELTAIC_LOGITS_ALL, all));
  assert_ok(deltaic_session_eval(slices, tokens, ROWS, DELTAIC_LOGITS_LAST, last));
  assert_close(all + (size_t)(ROWS - 1) * WIDE_V, last, WIDE_V);
  free(tokens), free(all), free(last);
  deltaic_session_free(slices);
  close_session(s, model);
}

static void a_wide_model_runs_where_bindings_are_small(void **state) {
  char folder[] = "test_bindings.XXXXXX", path[64];
  assert_non_null(mkdtemp(folder));
  make_wide(wide = folder);
  on_every_device(check_wide);
  snprintf(path, sizeof path, "%s/config.json", folder);
  unlink(path);
  snprintf(path, sizeof path, "%s/model.safetensors", folder);
  unlink(path);
  rmdir(folder);
}

int main(void) {
  make_text();
  const struct CMUnitTest tests[] = {
      device_test(a_small_binding_makes_short_slices),
      cmocka_unit_test(a_cache_larger_than_a_binding_is_refused_with_a_sentence),
      cmocka_unit_test(a_wide_model_runs_where_bindings_are_small),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
