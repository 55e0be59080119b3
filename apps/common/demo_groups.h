// demo_groups.h: declares finite groups, their real orthogonal representations and the latter's Householder factors.
#ifndef DEMO_GROUPS_H
#define DEMO_GROUPS_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { GROUP_NAME = 16, GROUP_DIMENSION = 6, GROUP_ORDER = 1024 };

// A representation: R(a after b) = R(a) R(b), orthogonal.
struct representation {
  uint32_t d, rank;                                // rank: columns of start
  double *R;                                       // (order, d, d)
  double start[GROUP_DIMENSION * GROUP_DIMENSION]; // (d, rank), orthonormal columns: the state at the start of a word
};

struct group {
  char name[GROUP_NAME];
  const char *what; // "rotations of the cube"
  uint32_t order;   // elements 0 ... order - 1; 0 is the identity
  uint32_t steps;   // the most reflections that any element needs in any representation
  uint16_t *after;  // (order, order): after[a * order + b] is b, then a; computed with integers only
  char (*names)[GROUP_NAME];
  struct representation *representations;
  uint32_t representation_count;
};

// name: "S2" ... "S6", "A5", "Z2" ... "Z1024", "D3" ... "D512". swaps: represents S4 by swaps instead of the cube's
// rotations. It returns false if the group is not known.
bool group_make(const char *name, bool swaps, struct group *out);
void group_free(struct group *group);

static inline uint32_t group_after(const struct group *g, uint32_t a, uint32_t b) {
  return g->after[(size_t)a * g->order + b];
}
static inline const double *group_matrix(const struct group *g, uint32_t representation, uint32_t element) {
  const struct representation *r = &g->representations[representation];
  return r->R + (size_t)element * r->d * r->d;
}

// Factors R = H_n ... H_1 into Householder reflections H_i = I - 2 k_i k_i^T with unit keys k_i, the rows of `keys`,
// (d, d). n = rank(R - I) is minimal (Cartan, Dieudonne). A permutation's keys are (e_i - e_j) / sqrt 2. Returns n.
uint32_t reflections(const double *R, uint32_t d, double *keys);
#endif
