// The operators of the CPU backend, and what is its alone: 16-bit floats, threads, the recorder.
#include "cpu_blocks.h"
#include "ops_cases.h"
#include "ops_tools.h"
#include "pool.h"
#include <pthread.h>

// ---------------------------------------------------------------- 16-bit floats

static double f16_value(uint32_t h) {
  double mantissa = h & 0x3ff, sign = h & 0x8000 ? -1 : 1;
  uint32_t exponent = h >> 10 & 31;
  return sign * (exponent ? ldexp(1024 + mantissa, (int)exponent - 25) : ldexp(mantissa, -24));
}

static void f16_widens_exactly_and_returns(void **state) {
  for (uint32_t h = 0; h < 0x10000; h++) {
    float f = f16_to_f32((uint16_t)h);
    if ((h & 0x7c00) != 0x7c00) assert_true(f == f16_value(h) && !signbit(f) == !(h & 0x8000));
    if ((h & 0x7fff) == 0x7c00) assert_true(isinf(f) && !signbit(f) == !(h & 0x8000));
    if ((h & 0x7fff) > 0x7c00) assert_true(isnan(f) && (f32_to_f16(f) & 0x7fff) > 0x7c00);
    if ((h & 0x7fff) <= 0x7c00) assert_int_equal(f32_to_f16(f), h);
  }
}

static void bf16_widens_exactly_and_returns(void **state) {
  for (uint32_t h = 0; h < 0x10000; h++) {
    float f = bf16_to_f32((uint16_t)h);
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    assert_int_equal(bits, h << 16);
    if (isnan(f))
      assert_true((f32_to_bf16(f) & 0x7fff) > 0x7f80);
    else
      assert_int_equal(f32_to_bf16(f), h);
  }
}

// Between every two neighbours: just below the middle, the middle (to even), just above.
static void f16_and_bf16_round_to_nearest_even(void **state) {
  for (uint32_t h = 0; h < 0x7bff; h++) {
    double low = f16_value(h), high = f16_value(h + 1);
    float middle = (float)((low + high) / 2);
    assert_int_equal(f32_to_f16(middle), h & 1 ? h + 1 : h);
    assert_int_equal(f32_to_f16(nextafterf(middle, 0)), h);
    assert_int_equal(f32_to_f16(nextafterf(middle, INFINITY)), h + 1);
    assert_int_equal(f32_to_f16(-middle), 0x8000 | (h & 1 ? h + 1 : h));
  }
  for (uint32_t h = 0; h < 0x7f7f; h++) {
    uint32_t bits = h << 16 | 0x8000;
    float middle;
    memcpy(&middle, &bits, sizeof middle);
    assert_int_equal(f32_to_bf16(middle), h & 1 ? h + 1 : h);
    assert_int_equal(f32_to_bf16(nextafterf(middle, 0)), h);
    assert_int_equal(f32_to_bf16(nextafterf(middle, INFINITY)), h + 1);
  }
  assert_int_equal(f32_to_f16(65519.996f), 0x7bff);
  assert_int_equal(f32_to_f16(65520), 0x7c00);
  assert_int_equal(f32_to_f16(-1e30f), 0xfc00);
  assert_int_equal(f32_to_f16(0x1p-25f), 0);
  assert_int_equal(f32_to_bf16(3.4e38f), 0x7f80);
}

static void views_know_their_bytes(void **state) {
  struct buffer buffer = {0};
  struct tensor t = {.dtype = DTYPE_BF16, .rows = 10, .cols = 100, .stride = 128, .buffer = &buffer, .offset = 512};
  assert_int_equal(tensor_bytes(&t), (9 * 128 + 100) * 2);
  struct tensor rows = tensor_rows(t, 4, 2), cols = tensor_cols(t, 128 - 28, 28);
  assert_int_equal(rows.offset, 512 + 4 * 256);
  assert_int_equal(tensor_bytes(&rows), (128 + 100) * 2);
  assert_int_equal(cols.offset, 512 + 200);
  assert_int_equal(cols.cols, 28);
  struct tensor absent = {0};
  assert_int_equal(tensor_bytes(&absent), 0);
  assert_string_equal(dtype_name(DTYPE_BF16), "bf16");
}

// ---------------------------------------------------------------- threads

struct visits {
  atomic_uint count[1000];
  atomic_uint workers;
};

static void visit(void *context, uint64_t index, uint32_t worker) {
  struct visits *v = context;
  atomic_fetch_add(&v->count[index], 1);
  atomic_fetch_or(&v->workers, 1u << worker);
}

static void pool_runs_every_index_once(void **state) {
  for (uint32_t threads = 1; threads <= 5; threads++) {
    struct pool *pool;
    assert_int_equal(pool_create(threads, &pool), DELTAIC_OK);
    uint32_t count = pool_threads(pool);
    assert_true(count >= 1 && count <= threads);
    for (uint64_t n = 0; n <= 1000; n = n * 3 + 1) {
      struct visits v = {0};
      pool_run(pool, n, visit, &v);
      for (uint64_t i = 0; i < 1000; i++) assert_int_equal(atomic_load(&v.count[i]), i < n);
      assert_true(atomic_load(&v.workers) < 1u << count);
    }
    pool_free(pool);
  }
  pool_free(NULL);
}

static void *run_loops(void *pool) {
  for (int i = 0; i < 300; i++) {
    struct visits v = {0};
    pool_run(pool, 100, visit, &v);
    for (int j = 0; j < 100; j++)
      if (atomic_load(&v.count[j]) != 1) return pool;
  }
  return NULL;
}

static void pool_serves_several_callers(void **state) {
  struct pool *pool;
  pthread_t callers[3];
  void *wrong;
  assert_int_equal(pool_create(3, &pool), DELTAIC_OK);
  for (int i = 0; i < 3; i++) assert_int_equal(pthread_create(&callers[i], NULL, run_loops, pool), 0);
  for (int i = 0; i < 3; i++) {
    pthread_join(callers[i], &wrong);
    assert_null(wrong);
  }
  pool_free(pool);
}

static void open_cpu(uint32_t threads) {
  assert_int_equal(backend_open_cpu(threads, &backend), DELTAIC_OK);
  assert_int_equal(backend->functions->recorder_create(backend, &recorder), DELTAIC_OK);
}

static void close_cpu(void) {
  tools_teardown(NULL);
  backend->functions->recorder_free(recorder);
  backend->functions->close(backend);
}

struct outputs {
  double y[40 * 50], o[40 * 96], state[2 * 20 * 48];
};

static void compute(struct outputs *out, uint32_t threads) {
  enum { T = 40, K = 700, N = 50 };
  open_cpu(threads);
  seed(60);
  struct array x = activations(T, K, DENSE, normals(T * K)), w = weights(DTYPE_BF16, N, K, DENSE, normals(N * K));
  struct array y = activations(T, N, DENSE, NULL);
  struct delta_args a = {.H = 1, .Hv = 2, .Dk = 20, .Dv = 48, .n = 1, .scale = 1};
  struct array qkv = activations(T, 2 * 20 + 96, DENSE, uniforms(T * 136, -0.2, 0.2));
  struct array beta = activations(T, 2, DENSE, uniforms(T * 2, 0, 1)), o = activations(T, 96, DENSE, NULL);
  struct array S = activations(1, 2 * 20 * 48, DENSE, NULL);
  struct sequence s = {0, T, 0, 0};
  list->form = DELTA_CHUNK;
  begin();
  op_linear(list, y.t, x.t, w.t, ABSENT);
  op_delta_rule(list,
                &(struct delta_rule){
                    .o = o.t, .state = S.t, .qkv = qkv.t, .beta = beta.t, .sequences = sequences_of(&s, 1).t, .a = a});
  run();
  memcpy(out->y, read_values(&y), sizeof out->y);
  memcpy(out->o, read_values(&o), sizeof out->o);
  memcpy(out->state, read_values(&S), sizeof out->state);
  close_cpu();
}

static void results_do_not_depend_on_the_number_of_threads(void **state) {
  static struct outputs one, many;
  compute(&one, 1);
  for (uint32_t threads = 2; threads <= 7; threads++) {
    compute(&many, threads);
    assert_memory_equal(&one, &many, sizeof one);
  }
}

// A processor runs the best set alone: the others are wrong unnoticed unless they are asked for.
static void matmul_is_right_with_every_instruction_set(void **state) {
  enum { T = 515, K = 300, N = 70 };
  const uint32_t some[] = {1, 3, 4, 7, T};
  uint32_t sets = 0;
  for (; cpu_matmul_kernels(sets); sets++)
    for (int d = DTYPE_F32; d <= DTYPE_BF16; d++) {
      open_cpu(2);
      ((struct cpu_backend *)backend)->matmul = cpu_matmul_kernels(sets);
      seed(61);
      struct array x = activations(T, K, DENSE, normals(T * K)), y = activations(T, N, DENSE, NULL);
      struct array w = weights((enum dtype)d, N, K, 304, normals(N * K));
      double *want = zeros(T * N);
      for (int i = 0; i < T * N; i++)
        for (int k = 0; k < K; k++) want[i] += x.v[i / N * K + k] * w.v[i % N * K + k];
      for (int i = 0; i < 5; i++) {
        RUN(op_linear(list, tensor_rows(y.t, 0, some[i]), tensor_rows(x.t, 0, some[i]), w.t, ABSENT));
        expect_close("matmul of every instruction set", read_values(&y), want, (size_t)some[i] * N, 1e-6);
      }
      close_cpu();
    }
  assert_true(sets >= 1);
}

// The same for weights in blocks: in float32, and with inputs rounded to integers.
static void products_of_blocks_are_right_with_every_instruction_set(void **state) {
  enum { T = 515, K = 557, N = 70 };
  const uint32_t some[] = {1, 3, 8, 9, 16, T};
  uint32_t sets = 0;
  for (; cpu_block_kernels(sets); sets++)
    for (enum dtype d = DTYPE_BLOCKS; d < DTYPE_TILES; d++) {
      open_cpu(2);
      ((struct cpu_backend *)backend)->blocks = cpu_block_kernels(sets);
      seed(62);
      struct array x = activations(T, K, K + 3, normals(T * K)), y = activations(T, N, N + 2, NULL);
      struct array w = weights(d, N, K, (uint32_t)weight_stride(d, K), normals(N * K));
      struct array bias = weights(DTYPE_F32, 1, N, DENSE, normals(N));
      double *want = zeros(T * N);
      for (int i = 0; i < T * N; i++) {
        want[i] = bias.v[i % N];
        for (int k = 0; k < K; k++) want[i] += x.v[i / N * K + k] * w.v[i % N * K + k];
      }
      for (int i = 0; i < 6; i++)
        for (int fast = 0; fast < 2; fast++) {
          list->matrices = fast ? MATRICES_BEST : MATRICES_NONE;
          RUN(op_linear(list, tensor_rows(y.t, 0, some[i]), tensor_rows(x.t, 0, some[i]), w.t, bias.t));
          expect_close(fast ? "blocks, inputs rounded" : "blocks", read_values(&y), want, (size_t)some[i] * N,
                       fast ? 1e-3 : 1e-6);
        }
      close_cpu();
    }
  assert_true(sets >= 1);
}

// Sums of integers are as large as they can be: the inputs and the weights of every format have one sign and the
// largest size.
static void sums_of_integers_do_not_overflow(void **state) {
  enum { T = 9, K = 1024, N = 16 };
  for (uint32_t sets = 0; cpu_block_kernels(sets); sets++)
    for (enum dtype d = DTYPE_BLOCKS; d < DTYPE_TILES; d++)
      for (int i = 0; i < 3; i++) {
        const int bytes[] = {0, 0x80, 0xff};
        const struct format *f = &formats[d];
        open_cpu(1);
        ((struct cpu_backend *)backend)->blocks = cpu_block_kernels(sets);
        list->matrices = MATRICES_BEST;
        struct array x = activations(T, K, DENSE, uniforms(T * K, 1, 1)), y = activations(T, N, DENSE, NULL);
        struct array w = weights(d, N, K, DENSE, NULL);
        char *blocks = (char *)w.t.buffer->mapped;
        float values[K];
        double want[T * N] = {0};
        memset(blocks, bytes[i], dtype_bytes(d, N * K));
        for (char *b = blocks; b < blocks + dtype_bytes(d, N * K); b += f->bytes) {
          const uint16_t scale = f32_to_f16(1);
          for (int j = 0; j < 2 && f->scales[j].most > 0; j++) memcpy(b + f->scales[j].at, &scale, 2);
          if (d == DTYPE_Q6_K) memset(b + 192, 0x80, 16); // elements of -32 have scales of -128
        }
        dtype_decode(d, blocks, 0, K, values);
        for (int j = 0; j < T * N; j++)
          for (int k = 0; k < K; k++) want[j] += values[k];
        RUN(op_linear(list, y.t, x.t, w.t, ABSENT));
        expect_close("largest sums of integers", read_values(&y), want, T * N, 1e-6);
        RUN(op_linear(list, tensor_rows(y.t, 0, 1), tensor_rows(x.t, 0, 1), w.t, ABSENT));
        expect_close("largest sums of integers", read_values(&y), want, N, 1e-6);
        close_cpu();
      }
}

// ---------------------------------------------------------------- the recorder

static void record_copy(struct tensor to, struct tensor from) {
  oplist_begin(list);
  op_copy(list, to, from);
  recorder->functions->recorder_list(recorder, list);
}

static void a_cancelled_recording_does_nothing_more(void **state) {
  open_cpu(2);
  atomic_bool cancel = false;
  double values[4] = {1, 2, 3, 4};
  struct array from = activations(1, 4, DENSE, values), to = activations(1, 4, DENSE, NULL);
  recorder->functions->recorder_begin(recorder, false, &cancel);
  record_copy(to.t, from.t);
  assert_int_equal(recorder->functions->recorder_run(recorder), DELTAIC_OK);
  assert_true(read_values(&to)[3] == 4);
  to = activations(1, 4, DENSE, NULL);
  recorder->functions->recorder_begin(recorder, false, &cancel);
  atomic_store(&cancel, true);
  record_copy(to.t, from.t);
  atomic_store(&cancel, false); // too late: the recording has a hole
  record_copy(to.t, from.t);
  assert_int_equal(recorder->functions->recorder_run(recorder), DELTAIC_CANCELLED);
  assert_string_equal(deltaic_last_error(), "the computation was cancelled");
  assert_true(read_values(&to)[3] == 0);
  recorder->functions->recorder_begin(recorder, false, &cancel);
  assert_int_equal(recorder->functions->recorder_run(recorder), DELTAIC_OK);
  close_cpu();
}

static void *set_later(void *flag) {
  struct timespec pause = {.tv_nsec = 20000000};
  nanosleep(&pause, NULL);
  atomic_store((atomic_bool *)flag, true);
  return NULL;
}

static void a_cancel_stops_a_long_op(void **state) {
  open_cpu(2);
  enum { T = 512, K = 1024, N = 4096 };
  struct array x = activations(T, K, DENSE, NULL), w = weights(DTYPE_F32, N, K, DENSE, NULL);
  struct array y = activations(T, N, DENSE, NULL);
  atomic_bool cancel = false;
  pthread_t thread;
  assert_int_equal(pthread_create(&thread, NULL, set_later, &cancel), 0);
  oplist_begin(list);
  op_linear(list, y.t, x.t, w.t, ABSENT);
  recorder->functions->recorder_begin(recorder, false, &cancel);
  for (int i = 0; i < 100000 && !atomic_load(&cancel); i++) recorder->functions->recorder_list(recorder, list);
  assert_int_equal(recorder->functions->recorder_run(recorder), DELTAIC_CANCELLED);
  pthread_join(thread, NULL);
  close_cpu();
}

static void the_profile_counts_bytes_and_operations(void **state) {
  open_cpu(1);
  struct array x = activations(3, 40, DENSE, NULL), w = weights(DTYPE_BF16, 7, 40, DENSE, NULL);
  struct array y = activations(3, 7, DENSE, NULL);
  deltaic_kernel_time times[4];
  recorder->functions->recorder_profile(recorder, true);
  begin();
  for (int i = 0; i < 5; i++) op_linear(list, y.t, x.t, w.t, ABSENT);
  op_copy(list, y.t, y.t);
  run();
  assert_int_equal(recorder->functions->recorder_times(recorder, times, 4), 2);
  assert_string_equal(times[0].name, "matmul_bf16");
  assert_string_equal(times[1].name, "copy");
  assert_int_equal(times[0].dispatches, 5);
  assert_int_equal(times[0].operations, 5 * 2 * 3 * 7 * 40);
  assert_int_equal(times[0].bytes, 5 * (2 * 7 * 40 + 4 * 3 * 40 + 4 * 3 * 7));
  assert_true(times[0].seconds > 0);
  deltaic_counters counters = recorder->functions->recorder_counters(recorder);
  assert_int_equal(counters.submits, 0);
  assert_int_equal(counters.dispatches, 6);
  recorder->functions->recorder_profile(recorder, true);
  assert_int_equal(recorder->functions->recorder_times(recorder, times, 4), 0);
  close_cpu();
}

static void the_cpu_says_what_it_is_and_refuses_more_than_its_memory(void **state) {
  open_cpu(2);
  assert_string_equal(backend->info.name, "CPU (2 threads)");
  assert_int_equal(backend->info.index, DELTAIC_DEVICE_INDEX_CPU);
  assert_int_equal(backend->info.kind, DELTAIC_DEVICE_CPU);
  assert_true(backend->info.memory_bytes > 1 << 20);
  assert_in_range(backend->functions->free_bytes(backend), 1 << 20, backend->info.memory_bytes);
  struct buffer buffer;
  assert_int_equal(backend->functions->buffer_create(backend, MEMORY_DEVICE, 1ull << 60, "weights", &buffer),
                   DELTAIC_OUT_OF_MEMORY);
  assert_non_null(strstr(deltaic_last_error(), "weights"));
  backend->functions->buffer_free(backend, &buffer);
  close_cpu();
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup(f16_widens_exactly_and_returns, tools_setup),
      cmocka_unit_test_setup(bf16_widens_exactly_and_returns, tools_setup),
      cmocka_unit_test_setup(f16_and_bf16_round_to_nearest_even, tools_setup),
      cmocka_unit_test_setup(views_know_their_bytes, tools_setup),
      cmocka_unit_test_setup(pool_runs_every_index_once, tools_setup),
      cmocka_unit_test_setup(pool_serves_several_callers, tools_setup),
      cmocka_unit_test_setup(results_do_not_depend_on_the_number_of_threads, tools_setup),
      cmocka_unit_test_setup(matmul_is_right_with_every_instruction_set, tools_setup),
      cmocka_unit_test_setup(products_of_blocks_are_right_with_every_instruction_set, tools_setup),
      cmocka_unit_test_setup(sums_of_integers_do_not_overflow, tools_setup),
      cmocka_unit_test_setup(a_cancelled_recording_does_nothing_more, tools_setup),
      cmocka_unit_test_setup(a_cancel_stops_a_long_op, tools_setup),
      cmocka_unit_test_setup(the_profile_counts_bytes_and_operations, tools_setup),
      cmocka_unit_test_setup(the_cpu_says_what_it_is_and_refuses_more_than_its_memory, tools_setup),
  };
  int failed = cmocka_run_group_tests_name("CPU backend", tests, NULL, NULL);
  struct backend *cpu;
  if (backend_open_cpu(0, &cpu)) return 1;
  failed += ops_cases_run(cpu);
  cpu->functions->close(cpu);
  return failed;
}
