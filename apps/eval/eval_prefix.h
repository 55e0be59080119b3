// eval_prefix.h: finds the shared prefixes of requests and builds a tree of token ranges that are evaluated once.
#ifndef EVAL_PREFIX_H
#define EVAL_PREFIX_H
#include "eval.h"

enum { PREFIX_ROOT = UINT32_MAX, PREFIX_NONE = UINT32_MAX };

// Tokens [begin, end) of `ids`, which follow the parent's. A leaf ends exactly one request.
struct prefix_node {
  const int32_t *ids;
  uint32_t begin, end;
  uint32_t parent;   // PREFIX_ROOT: the empty sequence
  uint32_t children; // number of children
  uint32_t request;  // PREFIX_NONE: an inner node
};

// Parents come before their children, and each subtree is contiguous; sequences are evaluated in this order.
struct prefix_tree {
  struct prefix_node *nodes;
  size_t count;
  uint32_t depth; // the largest number of nodes from the root to a leaf
};

// Sorts the requests. A leaf includes the last context token of its request, so that inner nodes need no logits. The
// tree has at most `depth` levels.
void prefix_tree_make(struct prefix_tree *tree, struct request *requests, size_t count, uint32_t depth);
void prefix_tree_free(struct prefix_tree *tree);
#endif
