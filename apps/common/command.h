// command.h: declares one function per command. argv begins after the command's name; the result is an exit code.
#ifndef COMMAND_H
#define COMMAND_H

int command_generate(int argc, char **argv);
int command_chat(int argc, char **argv);
int command_perplexity(int argc, char **argv);
int command_info(int argc, char **argv);
int command_devices(int argc, char **argv);
int command_prune(int argc, char **argv);
int command_tune(int argc, char **argv);
int command_quantize(int argc, char **argv);
int command_bench(int argc, char **argv);
int command_validate(int argc, char **argv);
int command_validate_gradients(int argc, char **argv); // of validate, for files of gradients
int command_rank(int argc, char **argv);
int command_eval(int argc, char **argv);
int command_demo(int argc, char **argv);
int command_serve(int argc, char **argv);
#endif
