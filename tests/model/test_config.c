// config.json -> the description of a model (host/arch, host/arch_*): what is read, and what is refused.
#include "config_tools.h"

#include <math.h>

// ---------------------------------------------------------------- defaults and derived sizes

static void delta_net_has_fla_s_defaults(void **state) {
  struct model_spec m = reads("{'model_type':'delta_net'}", NULL);
  assert_string_equal(m.architecture, "delta_net");
  assert_int_equal(m.D, 2048);
  assert_int_equal(m.V, 32000);
  assert_int_equal(m.L, 24);
  assert_int_equal(dense(&m, 0)->F, 5632);
  assert_true(m.norm_eps == 1e-6f && m.ffn_norm_eps == 1e-6f);
  assert_int_equal(dense(&m, 0)->activation, ACTIVATION_SILU);
  assert_false(m.tied);
  assert_int_equal(m.bos, 1);
  assert_int_equal(m.eos, 2);
  for (uint32_t i = 0; i < m.L; i++) {
    const struct delta_spec *s = delta(&m, i);
    assert_ptr_equal(m.layers[i].mixer, &mixer_delta_net);
    assert_true(s->H == 16 && s->Hv == 16 && s->Dk == 128 && s->Dv == 128 && s->n == 1 && s->W == 4);
    assert_true(s->activation == ACTIVATION_SILU && s->norm == KEY_NORM_L2);
    assert_true(s->has_beta && s->beta_scale == 1 && !s->gated && !s->output_gate && s->norm_eps == 1e-6f);
  }
  model_spec_free(&m);
}

static void gated_deltanet_has_fla_s_defaults(void **state) {
  struct model_spec m = reads("{'model_type':'gated_deltanet'}", NULL);
  const struct delta_spec *s = delta(&m, 20);
  assert_int_equal(m.L, 21);
  assert_ptr_equal(m.layers[0].mixer, &mixer_gated_deltanet);
  assert_true(s->H == 6 && s->Hv == 6 && s->Dk == 256 && s->Dv == 512 && s->n == 1 && s->W == 4);
  assert_true(s->activation == ACTIVATION_SILU && s->norm == KEY_NORM_L2);
  assert_true(s->has_beta && s->beta_scale == 1 && s->gated && s->output_gate);
  model_spec_free(&m);
}

static void null_counts_as_missing(void **state) {
  struct model_spec m = reads("{'model_type':'gated_deltanet','hidden_size':null,'hidden_ratio':null,'attn':null,"
                              "'intermediate_size':null,'num_v_heads':null,'attnres_block_size':null,'mixers':null}",
                              NULL);
  assert_true(m.D == 2048 && dense(&m, 0)->F == 5632 && delta(&m, 0)->Hv == 6);
  model_spec_free(&m);
}

static void mlp_width_is_rounded_up_to_256(void **state) {
  static const struct {
    const char *config;
    uint32_t F;
  } cases[] = {{"{'model_type':'delta_net','hidden_size':1024}", 2816},
               {"{'model_type':'delta_net','hidden_size':2560}", 6912},
               {"{'model_type':'delta_net','hidden_size':96,'hidden_ratio':4}", 256},
               {"{'model_type':'delta_net','hidden_size':96,'hidden_ratio':4.02}", 512},
               {"{'model_type':'delta_net','intermediate_size':4100}", 4100}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct model_spec m = reads(cases[i].config, NULL);
    assert_int_equal(dense(&m, 0)->F, cases[i].F);
    model_spec_free(&m);
  }
}

static void delta_net_reads_every_option(void **state) {
  struct model_spec m =
      reads(DELTA ",'expand_k':0.5,'expand_v':2,'use_gate':true,'use_beta':false,'allow_neg_eigval':true,"
                  "'qk_norm':'sum','qk_activation':'relu','conv_size':3,'norm_eps':1e-5,'tie_word_embeddings':true,"
                  "'hidden_act':'powlu','bos_token_id':null,'eos_token_id':[7,8]}",
            NULL);
  const struct delta_spec *s = delta(&m, 1);
  assert_true(s->H == 2 && s->Dk == 2 && s->Dv == 8 && s->W == 3);
  assert_true(s->output_gate && !s->has_beta && s->beta_scale == 2);
  assert_true(s->norm == KEY_NORM_SUM && s->activation == ACTIVATION_RELU);
  assert_true(s->norm_eps == 1e-5f && m.norm_eps == 1e-5f && m.ffn_norm_eps == 1e-5f);
  assert_true(m.tied && dense(&m, 0)->activation == ACTIVATION_POWLU && m.bos == -1 && m.eos == 7);
  model_spec_free(&m);
}

static void names_of_activations_are_fla_s(void **state) {
  static const struct {
    const char *config;
    enum activation qk, mlp;
  } cases[] = {{DELTA ",'qk_activation':'silu','hidden_act':'swish'}", ACTIVATION_SILU, ACTIVATION_SILU},
               {DELTA ",'qk_activation':'elu','hidden_act':'silu'}", ACTIVATION_ELU1, ACTIVATION_SILU},
               {DELTA ",'qk_activation':'identity'}", ACTIVATION_IDENTITY, ACTIVATION_SILU},
               {DELTA ",'use_elu':true}", ACTIVATION_ELU1, ACTIVATION_SILU}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct model_spec m = reads(cases[i].config, NULL);
    assert_int_equal(delta(&m, 0)->activation, cases[i].qk);
    assert_int_equal(dense(&m, 0)->activation, cases[i].mlp);
    model_spec_free(&m);
  }
}

// A device may take such numbers for 0.
static void an_eps_that_is_no_normal_number_is_refused(void **state) {
  refuses(DELTA ",'norm_eps':1e-40}", NULL, DELTAIC_UNSUPPORTED, "norm_eps is 1e-40: devices take what is below");
  refuses("{'model_type':'mamba2','norm_eps':1e-39}", NULL, DELTAIC_UNSUPPORTED, "norm_eps is 1e-39");
  struct model_spec m = reads(DELTA ",'norm_eps':0}", NULL);
  assert_true(m.norm_eps == 0);
  model_spec_free(&m);
}

static void gated_deltanet_reads_every_option(void **state) {
  struct model_spec m = reads(GATED ",'num_v_heads':6,'expand_v':1.5,'use_gate':false,'allow_neg_eigval':true,"
                                    "'use_short_conv':false,'qk_norm':'sum','qk_activation':'relu'}",
                              NULL);
  const struct delta_spec *s = delta(&m, 0);
  assert_true(s->H == 2 && s->Hv == 6 && s->Dk == 4 && s->Dv == 6 && s->W == 0);
  assert_true(s->gated && !s->output_gate && s->beta_scale == 2);
  assert_true(s->norm == KEY_NORM_L2 && s->activation == ACTIVATION_SILU); // fla has no such options here
  model_spec_free(&m);
}

static void gated_deltaproduct_has_fla_s_defaults(void **state) {
  struct model_spec m = reads("{'model_type':'gated_deltaproduct'}", NULL);
  const struct delta_spec *s = delta(&m, 20);
  assert_int_equal(m.L, 21);
  assert_ptr_equal(m.layers[0].mixer, &mixer_delta_product);
  assert_true(s->H == 6 && s->Hv == 6 && s->Dk == 256 && s->Dv == 512 && s->n == 1 && s->W == 4);
  assert_true(s->has_beta && s->beta_scale == 1 && !s->gated && s->output_gate);
  model_spec_free(&m);
}

static void gated_deltaproduct_reads_every_option(void **state) {
  struct model_spec m = reads(PRODUCT ",'num_householder':5,'use_forget_gate':true,'allow_neg_eigval':true,"
                                      "'use_output_gate':false,'use_gate':true,'expand_v':1,'use_short_conv':false}",
                              NULL);
  const struct delta_spec *s = delta(&m, 0);
  assert_ptr_equal(m.layers[0].mixer, &mixer_gated_delta_product);
  assert_true(s->H == 2 && s->Hv == 2 && s->Dk == 4 && s->Dv == 4 && s->n == 5 && s->W == 0);
  assert_true(s->gated && !s->output_gate && s->beta_scale == 2);
  model_spec_free(&m);
  m = reads(PRODUCT ",'use_gate':false}", NULL); // its name before July 2025
  assert_false(delta(&m, 0)->output_gate);
  model_spec_free(&m);
}

static void ablations_exchange_what_they_name(void **state) {
  struct model_spec m = reads(GATED ",'ablation':{'qk_norm':'l1','qk_activation':'elu','use_beta':false,"
                                    "'use_decay':false,'use_output_norm':false}}",
                              NULL);
  const struct delta_spec *s = delta(&m, 1);
  assert_true(s->norm == KEY_NORM_L1 && s->activation == ACTIVATION_ELU1);
  assert_true(!s->has_beta && !s->gated && !s->output_norm && s->output_gate && s->W == 4);
  model_spec_free(&m);
  m = reads(DELTA
            ",'qk_norm':'sum','use_beta':false,'use_output_norm':false,'ablation':{'qk_norm':'none','use_decay':true}}",
            NULL);
  s = delta(&m, 0);
  assert_true(s->norm == KEY_NORM_NONE && s->activation == ACTIVATION_SILU && !s->has_beta && s->gated);
  assert_true(s->output_norm); // fla stores use_output_norm and never reads it
  model_spec_free(&m);
}

static void transformer_has_fla_s_defaults(void **state) {
  struct model_spec m = reads("{'model_type':'transformer'}", NULL);
  assert_true(m.D == 2048 && m.L == 24 && m.V == 32000 && dense(&m, 0)->F == 5632 && m.norm_eps == 1e-6f && !m.tied);
  const struct attention_spec *s = attention(&m, 23);
  assert_true(s->heads == 32 && s->kv_heads == 32 && s->d == 64 && !s->window && !s->bias && !s->qk_norm);
  assert_true(s->rope_theta == 10000 && s->rotary == 64);
  model_spec_free(&m);
}

static void transformer_reads_every_option(void **state) {
  struct model_spec m = reads("{'model_type':'transformer','hidden_size':24,'num_heads':6,'num_kv_heads':2,"
                              "'num_hidden_layers':2,'window_size':7,'rope_theta':500,'qkv_bias':true,'qk_norm':true}",
                              NULL);
  for (uint32_t i = 0; i < 2; i++) {
    const struct attention_spec *s = attention(&m, i);
    assert_true(s->heads == 6 && s->kv_heads == 2 && s->d == 4 && s->window == 7 && s->bias && s->qk_norm);
    assert_true(s->rope_theta == 500 && s->rotary == 4);
  }
  model_spec_free(&m);
}

static void heads_of_attention_have_a_size_and_a_rotated_part(void **state) {
  static const struct {
    const char *keys;
    uint32_t d, rotary;
  } cases[] = {{"'head_dim':16", 16, 16},
               {"'head_dim':16,'partial_rotary_factor':0.25", 16, 4},
               {"'partial_rotary_factor':0.5", 4, 2},
               {"'head_dim':7,'partial_rotary_factor':0", 7, 0}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char config[256];
    snprintf(config, sizeof config, "{'model_type':'transformer','hidden_size':20,'num_heads':5,%s}", cases[i].keys);
    struct model_spec m = reads(config, NULL);
    assert_true(attention(&m, 0)->d == cases[i].d && attention(&m, 0)->rotary == cases[i].rotary);
    model_spec_free(&m);
  }
}

static void products_are_truncated_in_double(void **state) {
  // 16 heads of 89 in 2048, and 179 of 256 values: the ratios that a pruner writes.
  struct model_spec m = reads("{'model_type':'delta_net','expand_k':0.6953125}", NULL);
  assert_int_equal(delta(&m, 0)->Dk, 89);
  model_spec_free(&m);
  char config[128];
  snprintf(config, sizeof config, "{'model_type':'gated_deltanet','head_dim':107,'expand_v':%.17g}",
           nextafter(128.0 / 107, 2));
  m = reads(config, NULL);
  assert_int_equal(delta(&m, 0)->Dv, 128);
  model_spec_free(&m);
  snprintf(config, sizeof config, "{'model_type':'gated_deltanet','head_dim':107,'expand_v':%.17g}", 128.0 / 107);
  refuses(config, NULL, DELTAIC_BAD_SHAPE, "attn.v_proj.weight"); // fla makes 127 of it, and refuses it
}

static void token_ids_may_be_missing_null_or_lists(void **state) {
  static const struct {
    const char *config;
    int32_t bos, eos;
  } cases[] = {{DELTA "}", 1, 2},
               {DELTA ",'bos_token_id':null,'eos_token_id':null}", -1, -1},
               {DELTA ",'bos_token_id':-1,'eos_token_id':[]}", -1, -1},
               {DELTA ",'bos_token_id':15,'eos_token_id':[3,4]}", 15, 3},
               {"{'model_type':'delta_net','vocab_size':2}", 1, -1}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct model_spec m = reads(cases[i].config, NULL);
    assert_int_equal(m.bos, cases[i].bos);
    assert_int_equal(m.eos, cases[i].eos);
    model_spec_free(&m);
  }
}

static void head_in_head_is_off_or_as_its_keys_say(void **state) {
  struct model_spec m = reads(GATED ",'hh_mask':'input','hh_nonneg':'exp'}", NULL);
  assert_int_equal(delta(&m, 0)->r, 1);
  model_spec_free(&m);
  m = reads(GATED ",'hh_r':2}", NULL);
  assert_true(delta(&m, 0)->r == 2 && !delta(&m, 0)->mask_input && delta(&m, 0)->nonneg == HH_NONNEG_SOFTPLUS);
  model_spec_free(&m);
  m = reads(DELTA ",'hh_r':4,'hh_mask':'input','hh_nonneg':'sigmoid'}", NULL);
  assert_true(delta(&m, 0)->r == 4 && delta(&m, 0)->mask_input && delta(&m, 0)->nonneg == HH_NONNEG_SIGMOID);
  model_spec_free(&m);
  refuses(GATED ",'hh_r':3}", NULL, DELTAIC_BAD_SHAPE, "hh_r 3 does not divide the key size 4");
}

static void keys_without_effect_are_ignored(void **state) {
  struct model_spec m = reads(
      DELTA
      ",'attn_mode':'fused_recurrent','fuse_norm':false,'head_first':true,'conv_bias':true,'use_output_norm':false,"
      "'max_position_embeddings':1,'initializer_range':'x','num_householder':3,'hh_r':1,'use_rope':false,"
      "'share_conv_kernel':false,'chunk_size':3}",
      NULL);
  assert_int_equal(delta(&m, 0)->n, 1);
  model_spec_free(&m);
}

// ---------------------------------------------------------------- softmax-attention layers

static void attention_layers_have_fla_s_defaults(void **state) {
  struct model_spec m = reads(DELTA ",'attn':{'layers':[1],'num_heads':2,'window_size':null}}", NULL);
  const struct attention_spec *a = attention(&m, 1);
  assert_true(a->heads == 2 && a->kv_heads == 2 && a->d == 4 && a->window == 0 && a->rope_theta == 10000 && !a->bias);
  delta(&m, 0);
  model_spec_free(&m);
}

static void attention_layers_read_every_option_and_lists(void **state) {
  struct model_spec m = reads(GATED ",'attn':[{'layers':[1],'num_heads':4,'num_kv_heads':2,'window_size':48,"
                                    "'rope_theta':500,'qkv_bias':true},{'layers':[0],'num_heads':1}]}",
                              NULL);
  const struct attention_spec *a = attention(&m, 1), *b = attention(&m, 0);
  assert_true(a->heads == 4 && a->kv_heads == 2 && a->d == 2 && a->window == 48 && a->rope_theta == 500 && a->bias);
  assert_true(b->heads == 1 && b->kv_heads == 1 && b->d == 8 && b->window == 0 && !b->bias);
  model_spec_free(&m);
}

static void malformed_attention_is_refused(void **state) {
  static const struct {
    const char *attn;
    deltaic_status status;
    const char *message;
  } cases[] = {
      {"true", DELTAIC_BAD_FILE, "attn must be an object or a list"},
      {"[1]", DELTAIC_BAD_FILE, "attn must be an object or a list"},
      {"{'layers':[0]}", DELTAIC_BAD_FILE, "attn has no num_heads"},
      {"{'num_heads':2}", DELTAIC_BAD_FILE, "attn has no list of layers"},
      {"{'num_heads':2,'layers':1}", DELTAIC_BAD_FILE, "attn has no list of layers"},
      {"{'num_heads':2,'layers':['0']}", DELTAIC_BAD_FILE, "layers must be integers"},
      {"{'num_heads':2,'layers':[2]}", DELTAIC_BAD_FILE, "layer 2 is not one of the model's 2 layers"},
      {"{'num_heads':2,'layers':[-1]}", DELTAIC_BAD_FILE, "layer -1 is not one of"},
      {"{'num_heads':2,'layers':[1,1]}", DELTAIC_BAD_FILE, "layer 1 is listed twice"},
      {"[{'num_heads':2,'layers':[1]},{'num_heads':4,'layers':[0,1]}]", DELTAIC_BAD_FILE, "layer 1 is listed twice"},
      {"{'num_heads':'2','layers':[1]}", DELTAIC_BAD_FILE, "num_heads must be an integer, not a string (in attn)"},
      {"{'num_heads':0,'layers':[1]}", DELTAIC_BAD_FILE, "num_heads is 0 and must be from 1"},
      {"{'num_heads':3,'layers':[1]}", DELTAIC_BAD_SHAPE, "num_heads 3 does not divide hidden_size 8"},
      {"{'num_heads':8,'layers':[1]}", DELTAIC_BAD_SHAPE, "a head has 1 rotated elements"},
      {"{'num_heads':4,'num_kv_heads':3,'layers':[1]}", DELTAIC_BAD_SHAPE,
       "num_kv_heads 3 does not divide num_heads 4"},
      {"{'num_heads':2,'num_kv_heads':4,'layers':[1]}", DELTAIC_BAD_SHAPE,
       "num_kv_heads 4 does not divide num_heads 2"},
      {"{'num_heads':2,'window_size':0,'layers':[1]}", DELTAIC_BAD_FILE, "window_size is 0"},
      {"{'num_heads':2,'rope_theta':0,'layers':[1]}", DELTAIC_BAD_FILE, "rope_theta is 0"},
      {"{'num_heads':2,'qkv_bias':1,'layers':[1]}", DELTAIC_BAD_FILE, "qkv_bias must be true or false"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char config[512];
    snprintf(config, sizeof config, DELTA ",'attn':%s}", cases[i].attn);
    refuses(config, NULL, cases[i].status, cases[i].message);
  }
}

// ---------------------------------------------------------------- Mamba-2 and lists of mixers

static void mamba2_has_fla_s_defaults(void **state) {
  struct model_spec m = reads("{'model_type':'mamba2'}", NULL);
  const struct mamba2_spec *s = mamba2(&m, 47);
  assert_true(m.D == 2048 && m.V == 32000 && m.L == 48 && m.norm_eps == 1e-5f && !m.tied);
  for (uint32_t i = 0; i < m.L; i++) assert_null(m.layers[i].ffn);
  assert_true(s->heads == 64 && s->P == 64 && s->N == 128 && s->groups == 1 && s->W == 4);
  assert_true(!s->bias && s->conv_bias && !s->D_per_element && s->dt_low == 0 && isinf(s->dt_high));
  assert_true(s->norm_place == NORM_OF_GATED && s->norm_eps == 1e-5f);
  model_spec_free(&m);
}

static void mamba2_reads_every_option(void **state) {
  struct model_spec m = reads(MAMBA ",'expand':3,'n_groups':2,'state_size':5,'conv_kernel':3,'use_bias':true,"
                                    "'use_conv_bias':false,'D_has_hdim':true,'dt_limit':[0.5,2],'num_heads':6,"
                                    "'norm_before_gate':true,'norm_eps':1e-4,'tie_word_embeddings':true}",
                              NULL);
  const struct mamba2_spec *s = mamba2(&m, 1);
  assert_true(s->heads == 6 && s->P == 4 && s->N == 5 && s->groups == 2 && s->W == 3 && m.tied);
  assert_true(s->bias && !s->conv_bias && s->D_per_element && s->dt_low == 0.5f && s->dt_high == 2);
  assert_true(s->norm_place == NORM_FIRST && s->norm_eps == 1e-4f && m.norm_eps == 1e-4f);
  model_spec_free(&m);
  m = reads(MAMBA ",'rms_norm':false,'time_step_limit':[0.25,Infinity],'note':'Infinity \\\\\\''}", NULL);
  assert_true(mamba2(&m, 0)->norm_place == NORM_ABSENT && mamba2(&m, 0)->dt_low == 0.25f);
  assert_true(isinf(mamba2(&m, 0)->dt_high));
  model_spec_free(&m);
}

static void mixers_name_the_kind_of_every_layer(void **state) {
  struct model_spec m = reads("{'model_type':'gated_deltanet','hidden_size':8,'num_hidden_layers':3,'num_heads':2,"
                              "'head_dim':4,'vocab_size':16,'mixers':['attention','mamba2','gated_deltanet'],"
                              "'attn':{'num_heads':2,'window_size':7},'mamba2':{'head_dim':4,'state_size':3}}",
                              NULL);
  assert_true(attention(&m, 0)->window == 7 && attention(&m, 0)->d == 4);
  assert_true(mamba2(&m, 1)->heads == 4 && mamba2(&m, 1)->N == 3 && mamba2(&m, 1)->norm_eps == 1e-5f);
  assert_ptr_equal(m.layers[2].mixer, &mixer_gated_deltanet);
  for (uint32_t i = 0; i < m.L; i++) assert_true(dense(&m, i)->F > 0);
  model_spec_free(&m);
}

static void malformed_mixers_are_refused(void **state) {
  static const struct refusal cases[] = {
      {DELTA ",'mixers':'mamba2'}", DELTAIC_BAD_FILE, "mixers must be a list of 2 names"},
      {DELTA ",'mixers':['delta_net']}", DELTAIC_BAD_FILE, "mixers must be a list of 2 names"},
      {DELTA ",'mixers':['delta_net',1]}", DELTAIC_BAD_FILE, "mixers: layer 1 has no name"},
      {DELTA ",'mixers':['delta_net','attention']}", DELTAIC_BAD_FILE, "mixers with attention need an object attn"},
      {DELTA ",'mixers':['delta_net','mamba2'],'mamba2':[]}", DELTAIC_BAD_FILE, "mamba2 must be an object"},
      {DELTA ",'mixers':['delta_net','mamba2']}", DELTAIC_BAD_SHAPE, "does not make heads of 64"},
      {MAMBA ",'num_heads':3}", DELTAIC_BAD_SHAPE, "does not make heads of 4 as num_heads says"},
      {MAMBA ",'n_groups':3}", DELTAIC_BAD_SHAPE, "n_groups 3 does not divide the 4 heads"},
      {MAMBA ",'expand':0}", DELTAIC_BAD_SHAPE, "does not make heads of 4"},
      {MAMBA ",'dt_limit':[1]}", DELTAIC_BAD_FILE, "dt_limit must be two numbers"},
      {MAMBA ",'dt_limit':[2,1]}", DELTAIC_BAD_FILE, "dt_limit must be two numbers"},
      {MAMBA ",'dt_limit':{'0':1}}", DELTAIC_BAD_FILE, "dt_limit must be two numbers"},
      {MAMBA ",'norm_eps':Infinity}", DELTAIC_BAD_FILE, "norm_eps is 1e+308"},
      {MAMBA ",'norm_eps':NaN}", DELTAIC_BAD_FILE, "line 1"},
  };
  REFUSES(cases);
}

// ---------------------------------------------------------------- refusals

static void what_is_not_supported_is_refused_by_name(void **state) {
  static const char *const cases[][2] = {
      {"{'model_type':'delta_net_2','share_kv_conv':true}", "config key share_kv_conv"},
      {"{'model_type':'delta_net_2','shift_only_conv':true}", "config key shift_only_conv"},
      {"{'model_type':'delta_net_2','conv_scaled_shift':true}", "config key conv_scaled_shift"},
      {"{'model_type':'delta_net_2','hh_r':2}", "config key hh_r"},
      {GATED ",'per_head_conv':true}", "config key per_head_conv"},
      {"{'model_type':'samba'}",
       "model_type \"samba\" is not supported; supported are: delta_net, delta_net_2, gated_"},
      {DELTA ",'attnres_block_size':4}", "config key attnres_block_size"},
      {DELTA ",'attnres_block_size':0}", "config key attnres_block_size"},
      {DELTA ",'mixers':['delta_net','rwkv']}", "mixers: \"rwkv\" is not supported; supported are: delta_net, mamba2"},
      {DELTA ",'mixers':['gated_deltanet','delta_net']}", "mixers: \"gated_deltanet\" is not supported"},
      {DELTA ",'mamba2':{}}", "config key mamba2 needs the key mixers"},
      {MAMBA ",'hidden_act':'gelu'}", "hidden_act \"gelu\" is not supported"},
      {"{'model_type':'mamba2','state_size':16384,'head_dim':16384,'hidden_size':1048576}", "would have a state of"},
      {"{'model_type':'gated_deltaproduct','hh_r':2}", "config key hh_r"},
      {"{'model_type':'transformer','hh_r':'2'}", "config key hh_r"},
      {GATED ",'hh_r':2,'hh_mask':'learned'}", "hh_mask \"learned\" is not supported"},
      {GATED ",'hh_r':2,'hh_nonneg':'relu'}", "hh_nonneg \"relu\" is not supported"},
      {DELTA ",'share_conv_kernel':true}", "config key share_conv_kernel"},
      {DELTA ",'use_rope':true}", "config key use_rope"},
      {DELTA ",'per_head_norm':true}", "config key per_head_norm"},
      {DELTA ",'per_head_conv':true}", "config key per_head_conv"},
      {DELTA ",'share_kv_conv':true}", "config key share_kv_conv"},
      {DELTA ",'shift_only_conv':true}", "config key shift_only_conv"},
      {"{'model_type':'delta_net','d_model':512}", "before March 2024 (d_model)"},
      {DELTA ",'hidden_act':'gelu'}", "hidden_act \"gelu\" is not supported"},
      {"{'model_type':'gated_deltaproduct','num_householder':64,'num_heads':4096,'head_dim':8192,"
       "'expand_v':0.0001220703125}",
       "columns of q, k and v"},
      {GATED ",'ablation':{'use_conv':false}}", "ablation has keys other than"},
      {GATED ",'ablation':{'qk_norm':'l3'}}", "qk_norm \"l3\" is not supported (in ablation)"},
      {DELTA ",'qk_norm':'l1'}", "qk_norm \"l1\" is not supported"}, // an ablation of ours
      {DELTA ",'qk_norm':'rms'}", "qk_norm \"rms\" is not supported"},
      {DELTA ",'qk_activation':'tanh'}", "qk_activation \"tanh\" is not supported"},
      {"{'model_type':'gated_deltanet','num_heads':1024,'num_v_heads':1024,'head_dim':4096}", "would have a state of"},
      {"{'model_type':'gated_deltanet','head_dim':16384}",
       "rows of model.layers.0.attn.v_proj.weight per the number of value heads"},
      {"{'model_type':'delta_net','hidden_ratio':1024,'hidden_size':1048576}", "more than 16777216"},
  };
  REFUSES_AS(DELTAIC_UNSUPPORTED, cases);
}

static void malformed_configs_are_refused(void **state) {
  static const char *const cases[][2] = {
      {"", "config.json: line 1"},
      {"[]", "must be a JSON object"},
      {"{}", "has no model_type"},
      {"{'model_type':null}", "has no model_type"},
      {"{'model_type':1}", "model_type must be a string, not an integer"},
      {DELTA ",'ablation':'l1'}", "ablation must be an object"},
      {DELTA ",'ablation':{'use_beta':0}}", "(in ablation)"},
      {"{'model_type':'delta_net','hidden_size':1,'hidden_size':2}", "duplicate object key"},
      {"{'model_type':'delta_net','hidden_size':0}", "hidden_size is 0 and must be from 1"},
      {"{'model_type':'delta_net','hidden_size':-8}", "hidden_size is -8"},
      {"{'model_type':'delta_net','hidden_size':8.5}", "hidden_size must be an integer"},
      {"{'model_type':'delta_net','hidden_size':4294967304}", "hidden_size is 4294967304"},
      {"{'model_type':'delta_net','num_hidden_layers':100000000}", "num_hidden_layers is 100000000"},
      {"{'model_type':'delta_net','num_heads':0}", "num_heads is 0"},
      {"{'model_type':'delta_net','vocab_size':0}", "vocab_size is 0"},
      {"{'model_type':'delta_net','norm_eps':'x'}", "norm_eps must be a number, not a string"},
      {"{'model_type':'delta_net','norm_eps':-1}", "norm_eps is -1"},
      {"{'model_type':'delta_net','intermediate_size':0}", "intermediate_size is 0"},
      {"{'model_type':'delta_net','hidden_ratio':0}", "hidden_ratio is 0"},
      {"{'model_type':'delta_net','hidden_act':1}", "hidden_act must be a string"},
      {"{'model_type':'delta_net','conv_size':0}", "conv_size is 0"},
      {"{'model_type':'delta_net','conv_size':1000}", "conv_size is 1000"},
      {"{'model_type':'delta_net','expand_k':-1}", "expand_k is -1"},
      {"{'model_type':'delta_net','expand_k':{'0':1}}", "expand_k must be a number, not an object"},
      {"{'model_type':'delta_net','use_gate':'false'}", "use_gate must be true or false, not a string"},
      {"{'model_type':'delta_net','tie_word_embeddings':1}", "tie_word_embeddings must be true or false"},
      {"{'model_type':'delta_net','bos_token_id':32000}", "bos_token_id is 32000 and must be from -1 to 31999"},
      {"{'model_type':'delta_net','eos_token_id':['2']}", "eos_token_id must be an integer, not a string"},
      {"{'model_type':'gated_deltanet','head_dim':0}", "head_dim is 0"},
      {"{'model_type':'gated_deltanet','num_v_heads':0}", "num_v_heads is 0"},
  };
  REFUSES_AS(DELTAIC_BAD_FILE, cases);
}

static void sizes_that_do_not_divide_are_refused(void **state) {
  static const char *const cases[][2] = {
      {"{'model_type':'delta_net','hidden_size':10,'num_heads':4}",
       "rows of model.layers.0.attn.q_proj.weight per num_heads"},
      {"{'model_type':'delta_net','hidden_size':8,'num_heads':4,'expand_v':1.3}",
       "rows of model.layers.0.attn.v_proj.weight per"},
      {"{'model_type':'delta_net','expand_k':0}", "rows of model.layers.0.attn.q_proj.weight per num_heads"},
      {"{'model_type':'gated_deltanet','head_dim':10,'expand_v':1.25}",
       "rows of model.layers.0.attn.v_proj.weight per"},
      {"{'model_type':'gated_deltanet','num_heads':4,'num_v_heads':6}",
       "num_v_heads 6 is not a multiple of num_heads 4"},
      {"{'model_type':'gated_deltanet','num_heads':4,'num_v_heads':2}",
       "num_v_heads 2 is not a multiple of num_heads 4"},
  };
  REFUSES_AS(DELTAIC_BAD_SHAPE, cases);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(delta_net_has_fla_s_defaults),
      cmocka_unit_test(gated_deltanet_has_fla_s_defaults),
      cmocka_unit_test(null_counts_as_missing),
      cmocka_unit_test(mlp_width_is_rounded_up_to_256),
      cmocka_unit_test(delta_net_reads_every_option),
      cmocka_unit_test(names_of_activations_are_fla_s),
      cmocka_unit_test(an_eps_that_is_no_normal_number_is_refused),
      cmocka_unit_test(gated_deltanet_reads_every_option),
      cmocka_unit_test(gated_deltaproduct_has_fla_s_defaults),
      cmocka_unit_test(gated_deltaproduct_reads_every_option),
      cmocka_unit_test(ablations_exchange_what_they_name),
      cmocka_unit_test(transformer_has_fla_s_defaults),
      cmocka_unit_test(transformer_reads_every_option),
      cmocka_unit_test(heads_of_attention_have_a_size_and_a_rotated_part),
      cmocka_unit_test(products_are_truncated_in_double),
      cmocka_unit_test(token_ids_may_be_missing_null_or_lists),
      cmocka_unit_test(head_in_head_is_off_or_as_its_keys_say),
      cmocka_unit_test(keys_without_effect_are_ignored),
      cmocka_unit_test(attention_layers_have_fla_s_defaults),
      cmocka_unit_test(attention_layers_read_every_option_and_lists),
      cmocka_unit_test(malformed_attention_is_refused),
      cmocka_unit_test(mamba2_has_fla_s_defaults),
      cmocka_unit_test(mamba2_reads_every_option),
      cmocka_unit_test(mixers_name_the_kind_of_every_layer),
      cmocka_unit_test(malformed_mixers_are_refused),
      cmocka_unit_test(what_is_not_supported_is_refused_by_name),
      cmocka_unit_test(malformed_configs_are_refused),
      cmocka_unit_test(sizes_that_do_not_divide_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
