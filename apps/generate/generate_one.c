// generate_one: implements `deltaic generate` for one sequence, whose text is written as it is decoded.
#include "common.h"
#include "generate.h"
#include "print.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char default_prompt[] = "The carriage drew up before the old house at dusk, and Mr. Hartley, who had not "
                                     "spoken since they left the village,";

struct bytes {
  char *data;
  size_t size, capacity;
};

struct run {
  const struct generate_request *request;
  struct engine engine;
  deltaic_tokenizer *tokenizer;
  deltaic_decoder *decoder;
  deltaic_stops *stops;
  deltaic_session *session;
  deltaic_sampling sampling;
  struct bytes prompt;
  int32_t *ids; // of the prompt
  size_t id_count;
  struct bytes text; // made so far, for --json
  int32_t *made;     // tokens drawn
  uint32_t made_count;
  const char *end; // why the text ends: "tokens", "eos", "stop", "interrupt", "error"
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
  const struct text_list *stops = &run->request->stops;
  int code = complain_status(deltaic_decoder_create(run->tokenizer, true, &run->decoder));
  if (!code) code = complain_status(deltaic_stops_create(stops->items, stops->count, &run->stops));
  if (!code && run->request->state_in) code = text_encode(run->tokenizer, "a", 1, NULL, false, &before, &count);
  const int32_t *ids = before ? before : run->ids;
  for (size_t i = 0; i < count && !code && !status; ++i)
    status = deltaic_decoder_push(run->decoder, ids[i], &text, &bytes);
  free(before);
  return code ? code : complain_status(status);
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
  deltaic_stops_free(run->stops);
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
  if (!status) status = deltaic_stops_push(run->stops, text, bytes, &text, &bytes);
  return status ? complain_status(status) : write_text(run, text, bytes);
}

static int finish_text(struct run *run) {
  const char *text;
  size_t bytes;
  deltaic_status status = deltaic_decoder_finish(run->decoder, &text, &bytes);
  if (!status) status = deltaic_stops_push(run->stops, text, bytes, &text, &bytes);
  int code = status ? complain_status(status) : write_text(run, text, bytes);
  if (!code) status = deltaic_stops_finish(run->stops, &text, &bytes);
  if (!code) code = status ? complain_status(status) : write_text(run, text, bytes);
  if (deltaic_stops_found(run->stops) >= 0) run->end = "stop";
  if (!code && !run->request->as_json && run->last && run->last != '\n') code = write_text(run, "\n", 1);
  return code;
}

// ---------------------------------------------------------------- the work

// Evaluates in pieces of one batch: the work of one call, with progress in between.
static int prefill(struct run *run) {
  struct progress progress;
  size_t piece = run->request->engine.batch ? run->request->engine.batch : 512;
  deltaic_status status = DELTAIC_OK;
  const struct moment start = engine_now(&run->engine);
  progress_begin(&progress, "reading the prompt", "tokens", run->request->engine.quiet);
  interrupt_watch(run->session);
  for (size_t at = 0; at < run->id_count && !status && !interrupted(); at += piece) {
    size_t n = run->id_count - at < piece ? run->id_count - at : piece;
    status = deltaic_session_eval(run->session, run->ids + at, n, DELTAIC_LOGITS_NONE, NULL);
    progress_show(&progress, at + n, run->id_count);
  }
  interrupt_watch(NULL); // from here Ctrl-C is seen between tokens, and leaves a state that can be saved
  run->prefill_seconds = engine_seconds(&run->engine, start);
  return complain_work(status);
}

// Returns a failure of the output; one of the session's goes to *status.
static int decode(struct run *run, deltaic_status *status) {
  int32_t token = -1;
  int code = EXIT_OK;
  run->end = "tokens";
  while (!code && run->made_count < run->request->tokens) {
    if (interrupted()) {
      run->end = "interrupt";
      return EXIT_INTERRUPTED;
    }
    const struct moment start = engine_now(&run->engine);
    *status = deltaic_session_next(run->session, &run->sampling, &token, NULL);
    run->decode_seconds += engine_seconds(&run->engine, start);
    if (*status == DELTAIC_CANCELLED && interrupted()) { // while its kernels were compiled; nothing was drawn
      *status = DELTAIC_OK;
      continue;
    }
    if (*status) {
      run->end = "error";
      return EXIT_OK;
    }
    run->made[run->made_count++] = token;
    if (!run->request->ignore_eos && deltaic_model_is_end(run->engine.model, token)) {
      run->end = "eos";
      return EXIT_OK;
    }
    code = write_token(run, token);
    if (deltaic_stops_found(run->stops) >= 0) return code; // finish_text says why
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
  const double compiling = deltaic_device_compile_seconds(run->engine.device);
  fprintf(stderr, "\n");
  if (compiling >= 0.5)
    fprintf(stderr, "compile %s for this device, not counted below\n", text_seconds(compiling).text);
  if (run->id_count)
    fprintf(stderr, "prefill %s tokens in %s: %s tokens/s\n", text_count(run->id_count).text,
            text_seconds(run->prefill_seconds).text, text_rate(rate((double)run->id_count, run->prefill_seconds)).text);
  if (run->made_count)
    fprintf(stderr, "decode  %s tokens in %s: %s tokens/s\n", text_count(run->made_count).text,
            text_seconds(run->decode_seconds).text, text_rate(rate(run->made_count, run->decode_seconds)).text);
  if (run->end && !strcmp(run->end, "eos"))
    fprintf(stderr, "ended   by the model, before %u tokens\n", run->request->tokens);
  if (run->end && !strcmp(run->end, "stop"))
    fprintf(stderr, "ended   before \"%s\"\n", run->request->stops.items[deltaic_stops_found(run->stops)]);
  if (run->end && !strcmp(run->end, "interrupt")) fprintf(stderr, "ended   by %s\n", interrupt_name());
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
      "{s:o, s:o, s:o, s:I, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:I}", "prompt", prompt, "text", text, "tokens", ids,
      "seed", (json_int_t)run->sampling.seed, "end", run->end, "stop", generate_stop_json(run->request, run->stops),
      "model", text_json(model_path(run->request->engine.model)), "device", text_json(engine_device_text(&run->engine)),
      "compile_seconds", number_json(deltaic_device_compile_seconds(run->engine.device)), "prefill",
      phase_json(run->id_count, run->prefill_seconds), "decode", phase_json(run->made_count, run->decode_seconds),
      "position", (json_int_t)deltaic_session_position(run->session)));
}

int generate_one(const struct generate_request *request) {
  struct run run = {.request = request};
  int code = open_run(&run);
  if (code) return close_run(&run, code);
  run.sampling = choice_sampling(&request->choice, run.engine.model);
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
