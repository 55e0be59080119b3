// generate: continues a text, or many. Texts go to standard output, everything else to standard error.
#include "generate.h"
#include "command.h"
#include "common.h"

#include <errno.h>
#include <string.h>

static const struct usage usage = {
    .name = "generate",
    .arguments = "[options] [MODEL] [-]",
    .summary = "Continues a text with a language model, streamed as it is decoded.",
    .text =
        "The text goes to standard output; device, seed and speed go to standard error. The prompt is --prompt, --file "
        "or, with a single \"-\", standard input (one newline at its end is dropped). Without a prompt the text begins "
        "with a "
        "sentence in the manner of a 19th-century novel. Ctrl-C ends the text cleanly, with exit code 130.\n\n"
        "The same seed, prompt, options and device give the same text. With --prompts, text N is drawn with the "
        "seed --seed + N - 1.",
    .examples = "  deltaic generate --prompt \"It was a bright cold day\" -n 200 --seed 7\n"
                "  deltaic generate --model models/novelist --greedy -n 40\n"
                "  fortune | deltaic generate - --quiet --no-echo > story.txt\n"
                "  deltaic generate --file chapter1.txt --state-out chapter1.state -n 0\n"
                "  deltaic generate --state-in chapter1.state -n 300         read once, continue often\n"
                "  deltaic generate --json -n 50 | jq -r .text\n"
                "  deltaic generate -p \"Q: Who is there?\\nA:\" --stop \"Q:\" --no-echo\n"
                "  deltaic generate --prompts questions.txt --greedy -n 30 > answers.jsonl\n",
    .most_arguments = 2,
};

// MODEL and "-", in any order.
static int take_arguments(struct generate_request *r, const struct arguments *arguments) {
  for (size_t i = 0; i < arguments->count; ++i) {
    const char *text = arguments->items[i];
    if (!strcmp(text, "-")) {
      if (r->file) return complain(EXIT_USAGE, "the prompt is given twice: --file and -");
      r->file = text;
    } else if (r->engine.model) {
      return complain(EXIT_USAGE, "unexpected argument \"%s\"; a text to continue goes after --prompt", text);
    } else if (!file_there(text)) {
      return complain(EXIT_FAILED, "%s: %s; a text to continue goes after --prompt", text, errno_text(ENOENT));
    } else {
      r->engine.model = text;
    }
  }
  if (r->prompt && r->file) return complain(EXIT_USAGE, "the prompt is given twice: --prompt and a file");
  if (r->prompts && (r->prompt || r->file || r->state_in || r->state_out))
    return complain(EXIT_USAGE, "--prompts cannot be combined with --prompt, --file, - or saved states");
  if (r->engine.sequences && !r->prompts) return complain(EXIT_USAGE, "--sequences goes with --prompts");
  return EXIT_OK;
}

int command_generate(int argc, char **argv) {
  struct generate_request r = {.engine = ENGINE_DEFAULTS, .tokens = 120, .choice = CHOICE_DEFAULTS};
  struct arguments arguments;
  int code;
  const struct option options[] = {
      HEADING("the text"),
      TEXT('p', "prompt", "TEXT", &r.prompt, "the text to continue; an empty prompt starts from the begin token alone"),
      TEXT('f', "file", "PATH", &r.file, "the same from a file; - is standard input"),
      TEXT(0, "prompts", "FILE", &r.prompts,
           "continue many texts, several at once. Each line of FILE is a prompt, or every line is {\"prompt\": ...}. "
           "Prints a line of JSON for each, in order. - is standard input"),
      COUNT(0, "sequences", "N", &r.engine.sequences, 0, 256,
            "with --prompts: texts at once; 0: 64 on a GPU, 8 on the CPU, fewer if their states would fill the memory"),
      COUNT('n', "tokens", "N", &r.tokens, 0, 1u << 24, "the most tokens to add, up to 16,777,216"),
      TEXTS(0, "stop", "TEXT", &r.stops, "end before this text, which is not written; may be repeated"),
      FLAG(0, "ignore-eos", &r.ignore_eos, "continue when the model ends the text"),
      FLAG(0, "no-bos", &r.no_bos, "do not begin with the tokenizer's begin token"),
      FLAG(0, "no-echo", &r.no_echo, "write the new text only"),
      FLAG('q', "quiet", &r.engine.quiet, "print only failures on standard error"),
      FLAG(0, "json", &r.as_json, "print one JSON object with text, tokens, seed and speed instead of the stream"),
      CHOICE_OPTIONS(&r.choice),
      HEADING("saved states"),
      TEXT(0, "state-in", "FILE", &r.state_in, "continue from a saved state; a prompt is added to its text"),
      OUTPUT(0, "state-out", "FILE", &r.state_out, "save the state at the end"),
      ENGINE_OPTIONS(&r.engine),
      COUNT('c', "context", "N", &r.engine.context, 0, 0,
            "most tokens of the text, for models whose state grows with it; 0: 4096, or what this text needs"),
      OPTIONS_END,
  };
  if (!options_parse(&usage, options, argc, argv, &arguments, &code)) return code;
  code = choice_read(&r.choice, &arguments);
  if (!code) code = take_arguments(&r, &arguments);
  const char *model = code ? NULL : model_path(r.engine.model);
  if (!code) code = model ? model_check(model) : EXIT_USAGE;
  if (code) return code;
  return r.prompts ? generate_many(&r) : generate_one(&r);
}
