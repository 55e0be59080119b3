// generate: continues a text. The text goes to standard output as it is decoded, everything else to standard error.
#define _POSIX_C_SOURCE 200809L // clock_gettime, getpid
#include "generate.h"
#include "command.h"
#include "common.h"
#include "print.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const char default_prompt[] = "The carriage drew up before the old house at dusk, and Mr. Hartley, who had not "
                                     "spoken since they left the village,";

static const struct usage usage = {
    .name = "generate",
    .arguments = "[options] [MODEL] [-]",
    .summary = "Continues a text with a language model, streamed as it is decoded.",
    .text =
        "The text goes to standard output; device, seed and speed go to standard error. The prompt is --prompt, --file "
        "or, with a lone \"-\", standard input (one newline at its end is dropped); without any, a sentence in the "
        "manner of a 19th-century novel. Ctrl-C ends the text in good order, with exit code 130.\n\n"
        "The same seed, prompt, options and device give the same text. With --prompts, the Nth text is drawn with "
        "seed + N - 1.",
    .examples = "  deltaic generate --prompt \"It was a bright cold day\" -n 200 --seed 7\n"
                "  deltaic generate --model models/novelist --greedy -n 40\n"
                "  fortune | deltaic generate - --quiet --no-echo > story.txt\n"
                "  deltaic generate --file chapter1.txt --state-out chapter1.state -n 0\n"
                "  deltaic generate --state-in chapter1.state -n 300         read once, continue often\n"
                "  deltaic generate --json -n 50 | jq -r .text\n"
                "  deltaic generate --prompts questions.txt --greedy -n 30 > answers.jsonl\n",
    .most_arguments = 2,
};

struct bytes {
  char *data;
  size_t size, capacity;
};

struct run {
  const struct generate_request *request;
  struct engine engine;
  deltaic_tokenizer *tokenizer;
  deltaic_decoder *decoder;
  deltaic_session *session;
  deltaic_sampling sampling;
  struct bytes prompt;
  int32_t *ids; // of the prompt
  size_t id_count;
  struct bytes text; // made so far, for --json
  int32_t *made;     // tokens drawn
  uint32_t made_count;
  const char *end; // why the text ends: "tokens", "eos", "interrupt", "error"
  char last;       // byte on standard output
  double prefill_seconds, decode_seconds;
};

// ---------------------------------------------------------------- the prompt

static void bytes_append(struct bytes *bytes, const char *data, size_t size) {
  if (bytes->size + size > bytes->capacity) {
    bytes->capacity = 2 * (bytes->size + size);
    bytes->data = must_resize(bytes->data, bytes->capacity);
  }
  if (size) memcpy(bytes->data + bytes->size, data, size);
  bytes->size += size;
}

static int read_prompt(struct run *run) {
  const struct generate_request *r = run->request;
  if (r->file) {
    run->prompt.data = file_read(r->file, &run->prompt.size);
    if (!run->prompt.data) return EXIT_FAILED;
    if (run->prompt.size && run->prompt.data[run->prompt.size - 1] == '\n') --run->prompt.size;
    return EXIT_OK;
  }
  const char *text = r->prompt ? r->prompt : r->state_in ? "" : default_prompt;
  bytes_append(&run->prompt, text, strlen(text));
  return EXIT_OK;
}

int generate_encode(const struct generate_request *request, const deltaic_tokenizer *tokenizer, const char *prompt,
                    size_t bytes, const char *where, int32_t **ids, size_t *count) {
  deltaic_model_info model;
  int code = text_encode(tokenizer, prompt, bytes, request->file, !request->no_bos, ids, count);
  if (code || *count) return code;
  code = complain_status(deltaic_model_inspect(NULL, model_path(request->engine.model), NULL, &model, NULL));
  if (code) return code;
  if (request->no_bos || model.bos_token < 0)
    return complain(EXIT_FAILED, "%sthe prompt is empty and the text has no token to begin with", where);
  *ids = must_resize(*ids, sizeof **ids);
  (*ids)[(*count)++] = model.bos_token;
  return EXIT_OK;
}

// A restored text already has its beginning: no <s> then.
static int encode_prompt(struct run *run) {
  const char *text = run->prompt.size ? run->prompt.data : "";
  if (run->request->state_in)
    return text_encode(run->tokenizer, text, run->prompt.size, run->request->file, false, &run->ids, &run->id_count);
  return generate_encode(run->request, run->tokenizer, text, run->prompt.size, "", &run->ids, &run->id_count);
}

// The decoder must know what came before the new text: some tokenizers write a word's space only inside a text.
static int prime_decoder(struct run *run) {
  const char *text;
  size_t bytes, count = run->id_count;
  int32_t *before = NULL;
  deltaic_status status = DELTAIC_OK;
  int code = complain_status(deltaic_decoder_create(run->tokenizer, true, &run->decoder));
  if (!code && run->request->state_in) code = text_encode(run->tokenizer, "a", 1, NULL, false, &before, &count);
  const int32_t *ids = before ? before : run->ids;
  for (size_t i = 0; i < count && !code && !status; ++i)
    status = deltaic_decoder_push(run->decoder, ids[i], &text, &bytes);
  free(before);
  return code ? code : complain_status(status);
}

// ---------------------------------------------------------------- what one text and many have in common

deltaic_status generate_finite(deltaic_session *session, uint32_t sequence, const struct engine *engine, bool *finite) {
  const int32_t n = engine->model_info.vocabulary;
  float *logits = must_resize(NULL, (size_t)n * sizeof *logits);
  deltaic_status status = deltaic_sequence_logits(session, sequence, logits);
  int32_t i = 0;
  while (!status && i < n && !isfinite(logits[i])) i++;
  free(logits);
  *finite = i < n;
  return status;
}

// splitmix64 of time and process, short enough to type.
static uint64_t random_seed(void) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  uint64_t z = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec + ((uint64_t)getpid() << 40);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return (z ^ (z >> 31)) % 1000000000u;
}

deltaic_sampling generate_sampling(const struct generate_request *request) {
  deltaic_sampling sampling = request->sampling;
  sampling.size = sizeof sampling;
  if (request->greedy)
    sampling = DELTAIC_INIT(deltaic_sampling);
  else if (!request->seed_given)
    sampling.seed = random_seed();
  return sampling;
}

void generate_announce(const struct generate_request *request, const struct engine *engine, const deltaic_sampling *s) {
  const deltaic_model_info *m = &engine->model_info;
  const char *model = request->engine.model;
  if (request->engine.quiet) return;
  fprintf(stderr, "model   %s%s: %s, %s parameters\n", model_path(model), model ? "" : " (the default)",
          m->architecture, text_short((double)m->parameters).text);
  fprintf(stderr, "device  %s\n", engine_device_text(engine));
  fprintf(stderr, "text    ");
  if (s->temperature > 0)
    fprintf(stderr, "seed %llu, temperature %g", (unsigned long long)s->seed, s->temperature);
  else
    fprintf(stderr, "the likeliest token each time");
  if (s->temperature > 0 && s->top_k) fprintf(stderr, ", top-k %u", s->top_k);
  if (s->temperature > 0 && s->top_p > 0 && s->top_p < 1) fprintf(stderr, ", top-p %g", s->top_p);
  if (s->temperature > 0 && s->min_p > 0) fprintf(stderr, ", min-p %g", s->min_p);
  if (s->repetition_penalty > 0 && s->repetition_penalty != 1)
    fprintf(stderr, ", repetition penalty %g", s->repetition_penalty);
  fprintf(stderr, "\n\n");
}

// ---------------------------------------------------------------- opening

// Most tokens that a saved state can hold: its caches are no larger than the file.
static uint64_t saved_tokens(const struct run *run) {
  deltaic_memory memory;
  const char *path = run->request->state_in;
  uint64_t bytes = path ? file_size(path) : 0;
  if (!bytes || deltaic_model_inspect(NULL, model_path(run->request->engine.model), NULL, NULL, &memory)) return 0;
  return memory.cache_per_token ? bytes / memory.cache_per_token : 0;
}

// Without --context, a model whose state grows gets room for this text.
static struct engine_options with_context(const struct run *run) {
  struct engine_options options = run->request->engine;
  uint64_t needed = saved_tokens(run) + run->id_count + run->request->tokens;
  if (!options.context && run->engine.model_info.grows && needed > 4096)
    options.context = needed < UINT32_MAX ? (uint32_t)needed : UINT32_MAX;
  return options;
}

static int open_run(struct run *run) {
  const struct generate_request *r = run->request;
  const char *path = model_path(r->engine.model);
  if (!path) return EXIT_USAGE;
  int code = read_prompt(run);
  if (!code) code = tokenizer_open(path, &run->tokenizer);
  if (!code) code = encode_prompt(run);
  if (!code) code = prime_decoder(run);
  if (!code) code = engine_open(&r->engine, &run->engine);
  if (code) return code;
  struct engine_options options = with_context(run);
  code = session_create(&run->engine, &options, &run->session);
  if (!code && r->state_in) code = complain_status(deltaic_session_load_file(run->session, r->state_in));
  run->made = must_resize(NULL, r->tokens * sizeof *run->made);
  return code;
}

static int close_run(struct run *run, int code) {
  interrupt_watch(NULL);
  deltaic_session_free(run->session);
  deltaic_decoder_free(run->decoder);
  deltaic_tokenizer_close(run->tokenizer);
  free(run->prompt.data);
  free(run->text.data);
  free(run->ids);
  free(run->made);
  return engine_close(&run->engine, code);
}

// ---------------------------------------------------------------- text out

static int write_text(struct run *run, const char *text, size_t bytes) {
  if (!bytes) return EXIT_OK;
  if (run->request->as_json) {
    bytes_append(&run->text, text, bytes);
    return EXIT_OK;
  }
  run->last = text[bytes - 1];
  if (fwrite(text, 1, bytes, stdout) == bytes && !fflush(stdout)) return EXIT_OK;
  return complain_output();
}

static int write_token(struct run *run, int32_t token) {
  const char *text;
  size_t bytes;
  deltaic_status status = deltaic_decoder_push(run->decoder, token, &text, &bytes);
  return status ? complain_status(status) : write_text(run, text, bytes);
}

static int finish_text(struct run *run) {
  const char *text;
  size_t bytes;
  deltaic_status status = deltaic_decoder_finish(run->decoder, &text, &bytes);
  int code = status ? complain_status(status) : write_text(run, text, bytes);
  if (!code && !run->request->as_json && run->last && run->last != '\n') code = write_text(run, "\n", 1);
  return code;
}

// ---------------------------------------------------------------- the work

// In pieces of one batch: the same work as one call, with progress between.
static int prefill(struct run *run) {
  struct progress progress;
  size_t piece = run->request->engine.batch ? run->request->engine.batch : 512;
  deltaic_status status = DELTAIC_OK;
  double start = time_now();
  progress_begin(&progress, "reading the prompt", "tokens", run->request->engine.quiet);
  interrupt_watch(run->session);
  for (size_t at = 0; at < run->id_count && !status && !interrupted(); at += piece) {
    size_t n = run->id_count - at < piece ? run->id_count - at : piece;
    status = deltaic_session_eval(run->session, run->ids + at, n, DELTAIC_LOGITS_NONE, NULL);
    progress_show(&progress, at + n, run->id_count);
  }
  interrupt_watch(NULL); // from here Ctrl-C is seen between tokens, and leaves a state that can be saved
  progress_clear();
  run->prefill_seconds = time_now() - start;
  return complain_work(status);
}

// Returns a failure of the output; one of the session's goes to *status.
static int decode(struct run *run, deltaic_status *status) {
  int32_t eos = run->request->ignore_eos ? -1 : run->engine.model_info.eos_token, token = -1;
  int code = EXIT_OK;
  run->end = "tokens";
  while (!code && run->made_count < run->request->tokens) {
    if (interrupted()) {
      run->end = "interrupt";
      return EXIT_INTERRUPTED;
    }
    double start = time_now();
    *status = deltaic_session_next(run->session, &run->sampling, &token, NULL);
    run->decode_seconds += time_now() - start;
    if (*status) {
      run->end = "error";
      return EXIT_OK;
    }
    run->made[run->made_count++] = token;
    if (eos >= 0 && token == eos) {
      run->end = "eos";
      return EXIT_OK;
    }
    code = write_token(run, token);
  }
  return code;
}

static int check_logits(struct run *run) {
  bool finite = true;
  if (!run->made_count) return EXIT_OK;
  deltaic_status status = generate_finite(run->session, 0, &run->engine, &finite);
  if (status) return complain_status(status);
  if (finite) return EXIT_OK;
  run->end = "error";
  return complain(EXIT_FAILED, "%s: its logits are not finite: numbers overflow",
                  model_path(run->request->engine.model));
}

static int save_state(struct run *run) {
  if (!run->request->state_out) return EXIT_OK;
  return complain_status(deltaic_session_save_file(run->session, run->request->state_out));
}

// ---------------------------------------------------------------- reports

static double rate(double count, double seconds) { return seconds > 0 ? count / seconds : 0; }

static void report(const struct run *run) {
  if (run->request->engine.quiet) return;
  fprintf(stderr, "\n");
  if (run->id_count)
    fprintf(stderr, "prefill %s tokens in %s: %s tokens/s\n", text_count(run->id_count).text,
            text_seconds(run->prefill_seconds).text, text_rate(rate((double)run->id_count, run->prefill_seconds)).text);
  if (run->made_count)
    fprintf(stderr, "decode  %s tokens in %s: %s tokens/s\n", text_count(run->made_count).text,
            text_seconds(run->decode_seconds).text, text_rate(rate(run->made_count, run->decode_seconds)).text);
  if (run->end && !strcmp(run->end, "eos"))
    fprintf(stderr, "ended   by the model, before %u tokens\n", run->request->tokens);
  if (run->end && !strcmp(run->end, "interrupt")) fprintf(stderr, "ended   by Ctrl-C\n");
  if (run->request->state_out) fprintf(stderr, "state   in %s\n", run->request->state_out);
}

static json_t *phase_json(size_t tokens, double seconds) {
  return json_pack("{s:I, s:o, s:o}", "tokens", (json_int_t)tokens, "seconds", number_json(seconds),
                   "tokens_per_second", number_json(rate((double)tokens, seconds)));
}

static int report_json(const struct run *run) {
  json_t *ids = json_array();
  for (uint32_t i = 0; i < run->made_count; ++i) json_array_append_new(ids, json_integer(run->made[i]));
  json_t *prompt = json_stringn(run->prompt.data ? run->prompt.data : "", run->prompt.size);
  json_t *text = json_stringn(run->text.data ? run->text.data : "", run->text.size);
  return json_finish(json_pack(
      "{s:o, s:o, s:o, s:I, s:s, s:o, s:o, s:o, s:o, s:I}", "prompt", prompt, "text", text, "tokens", ids, "seed",
      (json_int_t)run->sampling.seed, "end", run->end, "model", text_json(model_path(run->request->engine.model)),
      "device", text_json(engine_device_text(&run->engine)), "prefill", phase_json(run->id_count, run->prefill_seconds),
      "decode", phase_json(run->made_count, run->decode_seconds), "position",
      (json_int_t)deltaic_session_position(run->session)));
}

static int generate(const struct generate_request *request) {
  struct run run = {.request = request};
  int code = open_run(&run);
  if (code) return close_run(&run, code);
  run.sampling = generate_sampling(request);
  generate_announce(request, &run.engine, &run.sampling);
  code = prefill(&run);
  if (code) return close_run(&run, code);
  if (!request->no_echo && !request->as_json) code = write_text(&run, run.prompt.data, run.prompt.size);
  deltaic_status status = DELTAIC_OK;
  if (!code) code = decode(&run, &status);
  if (code && code != EXIT_INTERRUPTED) return close_run(&run, code); // the text cannot be written
  int written = finish_text(&run);
  if (status)
    code = complain_status(status); // after the text; what was made stays
  else if (!code)
    code = check_logits(&run);
  if (!written) written = save_state(&run);
  if (!written && request->as_json) written = report_json(&run);
  if (!written) report(&run);
  return close_run(&run, written && !status ? written : code);
}

// ---------------------------------------------------------------- options

// MODEL and "-", in any order.
static int take_arguments(struct generate_request *r, const struct arguments *arguments) {
  for (size_t i = 0; i < arguments->count; ++i) {
    const char *text = arguments->items[i];
    if (!strcmp(text, "-")) {
      if (r->file) return complain(EXIT_USAGE, "the prompt is asked for twice: --file and -");
      r->file = text;
    } else if (r->engine.model) {
      return complain(EXIT_USAGE, "unexpected argument \"%s\"; a text to continue goes after --prompt", text);
    } else if (access(text, F_OK)) {
      return complain(EXIT_FAILED, "%s: %s; a text to continue goes after --prompt", text, errno_text(errno));
    } else {
      r->engine.model = text;
    }
  }
  if (r->prompt && r->file) return complain(EXIT_USAGE, "the prompt is asked for twice: --prompt and a file");
  if (r->prompts && (r->prompt || r->file || r->state_in || r->state_out))
    return complain(EXIT_USAGE, "--prompts is for texts of its own: without --prompt, --file, - and saved states");
  if (r->engine.sequences && !r->prompts) return complain(EXIT_USAGE, "--sequences goes with --prompts");
  return EXIT_OK;
}

int command_generate(int argc, char **argv) {
  struct generate_request r = {.engine = ENGINE_DEFAULTS, .tokens = 120};
  struct arguments arguments;
  int code;
  r.sampling = (deltaic_sampling){.temperature = 0.8f, .top_p = 0.95f, .repetition_penalty = 1.1f};
  const struct option options[] = {
      HEADING("the text"),
      TEXT('p', "prompt", "TEXT", &r.prompt, "the text to continue"),
      TEXT('f', "file", "PATH", &r.file, "the same from a file; - is standard input"),
      TEXT(
          0, "prompts", "FILE", &r.prompts,
          "continue many texts, several at once: every line is a prompt, or {\"prompt\": ...} in all of them; one line "
          "of JSON for each, in order; - is standard input"),
      COUNT(0, "sequences", "N", &r.engine.sequences, 0, 256,
            "--prompts: texts at once; 0: 64 on a GPU, 8 on the CPU, fewer where their states would fill the memory"),
      COUNT('n', "tokens", "N", &r.tokens, 0, 1u << 24, "the most tokens to add, up to 16,777,216"),
      FLAG(0, "ignore-eos", &r.ignore_eos, "go on when the model ends the text"),
      FLAG(0, "no-bos", &r.no_bos, "do not begin with the tokenizer's begin token"),
      FLAG(0, "no-echo", &r.no_echo, "write the new text only"),
      FLAG('q', "quiet", &r.engine.quiet, "nothing on standard error but failures"),
      FLAG(0, "json", &r.as_json,
           "one JSON object with text, tokens, seed and speed on standard output, instead of the stream"),
      HEADING("choice of tokens"),
      COUNT64('s', "seed", "N", &r.sampling.seed, "of the random choice; without it, a new one, which is printed"),
      FLAG('g', "greedy", &r.greedy, "always the likeliest token; no temperature, no penalty"),
      NUMBER(0, "temperature", "X", &r.sampling.temperature, 100,
             "low: predictable; high: adventurous; 0: the likeliest token"),
      COUNT(0, "top-k", "N", &r.sampling.top_k, 0, 0, "only the N likeliest; 0: all"),
      NUMBER(0, "top-p", "X", &r.sampling.top_p, 1, "only the likeliest that make up this probability; 1: all"),
      NUMBER(0, "min-p", "X", &r.sampling.min_p, 1,
             "only those at least this likely, relative to the likeliest; 0: all"),
      NUMBER(0, "repetition-penalty", "X", &r.sampling.repetition_penalty, 100,
             "makes tokens that are in the text already less likely; 1: off"),
      HEADING("saved states"),
      TEXT(0, "state-in", "FILE", &r.state_in, "go on from a saved state; a prompt is added to its text"),
      OUTPUT(0, "state-out", "FILE", &r.state_out, "save the state at the end"),
      ENGINE_OPTIONS(&r.engine),
      COUNT('c', "context", "N", &r.engine.context, 0, 0,
            "most tokens of the text, for models whose state grows with it; 0: 4096, or what this text needs"),
      OPTIONS_END,
  };
  if (!options_parse(&usage, options, argc, argv, &arguments, &code)) return code;
  r.seed_given = option_given(&arguments, "seed");
  static const char *const of_chance[] = {"temperature", "top-k", "top-p", "min-p", "repetition-penalty", NULL};
  const char *chance = option_given_of(&arguments, of_chance);
  if (r.greedy && chance) return complain(EXIT_USAGE, "--greedy takes the likeliest token: it has no --%s", chance);
  code = take_arguments(&r, &arguments);
  const char *model = code ? NULL : model_path(r.engine.model);
  if (!code) code = model ? model_check(model) : EXIT_USAGE;
  if (code) return code;
  return r.prompts ? generate_many(&r) : generate(&r);
}
