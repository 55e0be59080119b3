// check.h: a device against the CPU: lists of operations (check_lists.c), their inputs (check_inputs.c), and what runs
// them on both (check.c).
#ifndef CHECK_H
#define CHECK_H
#include "backend.h"
#include "pool.h"

enum { CHECK_OUTPUTS = 8, CHECK_CPU = 0, CHECK_DEVICE = 1 };

enum check_kind { CHECK_PRODUCTS, CHECK_DELTA, CHECK_MAMBA2, CHECK_ATTENTION, CHECK_EXPERTS, CHECK_TOKENS };

// One list. B sequences of T tokens; weights of dtype; n and r as in struct delta_args; a vocabulary of V.
struct check_case {
  uint8_t kind, dtype, form, B;
  uint16_t T;
  uint8_t n, r;
  uint16_t Dk, V;
  uint16_t before; // tokens in attention's caches; then with the norm of heads and a gate
};
extern const struct check_case check_cases[];
extern const uint32_t check_case_count;

// The same inputs are at the same places in the memory of both sides.
struct check {
  const struct check_case *c;
  enum matrices matrices;    // of the device's lists
  double limit, worst_limit; // of the error, of an element
  char kernels[256];         // that ran, or that are wrong
  struct backend *b[2];
  struct buffer memory[2];
  struct tensor parts; // as of a list, on the device
  struct oplist list[2];
  int side;           // whose list is made
  uint32_t next, end; // the lists whose kernels are compiled
  bool compiles;      // lists are recorded for their kernels alone, without inputs
  uint64_t begin, at; // of the memory
  char *inputs;       // inputs of check_numbers(), with the layout of the memory from `begin`
  bool made;          // `inputs` holds the current case's numbers
  struct pool *pool;  // threads that encode `inputs`
  uint32_t random;
  struct tensor out[CHECK_OUTPUTS]; // what is compared
  uint32_t outs;
  deltaic_status status; // the first error
};
// Room for a tensor; on failure the error is kept, and the tensor is the beginning of the memory.
struct tensor check_place(struct check *k, enum dtype dtype, uint32_t rows, uint32_t cols);
// Numbers in (-most, most), or zeros, in memory of the side.
struct tensor check_numbers(struct check *k, enum dtype dtype, uint32_t rows, uint32_t cols, float most);
// A matrix of blocks, at its place in the memory of a side that wants tiles.
struct tensor check_tiles(struct check *k, struct tensor t, const void *blocks);
struct tensor check_words(struct check *k, uint32_t rows, uint32_t cols, const void *words);
struct tensor check_output(struct check *k, struct tensor t); // t, which is compared
// Records the case's list, with inputs in the memory of k->side.
void check_record(struct check *k, const struct check_case *c);
#endif
