// low_rank: see low_rank.h.
#include "low_rank.h"

#include <stdlib.h>
#include <string.h>

struct low_part {
  struct adapter_pair pair;
  const struct layer_spec *layer;
  uint32_t end;   // one past the part's last row
  uint32_t zeros; // number of zero rows that follow
  uint64_t first; // index of the part's first row in the stacked A
};

struct low_rank {
  struct low_factors factors;
  struct low_part parts[];
};

// Column `col` of a matrix.
static void read_column(const struct file_tensor *t, uint64_t col, uint64_t rows, float *out) {
  for (uint64_t i = 0; i < rows; i++) file_tensor_f32(t, i * t->shape[1] + col, 1, &out[i]);
}

void low_rank_row_A(const void *context, uint32_t row, uint32_t cols, float *out) {
  const struct low_rank *low = *(struct low_rank *const *)context;
  const struct low_part *p = low->parts;
  // The part that owns this row.
  while (!p->pair.A || row < p->first || row - p->first >= p->pair.A->shape[0]) p++;
  const struct adapter_pair *pair = &p->pair;
  const uint64_t begin = (row - p->first) * cols;
  if (pair->swapped) {
    read_column(pair->B, row - p->first, cols, out);
    return;
  }
  if (!pair->columns) file_tensor_f32(pair->A, begin, cols, out);
  for (uint32_t i = 0; pair->columns && i < cols; i++)
    file_tensor_f32(pair->A, begin + pair->columns->at(p->layer, i), 1, &out[i]);
}

void low_rank_row_B(const void *context, uint32_t row, uint32_t cols, float *out) {
  const struct low_rank *low = *(struct low_rank *const *)context;
  const struct low_part *p = low->parts;
  uint32_t begin = 0;
  memset(out, 0, cols * sizeof *out);
  for (; row >= p->end + p->zeros; p++) begin = p->end + p->zeros;
  if (!p->pair.B || row >= p->end) return;
  const struct adapter_pair *pair = &p->pair;
  const uint64_t at = row_mapped(pair->rows, p->layer, row_mapped(pair->order, p->layer, row - begin));
  const uint64_t rank = pair->B->shape[1];
  if (pair->swapped)
    read_column(pair->A, at, rank, out + p->first);
  else
    file_tensor_f32(pair->B, at * rank, rank, out + p->first);
  for (uint64_t r = 0; r < rank; r++) out[p->first + r] *= pair->s;
}

// The A and B of an embedding are swapped (adapter.h), so pair.B is the transpose of A.
void low_rank_row_A_turned(const void *context, uint32_t row, uint32_t cols, float *out) {
  const struct low_rank *low = *(struct low_rank *const *)context;
  file_tensor_f32(low->parts->pair.B, (uint64_t)row * cols, cols, out);
}

uint64_t low_rank_create(const struct weight_part *parts, int count, struct low_rank **out) {
  struct low_rank *low = *out = calloc(1, sizeof *low + (size_t)count * sizeof *low->parts);
  uint64_t ranks = 0;
  uint32_t rows = 0;
  for (int i = 0; low && i < count; i++) {
    struct low_part *p = &low->parts[i];
    *p = (struct low_part){.pair = parts[i].pair, .layer = parts[i].layer, .zeros = parts[i].zeros, .first = ranks};
    p->end = rows + parts[i].rows;
    rows = p->end + p->zeros;
    bool shared = !p->pair.A;
    for (int k = 0; k < i && !shared; k++) {
      shared = low->parts[k].pair.A == p->pair.A;
      if (shared) p->first = low->parts[k].first;
    }
    if (!shared) ranks += p->pair.A->shape[0];
  }
  return ranks;
}

struct low_factors *low_rank_factors(struct low_rank *low) {
  return &low->factors;
}
