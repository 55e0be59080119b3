// generation_config.json, tokenizer_config.json and config.json -> end tokens and recommended sampling (host/model).
#include "config_tools.h"

#include "test_folder.h"

#define CONFIG "{'model_type':'delta_net','vocab_size':100,'hidden_size':64,'num_hidden_layers':1"
enum { V = 100 };

static void put_file(const char *name, const char *text) {
  const char *path = in_folder(name);
  if (!text) {
    remove(path);
    return;
  }
  FILE *f = fopen(path, "wb");
  assert_non_null(f);
  fputs(quoted(text), f);
  fclose(f);
}

// "5 7" for two ends.
static const char *ends_text(const struct ends *ends) {
  static char text[256];
  size_t used = 0;
  text[0] = 0;
  for (uint32_t i = 0; i < ends->count; i++)
    used += (size_t)snprintf(text + used, sizeof text - used, "%s%d", i ? " " : "", ends->ids[i]);
  return text;
}

static void config_gives_every_id_of_its_list(void **state) {
  static const struct {
    const char *config, *ends;
  } cases[] = {{CONFIG "}", "2"},
               {CONFIG ",'eos_token_id':9}", "9"},
               {CONFIG ",'eos_token_id':[9,3,9]}", "9 3"},
               {CONFIG ",'eos_token_id':[]}", ""},
               {CONFIG ",'eos_token_id':null}", ""},
               {CONFIG ",'eos_token_id':[-1,4]}", "4"},
               {CONFIG ",'text_config':{'eos_token_id':[7,8]}}", "7 8"},
               {CONFIG ",'eos_token_id':5,'text_config':{'eos_token_id':6}}", "5"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct model_spec m = reads(cases[i].config, NULL);
    assert_string_equal(ends_text(&m.generation.ends), cases[i].ends);
    assert_int_equal(m.eos, m.generation.ends.count ? m.generation.ends.ids[0] : -1);
    assert_false(m.generation.has_sampling);
    model_spec_free(&m);
  }
}

static void bad_ids_of_a_list_are_refused(void **state) {
  refuses(CONFIG ",'eos_token_id':[1,100]}", NULL, DELTAIC_BAD_FILE, "eos_token_id is 100");
  refuses(CONFIG ",'eos_token_id':[1,'x']}", NULL, DELTAIC_BAD_FILE, "eos_token_id must be an integer, not a string");
  refuses(CONFIG ",'text_config':{'eos_token_id':-2}}", NULL, DELTAIC_BAD_FILE, "eos_token_id is -2");
  refuses(CONFIG ",'eos_token_id':[0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,"
                 "31,32]}",
          NULL, DELTAIC_UNSUPPORTED, "more than 32 end tokens");
}

static void files_of_the_folder_add_and_replace(void **state) {
#define IM_END "{'eos_token':'<|im_end|>'"
  static const struct {
    const char *generation, *tokenizer_config, *tokenizer, *ends;
  } cases[] = {
      {NULL, NULL, NULL, "1"},
      {"{'eos_token_id':[46,44]}", NULL, NULL, "46 44"},
      {"{'eos_token_id':[46,44]}", IM_END ",'added_tokens_decoder':{'50':{'content':'<|im_end|>'}}}", NULL, "46 44"},
      {"{'eos_token_id':null}", NULL, NULL, ""},
      {"{'temperature':1}", NULL, NULL, "1"},
      {NULL, IM_END ",'added_tokens_decoder':{'7':{'content':'x'},'50':{'content':'<|im_end|>'}}}", NULL, "1 50"},
      {NULL, "{'eos_token':{'content':'x'},'added_tokens_decoder':{'7':{'content':'x'}}}", NULL, "1 7"},
      {NULL, IM_END ",'added_tokens_decoder':{'100':{'content':'<|im_end|>'}}}", NULL, "1"},
      {NULL, IM_END ",'added_tokens_decoder':{'x':{'content':'<|im_end|>'}}}", NULL, "1"},
      {NULL, IM_END "}", "{'added_tokens':[{'id':3,'content':'y'},{'id':60,'content':'<|im_end|>'}]}", "1 60"},
      {NULL, IM_END "}", NULL, "1"},
      {NULL, "{'eos_token':null}", NULL, "1"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct generation g = {.ends = {{1}, 1}};
    put_file("generation_config.json", cases[i].generation);
    put_file("tokenizer_config.json", cases[i].tokenizer_config);
    put_file("tokenizer.json", cases[i].tokenizer);
    if (generation_read(NULL, in_folder(""), V, &g)) fail_msg("case %zu: %s", i, deltaic_last_error());
    assert_string_equal(ends_text(&g.ends), cases[i].ends);
  }
}

static void sampling_is_read_if_the_file_says_whether_to_draw(void **state) {
  struct generation g = {0};
  const char *text = quoted("{'do_sample':true,'temperature':0.7,'top_k':20,'top_p':0.8,'repetition_penalty':1.05}");
  assert_int_equal(generation_parse("g", text, strlen(text), V, &g), DELTAIC_OK);
  assert_true(g.has_sampling && g.sampling.temperature == 0.7f && g.sampling.top_k == 20 && g.sampling.top_p == 0.8f);
  assert_true(g.sampling.min_p == 0 && g.sampling.repetition_penalty == 1.05f);
  text = quoted("{'do_sample':true}");
  assert_int_equal(generation_parse("g", text, strlen(text), V, &g), DELTAIC_OK);
  assert_true(g.has_sampling && g.sampling.temperature == 1 && g.sampling.top_k == 0 && g.sampling.top_p == 0);
  text = quoted("{'do_sample':false,'temperature':0.7,'top_p':0.5,'repetition_penalty':1.2}");
  assert_int_equal(generation_parse("g", text, strlen(text), V, &g), DELTAIC_OK);
  assert_true(g.has_sampling && g.sampling.temperature == 0 && g.sampling.top_p == 0);
  assert_true(g.sampling.repetition_penalty == 1.2f);
  text = quoted("{'temperature':0.7}");
  assert_int_equal(generation_parse("g", text, strlen(text), V, &g), DELTAIC_OK);
  assert_false(g.has_sampling);
}

static void values_out_of_range_are_refused(void **state) {
  static const struct {
    const char *text, *message;
  } cases[] = {{"{'temperature':-1}", "temperature is -1"},
               {"{'temperature':101}", "temperature is 101"},
               {"{'temperature':'hot'}", "temperature must be a number"},
               {"{'top_k':-1}", "top_k is -1"},
               {"{'top_k':4294967296}", "top_k is 4294967296"},
               {"{'top_p':1.5}", "top_p is 1.5"},
               {"{'min_p':2}", "min_p is 2"},
               {"{'repetition_penalty':-0.5}", "repetition_penalty is -0.5"},
               {"{'do_sample':1}", "do_sample must be true or false"},
               {"{'eos_token_id':100}", "eos_token_id is 100"},
               {"[]", "must be a JSON object"},
               {"{", "line 1"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct generation g = {0};
    const char *text = quoted(cases[i].text);
    assert_int_equal(generation_parse("generation_config.json", text, strlen(text), V, &g), DELTAIC_BAD_FILE);
    says("generation_config.json: ");
    says(cases[i].message);
  }
}

static void an_open_model_tells_its_ends(void **state) {
  deltaic_context *context;
  deltaic_device *device;
  deltaic_model *model;
  deltaic_device_options cpu = DELTAIC_INIT(deltaic_device_options);
  deltaic_sampling sampling = DELTAIC_INIT(deltaic_sampling);
  int32_t ids[2];
  size_t count = 7;
  cpu.index = DELTAIC_DEVICE_INDEX_CPU;
  cpu.threads = 1;
  const char *path = TESTS_DIR "/vectors/models/tiny_gated_deltanet";
  assert_int_equal(deltaic_context_create(NULL, &context), DELTAIC_OK);
  assert_int_equal(deltaic_device_open(context, &cpu, &device), DELTAIC_OK);
  assert_int_equal(deltaic_model_open(device, path, NULL, &model), DELTAIC_OK);
  assert_int_equal(deltaic_model_ends(model, NULL, 0, &count), DELTAIC_OK);
  assert_int_equal(count, 1);
  assert_int_equal(deltaic_model_ends(model, ids, 0, &count), DELTAIC_BUFFER_TOO_SMALL);
  assert_int_equal(deltaic_model_ends(model, ids, 2, &count), DELTAIC_OK);
  assert_true(ids[0] == 2 && deltaic_model_is_end(model, 2) && !deltaic_model_is_end(model, 1));
  assert_int_equal(deltaic_model_inspect_ends(path, ids, 2, &count), DELTAIC_OK);
  assert_true(count == 1 && ids[0] == 2 && !deltaic_model_is_end(NULL, 2));
  sampling.top_k = 5;
  assert_false(deltaic_model_sampling(model, &sampling)); // it has no generation_config.json
  assert_int_equal(sampling.top_k, 5);
  deltaic_model_close(model);
  deltaic_device_close(device);
  deltaic_context_free(context);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(config_gives_every_id_of_its_list),
      cmocka_unit_test(bad_ids_of_a_list_are_refused),
      IN_FOLDER(files_of_the_folder_add_and_replace),
      cmocka_unit_test(sampling_is_read_if_the_file_says_whether_to_draw),
      cmocka_unit_test(values_out_of_range_are_refused),
      cmocka_unit_test(an_open_model_tells_its_ends),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
