// eval_prefix: sorts requests by their sharable tokens and builds the tree of shared prefixes from the lengths that
// adjacent requests share, as a suffix tree is built from a suffix array.
#include "eval_prefix.h"
#include "common.h"

#include <stdlib.h>
#include <string.h>

enum { WORTH = 8 }; // tokens: a shorter shared prefix costs more than evaluating it again

// Returns the sharable length: the context without its last token.
static uint32_t sharable(const struct request *r) { return r->context - 1; }

static uint32_t common(const struct request *a, const struct request *b) {
  uint32_t most = sharable(a) < sharable(b) ? sharable(a) : sharable(b), n = 0;
  while (n < most && a->ids[n] == b->ids[n]) ++n;
  return n;
}

static int by_tokens(const void *left, const void *right) {
  const struct request *a = left, *b = right;
  uint32_t n = common(a, b), x = sharable(a), y = sharable(b);
  if (n < x && n < y) return a->ids[n] < b->ids[n] ? -1 : 1;
  if (x != y) return x < y ? -1 : 1;
  if (a->index != b->index) return a->index < b->index ? -1 : 1;
  return (a->choice > b->choice) - (a->choice < b->choice);
}

// A node during construction. Its first leaf determines its position.
struct growing {
  uint32_t parent, depth, first;
};

struct growth {
  struct growing *inner;
  uint32_t *parents; // (leaves) inner nodes, or PREFIX_ROOT
  size_t count, capacity;
};

static uint32_t depth_of(const struct growth *g, uint32_t node) {
  return node == PREFIX_ROOT ? 0 : g->inner[node].depth;
}

static uint32_t add_inner(struct growth *g, uint32_t parent, uint32_t depth, uint32_t first) {
  if (g->count == g->capacity) {
    g->capacity = 2 * g->capacity + 64;
    g->inner = must_resize(g->inner, g->capacity * sizeof *g->inner);
  }
  g->inner[g->count] = (struct growing){.parent = parent, .depth = depth, .first = first};
  return (uint32_t)g->count++;
}

// shared[i] is the prefix length shared by leaves i - 1 and i; shared[0] and shared[count] are 0.
static void grow(struct growth *g, const uint32_t *shared, size_t count) {
  uint32_t top = PREFIX_ROOT;
  for (size_t i = 0; i < count; ++i) {
    uint32_t popped = PREFIX_ROOT;
    while (depth_of(g, top) > shared[i]) {
      popped = top;
      top = g->inner[top].parent;
    }
    if (popped != PREFIX_ROOT && depth_of(g, top) < shared[i]) {
      uint32_t between = add_inner(g, top, shared[i], g->inner[popped].first);
      g->inner[popped].parent = between;
      top = between;
    }
    if (shared[i + 1] > depth_of(g, top)) top = add_inner(g, top, shared[i + 1], (uint32_t)i);
    g->parents[i] = top;
  }
}

static const struct growth *sorting;
static int by_place(const void *left, const void *right) {
  const struct growing *a = &sorting->inner[*(const uint32_t *)left], *b = &sorting->inner[*(const uint32_t *)right];
  if (a->first != b->first) return a->first < b->first ? -1 : 1;
  return (a->depth > b->depth) - (a->depth < b->depth);
}

// Places each inner node before its first leaf.
static void lay_out(struct prefix_tree *tree, const struct growth *g, struct request *requests, size_t count) {
  uint32_t *order = must_resize(NULL, g->count * sizeof *order), *place = must_resize(NULL, g->count * sizeof *place);
  size_t next = 0;
  for (uint32_t i = 0; i < g->count; ++i) order[i] = i;
  sorting = g;
  qsort(order, g->count, sizeof *order, by_place);
  tree->nodes = must_resize(NULL, (count + g->count) * sizeof *tree->nodes);
  tree->count = 0;
  for (uint32_t i = 0; i < count; ++i) {
    for (; next < g->count && g->inner[order[next]].first == i; ++next) {
      const struct growing *n = &g->inner[order[next]];
      uint32_t parent = n->parent == PREFIX_ROOT ? PREFIX_ROOT : place[n->parent];
      place[order[next]] = (uint32_t)tree->count;
      tree->nodes[tree->count++] = (struct prefix_node){.ids = requests[i].ids,
                                                        .begin = depth_of(g, n->parent),
                                                        .end = n->depth,
                                                        .parent = parent,
                                                        .request = PREFIX_NONE};
    }
    uint32_t parent = g->parents[i] == PREFIX_ROOT ? PREFIX_ROOT : place[g->parents[i]];
    // The last token is only predicted, unless the sequence is to be continued.
    tree->nodes[tree->count++] =
        (struct prefix_node){.ids = requests[i].ids,
                             .begin = depth_of(g, g->parents[i]),
                             .end = requests[i].make ? requests[i].count : requests[i].count - 1,
                             .parent = parent,
                             .request = i};
  }
  free(order);
  free(place);
}

static uint32_t measure(struct prefix_tree *tree) {
  uint32_t *depth = must_resize(NULL, tree->count * sizeof *depth), most = 0;
  for (size_t i = 0; i < tree->count; ++i) {
    struct prefix_node *n = &tree->nodes[i];
    depth[i] = n->parent == PREFIX_ROOT ? 1 : depth[n->parent] + 1;
    if (depth[i] > most) most = depth[i];
    if (n->parent != PREFIX_ROOT) ++tree->nodes[n->parent].children;
  }
  free(depth);
  return most;
}

void prefix_tree_make(struct prefix_tree *tree, struct request *requests, size_t count, uint32_t depth) {
  uint32_t *shared = must_resize(NULL, (count + 1) * sizeof *shared);
  *tree = (struct prefix_tree){0};
  qsort(requests, count, sizeof *requests, by_tokens);
  shared[0] = shared[count] = 0;
  for (size_t i = 1; i < count; ++i) shared[i] = common(&requests[i - 1], &requests[i]);
  for (uint32_t worth = WORTH;; worth *= 2) { // ends because no sequence has 2^32 tokens
    struct growth g = {.parents = must_resize(NULL, count * sizeof *g.parents)};
    for (size_t i = 1; i < count; ++i)
      if (shared[i] < worth)
        shared[i] = 0;
      else if (worth > WORTH)
        shared[i] -= shared[i] % worth; // reduces the number of distinct depths
    prefix_tree_free(tree);
    grow(&g, shared, count);
    lay_out(tree, &g, requests, count);
    tree->depth = measure(tree);
    free(g.inner);
    free(g.parents);
    if (tree->depth <= depth) break;
  }
  free(shared);
}

void prefix_tree_free(struct prefix_tree *tree) {
  free(tree->nodes);
  *tree = (struct prefix_tree){0};
}
