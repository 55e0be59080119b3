// info: prints what a checkpoint is and how much memory it needs; it reads only the headers.
#include "command.h"
#include "common.h"
#include "engine.h"
#include "print.h"

#include <stdio.h>

struct info {
  const char *path;
  const char *device; // whose memory it is
  deltaic_model_info model;
  deltaic_memory memory;
  int32_t ends[32];
  size_t end_count;
  uint32_t sequences;    // number of sequences of the session
  const char *tokenizer; // kind; NULL: the checkpoint has no readable tokenizer
  int32_t tokenizer_size;
};

static const struct usage usage = {
    .name = "info",
    .arguments = "[options] [CHECKPOINT]",
    .summary = "Prints what a checkpoint is and how much memory it needs. Reads config.json, the headers of the "
               "weights and the tokenizer, or the header of a GGUF file. It reads no weights.",
    .text =
        "The state is the memory of one text, the scratch that of one prefill batch. Scratch and quantized weights "
        "depend on the device, which is the one that the other commands would take. --sequences shows the memory of "
        "several sequences at once.",
    .examples = "  deltaic info models/novelist\n"
                "  deltaic info --context 32768 some/checkpoint       memory for long texts\n"
                "  deltaic info model.gguf                            types of the weights, and memory\n"
                "  deltaic info models/novelist --json | jq .parameters\n",
    .most_arguments = 1,
};

static void line(const char *name, const char *value) { printf("%-14s%s\n", name, value); }

static void print_memory(const deltaic_memory *memory, uint32_t sequences, const char *device) {
  char texts[32] = "per text";
  if (sequences > 1) snprintf(texts, sizeof texts, "of %u texts", sequences);
  printf("%-14son %s\n", "memory", device);
  printf("%-14s%s weights, once\n", "", text_bytes(memory->weights_bytes).text);
  printf("%-14s%s state, %s", "", text_bytes(memory->state_bytes).text, texts);
  if (memory->cache_per_token) printf("; %s of it per token of context", text_bytes(memory->cache_per_token).text);
  printf("\n%-14s%s scratch, once\n", "", text_bytes(memory->scratch_bytes).text);
}

static void print_tokens(const struct info *info) {
  const deltaic_model_info *m = &info->model;
  printf("%-14s%s entries; ", "vocabulary", text_count((uint64_t)m->vocabulary).text);
  if (m->bos_token >= 0) printf("begins with %d, ", m->bos_token);
  printf(info->end_count ? "ends with " : "no end token");
  for (size_t i = 0; i < info->end_count; ++i) printf("%s%d", i ? " or " : "", info->ends[i]);
  printf("\n");
  if (!info->tokenizer) return;
  printf("%-14s%s, %s entries\n", "tokenizer", info->tokenizer, text_count((uint64_t)info->tokenizer_size).text);
}

static void print_info(const struct info *info) {
  const deltaic_model_info *m = &info->model;
  line("checkpoint", info->path);
  line("architecture", m->architecture);
  line("layers", m->layers_text);
  printf("%-14s%s (%s)\n", "parameters", text_short((double)m->parameters).text, text_count(m->parameters).text);
  line("formats", m->formats);
  printf("%-14s%d wide, ", "sizes", m->width);
  if (m->mlp_width)
    printf("MLP %d\n", m->mlp_width);
  else
    printf("no MLP\n");
  if (m->experts)
    printf("%-14s%d of width %d, %d a token: %s active parameters\n", "experts", m->experts, m->expert_width,
           m->experts_per_token, text_short((double)m->active_parameters).text);
  printf("%-14s%d for queries and keys of %d, %d for values of %d\n", "heads", m->heads, m->key_size, m->value_heads,
         m->value_size);
  print_tokens(info);
  print_memory(&info->memory, info->sequences, info->device);
  line("state", m->grows ? "grows with the text (global attention)" : "of fixed size: texts may be of any length");
}

static json_t *token_json(int32_t token) { return token < 0 ? json_null() : json_integer(token); }

static int print_json(const struct info *info) {
  const deltaic_model_info *m = &info->model;
  const deltaic_memory *memory = &info->memory;
  json_t *sizes = json_pack("{s:i, s:i, s:i, s:i, s:i, s:i, s:i}", "width", m->width, "layers", m->layers, "heads",
                            m->heads, "value_heads", m->value_heads, "key_size", m->key_size, "value_size",
                            m->value_size, "mlp_width", m->mlp_width);
  json_t *experts = json_null();
  if (m->experts)
    experts = json_pack("{s:i, s:i, s:i, s:I, s:I}", "count", m->experts, "per_token", m->experts_per_token, "width",
                        m->expert_width, "active_parameters", (json_int_t)m->active_parameters, "bytes",
                        (json_int_t)m->expert_bytes);
  json_t *bytes = json_pack("{s:I, s:I, s:I, s:I, s:I, s:o}", "sequences", (json_int_t)info->sequences, "weights_bytes",
                            (json_int_t)memory->weights_bytes, "state_bytes", (json_int_t)memory->state_bytes,
                            "scratch_bytes", (json_int_t)memory->scratch_bytes, "cache_per_token",
                            (json_int_t)memory->cache_per_token, "device", text_json(info->device));
  json_t *tokenizer = json_null(), *ends = json_array();
  for (size_t i = 0; i < info->end_count; ++i) json_array_append_new(ends, json_integer(info->ends[i]));
  if (info->tokenizer)
    tokenizer = json_pack("{s:o, s:i}", "kind", text_json(info->tokenizer), "size", info->tokenizer_size);
  return json_finish(json_pack(
      "{s:o, s:o, s:o, s:I, s:o, s:i, s:o, s:o, s:o, s:b, s:o, s:o, s:o, s:o}", "checkpoint", text_json(info->path),
      "architecture", text_json(m->architecture), "layers_text", text_json(m->layers_text), "parameters",
      (json_int_t)m->parameters, "formats", text_json(m->formats), "vocabulary", m->vocabulary, "bos_token",
      token_json(m->bos_token), "eos_token", token_json(m->eos_token), "end_tokens", ends, "grows", m->grows, "sizes",
      sizes, "experts", experts, "memory", bytes, "tokenizer", tokenizer));
}

static int inspect(const struct engine_options *options, bool as_json) {
  struct engine engine = {0};
  struct info info = {.path = model_path(options->model), .sequences = options->sequences};
  deltaic_tokenizer *tokenizer = NULL;
  if (!info.path) return EXIT_USAGE;
  int code = context_open(options, &engine.context);
  if (!code) code = engine_open_device(options, &engine);
  if (code) goto done;
  deltaic_session_options session = session_options(options);
  deltaic_model_options model = DELTAIC_INIT(deltaic_model_options);
  model.adapter = options->adapter;
  info.device = engine_device_text(&engine);
  code = complain_status(
      deltaic_model_inspect_with(engine.device, info.path, &model, &session, &info.model, &info.memory));
  if (!code) code = complain_status(deltaic_model_inspect_ends(info.path, info.ends, 32, &info.end_count));
  if (code) goto done;
  if (deltaic_tokenizer_open(info.path, &tokenizer)) {
    fprintf(stderr, "deltaic info: %s\n", deltaic_last_error()); // the rest can still be printed
  } else {
    info.tokenizer = deltaic_tokenizer_kind(tokenizer);
    info.tokenizer_size = deltaic_tokenizer_size(tokenizer);
  }
  if (as_json)
    code = print_json(&info);
  else
    print_info(&info);
done:
  deltaic_tokenizer_close(tokenizer);
  return engine_close(&engine, code);
}

int command_info(int argc, char **argv) {
  struct engine_options engine = ENGINE_DEFAULTS;
  struct arguments arguments;
  bool as_json = false;
  int code;
  engine.sequences = 1;
  const struct option options[] = {
      HEADING("options"),
      COUNT('c', "context", "N", &engine.context, 0, 0, "most tokens of a sequence, where its memory grows; 0: 4096"),
      COUNT('s', "sequences", "N", &engine.sequences, 1, 256, "sequences held at once"),
      FLAG(0, "json", &as_json, "print one JSON object"),
      ENGINE_OPTIONS(&engine),
      OPTIONS_END,
  };
  if (!options_parse(&usage, options, argc, argv, &arguments, &code)) return code;
  if (arguments.count && engine.model)
    return complain(EXIT_USAGE, "two checkpoints, \"%s\" and \"%s\": one at a time", engine.model, arguments.items[0]);
  if (arguments.count) engine.model = arguments.items[0];
  return inspect(&engine, as_json);
}
