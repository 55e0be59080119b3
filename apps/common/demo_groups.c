// demo_groups: builds finite groups, their orthogonal representations and products of reflections.
#include "demo_groups.h"
#include "common.h" // must_resize

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { POINTS = 6 }; // the most points that a permutation moves

static const double pi = 3.14159265358979323846;

static void *zeros(size_t bytes) { return memset(must_resize(NULL, bytes), 0, bytes); }

// ---------------------------------------------------------------- matrices

static void multiply(double *out, const double *a, const double *b, uint32_t d) {
  for (uint32_t i = 0; i < d; ++i)
    for (uint32_t j = 0; j < d; ++j) {
      double sum = 0;
      for (uint32_t k = 0; k < d; ++k) sum += a[i * d + k] * b[k * d + j];
      out[i * d + j] = sum;
    }
}

static void rotation2(double *R, double angle) {
  R[0] = R[3] = cos(angle);
  R[2] = sin(angle);
  R[1] = -R[2];
}

// Builds the rotation about a unit axis (Rodrigues).
static void rotation3(double *R, const double *axis, double angle) {
  double c = cos(angle), s = sin(angle);
  for (int i = 0; i < 3; ++i)
    for (int j = 0; j < 3; ++j) R[i * 3 + j] = (i == j ? c : 0) + (1 - c) * axis[i] * axis[j];
  for (int i = 0; i < 3; ++i) {
    int j = (i + 1) % 3, k = (i + 2) % 3;
    R[k * 3 + j] += s * axis[i];
    R[j * 3 + k] -= s * axis[i];
  }
}

// Sets key to the unit vector along R e - e, for the basis vector e that R moves farthest; false if R moves none.
static bool farthest(const double *R, uint32_t d, double *key) {
  double best = 1e-9;
  for (uint32_t j = 0; j < d; ++j) {
    double column[GROUP_DIMENSION], sum = 0;
    for (uint32_t i = 0; i < d; ++i) {
      column[i] = R[i * d + j] - (i == j);
      sum += column[i] * column[i];
    }
    if (sqrt(sum) <= best + 1e-9) continue;
    best = sqrt(sum);
    for (uint32_t i = 0; i < d; ++i) key[i] = column[i] / best;
  }
  return best > 1e-8;
}

uint32_t reflections(const double *R, uint32_t d, double *keys) {
  double rest[GROUP_DIMENSION * GROUP_DIMENSION];
  uint32_t n = 0;
  memcpy(rest, R, d * d * sizeof *rest);
  while (n < d && farthest(rest, d, keys + n * d)) {
    const double *k = keys + n++ * d;
    for (uint32_t j = 0; j < d; ++j) { // H rest fixes one more basis vector
      double dot = 0;
      for (uint32_t i = 0; i < d; ++i) dot += k[i] * rest[i * d + j];
      for (uint32_t i = 0; i < d; ++i) rest[i * d + j] -= 2 * dot * k[i];
    }
  }
  for (uint32_t a = 0; a < n / 2; ++a) // R = H_first ... H_last: the last reflection is applied first
    for (uint32_t i = 0; i < d; ++i) {
      double kept = keys[a * d + i];
      keys[a * d + i] = keys[(n - 1 - a) * d + i];
      keys[(n - 1 - a) * d + i] = kept;
    }
  return n;
}

// ---------------------------------------------------------------- parts of a group

static void group_begin(struct group *g, const char *what, uint32_t order, uint32_t representations) {
  g->what = what;
  g->order = order;
  g->after = zeros((size_t)order * order * sizeof *g->after);
  g->names = zeros(order * sizeof *g->names);
  g->representations = zeros(representations * sizeof *g->representations);
}

// Sets `start` to the first `rank` basis vectors.
static struct representation *add_representation(struct group *g, uint32_t d, uint32_t rank) {
  struct representation *r = &g->representations[g->representation_count++];
  r->d = d;
  r->rank = rank;
  r->R = zeros((size_t)g->order * d * d * sizeof *r->R);
  for (uint32_t j = 0; j < rank; ++j) r->start[j * rank + j] = 1;
  return r;
}

static void count_steps(struct group *g) {
  double keys[GROUP_DIMENSION * GROUP_DIMENSION];
  for (uint32_t r = 0; r < g->representation_count; ++r)
    for (uint32_t e = 0; e < g->order; ++e) {
      uint32_t n = reflections(group_matrix(g, r, e), g->representations[r].d, keys);
      if (n > g->steps) g->steps = n;
    }
}

void group_free(struct group *g) {
  for (uint32_t r = 0; r < g->representation_count; ++r) free(g->representations[r].R);
  free(g->representations);
  free(g->after);
  free(g->names);
  *g = (struct group){0};
}

// ---------------------------------------------------------------- Z_m and D_m: representations in the plane

static void make_cyclic(struct group *g, uint32_t m) {
  group_begin(g, m == 2 ? "parity" : "addition modulo m: rotations of the plane", m, m / 2);
  for (uint32_t a = 0; a < m; ++a) {
    snprintf(g->names[a], GROUP_NAME, "r%u", a);
    for (uint32_t b = 0; b < m; ++b) g->after[(size_t)a * m + b] = (uint16_t)((a + b) % m);
  }
  for (uint32_t f = 1; f <= m / 2; ++f) {
    bool sign = 2 * f == m;
    struct representation *r = add_representation(g, sign ? 1 : 2, sign ? 1 : 2);
    for (uint32_t a = 0; a < m; ++a) {
      if (sign)
        r->R[a] = a % 2 ? -1 : 1;
      else
        rotation2(r->R + 4 * a, 2 * pi * (f * a % m) / m);
    }
  }
}

// Element a is the rotation by a; element m + a is a reflection followed by that rotation.
static void make_dihedral(struct group *g, uint32_t m) {
  group_begin(g, "symmetries of a regular polygon", 2 * m, (m - 1) / 2);
  for (uint32_t a = 0; a < 2 * m; ++a) {
    snprintf(g->names[a], GROUP_NAME, "%c%u", a < m ? 'r' : 's', a % m);
    for (uint32_t b = 0; b < 2 * m; ++b) {
      uint32_t turn = a < m ? a + b % m : a % m + m - b % m;
      g->after[(size_t)a * 2 * m + b] = (uint16_t)(turn % m + ((a < m) == (b < m) ? 0 : m));
    }
  }
  for (uint32_t f = 1; f <= (m - 1) / 2; ++f) {
    struct representation *r = add_representation(g, 2, 2);
    for (uint32_t a = 0; a < 2 * m; ++a) {
      double *R = r->R + 4 * a;
      rotation2(R, 2 * pi * (f * (a % m) % m) / m);
      if (a < m) continue;
      R[1] = -R[1];
      R[3] = -R[3];
    }
  }
}

// ---------------------------------------------------------------- groups of permutations

struct permutations {
  uint32_t n, order;
  uint8_t (*points)[POINTS]; // p[i]: image of point i
  uint16_t *find;            // indexed by code
};

static uint32_t code_of(const uint8_t *p, uint32_t n) {
  uint32_t code = 0;
  for (uint32_t i = 0; i < n && i < POINTS; ++i) code |= (uint32_t)p[i] << 3 * i;
  return code;
}

static struct permutations permutations_begin(uint32_t n, uint32_t most) {
  return (struct permutations){.n = n,
                               .points = zeros(most * sizeof *(struct permutations){0}.points),
                               .find = zeros(((size_t)1 << 3 * n) * sizeof(uint16_t))};
}

static void permutations_add(struct permutations *p, const uint8_t *points) {
  memcpy(p->points[p->order], points, p->n);
  p->find[code_of(points, p->n)] = (uint16_t)p->order++;
}

static void permutations_free(struct permutations *p) {
  free(p->points);
  free(p->find);
}

// Fills the product table and the names in one-line notation: (2134) swaps 1 and 2.
static void permutations_group(const struct permutations *p, struct group *g) {
  for (uint32_t a = 0; a < p->order; ++a) {
    char *name = g->names[a];
    for (uint32_t i = 0; i < p->n; ++i) name[1 + i] = (char)('1' + p->points[a][i]);
    name[0] = '(';
    name[1 + p->n] = ')';
    for (uint32_t b = 0; b < p->order; ++b) {
      uint8_t both[POINTS];
      for (uint32_t i = 0; i < p->n; ++i) both[i] = p->points[a][p->points[b][i]];
      g->after[(size_t)a * p->order + b] = p->find[code_of(both, p->n)];
    }
  }
}

// Lists the permutations of n points in lexicographic order; element 0 is the identity.
static void nth_permutation(uint32_t number, uint32_t n, uint8_t *p) {
  uint32_t later = 1; // number of orders of the points after i
  bool used[POINTS] = {false};
  for (uint32_t i = 2; i < n; ++i) later *= i;
  for (uint32_t i = 0; i < n; ++i) {
    uint32_t skip = number / later;
    uint8_t point = 0;
    while (used[point] || skip--) ++point;
    used[point] = true;
    p[i] = point;
    number %= later;
    if (n - 1 - i > 0) later /= n - 1 - i;
  }
}

// Builds an orthonormal basis of the vectors whose entries sum to zero (Helmert).
static void sum_zero_basis(double *start, uint32_t n) {
  for (uint32_t j = 0; j + 1 < n; ++j) {
    double norm = sqrt((double)(j + 1) * (j + 2));
    for (uint32_t i = 0; i < n; ++i) start[i * (n - 1) + j] = (i <= j ? 1 : i == j + 1 ? -(double)(j + 1) : 0) / norm;
  }
}

static void make_symmetric(struct group *g, uint32_t n) {
  uint32_t order = 1;
  for (uint32_t i = 2; i <= n; ++i) order *= i;
  struct permutations p = permutations_begin(n, order);
  for (uint32_t a = 0; a < order; ++a) {
    uint8_t points[POINTS];
    nth_permutation(a, n, points);
    permutations_add(&p, points);
  }
  group_begin(g, "permutations, by swaps", p.order, 1);
  permutations_group(&p, g);
  struct representation *r = add_representation(g, n, n - 1);
  sum_zero_basis(r->start, n);
  for (uint32_t a = 0; a < p.order; ++a)
    for (uint32_t i = 0; i < n; ++i) r->R[(size_t)a * n * n + p.points[a][i] * n + i] = 1;
  permutations_free(&p);
}

// ---------------------------------------------------------------- rotations of a solid

// Axes that the rotations permute, each with the index of its point.
struct solid {
  uint32_t points, order, axes;
  double axis[15][3];
  uint8_t point[15];
  double generators[2][9];
};

static uint8_t point_of(const struct solid *s, const double *v) {
  for (uint32_t a = 0; a < s->axes; ++a)
    if (fabs(fabs(v[0] * s->axis[a][0] + v[1] * s->axis[a][1] + v[2] * s->axis[a][2]) - 1) < 1e-6) return s->point[a];
  return 0;
}

static void permutation_of(const struct solid *s, const double *R, uint8_t *points) {
  for (uint32_t a = 0; a < s->axes; ++a) {
    double moved[3];
    for (int i = 0; i < 3; ++i)
      moved[i] = R[i * 3] * s->axis[a][0] + R[i * 3 + 1] * s->axis[a][1] + R[i * 3 + 2] * s->axis[a][2];
    points[s->point[a]] = point_of(s, moved);
  }
}

// Multiplies by the generators until no new element appears; the permutations identify the elements.
static void make_rotations(struct group *g, const struct solid *s, const char *what) {
  struct permutations p = permutations_begin(s->points, s->order);
  uint8_t points[POINTS] = {0, 1, 2, 3, 4, 5};
  group_begin(g, what, s->order, 2);
  struct representation *r = add_representation(g, 3, 2);
  r->R[0] = r->R[4] = r->R[8] = 1;
  permutations_add(&p, points);
  for (uint32_t a = 0; a < p.order; ++a)
    for (int i = 0; i < 2 && p.order < s->order; ++i) {
      double next[9];
      multiply(next, s->generators[i], r->R + 9 * (size_t)a, 3);
      permutation_of(s, next, points);
      uint32_t known = p.find[code_of(points, s->points)];
      if (known || !memcmp(points, p.points[0], s->points)) continue;
      memcpy(r->R + 9 * (size_t)p.order, next, sizeof next);
      permutations_add(&p, points);
    }
  permutations_group(&p, g);
  if (s->points == 5) { // A5's second representation: the first with points 1 and 2 exchanged
    struct representation *other = add_representation(g, 3, 2);
    static const uint8_t exchange[5] = {1, 0, 2, 3, 4};
    for (uint32_t a = 0; a < p.order; ++a) {
      for (int i = 0; i < 5; ++i) points[exchange[i]] = exchange[p.points[a][i]];
      memcpy(other->R + 9 * (size_t)a, r->R + 9 * (size_t)p.find[code_of(points, 5)], 9 * sizeof(double));
    }
  }
  permutations_free(&p);
}

static void make_cube(struct group *g) {
  struct solid s = {.points = 4, .order = 24, .axes = 4};
  const double third = 1 / sqrt(3), z[3] = {0, 0, 1}, diagonal[3] = {third, third, third};
  for (uint32_t a = 0; a < 4; ++a) {
    s.axis[a][0] = a & 1 ? -third : third;
    s.axis[a][1] = a & 2 ? -third : third;
    s.axis[a][2] = third;
    s.point[a] = (uint8_t)a;
  }
  rotation3(s.generators[0], z, pi / 2);
  rotation3(s.generators[1], diagonal, 2 * pi / 3);
  make_rotations(g, &s, "rotations of the cube");
}

// The fifteen twofold axes form five frames of three; a rotation about a vertex maps each frame to the next.
static void make_icosahedron(struct group *g) {
  struct solid s = {.points = 5, .order = 60, .axes = 15};
  const double golden = (1 + sqrt(5)) / 2, norm = sqrt(1 + golden * golden), z[3] = {0, 0, 1};
  const double vertex[3] = {0, 1 / norm, golden / norm};
  for (uint32_t f = 0; f < 5; ++f) {
    double R[9];
    rotation3(R, vertex, 2 * pi * f / 5);
    for (uint32_t j = 0; j < 3; ++j) {
      s.point[3 * f + j] = (uint8_t)f;
      for (uint32_t i = 0; i < 3; ++i) s.axis[3 * f + j][i] = R[i * 3 + j];
    }
  }
  rotation3(s.generators[0], z, pi);
  rotation3(s.generators[1], vertex, 2 * pi / 5);
  make_rotations(g, &s, "rotations of the icosahedron");
}

// ---------------------------------------------------------------- by name

bool group_make(const char *name, bool swaps, struct group *out) {
  char letter = name[0], *end;
  unsigned long n = letter && name[1] >= '1' && name[1] <= '9' ? strtoul(name + 1, &end, 10) : 0;
  *out = (struct group){0};
  if (!n || *end || strlen(name) >= GROUP_NAME) return false;
  snprintf(out->name, sizeof out->name, "%s", name);
  if (letter == 'S' && n == 4 && !swaps)
    make_cube(out);
  else if (letter == 'S' && n >= 2 && n <= POINTS)
    make_symmetric(out, (uint32_t)n);
  else if (letter == 'A' && n == 5)
    make_icosahedron(out);
  else if (letter == 'Z' && n >= 2 && n <= GROUP_ORDER)
    make_cyclic(out, (uint32_t)n);
  else if (letter == 'D' && n >= 3 && n <= GROUP_ORDER / 2)
    make_dihedral(out, (uint32_t)n);
  else
    return false;
  count_steps(out);
  return true;
}
