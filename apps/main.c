// main: holds the table of commands and prints help and the version.
#include "command.h"
#include "common.h"
#include "console.h"
#include "help.h"

#include <stdio.h>
#include <string.h>

static const struct command {
  const char *name;
  int (*run)(int argc, char **argv);
  const char *summary;
} commands[] = {
    {"generate", command_generate, "continue a text, streamed as it is decoded"},
    {"chat", command_chat, "talk with a model; take turns back, fork, save, continue later"},
    {"perplexity", command_perplexity, "how well a model predicts a text"},
    {"eval", command_eval, "the papers' tests: accuracy, perplexity per word, recall, state tracking"},
    {"prune", command_prune, "make a smaller state: choose key channels, write a checkpoint"},
    {"tune", command_tune, "train a model on texts, or a new one, with or without LoRA"},
    {"rank", command_rank, "how much of its states a model uses"},
    {"quantize", command_quantize, "write a model as a GGUF file of 16, 8, 6, 5 or 4 bits"},
    {"info", command_info, "what a checkpoint is and how much memory it needs"},
    {"devices", command_devices, "every device, its limits and the plan chosen on it"},
    {"bench", command_bench, "speed of prefill and decode, and where the time goes"},
    {"validate", command_validate, "compare a model with another program's numbers"},
    {"serve", command_serve, "answer requests over HTTP, many at once, with OpenAI's interface"},
    {"demo", command_demo, "what the rules can do, shown without training"},
};
enum { COMMANDS = sizeof commands / sizeof *commands };

static const char about[] = "Runs delta-rule linear-attention language models through Vulkan or on the CPU.";
static const char examples[] = "  deltaic generate --model models/novelist --prompt \"The old house\" -n 200\n"
                               "  deltaic perplexity models/novelist book.txt\n"
                               "  deltaic devices\n"
                               "  deltaic help generate\n";

static const struct {
  int code;
  const char *text;
} codes[] = {
#define EXIT_ROW(name, value, text) {value, text},
    EXIT_MAP(EXIT_ROW)
#undef EXIT_ROW
};
enum { CODES = sizeof codes / sizeof *codes };

static void print_exit_codes(void) {
  printf("exit codes:\n");
  for (int i = 0; i < CODES; ++i) {
    int column = printf("  %3d", codes[i].code);
    print_wrapped(codes[i].text, 7, &column);
  }
  int column = 0;
  putchar('\n');
  print_wrapped("A failure is one sentence on standard error; standard output holds results only.", 0, &column);
}

static void print_help(void) {
  printf("usage: deltaic COMMAND [options]\n\n%s\n\ncommands:\n", about);
  for (int i = 0; i < COMMANDS; ++i) printf("  %-12s%s\n", commands[i].name, commands[i].summary);
  printf("  %-12s%s\n", "help", "this text; 'help COMMAND' or 'COMMAND --help': all about one; 'help exit-codes'");
  printf("  %-12s%s\n", "version", "the version");
  printf("\nexamples:\n%s\n", examples);
  print_exit_codes();
}

static const struct command *find_command(const char *name) {
  for (int i = 0; i < COMMANDS; ++i)
    if (!strcmp(commands[i].name, name)) return &commands[i];
  return NULL;
}

static int complain_command(const char *name) {
  const char *names[COMMANDS];
  for (int i = 0; i < COMMANDS; ++i) names[i] = commands[i].name;
  const char *meant = nearest_name(name, names, COMMANDS);
  if (meant) return complain(EXIT_USAGE, "there is no command \"%s\"; did you mean %s?", name, meant);
  return complain(EXIT_USAGE, "there is no command \"%s\"; 'deltaic help' lists them", name);
}

static bool asks_help(const char *name) { return !strcmp(name, "help") || help_form(name) == HELP_TEXT; }

static bool asks_version(const char *name) { return !strcmp(name, "version") || !strcmp(name, "--version"); }

static int command_help(int argc, char **argv) {
  char help[] = "--help", *ask[] = {help};
  const struct command *command = argc ? find_command(argv[0]) : NULL;
  if (argc > 1) return complain(EXIT_USAGE, "help takes one command, not \"%s\" too", argv[1]);
  if (command) return command->run(1, ask);
  if (argc && !strcmp(argv[0], "exit-codes"))
    print_exit_codes();
  else if (!argc || asks_help(argv[0]) || asks_version(argv[0]))
    print_help();
  else
    return complain_command(argv[0]);
  return EXIT_OK;
}

// Every command prints its part, from its own table of options. One that cannot (it is in a plugin that was not built)
// says so, and has none.
static void print_commands(char *form) {
  for (int i = 0; i < COMMANDS; ++i) commands[i].run(1, &form);
}

// The manual, `man 1 deltaic`.
static int print_manual(char *form) {
  printf(".TH DELTAIC 1 \"\" \"deltaic %s\"\n.SH NAME\ndeltaic \\- run delta\\-rule language models\n",
         DELTAIC_VERSION);
  printf(".SH SYNOPSIS\n.B deltaic\n.I COMMAND\n[options]\n.SH DESCRIPTION\n");
  man_line("", about);
  for (int i = 0; i < COMMANDS; ++i) {
    man_line(".TP\n.B ", commands[i].name);
    man_line("", commands[i].summary);
  }
  man_example(examples);
  printf(".SH COMMANDS\n");
  print_commands(form);
  printf(".SH \"EXIT STATUS\"\n");
  for (int i = 0; i < CODES; ++i) {
    printf(".TP\n.B %d\n", codes[i].code);
    man_line("", codes[i].text);
  }
  man_text("A failure is one sentence on standard error; standard output holds results only.");
  return EXIT_OK;
}

// A completion for bash: commands, options, and files in all other places.
static int print_completion(char *form) {
  printf("# Completion of deltaic for bash, printed by 'deltaic --help=bash'.\n_deltaic() {\n"
         "  local current=${COMP_WORDS[COMP_CWORD]} words= options=\n"
         "  local commands='");
  for (int i = 0; i < COMMANDS; ++i) printf("%s ", commands[i].name);
  printf("help version'\n"
         "  case ${COMP_WORDS[*]:1:COMP_CWORD-1}\" \" in\n"
         "    ' ') words=$commands options='--help --version' ;;\n"
         "    'help ') words=\"$commands exit-codes\" ;;\n");
  print_commands(form);
  printf("  esac\n"
         "  if [[ $current == -* ]]; then words=$options; fi\n"
         "  COMPREPLY=($(compgen -W \"$words\" -- \"$current\"))\n"
         "}\ncomplete -o default -F _deltaic deltaic\n");
  return EXIT_OK;
}

static int run(int argc, char **argv) {
  const char *name = argc > 1 ? argv[1] : "";
  const struct command *command = find_command(name);
  if (command) {
    complain_as(name);
    return command->run(argc - 2, argv + 2);
  }
  if (asks_help(name)) return command_help(argc - 2, argv + 2);
  if (help_form(name) == HELP_MAN) return print_manual(argv[1]);
  if (help_form(name) == HELP_BASH) return print_completion(argv[1]);
  if (asks_version(name)) {
    if (argc > 2) return complain(EXIT_USAGE, "version takes no argument, such as \"%s\"", argv[2]);
    printf("deltaic %s\n", deltaic_version());
    return EXIT_OK;
  }
  if (*name) return complain_command(name);
  return complain(EXIT_USAGE, "no command; 'deltaic help' lists them");
}

int main(int argc, char **argv) {
  console_start(&argc, &argv);
  int code = interrupt_code(run(argc, argv));
  if ((fflush(stdout) || ferror(stdout)) && code == EXIT_OK) return complain_output();
  return code;
}
