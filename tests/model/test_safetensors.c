// Checkpoint files: what is read, and one sentence for every kind of damage (host/safetensors).
#include "checkpoint.h"
#include "json.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include "test_folder.h"

// ---------------------------------------------------------------- helpers

enum { BLOB = 4096 };
struct blob {
  char bytes[BLOB];
  size_t size;
};

// A file of this header and `data` bytes of data that count up from 0.
static struct blob blob_of(const char *header, size_t data) {
  struct blob b = {.size = 8 + strlen(header) + data};
  uint64_t length = strlen(header);
  assert_true(b.size <= BLOB);
  memcpy(b.bytes, &length, 8);
  memcpy(b.bytes + 8, header, length);
  for (size_t i = 0; i < data; i++) b.bytes[8 + length + i] = (char)i;
  return b;
}

static void refuses_bytes(const void *bytes, size_t size, const char *text) {
  struct checkpoint *c = (void *)1;
  assert_int_equal(checkpoint_parse("x.safetensors", bytes, size, &c), DELTAIC_BAD_FILE);
  assert_null(c);
  ASSERT_MESSAGE("x.safetensors", text);
}

static void refuses(const char *header, size_t data, const char *text) {
  struct blob b = blob_of(header, data);
  // An exact copy on the heap, so that the address sanitizer sees a read past the end.
  char *copy = malloc(b.size);
  memcpy(copy, b.bytes, b.size);
  refuses_bytes(copy, b.size, text);
  free(copy);
}

static struct checkpoint *accepts(const struct blob *b) {
  struct checkpoint *c;
  if (checkpoint_parse("x.safetensors", b->bytes, b->size, &c)) fail_msg("%s", deltaic_last_error());
  return c;
}

// ---------------------------------------------------------------- folders

static void write_bytes(const char *name, const void *bytes, size_t size) {
  FILE *f = fopen(in_folder(name), "wb");
  assert_non_null(f);
  assert_int_equal(fwrite(bytes, 1, size, f), size);
  fclose(f);
}
static void write_text(const char *name, const char *text) { write_bytes(name, text, strlen(text)); }
static void write_blob(const char *name, const char *header, size_t data) {
  struct blob b = blob_of(header, data);
  write_bytes(name, b.bytes, b.size);
}

static void refuses_path(const char *path, deltaic_status status, const char *first, const char *second) {
  struct checkpoint *c = (void *)1;
  assert_int_equal(checkpoint_open(path, &c), status);
  assert_null(c);
  ASSERT_MESSAGE(first, second);
}

#define ONE "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}"
#define TWO "{\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}"

// ---------------------------------------------------------------- what is read

static void tensors_are_found_by_name_with_dtype_shape_and_data(void **state) {
  struct blob b = blob_of("{\"__metadata__\":{\"format\":\"pt\"},"
                          "\"z\":{\"dtype\":\"BF16\",\"shape\":[2,3],\"data_offsets\":[4,16]},"
                          "\"a\":{\"dtype\":\"I32\",\"shape\":[1],\"data_offsets\":[0,4]}}",
                          16);
  struct checkpoint *c = accepts(&b);
  assert_int_equal(checkpoint_count(c), 2);
  assert_string_equal(checkpoint_path(c), "x.safetensors");
  assert_string_equal(checkpoint_at(c, 0)->name, "a");
  assert_string_equal(checkpoint_metadata(c, "format"), "pt");
  assert_null(checkpoint_metadata(c, "z"));
  struct file_tensor *t = checkpoint_find(c, "z");
  assert_non_null(t);
  assert_int_equal(t->dtype, FILE_BF16);
  assert_int_equal(t->rank, 2);
  assert_int_equal(t->shape[0], 2);
  assert_int_equal(t->shape[1], 3);
  assert_int_equal(t->bytes, 12);
  assert_int_equal(*(const unsigned char *)t->data, 4);
  assert_false(t->used);
  assert_null(checkpoint_find(c, "__metadata__"));
  assert_null(checkpoint_find(c, "b"));
  assert_ptr_equal(checkpoint_findf(c, "%c", 'z'), t);
  checkpoint_close(c);
}

static void empty_tensors_scalars_holes_and_no_tensors_are_fine(void **state) {
  struct blob b = blob_of("{\"none\":{\"dtype\":\"F32\",\"shape\":[0,5],\"data_offsets\":[4,4]},"
                          "\"scalar\":{\"dtype\":\"F64\",\"shape\":[],\"data_offsets\":[8,16]},"
                          "\"first\":{\"dtype\":\"F16\",\"shape\":[1,1,2],\"data_offsets\":[0,4]},"
                          "\"end\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[20,20]}}   ",
                          20);
  struct checkpoint *c = accepts(&b);
  assert_int_equal(checkpoint_find(c, "none")->bytes, 0);
  assert_int_equal(checkpoint_find(c, "scalar")->rank, 0);
  float none;
  file_tensor_f32(checkpoint_find(c, "end"), 0, 0, &none);
  checkpoint_close(c);
  b = blob_of("{}", 0);
  c = accepts(&b);
  assert_int_equal(checkpoint_count(c), 0);
  assert_null(checkpoint_find(c, "a"));
  checkpoint_close(c);
  checkpoint_close(NULL);
}

static void other_dtypes_keep_the_name_that_the_file_has(void **state) {
  struct blob b = blob_of("{\"a\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,3]},"
                          "\"b\":{\"dtype\":\"F4_FROM_THE_FUTURE\",\"shape\":[3],\"data_offsets\":[3,5]}}",
                          5);
  struct checkpoint *c = accepts(&b);
  assert_int_equal(checkpoint_find(c, "a")->dtype, FILE_OTHER);
  assert_int_equal(checkpoint_find(c, "b")->dtype, FILE_OTHER);
  assert_string_equal(checkpoint_find(c, "a")->dtype_name, "U8");
  assert_string_equal(checkpoint_find(c, "b")->dtype_name, "F4_FROM_THE_FUTURE");
  checkpoint_close(c);
}

static void every_float_becomes_f32_from_unaligned_data(void **state) {
  const double f64 = -1.5;
  const float f32[2] = {3.25f, -0.0f};
  const uint16_t f16[2] = {0x3c00, 0xc100}, bf16[2] = {0x3f80, 0xc040};
  char data[8 + 8 + 4 + 4 + 1];
  memcpy(data + 1, &f64, 8);
  memcpy(data + 9, f32, 8);
  memcpy(data + 17, f16, 4);
  memcpy(data + 21, bf16, 4);
  struct file_tensor t = {.dtype = FILE_F64, .data = data + 1};
  float out[2];
  file_tensor_f32(&t, 0, 1, out);
  assert_true(out[0] == -1.5f);
  t = (struct file_tensor){.dtype = FILE_F32, .data = data + 9};
  file_tensor_f32(&t, 0, 2, out);
  assert_true(out[0] == 3.25f && out[1] == 0.0f);
  t = (struct file_tensor){.dtype = FILE_F16, .data = data + 17};
  file_tensor_f32(&t, 0, 2, out);
  assert_true(out[0] == 1.0f && out[1] == -2.5f);
  t = (struct file_tensor){.dtype = FILE_BF16, .data = data + 21};
  file_tensor_f32(&t, 1, 1, out);
  assert_true(out[0] == -3.0f);
}

static void tiny_models_and_their_references_open(void **state) {
  static const char *const names[] = {"tiny_delta_net",      "tiny_delta_net_swa",      "tiny_delta_net_global",
                                      "tiny_gated_deltanet", "tiny_gated_deltanet_gva", "tiny_gated_deltanet_h1"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    char path[512];
    struct checkpoint *c;
    snprintf(path, sizeof path, "%s/vectors/models/%s", TESTS_DIR, names[i]);
    assert_int_equal(checkpoint_open(path, &c), DELTAIC_OK);
    assert_string_equal(checkpoint_path(c), path);
    assert_string_equal(checkpoint_metadata(c, "format"), "pt");
    const struct file_tensor *t = checkpoint_find(c, "model.embeddings.weight");
    assert_int_equal(t->shape[0], 259);
    assert_int_equal(t->shape[1], 64);
    checkpoint_close(c);
    strcat(path, "/reference.safetensors");
    assert_int_equal(checkpoint_open(path, &c), DELTAIC_OK);
    assert_non_null(checkpoint_find(c, "greedy.tokens"));
    assert_non_null(checkpoint_metadata(c, "nll"));
    checkpoint_close(c);
  }
}

// ---------------------------------------------------------------- damaged headers

static void files_that_are_no_safetensors_are_refused(void **state) {
  refuses_bytes(NULL, 0, "is empty");
  refuses_bytes("1234567", 7, "7 bytes, too few");
  refuses_bytes("version https://git-lfs.github.com/spec/v1", 42, "'git lfs pull' fetches the file");
  refuses_bytes("GGML\3\0\0\0more of it", 18, "is not a safetensors file: it has no valid header");
}

static void lying_header_lengths_are_refused_without_allocating(void **state) {
  static const uint64_t lies[] = {11, 100000001, 1ull << 63, UINT64_MAX, UINT64_MAX - 7};
  for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
    char bytes[18] = "--------{}        ";
    memcpy(bytes, &lies[i], 8);
    refuses_bytes(bytes, sizeof bytes, "its header claims");
  }
}

static void headers_that_are_no_json_object_are_refused(void **state) {
  refuses("", 0, "line 1");
  refuses("[]", 0, "must be a JSON object");
  refuses("{\"a\":", 0, "in the safetensors header");
  refuses("{} x", 0, "end of file expected");
  refuses("{\"a\xff\":1}", 0, "unable to decode byte 0xff");
  refuses("{\"a\\u0000\":1}", 0, "\\u0000");
  refuses("{\"a\":99999999999999999999}", 0, "too big integer");
  refuses("{\"a\":1e999}", 0, "real number overflow");
}

static void nesting_is_limited(void **state) {
  enum { DEEP = 100000 };
  char *text = malloc(DEEP);
  memset(text, '[', DEEP);
  json_t *value = (void *)1;
  assert_int_equal(json_parse("deep.json", text, DEEP, &value), DELTAIC_BAD_FILE);
  assert_null(value);
  ASSERT_MESSAGE("deep.json", "maximum parsing depth");
  free(text);
}

static void duplicate_names_are_refused(void **state) {
  refuses("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
          "\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}",
          8, "duplicate object key near '\"a\"'");
}

static void metadata_that_are_no_strings_are_refused(void **state) {
  refuses("{\"__metadata__\":[]}", 0, "__metadata__ must be an object");
  refuses("{\"__metadata__\":{\"k\":1}}", 0, "__metadata__: k must be a string");
}

static void entries_without_their_three_fields_are_refused(void **state) {
  refuses("{\"a\":1}", 0, "tensor a: must be an object");
  refuses("{\"a\":{}}", 0, "tensor a: dtype must be a string");
  refuses("{\"a\":{\"dtype\":32,\"shape\":[],\"data_offsets\":[0,4]}}", 4, "tensor a: dtype");
  refuses("{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4, "tensor a: shape must be a list");
  refuses("{\"a\":{\"dtype\":\"F32\",\"shape\":{},\"data_offsets\":[0,4]}}", 4, "tensor a: shape must be a list");
  refuses("{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, "tensor a: data_offsets must be two");
}

static void shapes_that_are_no_sizes_are_refused(void **state) {
  refuses("{\"a\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]}}", 4, "tensor a: shape must hold");
  refuses("{\"a\":{\"dtype\":\"F32\",\"shape\":[1.0],\"data_offsets\":[0,4]}}", 4, "tensor a: shape must hold");
  refuses("{\"a\":{\"dtype\":\"F32\",\"shape\":[\"1\"],\"data_offsets\":[0,4]}}", 4, "tensor a: shape must hold");
  refuses("{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,4]}}", 4,
          "tensor a: has 9 dimensions, more than 8");
}

static void products_that_overflow_are_refused(void **state) {
  refuses("{\"a\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,0]}}", 4,
          "tensor a: has more elements");
  refuses("{\"a\":{\"dtype\":\"F32\",\"shape\":[0,4611686018427387904,4],\"data_offsets\":[0,0]}}", 4,
          "tensor a: has more elements");
  refuses("{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387904],\"data_offsets\":[0,0]}}", 4,
          "tensor a: has more bytes");
}

static void spans_that_disagree_with_shapes_are_refused(void **state) {
  refuses("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]}}", 8,
          "tensor a: its shape needs 8 bytes of F32, its data_offsets give 4");
  refuses("{\"a\":{\"dtype\":\"F16\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8, "tensor a: its shape needs 4");
  refuses("{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8, "tensor a: its shape needs 2");
}

static void offsets_outside_the_data_are_refused(void **state) {
  refuses("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 7,
          "tensor a: ends at byte 8 of 7: the file is cut short");
  refuses("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[9223372036854775800,9223372036854775804]}}", 8,
          "tensor a: ends at byte");
  refuses("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[8,4]}}", 8, "tensor a: ends (4) before it begins");
  refuses("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[-4,0]}}", 8, "tensor a: data_offsets must be two");
  refuses("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4,8]}}", 8,
          "tensor a: data_offsets must be two");
  refuses("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4.0]}}", 8,
          "tensor a: data_offsets must be two");
}

static void overlapping_tensors_are_refused(void **state) {
  refuses("{\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[4,12]},"
          "\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}",
          12, "tensors a and b overlap");
  refuses("{\"b\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]},"
          "\"z\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[8,8]},"
          "\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[8,12]}}",
          16, "tensors b and a overlap");
}

static void endless_names_leave_room_for_the_reason(void **state) {
  char header[BLOB - 64];
  memset(header, 'n', sizeof header);
  memcpy(header, "{\"", 2);
  strcpy(header + sizeof header - 16, "\":1}");
  refuses(header, 0, "must be an object of dtype");
}

static void every_truncation_of_a_file_is_refused(void **state) {
  struct blob b = blob_of(ONE, 8);
  for (size_t size = 0; size < b.size; size++) {
    char *copy = malloc(size ? size : 1);
    memcpy(copy, b.bytes, size);
    struct checkpoint *c;
    assert_int_equal(checkpoint_parse("x.safetensors", copy, size, &c), DELTAIC_BAD_FILE);
    free(copy);
  }
}

// ---------------------------------------------------------------- folders and shards

static void missing_paths_and_folders_without_a_model_are_named(void **state) {
  refuses_path("no/such/folder", DELTAIC_NOT_FOUND, "no/such/folder", "no such file or folder");
  refuses_path(folder, DELTAIC_NOT_FOUND, folder, "has neither model.safetensors nor model.safetensors.index.json");
}

static void folders_pipes_and_empty_files_are_no_checkpoints(void **state) {
  assert_int_equal(mkdir(in_folder("model.safetensors"), 0777), 0);
  refuses_path(folder, DELTAIC_IO, "model.safetensors", "is a folder, not a file");
  assert_int_equal(rmdir(in_folder("model.safetensors")), 0);
  assert_int_equal(mkfifo(in_folder("model.safetensors"), 0666), 0);
  refuses_path(folder, DELTAIC_IO, "model.safetensors", "is not a regular file");
  unlink(in_folder("model.safetensors"));
  write_text("model.safetensors", "");
  refuses_path(folder, DELTAIC_BAD_FILE, "model.safetensors", "is empty");
}

static void unreadable_files_are_named(void **state) {
  enum { NOBODY = 65534 };
  write_blob("model.safetensors", ONE, 8);
  assert_int_equal(chmod(in_folder("model.safetensors"), 0), 0);
  assert_int_equal(chmod(folder, 0755), 0);
  bool root = geteuid() == 0; // who reads everything
  if (root) assert_int_equal(seteuid(NOBODY), 0);
  refuses_path(folder, DELTAIC_IO, "model.safetensors", strerror(EACCES));
  if (root) assert_int_equal(seteuid(0), 0);
}

static void one_file_opens_by_its_path_or_its_folder(void **state) {
  struct checkpoint *c;
  write_blob("model.safetensors", ONE, 8);
  assert_int_equal(checkpoint_open(folder, &c), DELTAIC_OK);
  assert_non_null(checkpoint_find(c, "a"));
  checkpoint_close(c);
  assert_int_equal(checkpoint_open(in_folder("model.safetensors"), &c), DELTAIC_OK);
  assert_non_null(checkpoint_find(c, "a"));
  checkpoint_close(c);
}

static void write_index(const char *a, const char *b) {
  char text[512];
  snprintf(text, sizeof text, "{\"metadata\":{},\"weight_map\":{\"a\":\"%s\",\"b\":\"%s\"}}", a, b);
  write_text("model.safetensors.index.json", text);
}

static void shards_are_joined(void **state) {
  struct checkpoint *c;
  write_blob("1.safetensors", ONE, 8);
  write_blob("2.safetensors", TWO, 4);
  write_index("1.safetensors", "2.safetensors");
  assert_int_equal(checkpoint_open(folder, &c), DELTAIC_OK);
  assert_int_equal(checkpoint_count(c), 2);
  assert_int_equal(checkpoint_find(c, "a")->bytes, 8);
  assert_int_equal(checkpoint_find(c, "b")->bytes, 4);
  checkpoint_close(c);
}

static void one_file_is_preferred_to_shards(void **state) {
  struct checkpoint *c;
  write_blob("model.safetensors", ONE, 8);
  write_text("model.safetensors.index.json", "not read");
  assert_int_equal(checkpoint_open(folder, &c), DELTAIC_OK);
  checkpoint_close(c);
}

static void missing_and_damaged_shards_are_named(void **state) {
  write_blob("1.safetensors", ONE, 8);
  write_index("1.safetensors", "2.safetensors");
  refuses_path(folder, DELTAIC_NOT_FOUND, "model.safetensors.index.json", "shard 2.safetensors is missing");
  write_blob("2.safetensors", TWO, 3);
  refuses_path(folder, DELTAIC_BAD_FILE, "2.safetensors", "tensor b: ends at byte 4 of 3");
}

static void shards_that_disagree_with_the_index_or_each_other_are_refused(void **state) {
  write_blob("1.safetensors", ONE, 8);
  write_index("1.safetensors", "1.safetensors");
  refuses_path(folder, DELTAIC_BAD_FILE, "model.safetensors.index.json", "tensor b is in none of the shards");
  write_blob("2.safetensors", ONE, 8);
  write_index("1.safetensors", "2.safetensors");
  refuses_path(folder, DELTAIC_BAD_FILE, folder, "tensor a is in two shards");
}

static void shard_names_lead_nowhere_else(void **state) {
  static const char *const names[] = {
      "../1.safetensors", "/1.safetensors", "a/1.safetensors", "a\\\\1.safetensors", "..", ".", ""};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    write_index(names[i], names[i]);
    refuses_path(folder, DELTAIC_BAD_FILE, "model.safetensors.index.json", "must be the name of a file in the same");
  }
}

static void malformed_indexes_are_refused(void **state) {
  static const char *const cases[][2] = {{"", "line 1"},
                                         {"[]", "weight_map must be an object"},
                                         {"{}", "weight_map must be an object"},
                                         {"{\"weight_map\":[]}", "weight_map must be an object"},
                                         {"{\"weight_map\":{}}", "weight_map names no file"},
                                         {"{\"weight_map\":{\"a\":1}}", "weight_map: a must be a file name"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    write_text("model.safetensors.index.json", cases[i][0]);
    refuses_path(folder, DELTAIC_BAD_FILE, "model.safetensors.index.json", cases[i][1]);
  }
}

static deltaic_status fail_change(const struct file_tensor *t, void *data) { return DELTAIC_OUT_OF_MEMORY; }

// Whoever reads such a tensor row by row gets zeros, and looks at the checkpoint's status (weight_part_read()).
static void a_change_that_fails_is_the_checkpoints_failure(void **state) {
  struct checkpoint *c;
  assert_int_equal(checkpoint_open(TESTS_DIR "/vectors/models/tiny_delta_net", &c), DELTAIC_OK);
  struct file_tensor *t = checkpoint_at(c, 0);
  t->data = NULL;
  t->change = fail_change;
  assert_int_equal(checkpoint_status(c), DELTAIC_OK);
  assert_int_equal(file_tensor_load(t), DELTAIC_OUT_OF_MEMORY);
  assert_int_equal(checkpoint_status(c), DELTAIC_OUT_OF_MEMORY);
  checkpoint_close(c);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(tensors_are_found_by_name_with_dtype_shape_and_data),
      cmocka_unit_test(empty_tensors_scalars_holes_and_no_tensors_are_fine),
      cmocka_unit_test(other_dtypes_keep_the_name_that_the_file_has),
      cmocka_unit_test(every_float_becomes_f32_from_unaligned_data),
      cmocka_unit_test(tiny_models_and_their_references_open),
      cmocka_unit_test(files_that_are_no_safetensors_are_refused),
      cmocka_unit_test(lying_header_lengths_are_refused_without_allocating),
      cmocka_unit_test(headers_that_are_no_json_object_are_refused),
      cmocka_unit_test(nesting_is_limited),
      cmocka_unit_test(duplicate_names_are_refused),
      cmocka_unit_test(metadata_that_are_no_strings_are_refused),
      cmocka_unit_test(entries_without_their_three_fields_are_refused),
      cmocka_unit_test(shapes_that_are_no_sizes_are_refused),
      cmocka_unit_test(products_that_overflow_are_refused),
      cmocka_unit_test(spans_that_disagree_with_shapes_are_refused),
      cmocka_unit_test(offsets_outside_the_data_are_refused),
      cmocka_unit_test(overlapping_tensors_are_refused),
      cmocka_unit_test(endless_names_leave_room_for_the_reason),
      cmocka_unit_test(every_truncation_of_a_file_is_refused),
      cmocka_unit_test(a_change_that_fails_is_the_checkpoints_failure),
      IN_FOLDER(missing_paths_and_folders_without_a_model_are_named),
      IN_FOLDER(folders_pipes_and_empty_files_are_no_checkpoints),
      IN_FOLDER(unreadable_files_are_named),
      IN_FOLDER(one_file_opens_by_its_path_or_its_folder),
      IN_FOLDER(shards_are_joined),
      IN_FOLDER(one_file_is_preferred_to_shards),
      IN_FOLDER(missing_and_damaged_shards_are_named),
      IN_FOLDER(shards_that_disagree_with_the_index_or_each_other_are_refused),
      IN_FOLDER(shard_names_lead_nowhere_else),
      IN_FOLDER(malformed_indexes_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
