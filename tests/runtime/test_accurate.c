// test_accurate: the functions of shaders/common/accurate.glsl and activation.glsl against double, on every usable
// Vulkan device, in ulp: units of the last of f32's 24 bits. The device's own are printed beside them.
#include "commands.h"

#include "test_accurate.h"
#include "test_packed.h"
#include "vulkan_devices.h"

#include <float.h>
#include <math.h>

static const struct shader shader = {"accurate", packed_test_accurate, sizeof packed_test_accurate / 2, 3, 4, false};

enum { N = 1 << 18, LANES = 64 };

// ---------------------------------------------------------------- truth

static double exponential(double x, double z) { return (void)z, exp(x); }
static double logarithm(double x, double z) { return (void)z, log(x); }
static double log_of_more(double x, double z) { return (void)z, log1p(x); }
static double sigmoid(double x, double z) { return (void)z, 1 / (1 + exp(-x)); }
static double silu(double x, double z) { return x * sigmoid(x, z); }
static double softplus(double x, double z) { return (void)z, log1p(exp(x)); }
static double elu1(double x, double z) { return (void)z, x > 0 ? x + 1 : exp(x); }
static double powlu(double x, double z) { return pow(x, 3 / (sqrt(x) + 1)) * sigmoid(x, z); }
static double quotient(double x, double z) { return x / z; }
static double root(double x, double z) { return (void)z, sqrt(x); }
static double reciprocal_root(double x, double z) { return (void)z, 1 / sqrt(x); }

// Numbers from low to high, evenly spread; spread in their logarithms where LOGS says so.
enum spread { EVEN, LOGS };
static const struct function {
  const char *name;
  uint32_t which;
  double (*truth)(double, double);
  enum spread spread;
  double low, high, limit; // limit 0: the device's own, not ours to promise
} functions[] = {
    {"e^x", F_EXP, exponential, EVEN, -87.3, 88.7, 1},
    {"e^x near 0", F_EXP, exponential, EVEN, -1, 1, 1},
    {"ln x", F_LOG, logarithm, LOGS, 0x1p-126, 0x1p127, 1.5},
    {"ln x near 1", F_LOG, logarithm, EVEN, 0.5, 2, 1.5},
    {"ln (1 + e)", F_LOG1P, log_of_more, EVEN, 0, 1, 1.5},
    {"ln (1 + e), small e", F_LOG1P, log_of_more, LOGS, 0x1p-60, 1, 1.5},
    {"sigmoid", F_SIGMOID, sigmoid, EVEN, -87, 87, 4},
    {"silu", F_SILU, silu, EVEN, -80, 80, 4},
    {"softplus", F_SOFTPLUS, softplus, EVEN, -87, 87, 3},
    {"softplus near 0", F_SOFTPLUS, softplus, EVEN, -4, 4, 3},
    {"elu + 1", F_ELU1, elu1, EVEN, -87, 10, 1},
    {"powlu", F_POWLU, powlu, LOGS, 0x1p-4, 0x1p20, 32},
    {"1 / sqrt x", F_INVERSESQRT, reciprocal_root, LOGS, 0x1p-60, 0x1p60, 1},
    {"x / y", F_QUOTIENT, quotient, LOGS, 0x1p-30, 0x1p30, 0},
    {"sqrt x", F_ROOT, root, LOGS, 0x1p-60, 0x1p60, 0},
    {"1 / sqrt x by them", F_RECIPROCAL_ROOT, reciprocal_root, LOGS, 0x1p-60, 0x1p60, 0},
    {"device's e^x", F_DEVICE_EXP, exponential, EVEN, -87.3, 88.7, 0},
    {"device's e^x near 0", F_DEVICE_EXP, exponential, EVEN, -1, 1, 0},
    {"device's ln x", F_DEVICE_LOG, logarithm, LOGS, 0x1p-126, 0x1p127, 0},
    {"device's ln x near 1", F_DEVICE_LOG, logarithm, EVEN, 0.5, 2, 0},
    {"device's inversesqrt", F_DEVICE_RSQRT, reciprocal_root, LOGS, 0x1p-60, 0x1p60, 0},
    {"sigmoid by them", F_DEVICE_SIGMOID, sigmoid, EVEN, -87, 87, 0},
    {"softplus by them", F_DEVICE_SOFTPLUS, softplus, EVEN, -10, 10, 0},
};

// ---------------------------------------------------------------- on a device

static uint64_t state = 1;
static double uniform(double low, double high) { // xorshift64*, Vigna
  state ^= state >> 12, state ^= state << 25, state ^= state >> 27;
  return low + (high - low) * (double)(state * 0x2545f4914f6cdd1dull >> 11) * 0x1p-53;
}

static void check(deltaic_status status) {
  if (!status) return;
  fprintf(stderr, "%s: %s\n", deltaic_status_name(status), deltaic_last_error());
  exit(1);
}

static struct buffer buffer_of(struct device *device, const float *values) {
  struct buffer buffer;
  check(buffer_create(device, MEMORY_DEVICE, N * sizeof *values, "numbers", &buffer));
  check(buffer_write(device, &buffer, 0, values, N * sizeof *values));
  return buffer;
}

// y = f(a, b) by the device.
static void evaluate(struct device *device, uint32_t which, float *y, const float *a, const float *b) {
  const uint32_t spec[] = {LANES, which}, n = N, groups[] = {N / LANES, 1, 1};
  const struct kernel *kernel;
  struct commands *c;
  struct buffer buffers[] = {buffer_of(device, a), buffer_of(device, b), buffer_of(device, y)};
  struct binding bindings[3];
  for (int i = 0; i < 3; i++) bindings[i] = (struct binding){.buffer = &buffers[i], .bytes = buffers[i].bytes};
  check(kernel_get(device, &shader, spec, 2, &kernel));
  check(commands_create(device, &c));
  commands_begin(c, COMMANDS_REPLAY, NULL);
  commands_dispatch(c, kernel, bindings, &n, groups, 0);
  check(commands_submit(c));
  check(buffer_read(device, &buffers[2], 0, y, N * sizeof *y));
  commands_free(c);
  for (int i = 0; i < 3; i++) buffer_free(device, &buffers[i]);
}

// Units of the last place between got and want, of the smallest normal number at least.
static double ulps(float got, double want) {
  int exponent;
  frexp(want, &exponent);
  double error = fabs(got - want) / ldexp(1, (exponent < -125 ? -125 : exponent) - 24);
  return error == error ? error : INFINITY;
}

static bool function_is_within_its_limit(struct device *device, const struct function *f, float *y, float *a,
                                         float *b) {
  double worst = 0, squares = 0;
  uint32_t at = 0;
  for (uint32_t i = 0; i < N; i++) {
    a[i] = (float)(f->spread == LOGS ? exp(uniform(log(f->low), log(f->high))) : uniform(f->low, f->high));
    b[i] = (float)uniform(1, 2);
    y[i] = 0;
  }
  evaluate(device, f->which, y, a, b);
  for (uint32_t i = 0; i < N; i++) {
    double error = ulps(y[i], f->truth(a[i], b[i]));
    squares += error * error;
    if (error > worst) worst = error, at = i;
  }
  bool passes = !f->limit || worst <= f->limit;
  printf("  %-22s %9.3g ulp at most, %8.3g rms; worst at %.9g%s\n", f->name, worst, sqrt(squares / N), a[at],
         passes ? "" : ": FAILED");
  return passes;
}

// What lies outside the ranges above.
static bool ends_are_right(struct device *device, float *y, float *a, float *b) {
  static const struct {
    uint32_t which;
    float x, low, high; // low > high: NaN
  } ends[] = {
      {F_EXP, 0, 1, 1},
      {F_EXP, -90, 0, 1e-39f},
      {F_EXP, -1000, 0, 0},
      {F_EXP, -INFINITY, 0, 0},
      {F_EXP, 89, INFINITY, INFINITY},
      {F_EXP, INFINITY, INFINITY, INFINITY},
      {F_EXP, NAN, 1, 0},
      {F_INVERSESQRT, INFINITY, 0, 0},
      {F_INVERSESQRT, 1, 1, 1},
      {F_LOG, 1, 0, 0},
      {F_LOG1P, 0, 0, 0},
      {F_SIGMOID, -FLT_MAX, 0, 0},
      {F_SIGMOID, FLT_MAX, 1, 1},
      {F_SIGMOID, 0, 0.5f, 0.5f},
      {F_SIGMOID, NAN, 1, 0},
      {F_SILU, FLT_MAX, FLT_MAX, FLT_MAX},
      {F_SILU, -FLT_MAX, 0, 0},
      {F_SOFTPLUS, FLT_MAX, FLT_MAX, FLT_MAX},
      {F_SOFTPLUS, 21, 21, 21},
      {F_SOFTPLUS, -FLT_MAX, 0, 0},
      {F_SOFTPLUS, NAN, 1, 0},
      {F_POWLU, 1e-38f, 0, 0},
  };
  bool right = true;
  for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
    for (uint32_t j = 0; j < N; j++) a[j] = b[j] = ends[i].x, y[j] = 5;
    evaluate(device, ends[i].which, y, a, b);
    bool is = ends[i].low > ends[i].high ? isnan(y[N - 1]) : y[N - 1] >= ends[i].low && y[N - 1] <= ends[i].high;
    if (!is) printf("  function %u of %g is %g: FAILED\n", ends[i].which, ends[i].x, y[N - 1]);
    right &= is;
  }
  return right;
}

static int test_device(struct instance *instance, VkPhysicalDevice handle, const struct device_caps *caps,
                       const struct plan *plan) {
  struct device *device;
  int failed = 0;
  check(device_open(instance, handle, caps, plan, NULL, &device));
  printf("%s, %s\n", caps->name, caps->driver);
  float *y = malloc(3 * N * sizeof *y), *a = y + N, *b = a + N;
  if (!y) exit(1);
  for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
    failed += !function_is_within_its_limit(device, &functions[i], y, a, b);
  failed += !ends_are_right(device, y, a, b);
  free(y);
  device_close(device);
  return failed;
}

int main(void) { return test_vulkan_devices(test_device); }
