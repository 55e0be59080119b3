// A config with its checkpoint: sizes from the tensors, older layouts, whole models (host/arch, host/arch_*).
#include "config_tools.h"

#include <unistd.h>

// ---------------------------------------------------------------- the file's sizes

static void sizes_come_from_the_tensors_layer_by_layer(void **state) {
  struct maker *k = maker_begin();
  maker_add(k, "model.embeddings.weight", 12, 8, 0);
  maker_add(k, L0 "mlp.up_proj.weight", 20, 8, 0);
  maker_add(k, L0 "attn.q_proj.weight", 6, 8, 0);
  maker_add(k, L0 "attn.v_proj.weight", 10, 8, 0);
  maker_add(k, L0 "attn.q_conv1d.weight", 6, 1, 3);
  maker_add(k, L1 "attn.q_proj.weight", 2, 8, 0);
  maker_add(k, L1 "attn.v_proj.weight", 12, 8, 0);
  struct checkpoint *c = maker_end(k);
  // The wrong config of a published pruner: head_dim cut, expand_v kept, so that dv would be no integer.
  struct model_spec m = reads(GATED ",'expand_v':1.3}", c);
  assert_true(m.V == 12 && dense(&m, 0)->F == 20);
  assert_true(delta(&m, 0)->Dk == 3 && delta(&m, 0)->Dv == 5 && delta(&m, 0)->W == 3);
  assert_true(delta(&m, 1)->Dk == 1 && delta(&m, 1)->Dv == 6 && delta(&m, 1)->W == 4);
  model_spec_free(&m);
  // Without convolutions in the config their tensors do not count.
  m = reads(GATED ",'use_short_conv':false}", c);
  assert_int_equal(delta(&m, 0)->W, 0);
  model_spec_free(&m);
  for (uint64_t i = 0; i < checkpoint_count(c); i++) assert_false(checkpoint_at(c, i)->used);
  checkpoint_close(c);
}

static void attention_layers_take_no_sizes_from_tensors(void **state) {
  struct checkpoint *c = single(L1 "attn.q_proj.weight", 8, 8, 0);
  struct model_spec m = reads(DELTA ",'attn':{'layers':[1],'num_heads':4}}", c);
  assert_int_equal(attention(&m, 1)->d, 2);
  model_spec_free(&m);
  checkpoint_close(c);
}

static void tensors_of_impossible_sizes_are_refused(void **state) {
  static const struct {
    const char *name;
    unsigned rows, cols, depth;
    deltaic_status status;
    const char *message;
  } cases[] = {
      {L1 "attn.q_proj.weight", 7, 8, 0, DELTAIC_BAD_SHAPE, "tensor model.layers.1.attn.q_proj.weight has 7 rows"},
      {L1 "attn.v_proj.weight", 7, 8, 0, DELTAIC_BAD_SHAPE, "expected a multiple of the number of value heads"},
      {L0 "attn.q_proj.weight", 0, 8, 0, DELTAIC_BAD_SHAPE, "has 0 rows"},
      {L0 "attn.q_proj.weight", 8, 0, 0, DELTAIC_BAD_SHAPE, "has 1 dimensions, expected 2"},
      {L0 "attn.q_conv1d.weight", 8, 0, 0, DELTAIC_BAD_SHAPE, "has 1 dimensions, expected 3"},
      {L0 "attn.q_conv1d.weight", 1, 1, 300, DELTAIC_BAD_SHAPE, "has 300 columns, expected from 1 to 256"},
      {L0 "mlp.gate_proj.weight", 7, 8, 0, DELTAIC_BAD_SHAPE, "expected a multiple of gate and up, which is 2"},
      {"model.embeddings.weight", 16, 7, 0, DELTAIC_BAD_SHAPE, "has 7 columns, but hidden_size is 8"},
      {"model.embeddings.weight", 16, 0, 0, DELTAIC_BAD_SHAPE, "has 1 dimensions, expected 2"},
      {"model.embeddings.weight", 0, 8, 0, DELTAIC_UNSUPPORTED, "has 0 rows, expected from 1"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct checkpoint *c = single(cases[i].name, cases[i].rows, cases[i].cols, cases[i].depth);
    refuses(DELTA "}", c, cases[i].status, cases[i].message);
    says("made.safetensors");
    checkpoint_close(c);
  }
}

// ---------------------------------------------------------------- older layouts

static void older_names_are_found_under_the_current_ones(void **state) {
  struct maker *k = maker_begin();
  maker_add(k, L0 "attn.norm.weight", 8, 0, 0);
  maker_add(k, L0 "mlp.norm.weight", 8, 0, 0);
  maker_add(k, L0 "attn.beta_proj.weight", 2, 8, 0);
  maker_add(k, L1 "attn_norm.weight", 8, 0, 0);
  struct checkpoint *c = maker_end(k);
  static const struct {
    enum role role;
    const char *name;
  } pairs[] = {{ROLE_MIXER_NORM, L0 "attn.norm.weight"},
               {ROLE_FFN_NORM, L0 "mlp.norm.weight"},
               {ROLE_BETA, L0 "attn.beta_proj.weight"}};
  const struct names *names = usual_names();
  for (size_t i = 0; i < 3; i++) {
    struct named_tensor t = names_find(names, c, 0, pairs[i].role);
    assert_non_null(t.tensor);
    assert_string_equal(t.tensor->name, pairs[i].name);
    assert_null(t.rows);
  }
  assert_string_equal(names_find(names, c, 1, ROLE_MIXER_NORM).tensor->name, L1 "attn_norm.weight");
  assert_null(names_find(names, c, 1, ROLE_FFN_NORM).tensor);
  assert_null(names_find(names, c, 2, ROLE_MIXER_NORM).tensor);
  checkpoint_close(c);
}

static void the_current_name_wins_and_the_older_is_left_over(void **state) {
  struct maker *k = maker_begin();
  maker_add(k, L0 "attn.norm.weight", 8, 0, 0);
  maker_add(k, L0 "attn_norm.weight", 8, 0, 0);
  struct checkpoint *c = maker_end(k);
  struct model_spec m = {.architecture = "delta_net", .names = usual_names()};
  struct file_tensor *t = names_find(m.names, c, 0, ROLE_MIXER_NORM).tensor;
  assert_string_equal(t->name, L0 "attn_norm.weight");
  t->used = true;
  assert_int_equal(model_leftovers(c, &m), DELTAIC_UNSUPPORTED);
  says("tensor " L0 "attn.norm.weight is not part of a delta_net");
  checkpoint_close(c);
}

static void names_are_matched_both_ways(void **state) {
  static const enum role roles[] = {ROLE_K, ROLE_Q_CONV};
  static const struct {
    const char *name;
    int role;
    uint32_t layer;
  } cases[] = {{L0 "attn.k_proj.weight", ROLE_K, 0},           {"model.layers.12.attn.k_projs.3.weight", ROLE_K, 12},
               {L1 "attn.q_conv1ds.2.weight", ROLE_Q_CONV, 1}, {L1 "attn.q_proj.weight", -1, 0},
               {L1 "attn.k_proj.weight.more", -1, 0},          {"model.layers.x.attn.k_proj.weight", -1, 0},
               {"backbone.layers.0.attn.k_proj.weight", -1, 0}};
  const struct names *names = usual_names();
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    enum role role;
    uint32_t layer;
    const bool found = names_match(names, cases[i].name, roles, 2, &role, &layer);
    if (found != (cases[i].role >= 0)) fail_msg("%s", cases[i].name);
    if (found) assert_true((int)role == cases[i].role && layer == cases[i].layer);
  }
  char text[64];
  names_write(names, 7, ROLE_BETA, text, sizeof text);
  assert_string_equal(text, "model.layers.7.attn.b_proj.weight");
}

static void norm_first_files_have_their_own_mlp_eps(void **state) {
  struct checkpoint *c = single(L0 "mlp.norm.weight", 8, 0, 0), *now = single(L0 "mlp_norm.weight", 8, 0, 0);
  static const struct {
    const char *config;
    bool old;
    float eps;
  } cases[] = {{DELTA ",'norm_first':true}", true, 1e-5f},
               {DELTA "}", true, 1e-5f},
               {DELTA ",'norm_first':false}", true, 1e-6f},
               {DELTA ",'norm_first':true}", false, 1e-6f}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct model_spec m = reads(cases[i].config, cases[i].old ? c : now);
    assert_true(m.norm_eps == 1e-6f);
    assert_true(m.ffn_norm_eps == cases[i].eps);
    model_spec_free(&m);
  }
  checkpoint_close(c);
  checkpoint_close(now);
}

static void joined_gate_and_up_give_half_the_rows(void **state) {
  struct checkpoint *c = single(L0 "mlp.gate_proj.weight", 24, 8, 0);
  struct model_spec m = reads(DELTA "}", c);
  assert_int_equal(dense(&m, 0)->F, 12);
  model_spec_free(&m);
  checkpoint_close(c);
}

static void layouts_of_other_models_are_refused_by_name(void **state) {
  static const char *const names[] = {L1 "attn.o_norm.norms.0.weight", L0 "attn.q_conv1d.shared_kernel",
                                      L0 "attn.q_conv1d.r", L0 "attn.h_conv1d.weight"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    struct checkpoint *c = single(names[i], 4, 0, 0);
    refuses(DELTA "}", c, DELTAIC_UNSUPPORTED, names[i]);
    says("which is not supported");
    checkpoint_close(c);
  }
}

static void a_quantization_is_compared_with_the_tensors(void **state) {
  struct checkpoint *c = single(L0 "attn.q_proj.weight", 8, 8, 0);
  static const char *const configs[] = {DELTA ",'quantization_config':{'quant_method':'fp8'}}",
                                        DELTA ",'text_config':{'quantization_config':{'quant_method':'fp8'}}}"};
  for (size_t i = 0; i < sizeof configs / sizeof *configs; i++) {
    checkpoint_at(c, 0)->dtype = FILE_F32;
    refuses(configs[i], c, DELTAIC_UNSUPPORTED,
            "config key quantization_config says that the weights are quantized by fp8, but none of the tensors is");
    checkpoint_at(c, 0)->dtype = FILE_OTHER;
    refuses(configs[i], c, DELTAIC_UNSUPPORTED,
            "weights quantized by fp8 (tensor " L0 "attn.q_proj.weight is F16) are not supported; take the model's");
  }
  refuses(DELTA ",'quantization_config':7}", NULL, DELTAIC_UNSUPPORTED, "quantized by a method without a name, but");
  struct model_spec m = reads(DELTA ",'quantization_config':{}}", NULL);
  model_spec_free(&m);
  m = reads(DELTA ",'quantization_config':null}", NULL);
  model_spec_free(&m);
  checkpoint_close(c);
}

static void leftover_tensors_are_named_and_harmless_ones_passed_over(void **state) {
  struct maker *k = maker_begin();
  maker_add(k, L0 "attn.D", 2, 0, 0);
  maker_add(k, L0 "attn.rotary.inv_freq", 2, 0, 0);
  maker_add(k, L0 "attn.k_proj.weight", 8, 8, 0);
  maker_add(k, "lm_head.weight", 16, 8, 0);
  struct checkpoint *c = maker_end(k);
  struct model_spec m = {.architecture = "delta_net", .names = usual_names(), .tied = true};
  assert_int_equal(model_leftovers(c, &m), DELTAIC_UNSUPPORTED);
  says("tensor " L0 "attn.k_proj.weight is not part of a delta_net");
  names_find(m.names, c, 0, ROLE_K).tensor->used = true;
  assert_int_equal(model_leftovers(c, &m), DELTAIC_OK);
  m.tied = false;
  assert_int_equal(model_leftovers(c, &m), DELTAIC_UNSUPPORTED);
  says("lm_head.weight");
  checkpoint_close(c);
}

// Renames model.layers.{i}.{from}, when it is there.
static void rename_tensor(json_t *header, int i, const char *from, const char *to) {
  char old[96], new[96];
  snprintf(old, sizeof old, "model.layers.%d.%s", i, from);
  snprintf(new, sizeof new, "model.layers.%d.%s", i, to);
  json_t *entry = json_incref(json_object_get(header, old));
  if (!entry) return;
  json_object_del(header, old);
  json_object_set_new(header, new, entry);
}

// gate_proj and up_proj lie behind each other in the tiny files: one tensor of twice the rows.
static void join_gate_and_up(json_t *header, int i) {
  char gate[64], up[64];
  snprintf(gate, sizeof gate, "model.layers.%d.mlp.gate_proj.weight", i);
  snprintf(up, sizeof up, "model.layers.%d.mlp.up_proj.weight", i);
  json_t *g = json_object_get(header, gate), *span = json_object_get(g, "data_offsets");
  json_t *u = json_object_get(json_object_get(header, up), "data_offsets");
  assert_int_equal(json_integer_value(json_array_get(span, 1)), json_integer_value(json_array_get(u, 0)));
  json_array_set(span, 1, json_array_get(u, 1));
  json_array_set_new(json_object_get(g, "shape"), 0, json_integer(2 * 160));
  json_object_del(header, up);
}

static const char *in(const char *folder, const char *name) {
  static char path[1024];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  return path;
}

// A checkpoint and its config, to be written again in another layout.
struct layout {
  struct file_view file;
  json_t *header, *config;
  uint64_t data; // bytes, the file's last
};

static struct layout layout_begin(const char *from) {
  struct layout l;
  uint64_t length;
  assert_int_equal(file_map(in(from, "model.safetensors"), &l.file), DELTAIC_OK);
  memcpy(&length, l.file.data, 8);
  l.header = json_loadb(l.file.data + 8, length, 0, NULL);
  l.data = l.file.bytes - 8 - length;
  l.config = json_load_file(in(from, "config.json"), 0, NULL);
  return l;
}

static void layout_end(struct layout *l, const char *to) {
  write_checkpoint(in(to, "model.safetensors"), l->header, l->file.data + l->file.bytes - l->data, l->data, 4 * 8);
  assert_int_equal(json_dump_file(l->config, in(to, "config.json"), 0), 0);
  json_decref(l->header);
  json_decref(l->config);
  file_unmap(&l->file);
}

// Two numbers of layer i behind the data.
static void add_unused(struct layout *l, int i, const char *name) {
  char text[64];
  const json_int_t at = (json_int_t)l->data + 8 * i;
  snprintf(text, sizeof text, "model.layers.%d.%s", i, name);
  json_object_set_new(l->header, text,
                      json_pack("{s:s,s:[i],s:[I,I]}", "dtype", "F32", "shape", 2, "data_offsets", at, at + 8));
}

static void old_layout(struct layout *l, int steps) {
  for (int i = 0; i < 4; i++) {
    rename_tensor(l->header, i, "attn_norm.weight", "attn.norm.weight");
    rename_tensor(l->header, i, "mlp_norm.weight", "mlp.norm.weight");
    rename_tensor(l->header, i, "attn.b_proj.weight", "attn.beta_proj.weight");
    join_gate_and_up(l->header, i);
    add_unused(l, i, "attn.D");
  }
  // Else the MLP's norm would have the eps that it had then, and other logits.
  json_object_set_new(l->config, "norm_first", json_false());
}

// Tensor `name` of `steps` equal parts under each other becomes a list, as until June 2025.
static void split_list(json_t *header, int i, const char *name, int steps) {
  char text[64], item[96];
  snprintf(text, sizeof text, "model.layers.%d.%s", i, name);
  json_t *whole = json_deep_copy(json_object_get(header, text)), *span = json_object_get(whole, "data_offsets");
  json_object_del(header, text);
  json_t *shape = json_object_get(whole, "shape");
  json_int_t rows = json_integer_value(json_array_get(shape, 0)), first = json_integer_value(json_array_get(span, 0));
  json_int_t bytes = (json_integer_value(json_array_get(span, 1)) - first) / steps;
  assert_int_equal(rows % steps, 0);
  json_array_set_new(shape, 0, json_integer(rows / steps));
  for (int m = 0; m < steps; m++) {
    const char *end = strrchr(text, '.');
    snprintf(item, sizeof item, "%.*ss.%d%s", (int)(end - text), text, m, end);
    json_array_set_new(span, 0, json_integer(first + m * bytes));
    json_array_set_new(span, 1, json_integer(first + (m + 1) * bytes));
    json_object_set_new(header, item, json_deep_copy(whole));
  }
  json_decref(whole);
}

// Projections and convolutions of DeltaProduct as lists.
static void lists(struct layout *l, int steps) {
  static const char *const names[] = {"attn.k_proj.weight", "attn.v_proj.weight", "attn.b_proj.weight",
                                      "attn.k_conv1d.weight", "attn.v_conv1d.weight"};
  for (int i = 0; i < 4; i++) {
    for (size_t k = 0; k < sizeof names / sizeof *names; k++) split_list(l->header, i, names[k], steps);
    rename_tensor(l->header, i, "attn.q_conv1d.weight", "attn.q_conv1ds.0.weight");
    add_unused(l, i, "attn.q_conv1ds.1.weight"); // never used by fla
  }
  json_object_set(l->config, "use_gate", json_object_get(l->config, "use_output_gate"));
  json_object_del(l->config, "use_output_gate");
}

enum { TINY_V = 259 };
static void logits_of(const char *folder, float logits[TINY_V]) {
  static const int32_t tokens[] = {1, 40, 50, 60, 70, 80, 90};
  deltaic_context_options options = {.size = sizeof options, .cache_dir = ""};
  deltaic_device_options cpu = {.size = sizeof cpu, .index = DELTAIC_DEVICE_INDEX_CPU};
  deltaic_context *context;
  deltaic_device *device;
  deltaic_model *model;
  deltaic_session *session;
  assert_int_equal(deltaic_context_create(&options, &context), DELTAIC_OK);
  assert_int_equal(deltaic_device_open(context, &cpu, &device), DELTAIC_OK);
  if (deltaic_model_open(device, folder, NULL, &model)) fail_msg("%s", deltaic_last_error());
  assert_int_equal(deltaic_session_create(model, NULL, &session), DELTAIC_OK);
  assert_int_equal(deltaic_session_eval(session, tokens, 7, DELTAIC_LOGITS_LAST, logits), DELTAIC_OK);
  deltaic_session_free(session);
  deltaic_model_close(model);
  deltaic_device_close(device);
  deltaic_context_free(context);
}

static void computes_the_same(const char *name, void (*change)(struct layout *, int), int steps) {
  char from[512], to[] = "test_config.XXXXXX";
  float now[TINY_V], old[TINY_V];
  snprintf(from, sizeof from, "%s/vectors/models/%s", TESTS_DIR, name);
  assert_non_null(mkdtemp(to));
  struct layout l = layout_begin(from);
  change(&l, steps);
  layout_end(&l, to);
  logits_of(from, now);
  logits_of(to, old);
  assert_memory_equal(now, old, sizeof now);
  unlink(in(to, "model.safetensors"));
  unlink(in(to, "config.json"));
  assert_int_equal(rmdir(to), 0);
}

static void the_layout_of_2024_computes_the_same(void **state) {
  computes_the_same("tiny_delta_net_swa", old_layout, 1);
  computes_the_same("tiny_gated_deltanet", old_layout, 1);
}

static void lists_of_projections_compute_the_same_bits(void **state) {
  computes_the_same("tiny_delta_product", lists, 3);
  computes_the_same("tiny_gated_delta_product", lists, 2);
}

// ---------------------------------------------------------------- whole models

static void tiny_models_are_described(void **state) {
  static const struct {
    const char *name, *kinds; // d, g: linear; a: attention
    uint32_t Hv, Dv, window, n;
  } cases[] = {{"tiny_delta_net", "dddd", 2, 32, 0, 1},          {"tiny_delta_net_swa", "dada", 2, 32, 48, 1},
               {"tiny_delta_net_global", "daad", 2, 32, 0, 1},   {"tiny_gated_deltanet", "gggg", 2, 32, 0, 1},
               {"tiny_gated_deltanet_gva", "gggg", 4, 64, 0, 1}, {"tiny_gated_deltanet_h1", "gaga", 2, 32, 48, 1},
               {"tiny_delta_product", "dddd", 2, 32, 0, 3},      {"tiny_gated_delta_product", "gggg", 2, 32, 0, 2}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char path[512];
    struct checkpoint *c;
    struct model_spec m;
    snprintf(path, sizeof path, "%s/vectors/models/%s", TESTS_DIR, cases[i].name);
    assert_int_equal(checkpoint_open(path, &c), DELTAIC_OK);
    assert_int_equal(model_spec_read(path, c, &m), DELTAIC_OK);
    assert_true(m.D == 64 && m.V == 259 && m.L == 4 && dense(&m, 0)->F == 160 && m.tied && m.bos == 1 && m.eos == 2);
    for (uint32_t l = 0; l < m.L; l++) {
      if (cases[i].kinds[l] == 'a') {
        assert_true(attention(&m, l)->window == cases[i].window && attention(&m, l)->d == 32);
        continue;
      }
      const struct delta_spec *s = delta(&m, l);
      assert_true(s->H == 2 && s->Hv == cases[i].Hv && s->Dk == 32 && s->Dv == cases[i].Dv && s->W == 4 &&
                  s->n == cases[i].n);
      assert_int_equal(s->gated, cases[i].kinds[l] == 'g');
    }
    model_spec_free(&m);
    checkpoint_close(c);
  }
}

static void folders_without_a_config_are_named(void **state) {
  struct model_spec m;
  assert_int_equal(model_spec_read("no/such/folder", NULL, &m), DELTAIC_NOT_FOUND);
  says("no/such/folder/config.json: no such file");
  model_spec_free(&m);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(sizes_come_from_the_tensors_layer_by_layer),
      cmocka_unit_test(attention_layers_take_no_sizes_from_tensors),
      cmocka_unit_test(tensors_of_impossible_sizes_are_refused),
      cmocka_unit_test(older_names_are_found_under_the_current_ones),
      cmocka_unit_test(the_current_name_wins_and_the_older_is_left_over),
      cmocka_unit_test(names_are_matched_both_ways),
      cmocka_unit_test(norm_first_files_have_their_own_mlp_eps),
      cmocka_unit_test(joined_gate_and_up_give_half_the_rows),
      cmocka_unit_test(layouts_of_other_models_are_refused_by_name),
      cmocka_unit_test(a_quantization_is_compared_with_the_tensors),
      cmocka_unit_test(leftover_tensors_are_named_and_harmless_ones_passed_over),
      cmocka_unit_test(the_layout_of_2024_computes_the_same),
      cmocka_unit_test(lists_of_projections_compute_the_same_bits),
      cmocka_unit_test(tiny_models_are_described),
      cmocka_unit_test(folders_without_a_config_are_named),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
