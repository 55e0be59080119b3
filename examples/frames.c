// frames: a program that draws frames and gives the model a few milliseconds of each, in the same thread.
//
//   frames MODEL PROMPT [TOKENS [PICTURE.ppm [DEVICE]]]
//
// A frame has 16.7 ms. What is left after drawing goes to the model, up to BUDGET: a part of the prompt, or some
// tokens, as many as the library expects to fit. At least one always runs, so that the text goes on where a step is
// slower than the budget. Ctrl-C ends the work in progress. The last frame can be kept as a picture.
// DEVICE: a number of `deltaic devices`, 0 for the best.
#define _POSIX_C_SOURCE 200809L // clock_gettime, nanosleep
#include <deltaic.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define FRAME 16.7e-3 // seconds
#define BUDGET 8e-3   // of these for the model
enum { WIDTH = 320, HEIGHT = 180, PROMPT_CAPACITY = 4096, TOKENS_MOST = 16, FRAMES_KEPT = 1 << 16 };

static deltaic_session *session; // for the signal handler
static volatile sig_atomic_t stopped;

static void on_interrupt(int number) {
  (void)number;
  stopped = 1;
  deltaic_session_cancel(session);
}

static void must(deltaic_status status) {
  if (!status) return;
  fprintf(stderr, "frames: %s\n", deltaic_last_error());
  exit(1);
}

static double seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

// ---------------------------------------------------------------- what the program draws

static unsigned char pixels[HEIGHT][WIDTH][3];

// A ball on a plane; `written` lights its row of marks, one for every token.
static void draw(unsigned frame, unsigned written) {
  float t = (float)frame / 60, x = WIDTH * (0.5f + 0.4f * sinf(t)), y = HEIGHT * (0.8f - 0.6f * fabsf(cosf(3 * t)));
  for (int j = 0; j < HEIGHT; ++j)
    for (int i = 0; i < WIDTH; ++i) {
      float d = hypotf((float)i - x, (float)j - y), light = d < 20 ? 1 - d / 25 : 0;
      bool mark = j >= HEIGHT - 6 && j < HEIGHT - 2 && i % 5 < 4 && (unsigned)i / 5 < written;
      pixels[j][i][0] = (unsigned char)(mark ? 255 : 30 + 200 * light);
      pixels[j][i][1] = (unsigned char)(mark ? 200 : 40 + 120 * light + 40 * j / HEIGHT);
      pixels[j][i][2] = (unsigned char)(60 + 40 * light);
    }
}

static void keep_picture(const char *path) {
  FILE *file = fopen(path, "wb");
  bool kept =
      file && fprintf(file, "P6\n%d %d\n255\n", WIDTH, HEIGHT) > 0 && fwrite(pixels, sizeof pixels, 1, file) == 1;
  if (file && fclose(file)) kept = false;
  if (!kept) fprintf(stderr, "frames: %s: cannot be written\n", path);
}

// ---------------------------------------------------------------- the model's part of a frame

struct writer {
  deltaic_model *model;
  deltaic_tokenizer *tokenizer;
  deltaic_decoder *decoder;
  int32_t prompt[PROMPT_CAPACITY];
  size_t count, read;      // tokens of the prompt, and those evaluated
  unsigned written, limit; // tokens drawn
  bool done;
};

static void write_token(struct writer *w, int32_t token) {
  size_t bytes;
  const char *text;
  w->done = deltaic_model_is_end(w->model, token) || ++w->written == w->limit;
  must(deltaic_decoder_push(w->decoder, token, &text, &bytes));
  fwrite(text, 1, bytes, stdout);
  fflush(stdout);
}

static void give_time(struct writer *w, double budget) {
  int32_t tokens[TOKENS_MOST];
  size_t n = 0, most = w->limit - w->written < TOKENS_MOST ? w->limit - w->written : TOKENS_MOST;
  deltaic_status status;
  if (w->read < w->count) {
    status = deltaic_session_eval_within(session, w->prompt + w->read, w->count - w->read, 1e3 * budget, &n);
    w->read += n;
  } else {
    status = deltaic_session_next_within(session, NULL, 1e3 * budget, tokens, most, &n);
    for (size_t i = 0; i < n; ++i) write_token(w, tokens[i]);
  }
  if (status != DELTAIC_CANCELLED) must(status); // Ctrl-C
}

// ---------------------------------------------------------------- frames

static double times[FRAMES_KEPT]; // of the first frames, without the wait

static int by_value(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static void report(unsigned frames, unsigned tokens) {
  const size_t n = frames < FRAMES_KEPT ? frames : FRAMES_KEPT;
  if (!n) return;
  qsort(times, n, sizeof *times, by_value);
  fprintf(stderr, "%u frames, %u tokens; of %.1f ms a frame took %.1f (median), the longest %.1f\n", frames, tokens,
          1e3 * FRAME, 1e3 * times[n / 2], 1e3 * times[n - 1]);
}

int main(int argc, char **argv) {
  if (argc < 3) return fputs("usage: frames MODEL PROMPT [TOKENS [PICTURE.ppm [DEVICE]]]\n", stderr), 2;
  deltaic_device_options options = DELTAIC_INIT(deltaic_device_options);
  struct writer w = {.limit = argc > 3 ? (unsigned)atoi(argv[3]) : 64};
  deltaic_context *context;
  deltaic_device *device;
  size_t bytes;
  const char *text;
  must(deltaic_context_create(NULL, &context));
  if (argc > 5) options.index = atoi(argv[5]);
  must(deltaic_device_open(context, &options, &device));
  must(deltaic_model_open(device, argv[1], NULL, &w.model));
  must(deltaic_session_create(w.model, NULL, &session));
  must(deltaic_tokenizer_open(argv[1], &w.tokenizer));
  must(deltaic_decoder_create(w.tokenizer, true, &w.decoder));
  must(deltaic_tokenizer_encode(w.tokenizer, argv[2], strlen(argv[2]), true, w.prompt, PROMPT_CAPACITY, &w.count));
  for (size_t i = 0; i < w.count; ++i) must(deltaic_decoder_push(w.decoder, w.prompt[i], &text, &bytes));
  signal(SIGINT, on_interrupt);

  unsigned frame = 0;
  for (; !w.done && !stopped; ++frame) {
    double start = seconds();
    draw(frame, w.written);
    double drawn = seconds() - start, left = FRAME - drawn;
    give_time(&w, fmax(0, fmin(left, BUDGET)));
    double took = seconds() - start, rest = FRAME - took;
    if (frame < FRAMES_KEPT) times[frame] = took;
    if (rest > 0) nanosleep(&(struct timespec){.tv_nsec = (long)(rest * 1e9)}, NULL); // a game waits for the screen
  }
  must(deltaic_decoder_finish(w.decoder, &text, &bytes));
  printf("%.*s\n", (int)bytes, text);
  report(frame, w.written);
  if (argc > 4 && argv[4][0]) keep_picture(argv[4]);

  signal(SIGINT, SIG_DFL);
  deltaic_decoder_free(w.decoder);
  deltaic_tokenizer_close(w.tokenizer);
  deltaic_session_free(session);
  deltaic_model_close(w.model);
  deltaic_device_close(device);
  deltaic_context_free(context);
  return stopped ? 130 : 0;
}
