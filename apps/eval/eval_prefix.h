// eval_prefix.h: which beginnings requests share: a tree of pieces of text, each to be evaluated once.
#ifndef EVAL_PREFIX_H
#define EVAL_PREFIX_H
#include "eval.h"

enum { PREFIX_ROOT = UINT32_MAX, PREFIX_NONE = UINT32_MAX };

// Tokens [begin, end) of `ids`, after those of the parent. A leaf ends a request, and no two do at the same one.
struct prefix_node {
  const int32_t *ids;
  uint32_t begin, end;
  uint32_t parent;   // PREFIX_ROOT: an empty text
  uint32_t children; // how many
  uint32_t request;  // PREFIX_NONE: inner
};

// Parents come before their children, and subtrees lie together: the order in which one text after the other is read.
struct prefix_tree {
  struct prefix_node *nodes;
  size_t count;
  uint32_t depth; // most nodes from the root to a leaf
};

// Sorts the requests. What a leaf reads includes its request's last context token, so that an inner node needs no
// logits. depth: at most this.
void prefix_tree_make(struct prefix_tree *tree, struct request *requests, size_t count, uint32_t depth);
void prefix_tree_free(struct prefix_tree *tree);
#endif
