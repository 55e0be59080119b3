// Configs of released families in the layout of Hugging Face's transformers (host/model/arch_qwen3_5.c,
// arch_olmo_hybrid.c, arch_keys.c).
#include "config_tools.h"
#include "ffn_experts.h"
#include "weights.h"

#define ROPE "'rope_parameters':{'rope_type':'default','rope_theta':1e7,'partial_rotary_factor':0.25}"
#define SIZES                                                                                                          \
  "'hidden_size':8,'num_hidden_layers':4,'vocab_size':16,'intermediate_size':12,'num_attention_heads':2,"              \
  "'num_key_value_heads':1,'head_dim':8,'linear_num_key_heads':2,'linear_num_value_heads':4,"                          \
  "'linear_key_head_dim':6,'linear_value_head_dim':5"
#define BARE "{'model_type':'qwen3_5_text'," ROPE
#define TEXT "{'model_type':'qwen3_5_text'," SIZES "," ROPE
#define NESTED(outer, inner) "{'model_type':'qwen3_5'" outer ",'text_config':{" SIZES "," ROPE inner "}}"

static void qwen3_5_has_the_defaults_of_transformers(void **state) {
  struct model_spec m = reads("{'model_type':'qwen3_5','text_config':{" ROPE "}}", NULL);
  const struct delta_spec *s = delta(&m, 0);
  const struct attention_spec *a = attention(&m, 3);
  assert_true(m.D == 4096 && m.V == 248320 && m.L == 32 && dense(&m, 31)->F == 12288 && !m.tied);
  assert_true(m.bos == -1 && m.eos == -1 && m.norm_eps == 1e-6f && m.ffn_norm_eps == 1e-6f);
  assert_true(s->H == 16 && s->Hv == 32 && s->Dk == 128 && s->Dv == 128 && s->W == 4 && s->n == 1 && s->r == 1);
  assert_true(s->gated && s->output_gate && s->output_norm && s->has_beta && s->beta_scale == 1.0f);
  assert_true(a->heads == 16 && a->kv_heads == 4 && a->d == 256 && a->rotary == 64 && a->rope_theta == 1e7);
  assert_true(a->gate && a->qk_norm && !a->whole_norm && a->norm_eps == 1e-6f && !a->bias && !a->window);
  for (uint32_t i = 0; i < m.L; i++) assert_int_equal(m.layers[i].mixer == &mixer_attention, i % 4 == 3);
  model_spec_free(&m);
}

static void qwen3_5_reads_every_option(void **state) {
  struct model_spec m = reads(TEXT ",'layer_types':['full_attention','linear_attention','linear_attention',"
                                   "'full_attention'],'attention_bias':true,'rms_norm_eps':1e-5,'hidden_act':'silu',"
                                   "'linear_conv_kernel_dim':3,'output_gate_type':'swish','attn_output_gate':true,"
                                   "'tie_word_embeddings':true,'eos_token_id':3,'bos_token_id':4}",
                              NULL);
  const struct delta_spec *s = delta(&m, 1);
  const struct attention_spec *a = attention(&m, 0);
  assert_true(m.tied && m.bos == 4 && m.eos == 3 && m.norm_eps == 1e-5f && s->norm_eps == 1e-5f);
  assert_true(s->H == 2 && s->Hv == 4 && s->Dk == 6 && s->Dv == 5 && s->W == 3);
  assert_true(a->heads == 2 && a->kv_heads == 1 && a->d == 8 && a->rotary == 2 && a->norm_eps == 1e-5f);
  assert_true(a->bias && a->output_bias);
  assert_ptr_equal(m.layers[3].mixer, &mixer_attention);
  model_spec_free(&m);
}

static void keys_of_the_text_are_inside_and_ties_outside(void **state) {
  static const struct {
    const char *config;
    bool tied;
    int32_t eos;
  } cases[] = {{NESTED(",'tie_word_embeddings':true", ",'tie_word_embeddings':false"), true, -1},
               {NESTED(",'tie_word_embeddings':false", ",'tie_word_embeddings':true"), false, -1},
               {NESTED("", ",'tie_word_embeddings':true,'eos_token_id':3"), true, 3},
               {NESTED(",'eos_token_id':5", ",'eos_token_id':3"), false, 5},
               {NESTED(",'eos_token_id':5", ""), false, 5}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct model_spec m = reads(cases[i].config, NULL);
    assert_true(m.D == 8 && m.tied == cases[i].tied && m.eos == cases[i].eos);
    model_spec_free(&m);
  }
}

static void older_keys_of_positions_are_read(void **state) {
  static const struct {
    const char *keys;
    double theta;
    uint32_t rotary;
  } cases[] = {{"'rope_theta':500", 500, 2},
               {"'rope_theta':500,'partial_rotary_factor':0.5", 500, 4},
               {"'rope_scaling':{'type':'default','rope_theta':70},'rope_theta':500", 70, 2},
               {"'rope_scaling':null,'rope_theta':500,'partial_rotary_factor':0", 500, 0},
               {"'rope_scaling':{}," ROPE, 1e7, 2},
               {"'rope_scaling':{'rope_theta':70},'rope_parameters':{},'rope_theta':500", 70, 2},
               {"'rope_scaling':{'rope_theta':70},'rope_parameters':{'rope_theta':70}", 70, 2}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char config[512];
    snprintf(config, sizeof config, "{'model_type':'qwen3_5_text'," SIZES ",%s}", cases[i].keys);
    struct model_spec m = reads(config, NULL);
    assert_true(attention(&m, 3)->rope_theta == cases[i].theta && attention(&m, 3)->rotary == cases[i].rotary);
    model_spec_free(&m);
  }
}

static void keys_of_no_effect_are_passed_over(void **state) {
  struct model_spec m = reads(NESTED(",'architectures':['X'],'image_token_id':7,'vision_config':{'depth':1},"
                                     "'transformers_version':'5.17','language_model_only':true",
                                     ",'mamba_ssm_dtype':'float32','mtp_num_hidden_layers':1,'attention_dropout':0.1,"
                                     "'dtype':'bfloat16','max_position_embeddings':7,'use_cache':true,'novel':null,"
                                     "'newer':false,'newest':{},'length_penalty':2,'diversity_penalty':0.5,"
                                     "'num_beam_groups':2,'early_stopping':true,'min_length':0,"
                                     "'no_repeat_ngram_size':0,'encoder_no_repeat_ngram_size':0.0,"
                                     "'router_jitter_noise':0.0,'pretraining_tp':1,'use_sliding_window':false,"
                                     "'sliding_window':4096,'max_window_layers':28"),
                              NULL);
  model_spec_free(&m);
}

static void what_is_not_understood_is_refused_by_name(void **state) {
  static const struct refusal cases[] = {
      {TEXT ",'novel':1}", DELTAIC_UNSUPPORTED, "config key novel is not known and might change"},
      {TEXT ",'quantization_config':{'bits':8}}", DELTAIC_UNSUPPORTED, "config key quantization_config"},
      {NESTED(",'novel':'x'", ""), DELTAIC_UNSUPPORTED, "config key novel is not known"},
      {NESTED("", ",'novel':[1]"), DELTAIC_UNSUPPORTED, "config key novel is not known"},
      {TEXT ",'min_length':1}", DELTAIC_UNSUPPORTED, "config key min_length is not known"},
      {TEXT ",'no_repeat_ngram_size':3}", DELTAIC_UNSUPPORTED, "config key no_repeat_ngram_size"},
      {TEXT ",'encoder_no_repeat_ngram_size':3}", DELTAIC_UNSUPPORTED, "config key encoder_no_repeat_ngram_size"},
      {TEXT ",'router_jitter_noise':0.1}", DELTAIC_UNSUPPORTED, "config key router_jitter_noise"},
      {TEXT ",'pretraining_tp':2}", DELTAIC_UNSUPPORTED, "config key pretraining_tp"},
      {TEXT ",'sliding_window':4096}", DELTAIC_UNSUPPORTED, "config key sliding_window"},
      {TEXT ",'use_sliding_window':true,'sliding_window':4096}", DELTAIC_UNSUPPORTED, "sliding_window is not known"},
      {TEXT ",'hidden_act':'gelu'}", DELTAIC_UNSUPPORTED, "hidden_act \"gelu\" is not supported"},
      {TEXT ",'hidden_act':'powlu'}", DELTAIC_UNSUPPORTED, "hidden_act \"powlu\" is not supported"},
      {TEXT ",'output_gate_type':'sigmoid'}", DELTAIC_UNSUPPORTED, "output_gate_type \"sigmoid\" is not supported"},
      {TEXT ",'attn_output_gate':false}", DELTAIC_UNSUPPORTED, "attn_output_gate false is not supported"},
      {TEXT ",'layer_types':['full_attention']}", DELTAIC_BAD_FILE, "layer_types must be a list of 4 values"},
      {TEXT ",'layer_types':'full_attention'}", DELTAIC_BAD_FILE, "layer_types must be a list of 4 values"},
      {TEXT ",'layer_types':['linear_attention','a',1,2]}", DELTAIC_UNSUPPORTED, "layer_types: \"a\" is not supported"},
      {TEXT ",'full_attention_interval':0}", DELTAIC_BAD_FILE, "full_attention_interval is 0"},
      {BARE ",'linear_num_value_heads':3}", DELTAIC_BAD_SHAPE,
       "linear_num_value_heads 3 is not a multiple of linear_num_key_heads 16"},
      {BARE ",'num_key_value_heads':3}", DELTAIC_BAD_SHAPE, "num_key_value_heads 3 does not divide"},
      {BARE ",'head_dim':12}", DELTAIC_BAD_SHAPE, "a head has 3 rotated elements"},
      {BARE ",'linear_key_head_dim':16384,'linear_value_head_dim':16384,'linear_num_value_heads':4096,"
            "'linear_num_key_heads':4096}",
       DELTAIC_UNSUPPORTED, "would have a state of"},
      {"{'model_type':'qwen3_5','text_config':[]}", DELTAIC_BAD_FILE, "text_config must be an object"},
      {"{'model_type':'qwen3_5_text'," SIZES "}", DELTAIC_BAD_FILE, "has no rope_theta"},
      {"{'model_type':'qwen3_5_text'," SIZES ",'rope_parameters':[1]}", DELTAIC_BAD_FILE, "must be an object"},
      {"{'model_type':'qwen3_5_text'," SIZES ",'rope_parameters':{'rope_type':'yarn','rope_theta':1e7,'factor':4}}",
       DELTAIC_UNSUPPORTED, "rope_type \"yarn\" of rope_parameters is not supported"},
      {"{'model_type':'qwen3_5_text'," SIZES ",'rope_parameters':{'rope_theta':1e7,'factor':4}}", DELTAIC_UNSUPPORTED,
       "config key factor of rope_parameters"},
      {"{'model_type':'qwen3_5_text'," SIZES ",'rope_theta':1,'rope_scaling':{'type':'linear'}}", DELTAIC_UNSUPPORTED,
       "type \"linear\" of rope_scaling is not supported"},
      {TEXT ",'rope_scaling':{'type':'dynamic','factor':4}}", DELTAIC_UNSUPPORTED,
       "type \"dynamic\" of rope_scaling is not supported"},
      {TEXT ",'rope_scaling':{'rope_type':'yarn','factor':4}}", DELTAIC_UNSUPPORTED,
       "rope_type \"yarn\" of rope_scaling is not supported"},
      {TEXT ",'rope_scaling':{'factor':4}}", DELTAIC_UNSUPPORTED, "config key factor of rope_scaling"},
      {TEXT ",'rope_scaling':{'rope_theta':5}}", DELTAIC_UNSUPPORTED, "rope_scaling and rope_parameters differ"},
      {TEXT ",'rope_scaling':'yarn'}", DELTAIC_BAD_FILE, "rope_scaling must be an object"},
  };
  REFUSES(cases);
}

// ---------------------------------------------------------------- mixtures of experts

#define EXPERTS "'num_experts':6,'num_experts_per_tok':2,'moe_intermediate_size':5,'shared_expert_intermediate_size':7"
#define NEXT "{'model_type':'qwen3_next'," SIZES ",'rope_theta':500"

static const struct experts_spec *experts(const struct model_spec *m, uint32_t i) {
  assert_ptr_equal(m->layers[i].ffn, &ffn_experts);
  return m->layers[i].ffn_spec;
}

static void qwen3_5_moe_has_experts_in_every_layer(void **state) {
  struct model_spec m = reads("{'model_type':'qwen3_5_moe','text_config':{" ROPE "}}", NULL);
  const struct experts_spec *s = experts(&m, 39);
  assert_true(m.D == 2048 && m.L == 40 && m.V == 248320 && attention(&m, 3)->kv_heads == 2);
  assert_true(s->E == 256 && s->k == 8 && s->F == 512 && s->shared == 512 && s->normalized);
  for (uint32_t i = 0; i < m.L; i++) (void)experts(&m, i);
  model_spec_free(&m);
  // As in transformers, its weights are always normalised, and no layer is dense.
  m = reads("{'model_type':'qwen3_5_moe_text'," ROPE
            ",'num_experts':6,'num_experts_per_tok':2,'norm_topk_prob':false,'mlp_only_layers':[0]}",
            NULL);
  assert_true(experts(&m, 0)->E == 6 && experts(&m, 0)->k == 2 && experts(&m, 0)->normalized);
  model_spec_free(&m);
}

static void qwen3_next_may_have_dense_layers(void **state) {
  static const struct {
    const char *keys, *kinds; // e: experts, d: dense
    bool normalized;
  } cases[] = {{"", "eeee", true},
               {",'norm_topk_prob':false,'mlp_only_layers':[2,9]", "eede", false},
               {",'decoder_sparse_step':2", "dede", true},
               {",'decoder_sparse_step':2,'mlp_only_layers':[1]", "ddde", true}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char config[1024];
    snprintf(config, sizeof config, NEXT "," EXPERTS "%s}", cases[i].keys);
    struct model_spec m = reads(config, NULL);
    for (uint32_t l = 0; l < 4; l++) {
      if (cases[i].kinds[l] == 'd') {
        assert_int_equal(dense(&m, l)->F, 12);
        continue;
      }
      const struct experts_spec *s = experts(&m, l);
      assert_true(s->E == 6 && s->k == 2 && s->F == 5 && s->shared == 7 && s->normalized == cases[i].normalized);
    }
    model_spec_free(&m);
  }
  struct model_spec m = reads("{'model_type':'qwen3_next','rope_theta':1e7}", NULL);
  assert_true(m.D == 2048 && m.L == 48 && m.V == 151936 && experts(&m, 0)->E == 512 && experts(&m, 0)->k == 10);
  model_spec_free(&m);
}

static void impossible_experts_are_refused(void **state) {
  static const struct refusal cases[] = {
      {NEXT ",'num_experts':2,'num_experts_per_tok':3}", DELTAIC_BAD_FILE,
       "num_experts_per_tok 3 is more than num_experts 2"},
      {NEXT ",'num_experts':0}", DELTAIC_BAD_FILE, "num_experts is 0"},
      {NEXT ",'num_experts':2048,'moe_intermediate_size':1048576}", DELTAIC_UNSUPPORTED, "num_experts 2048 of"},
      {NEXT ",'mlp_only_layers':3}", DELTAIC_BAD_FILE, "mlp_only_layers must be a list"},
      {NEXT ",'decoder_sparse_step':0}", DELTAIC_BAD_FILE, "decoder_sparse_step is 0"},
      {NEXT ",'n_group':2}", DELTAIC_UNSUPPORTED, "config key n_group is not known"},
      {TEXT ",'num_experts':4}", DELTAIC_UNSUPPORTED, "config key num_experts is not known"},
  };
  REFUSES(cases);
}

// ---------------------------------------------------------------- OLMo-Hybrid

#define OLMO                                                                                                           \
  "{'model_type':'olmo_hybrid','hidden_size':8,'num_hidden_layers':4,'vocab_size':16,'intermediate_size':12,"          \
  "'num_attention_heads':2"

static void olmo_hybrid_has_the_defaults_of_transformers(void **state) {
  struct model_spec m = reads("{'model_type':'olmo_hybrid'}", NULL);
  const struct delta_spec *s = delta(&m, 0);
  const struct attention_spec *a = attention(&m, 31);
  assert_true(m.D == 3840 && m.V == 100352 && m.L == 32 && dense(&m, 3)->F == 11008 && !m.tied && m.norm_eps == 1e-6f);
  assert_true(m.bos == -1 && m.eos == -1);
  assert_true(s->H == 30 && s->Hv == 30 && s->Dk == 96 && s->Dv == 192 && s->W == 4 && s->gated && s->output_gate);
  assert_true(s->beta_scale == 2.0f && s->norm_eps == 1e-5f);
  assert_true(a->heads == 30 && a->kv_heads == 30 && a->d == 128 && !a->rotary && !a->gate && !a->bias);
  assert_true(a->qk_norm && a->whole_norm && a->norm_eps == 1e-6f);
  for (uint32_t i = 0; i < m.L; i++) {
    assert_int_equal(m.layers[i].mixer == &mixer_attention, i % 4 == 3);
    assert_int_equal(m.layers[i].norms_after, i % 4 == 3);
  }
  model_spec_free(&m);
}

static void olmo_hybrid_reads_every_option(void **state) {
  struct model_spec m = reads(OLMO ",'layer_types':['linear_attention','full_attention','linear_attention',"
                                   "'linear_attention'],'linear_allow_neg_eigval':false,'linear_num_key_heads':3,"
                                   "'linear_num_value_heads':6,'linear_key_head_dim':5,'linear_conv_kernel_dim':2,"
                                   "'num_key_value_heads':1,'rope_parameters':{'rope_type':'default','rope_theta':70},"
                                   "'rms_norm_eps':1e-4,'head_dim':6,'eos_token_id':3,'linear_dt_min':0.001}",
                              NULL);
  const struct delta_spec *s = delta(&m, 3);
  const struct attention_spec *a = attention(&m, 1);
  assert_true(s->H == 3 && s->Hv == 6 && s->Dk == 5 && s->Dv == 10 && s->W == 2 && s->beta_scale == 1.0f);
  assert_true(s->norm_eps == 1e-5f && m.norm_eps == 1e-4f && a->norm_eps == 1e-4f && m.eos == 3);
  assert_true(a->heads == 2 && a->kv_heads == 1 && a->d == 6 && a->rotary == 6 && a->rope_theta == 70);
  model_spec_free(&m);
  m = reads(OLMO ",'layer_types':['linear_attention','linear_attention','linear_attention','linear_attention']}", NULL);
  for (uint32_t i = 0; i < 4; i++) assert_int_equal(m.layers[i].norms_after, i == 3); // as in transformers
  model_spec_free(&m);
}

static void olmo_hybrid_refuses_what_it_does_not_know(void **state) {
  static const struct refusal cases[] = {
      {OLMO ",'attn_output_gate':true}", DELTAIC_UNSUPPORTED, "config key attn_output_gate is not known"},
      {OLMO ",'output_gate_type':'swish'}", DELTAIC_UNSUPPORTED, "config key output_gate_type is not known"},
      {OLMO ",'rope_parameters':{'rope_theta':5,'partial_rotary_factor':0.5}}", DELTAIC_UNSUPPORTED,
       "partial_rotary_factor 0.5 is not supported"},
      {OLMO ",'rope_parameters':{'rope_theta':5,'rope_type':'yarn'}}", DELTAIC_UNSUPPORTED, "rope_type \"yarn\""},
      {OLMO ",'linear_num_value_heads':3}", DELTAIC_BAD_SHAPE, "linear_num_value_heads 3 is not a multiple of"},
      {"{'model_type':'olmo_hybrid','num_attention_heads':7}", DELTAIC_BAD_SHAPE,
       "num_attention_heads 7 does not divide hidden_size 3840"},
      {"{'model_type':'olmo_hybrid','hidden_size':8,'num_attention_heads':8,'linear_num_key_heads':64,"
       "'linear_num_value_heads':64}",
       DELTAIC_BAD_SHAPE, "no whole number of rows of model.layers.0.linear_attn.q_proj.weight"},
  };
  REFUSES(cases);
}

static void older_norm_names_of_olmo_are_found(void **state) {
  struct maker *k = maker_begin();
  maker_add(k, L0 "attention_layer_norm.weight", 8, 0, 0);
  maker_add(k, L0 "feedforward_layer_norm.weight", 8, 0, 0);
  maker_add(k, "model.layers.3.post_attention_layernorm.weight", 8, 0, 0);
  maker_add(k, "model.layers.3.post_feedforward_layernorm.weight", 8, 0, 0);
  struct checkpoint *c = maker_end(k);
  struct model_spec m = reads(OLMO "}", c);
  struct weights w = {.checkpoint = c, .model = &m};
  for (uint32_t i = 0; i < 4; i += 3) {
    assert_string_equal(weights_part(&w, i, ROLE_MIXER_NORM, 8, 0).source->name,
                        i ? "model.layers.3.post_attention_layernorm.weight" : L0 "attention_layer_norm.weight");
    assert_string_equal(weights_part(&w, i, ROLE_FFN_NORM, 8, 0).source->name,
                        i ? "model.layers.3.post_feedforward_layernorm.weight" : L0 "feedforward_layer_norm.weight");
  }
  model_spec_free(&m);
  checkpoint_close(c);
}

// A file whose layers are of another kind than the config says: no tensor is read with sizes of another mixer.
static void layers_of_another_kind_lack_their_tensors(void **state) {
  struct checkpoint *c = single("model.layers.3.linear_attn.in_proj_qkv.weight", 44, 8, 0);
  struct model_spec m = reads(TEXT "}", c);
  struct weights w = {.checkpoint = c, .model = &m};
  assert_false(weights_has(&w, 3, ROLE_Q));
  weights_part(&w, 3, ROLE_Q, 16, 8);
  says("tensor model.layers.3.self_attn.q_proj.weight is missing");
  w.status = DELTAIC_OK;
  weights_part(&w, 0, ROLE_Q, 12, 8);
  says("tensor model.layers.0.linear_attn.in_proj_qkv.weight is missing");
  model_spec_free(&m);
  checkpoint_close(c);
}

// The extra head and what reads images, with and without the prefix.
static void tensors_of_other_parts_are_passed_over(void **state) {
  static const struct {
    const char *name;
    bool ignored;
  } cases[] = {{"mtp.fc.weight", true},
               {"model.mtp.layers.0.input_layernorm.weight", true},
               {"visual.blocks.0.attn.qkv.weight", true},
               {"model.visual.patch_embed.proj.weight", true},
               {"model.layers.0.self_attn.rotary_emb.inv_freq", true},
               {"model.novel.weight", false},
               {"visually.weight", false}};
  struct model_spec m = reads(TEXT "}", NULL);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    assert_int_equal(names_ignored(m.names, cases[i].name), cases[i].ignored);
  model_spec_free(&m);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(qwen3_5_has_the_defaults_of_transformers),
      cmocka_unit_test(qwen3_5_reads_every_option),
      cmocka_unit_test(keys_of_the_text_are_inside_and_ties_outside),
      cmocka_unit_test(older_keys_of_positions_are_read),
      cmocka_unit_test(keys_of_no_effect_are_passed_over),
      cmocka_unit_test(what_is_not_understood_is_refused_by_name),
      cmocka_unit_test(qwen3_5_moe_has_experts_in_every_layer),
      cmocka_unit_test(qwen3_next_may_have_dense_layers),
      cmocka_unit_test(impossible_experts_are_refused),
      cmocka_unit_test(olmo_hybrid_has_the_defaults_of_transformers),
      cmocka_unit_test(olmo_hybrid_reads_every_option),
      cmocka_unit_test(olmo_hybrid_refuses_what_it_does_not_know),
      cmocka_unit_test(older_norm_names_of_olmo_are_found),
      cmocka_unit_test(layers_of_another_kind_lack_their_tensors),
      cmocka_unit_test(tensors_of_other_parts_are_passed_over),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
