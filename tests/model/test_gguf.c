// GGUF files: what is read, and one sentence for every kind of damage (host/base/gguf.c, host/model/gguf_tensors.c).
#include "arch.h"
#include "mixer.h"
#include "mixer_attention.h"
#include "mixer_delta.h"

#include <math.h>

#include "gguf_tools.h"
#include "test_folder.h"

static struct checkpoint *accepts(const struct gguf_text *g) {
  struct checkpoint *c;
  if (checkpoint_parse("x.gguf", g->bytes, g->size, &c)) fail_msg("%s", deltaic_last_error());
  return c;
}

// An exact copy on the heap, so that the address sanitizer sees a read past the end.
static deltaic_status parse_copy(const struct gguf_text *g, size_t size, struct checkpoint **c) {
  char *copy = malloc(size + 1);
  memcpy(copy, g->bytes, size);
  deltaic_status status = checkpoint_parse("x.gguf", copy, size, c);
  if (!status) checkpoint_close(*c);
  free(copy);
  return status;
}

static void refuses(const struct gguf_text *g, deltaic_status status, const char *text) {
  struct checkpoint *c = (void *)1;
  assert_int_equal(parse_copy(g, g->size, &c), status);
  assert_null(c);
  ASSERT_MESSAGE("x.gguf", text);
}

// Two keys and two tensors: a (2, 4) F32 and b (2, 32) Q8_0.
static struct gguf_text example(void) {
  struct gguf_text g = gguf_begin(3, 2, 2);
  put_key_text(&g, "general.architecture", "qwen35");
  put_key_u32(&g, "general.alignment", 32);
  put_tensor(&g, "a", (uint64_t[]){4, 2}, 2, 0, 0);
  put_tensor(&g, "b", (uint64_t[]){32, 2}, 2, 8, 32);
  put_data(&g, 32 + 68);
  return g;
}

static void tensors_are_views_with_the_outermost_size_first(void **state) {
  const struct gguf_text g = example();
  struct checkpoint *c = accepts(&g);
  const struct file_tensor *a = checkpoint_find(c, "a"), *b = checkpoint_find(c, "b");
  assert_int_equal(checkpoint_count(c), 2);
  assert_int_equal(a->rank, 2);
  assert_int_equal(a->shape[0], 2);
  assert_int_equal(a->shape[1], 4);
  assert_int_equal(a->dtype, FILE_F32);
  assert_int_equal(file_dtype_kept(b->dtype), DTYPE_Q8_0);
  assert_string_equal(b->dtype_name, "Q8_0");
  assert_int_equal(b->bytes, 68);
  assert_int_equal(((const unsigned char *)b->data)[1], 33);
  assert_ptr_equal(b->data, (const char *)a->data + 32);
  float some[3], block[64];
  dtype_decode(DTYPE_Q8_0, b->data, 0, 64, block);
  file_tensor_f32(b, 31, 3, some);
  for (int i = 0; i < 3; i++) assert_true(some[i] == block[31 + i] && some[i] != 0);
  checkpoint_close(c);
}

static void keys_of_every_type_are_values(void **state) {
  struct gguf_text g = gguf_begin(3, 0, 13);
  const float f = 0.5f, nan = NAN;
  const double d = -0.25;
  put_key(&g, "u8", KEY_U8, "\xff", 1);
  put_key(&g, "i8", KEY_I8, "\xff", 1);
  put_key(&g, "u16", KEY_U16, "\xfe\xff", 2);
  put_key(&g, "i16", KEY_I16, "\xfe\xff", 2);
  put_key(&g, "u32", KEY_U32, "\xff\xff\xff\xff", 4);
  put_key(&g, "i32", KEY_I32, "\xff\xff\xff\xff", 4);
  put_key(&g, "f32", KEY_F32, &f, 4);
  put_key(&g, "nan", KEY_F32, &nan, 4);
  put_key(&g, "bool", KEY_BOOL, "\1", 1);
  put_key(&g, "i64", KEY_I64, "\xfd\xff\xff\xff\xff\xff\xff\xff", 8);
  put_key(&g, "f64", KEY_F64, &d, 8);
  put_key_text(&g, "text", "Ġü");
  put_key(&g, "list", KEY_ARRAY, "\10\0\0\0\2\0\0\0\0\0\0\0", 12);
  put_text(&g, "x");
  put_text(&g, "");
  struct checkpoint *c = accepts(&g);
  const json_t *keys = checkpoint_keys(c);
  static const struct {
    const char *name;
    long long value;
  } integers[] = {{"u8", 255}, {"i8", -1}, {"u16", 65534}, {"i16", -2}, {"u32", 4294967295}, {"i32", -1}, {"i64", -3}};
  for (size_t i = 0; i < sizeof integers / sizeof *integers; i++)
    assert_int_equal(json_integer_value(json_object_get(keys, integers[i].name)), integers[i].value);
  assert_true(json_real_value(json_object_get(keys, "f32")) == 0.5);
  assert_true(json_real_value(json_object_get(keys, "f64")) == -0.25);
  assert_true(json_is_null(json_object_get(keys, "nan")));
  assert_true(json_is_true(json_object_get(keys, "bool")));
  assert_string_equal(json_string_value(json_object_get(keys, "text")), "Ġü");
  assert_string_equal(json_string_value(json_array_get(json_object_get(keys, "list"), 0)), "x");
  assert_int_equal(json_array_size(json_object_get(keys, "list")), 2);
  checkpoint_close(c);
}

// Lists of a tokenizer are no JSON: their texts may be anything, but must be in the file.
static void lists_of_a_tokenizer_are_views(void **state) {
  struct gguf_text g = gguf_begin(3, 0, 2);
  put_key(&g, "tokenizer.ggml.token_type", KEY_ARRAY, "\5\0\0\0\2\0\0\0\0\0\0\0\3\0\0\0\xff\xff\xff\xff", 20);
  put_key(&g, "tokenizer.ggml.tokens", KEY_ARRAY, "\10\0\0\0\2\0\0\0\0\0\0\0", 12);
  put_text(&g, "ab");
  const size_t cut = g.size + 8;
  put_text(&g, "\xff");
  struct checkpoint *c = accepts(&g);
  struct gguf_list tokens = checkpoint_list(c, "tokenizer.ggml.tokens");
  struct gguf_list types = checkpoint_list(c, "tokenizer.ggml.token_type");
  struct gguf_element e;
  assert_true(json_is_null(json_object_get(checkpoint_keys(c), "tokenizer.ggml.tokens")));
  assert_true(checkpoint_next(c, &tokens, &e) && e.bytes == 2 && !memcmp(e.text, "ab", 2));
  assert_true(checkpoint_next(c, &tokens, &e) && e.bytes == 1 && *e.text == '\xff');
  assert_false(checkpoint_next(c, &tokens, &e));
  assert_true(checkpoint_next(c, &types, &e) && !e.text && e.number == 3);
  assert_true(checkpoint_next(c, &types, &e) && e.number == -1);
  assert_false(checkpoint_next(c, &types, &e));
  assert_null(checkpoint_list(c, "tokenizer.ggml.merges").name);
  checkpoint_close(c);
  g.size = cut;
  refuses(&g, DELTAIC_BAD_FILE, "ends inside tokenizer.ggml.tokens");
}

static void other_versions_and_byte_orders_are_refused(void **state) {
  struct gguf_text g = gguf_begin(2, 0, 0);
  refuses(&g, DELTAIC_UNSUPPORTED, "has GGUF version 2, expected 3");
  g = gguf_begin(3u << 24, 0, 0);
  refuses(&g, DELTAIC_UNSUPPORTED, "is a big-endian GGUF file");
}

static void refuses_key(const char *name, uint32_t type, const char *value, size_t bytes, const char *text) {
  struct gguf_text g = gguf_begin(3, 0, 1);
  put_key(&g, name, type, value, bytes);
  refuses(&g, DELTAIC_BAD_FILE, text);
}

static void damaged_keys_are_named(void **state) {
  refuses_key("odd", 13, "", 0, "odd has type 13, which is not known");
  refuses_key("nested", KEY_ARRAY, "\11\0\0\0\0\0\0\0\0\0\0\0", 12, "nested is an array of type 9, which is not known");
  refuses_key("many", KEY_ARRAY, "\0\0\0\0\377\377\377\377\377\377\377\377", 12,
              "many claims 18446744073709551615 elements, more than the file has bytes");
  struct gguf_text g = gguf_begin(3, 0, 2);
  put_key_u32(&g, "twice", 1);
  put_key_u32(&g, "twice", 2);
  refuses(&g, DELTAIC_BAD_FILE, "twice is given twice");
  refuses_key("text", KEY_TEXT, "\1\0\0\0\0\0\0\0\xff", 9, "text has text that is not UTF-8");
  refuses_key("large", KEY_U64, "\377\377\377\377\377\377\377\377", 8,
              "large is 18446744073709551615, which is too large");
  refuses_key("", KEY_U32, "\1\0\0\0", 4, "the name of a key is empty");
  g = gguf_begin(3, 0, 1);
  put_u64(&g, 1ull << 40);
  refuses(&g, DELTAIC_BAD_FILE, "the name of a key has 1099511627776 bytes, more than 255");
  g = gguf_begin(3, 0, 1);
  put_u64(&g, 2);
  put(&g, "a\0", 2);
  refuses(&g, DELTAIC_BAD_FILE, "the name of a key is not text");
  refuses_key("general.alignment", KEY_U32, "\30\0\0\0", 4, "general.alignment is 24 and must be a power of two");
}

static void refuses_tensor(const uint64_t *sizes, uint32_t rank, uint32_t type, uint64_t offset, const char *text) {
  struct gguf_text g = gguf_begin(3, 1, 0);
  put_tensor(&g, "w", sizes, rank, type, offset);
  put_data(&g, 64);
  refuses(&g, DELTAIC_BAD_FILE, text);
}

static void damaged_tensors_are_named(void **state) {
  const uint64_t huge[] = {1ull << 32, 1ull << 32, 1, 1}, wide[] = {1ull << 62, 1, 1, 1},
                 zero[] = {0, 1ull << 63, 4, 1};
  const uint64_t some[] = {16, 1, 1, 1, 1}, part[] = {33, 1, 1, 1};
  refuses_tensor(some, 0, 0, 0, "tensor w has 0 dimensions, expected from 1 to 4");
  refuses_tensor(some, 5, 0, 0, "tensor w has 5 dimensions, expected from 1 to 4");
  refuses_tensor(some, 1, 99, 0, "tensor w has type 99, which is not known");
  refuses_tensor(part, 1, 8, 0, "tensor w has rows of 33 elements, not whole blocks of Q8_0");
  refuses_tensor(huge, 2, 0, 0, "tensor w has more elements than can be counted");
  refuses_tensor(zero, 3, 0, 0, "tensor w has more elements than can be counted");
  refuses_tensor(wide, 1, 0, 0, "tensor w has more bytes than can be counted");
  refuses_tensor(some, 1, 0, 8, "tensor w begins at 8, which is not a multiple of the alignment 32");
  refuses_tensor(some, 1, 0, 32, "tensor w has 64 bytes from byte 32 of 64 on: the file is cut short or damaged");
  refuses_tensor(some, 1, 0, UINT64_MAX - 31, "tensor w has 64 bytes from byte 18446744073709551584 of 64 on");
  struct gguf_text g = gguf_begin(3, 2, 0);
  put_tensor(&g, "w", some, 1, 0, 0);
  put_tensor(&g, "w", some, 1, 0, 64);
  put_data(&g, 128);
  refuses(&g, DELTAIC_BAD_FILE, "tensor w is listed twice");
  g = gguf_begin(3, 2, 0);
  put_tensor(&g, "v", some, 1, 0, 0);
  put_tensor(&g, "w", some, 1, 0, 32);
  put_data(&g, 128);
  refuses(&g, DELTAIC_BAD_FILE, "tensors v and w overlap");
  g = gguf_begin(3, UINT64_MAX, 0);
  refuses(&g, DELTAIC_BAD_FILE, "ends inside the list of tensors: the file is cut short or damaged");
  g = gguf_begin(3, 0, UINT64_MAX);
  refuses(&g, DELTAIC_BAD_FILE, "ends inside the keys: the file is cut short or damaged");
}

static void every_truncation_is_refused(void **state) {
  const struct gguf_text g = example();
  for (size_t size = 0; size < g.size; size++) {
    struct checkpoint *c;
    assert_int_not_equal(parse_copy(&g, size, &c), DELTAIC_OK);
    assert_true(deltaic_last_error()[0]);
  }
}

// Whatever a byte becomes, the file is refused with a sentence, or its tensors lie inside it.
static void every_changed_byte_is_refused_or_harmless(void **state) {
  static const unsigned char flips[] = {1, 2, 0x10, 0x80, 0xff};
  size_t refused = 0;
  for (size_t at = 0; at < example().size; at++)
    for (size_t f = 0; f < sizeof flips; f++) {
      struct gguf_text g = example();
      struct checkpoint *c;
      g.bytes[at] ^= (char)flips[f];
      if (checkpoint_parse("x.gguf", g.bytes, g.size, &c)) {
        assert_true(deltaic_last_error()[0]);
        refused++;
        continue;
      }
      for (uint64_t i = 0; i < checkpoint_count(c); i++) {
        const struct file_tensor *t = checkpoint_at(c, i);
        assert_true((const char *)t->data >= g.bytes && (const char *)t->data + t->bytes <= g.bytes + g.size);
      }
      checkpoint_close(c);
    }
  assert_in_range(refused, 300, 10000);
}

// ---------------------------------------------------------------- models

// The keys of a model of two layers; `left_out` is not among them, and `more` is put at the end.
static struct gguf_text model_of(const char *left_out, const char *more) {
  static const struct {
    const char *name;
    uint32_t value;
  } sizes[] = {{"block_count", 3},          {"nextn_predict_layers", 1}, {"embedding_length", 8},
               {"feed_forward_length", 16}, {"attention.head_count", 2}, {"attention.head_count_kv", 1},
               {"attention.key_length", 4}, {"rope.dimension_count", 2}, {"full_attention_interval", 2},
               {"ssm.conv_kernel", 4},      {"ssm.state_size", 4},       {"ssm.group_count", 1},
               {"ssm.time_step_rank", 2},   {"ssm.inner_size", 8}};
  const size_t count = sizeof sizes / sizeof *sizes;
  const float eps = 1e-6f, base = 1e7f;
  struct gguf_text g = gguf_begin(3, 0, count + 3 - (left_out ? 1 : 0) + (more ? 1 : 0));
  char name[128];
  put_key_text(&g, "general.architecture", "qwen35");
  put_key(&g, "qwen35.attention.layer_norm_rms_epsilon", KEY_F32, &eps, 4);
  put_key(&g, "qwen35.rope.freq_base", KEY_F32, &base, 4);
  for (size_t i = 0; i < count; i++) {
    if (left_out && !strcmp(left_out, sizes[i].name)) continue;
    snprintf(name, sizeof name, "qwen35.%s", sizes[i].name);
    put_key_u32(&g, name, sizes[i].value);
  }
  if (more) put_key_u32(&g, more, 3);
  return g;
}

static void refuses_model(const struct gguf_text *g, deltaic_status status, const char *text) {
  struct checkpoint *c = accepts(g);
  struct model_spec spec;
  assert_int_equal(model_spec_read("x.gguf", c, &spec), status);
  if (status) ASSERT_MESSAGE("x.gguf", text);
  if (!status) model_spec_free(&spec);
  checkpoint_close(c);
}

static void models_are_described_by_their_keys(void **state) {
  const struct gguf_text g = model_of(NULL, NULL);
  struct checkpoint *c = accepts(&g);
  struct model_spec spec;
  assert_int_equal(model_spec_read("x.gguf", c, &spec), DELTAIC_OK);
  assert_string_equal(spec.architecture, "qwen35");
  assert_int_equal(spec.L, 2);
  assert_int_equal(spec.D, 8);
  assert_true(spec.tied);
  assert_ptr_equal(spec.layers[0].mixer, &mixer_gated_deltanet);
  assert_ptr_equal(spec.layers[1].mixer, &mixer_attention);
  const struct delta_spec *delta = spec.layers[0].spec;
  assert_true(delta->tiled);
  assert_int_equal(delta->Dv, 4);
  assert_int_equal(((const struct attention_spec *)spec.layers[1].spec)->rotary, 2);
  model_spec_free(&spec);
  checkpoint_close(c);
}

// model_of() with `more` keys after it, which the caller counts.
static struct gguf_text ending_model(uint32_t more) {
  struct gguf_text g = model_of(NULL, NULL);
  uint64_t count;
  memcpy(&count, g.bytes + 16, sizeof count); // after the magic, the version and the number of tensors
  count += more;
  memcpy(g.bytes + 16, &count, sizeof count);
  return g;
}

static void put_tokens(struct gguf_text *g, const char *const *tokens, const int32_t *types, uint32_t count) {
  put_text(g, "tokenizer.ggml.tokens");
  put_u32(g, KEY_ARRAY), put_u32(g, KEY_TEXT), put_u64(g, count);
  for (uint32_t i = 0; i < count; i++) put_text(g, tokens[i]);
  put_text(g, "tokenizer.ggml.token_type");
  put_u32(g, KEY_ARRAY), put_u32(g, KEY_I32), put_u64(g, count);
  put(g, types, count * sizeof *types);
}

static void ends_are_of_the_keys_and_of_known_control_tokens(void **state) {
  static const char *const tokens[] = {"a", "<|endoftext|>", "<|im_end|>", "<|im_end|>", "b", "c"};
  static const int32_t types[] = {1, 3, 1, 3, 3, 1}, ends[] = {5, 0, 1, 3};
  struct gguf_text g = ending_model(4);
  put_key_u32(&g, "tokenizer.ggml.eos_token_id", 5);
  put_key_u32(&g, "tokenizer.ggml.eot_token_id", 0);
  put_tokens(&g, tokens, types, 6);
  struct checkpoint *c = accepts(&g);
  struct model_spec spec;
  assert_int_equal(model_spec_read("x.gguf", c, &spec), DELTAIC_OK);
  assert_int_equal(spec.eos, 5);
  assert_int_equal(spec.generation.ends.count, 4);
  assert_memory_equal(spec.generation.ends.ids, ends, sizeof ends);
  assert_false(spec.generation.has_sampling);
  model_spec_free(&spec);
  checkpoint_close(c);

  g = ending_model(0);
  c = accepts(&g);
  assert_int_equal(model_spec_read("x.gguf", c, &spec), DELTAIC_OK);
  assert_true(spec.eos == -1 && spec.bos == -1 && !spec.generation.ends.count);
  model_spec_free(&spec);
  checkpoint_close(c);
  g = ending_model(1);
  put_key_u32(&g, "tokenizer.ggml.eot_token_id", 1 << 30);
  refuses_model(&g, DELTAIC_BAD_FILE, "tokenizer.ggml.eot_token_id is 1073741824");
}

static void sampling_is_of_the_keys(void **state) {
  const float temperature = 0.5f, top_p = 0.75f, far = 2;
  struct gguf_text g = ending_model(3);
  struct model_spec spec;
  put_key(&g, "general.sampling.temp", KEY_F32, &temperature, 4);
  put_key(&g, "general.sampling.top_p", KEY_F32, &top_p, 4);
  put_key_u32(&g, "general.sampling.top_k", 20);
  struct checkpoint *c = accepts(&g);
  assert_int_equal(model_spec_read("x.gguf", c, &spec), DELTAIC_OK);
  const deltaic_sampling *s = &spec.generation.sampling;
  assert_true(spec.generation.has_sampling && s->temperature == 0.5f && s->top_p == 0.75f && s->top_k == 20);
  assert_true(s->min_p == 0 && s->repetition_penalty == 0);
  model_spec_free(&spec);
  checkpoint_close(c);
  g = ending_model(1);
  put_key(&g, "general.sampling.min_p", KEY_F32, &far, 4);
  refuses_model(&g, DELTAIC_BAD_FILE, "general.sampling.min_p is 2");
}

static void keys_that_are_missing_or_not_known_are_named(void **state) {
  struct gguf_text g = model_of("ssm.state_size", NULL);
  refuses_model(&g, DELTAIC_BAD_FILE, "has no qwen35.ssm.state_size");
  g = model_of("block_count", NULL);
  refuses_model(&g, DELTAIC_BAD_FILE, "has no qwen35.block_count");
  g = model_of(NULL, "qwen35.odd");
  refuses_model(&g, DELTAIC_UNSUPPORTED, "key qwen35.odd is not known and might change what the model computes");
  g = model_of("ssm.time_step_rank", "qwen35.ssm.time_step_rank");
  refuses_model(&g, DELTAIC_BAD_SHAPE, "qwen35.ssm.time_step_rank 3 does not divide ssm.inner_size 8");
  g = model_of(NULL, "qwen35.rope.dimension_sections");
  refuses_model(&g, DELTAIC_UNSUPPORTED,
                "qwen35.rope.dimension_sections do not add up to half of rope.dimension_count 2");
  g = model_of(NULL, "other.odd");
  refuses_model(&g, DELTAIC_OK, NULL);
  g = gguf_begin(3, 0, 1);
  put_key_text(&g, "general.architecture", "llama");
  refuses_model(&g, DELTAIC_UNSUPPORTED, "general.architecture \"llama\" is not supported; supported are: qwen35");
  g = gguf_begin(3, 0, 0);
  refuses_model(&g, DELTAIC_BAD_FILE, "has no general.architecture");
}

// The model with another value of a key, which is given as the last.
static void refuses_value(const char *key, uint32_t value, deltaic_status status, const char *text) {
  struct gguf_text g = model_of(key, NULL);
  char name[128];
  uint64_t count;
  memcpy(&count, g.bytes + 16, sizeof count);
  count++;
  memcpy(g.bytes + 16, &count, sizeof count);
  snprintf(name, sizeof name, "qwen35.%s", key);
  put_key_u32(&g, name, value);
  refuses_model(&g, status, text);
}

static void messages_have_the_names_of_the_file(void **state) {
  refuses_value("ssm.state_size", 0, DELTAIC_BAD_FILE, "qwen35.ssm.state_size is 0 and must be from 1");
  refuses_value("embedding_length", 0, DELTAIC_BAD_FILE, "qwen35.embedding_length is 0");
  refuses_value("block_count", 1, DELTAIC_BAD_FILE, "qwen35.block_count is 0");
  refuses_value("ssm.group_count", 3, DELTAIC_BAD_SHAPE,
                "qwen35.ssm.time_step_rank 2 is not a multiple of qwen35.ssm.group_count 3");
  refuses_value("attention.head_count_kv", 3, DELTAIC_BAD_SHAPE,
                "qwen35.attention.head_count_kv 3 does not divide qwen35.attention.head_count 2");
  struct gguf_text g = ending_model(1);
  put_key_u32(&g, "tokenizer.ggml.eos_token_id", 1 << 30);
  refuses_model(&g, DELTAIC_BAD_FILE, "tokenizer.ggml.eos_token_id is 1073741824");
}

// ---------------------------------------------------------------- parts

static void write_part(const char *name, uint32_t no, uint32_t count, uint32_t total, const char *tensor) {
  struct gguf_text g = gguf_begin(3, 1, 3);
  put_key_u32(&g, "split.no", no);
  put_key_u32(&g, "split.count", count);
  put_key_u32(&g, "split.tensors.count", total);
  put_tensor(&g, tensor, (uint64_t[]){8}, 1, 0, 0);
  put_data(&g, 32);
  FILE *f = fopen(in_folder(name), "wb");
  assert_non_null(f);
  assert_int_equal(fwrite(g.bytes, 1, g.size, f), g.size);
  fclose(f);
}

static void refuses_path(const char *name, deltaic_status status, const char *text) {
  struct checkpoint *c;
  char path[1024];
  snprintf(path, sizeof path, "%s", in_folder(name));
  assert_int_equal(checkpoint_open_folder(path, &c), status);
  assert_null(c);
  ASSERT_MESSAGE(path, text);
}

static void parts_are_joined_from_the_first(void **state) {
  struct checkpoint *c;
  write_part("m-00001-of-00003.gguf", 0, 3, 3, "a");
  write_part("m-00002-of-00003.gguf", 1, 3, 3, "b");
  refuses_path("m-00001-of-00003.gguf", DELTAIC_NOT_FOUND, "part 3 of 3 is missing from the folder");
  write_part("m-00003-of-00003.gguf", 2, 3, 3, "c");
  assert_int_equal(checkpoint_open_folder(in_folder("m-00001-of-00003.gguf"), &c), DELTAIC_OK);
  assert_int_equal(checkpoint_count(c), 3);
  assert_non_null(checkpoint_find(c, "c"));
  checkpoint_close(c);
  refuses_path("m-00002-of-00003.gguf", DELTAIC_BAD_FILE,
               "is one of 3 parts; give the first, whose name ends in -00001-of-00003.gguf");
}

static void parts_that_disagree_are_refused(void **state) {
  write_part("m-00001-of-00002.gguf", 0, 2, 2, "a");
  write_part("m-00002-of-00002.gguf", 0, 2, 2, "b");
  struct checkpoint *c;
  assert_int_equal(checkpoint_open(in_folder("m-00001-of-00002.gguf"), &c), DELTAIC_BAD_FILE);
  ASSERT_MESSAGE("m-00002-of-00002.gguf", "is part 1 of 2, expected part 2 of 2");
  write_part("m-00002-of-00002.gguf", 1, 2, 2, "a");
  assert_int_equal(checkpoint_open(in_folder("m-00001-of-00002.gguf"), &c), DELTAIC_BAD_FILE);
  ASSERT_MESSAGE("m-00001-of-00002.gguf", "tensor a is in two shards");
  write_part("m-00001-of-00002.gguf", 0, 2, 5, "c");
  assert_int_equal(checkpoint_open(in_folder("m-00001-of-00002.gguf"), &c), DELTAIC_BAD_FILE);
  ASSERT_MESSAGE("m-00001-of-00002.gguf", "its parts have 2 tensors, expected 5");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(tensors_are_views_with_the_outermost_size_first),
      cmocka_unit_test(keys_of_every_type_are_values),
      cmocka_unit_test(lists_of_a_tokenizer_are_views),
      cmocka_unit_test(other_versions_and_byte_orders_are_refused),
      cmocka_unit_test(damaged_keys_are_named),
      cmocka_unit_test(damaged_tensors_are_named),
      cmocka_unit_test(every_truncation_is_refused),
      cmocka_unit_test(every_changed_byte_is_refused_or_harmless),
      cmocka_unit_test(models_are_described_by_their_keys),
      cmocka_unit_test(ends_are_of_the_keys_and_of_known_control_tokens),
      cmocka_unit_test(sampling_is_of_the_keys),
      cmocka_unit_test(keys_that_are_missing_or_not_known_are_named),
      cmocka_unit_test(messages_have_the_names_of_the_file),
      IN_FOLDER(parts_are_joined_from_the_first),
      IN_FOLDER(parts_that_disagree_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
