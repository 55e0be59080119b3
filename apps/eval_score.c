// eval_score: walks the tree of requests with as many lanes as there are: a node whose parent is done takes a lane, a
// copy of the parent's text, and reads on; leaves read logits, or draw tokens. Each round gives the device some tokens
// of every lane at work.
#include "common.h"
#include "eval.h"
#include "eval_lanes.h"
#include "eval_prefix.h"
#include "likelihood.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_DEPTH = 8, LOGITS_MOST = 16 << 20, NO_LANE = UINT32_MAX };

// What a node is at.
struct walker {
  uint32_t node, lane;
  uint32_t at;                // tokens of the node's text that were read
  struct request_score score; // of a leaf
  size_t rows;                // of the round's logits
  float *logits;
};

struct walk {
  struct scorer *scorer;
  struct lanes lanes;
  struct prefix_tree tree;
  struct requests *requests;
  int32_t vocabulary;
  uint32_t *lane_of; // (nodes) where a done inner node's text is
  uint32_t *left;    // (nodes) children that have not begun
  bool *read;        // (nodes)
  uint32_t *idle, idle_count;
  struct walker *walkers; // (lanes)
  size_t walking;
  size_t first;   // no node before it waits
  uint8_t *begun; // (nodes)
  float *logits;  // (rows, V)
  size_t rows;
  size_t piece; // tokens of a round
  struct lane_work *work;
  deltaic_status status;
  bool stopped;
};

// ---------------------------------------------------------------- lanes for nodes

// As deep a path as there is must always find its lanes: nodes other than the first one leave `depth` of them idle.
static bool may_begin(const struct walk *w) { return w->idle_count > w->tree.depth || (!w->walking && w->idle_count); }

static void begin_node(struct walk *w, uint32_t node) {
  const struct prefix_node *n = &w->tree.nodes[node];
  uint32_t lane;
  if (n->parent != PREFIX_ROOT && --w->left[n->parent] == 0)
    lane = w->lane_of[n->parent]; // the last child goes on where the parent ended
  else {
    lane = w->idle[--w->idle_count];
    w->status =
        n->parent == PREFIX_ROOT ? lanes_reset(&w->lanes, lane) : lanes_copy(&w->lanes, lane, w->lane_of[n->parent]);
  }
  w->begun[node] = true;
  w->walkers[w->walking++] = (struct walker){.node = node, .lane = lane, .at = n->begin, .score.greedy = true};
}

// In order; a node waits for its parent, whose subtree lies behind it.
static void begin_nodes(struct walk *w) {
  while (w->first < w->tree.count && w->begun[w->first]) ++w->first;
  for (size_t i = w->first; i < w->tree.count && !w->status && w->walking < w->lanes.count; ++i) {
    const struct prefix_node *n = &w->tree.nodes[i];
    if (w->begun[i] || (n->parent != PREFIX_ROOT && !w->read[n->parent])) continue;
    bool inherits = n->parent != PREFIX_ROOT && w->left[n->parent] == 1;
    if (!inherits && !may_begin(w)) break;
    begin_node(w, (uint32_t)i);
  }
}

// ---------------------------------------------------------------- a round

// Up to the first position whose logits are asked for, or from there on.
static size_t span(const struct walk *w, const struct walker *k, bool *logits) {
  const struct prefix_node *n = &w->tree.nodes[k->node];
  uint32_t end = n->end;
  *logits = false;
  if (n->request != PREFIX_NONE && !w->requests->items[n->request].make) {
    uint32_t scored = w->requests->items[n->request].context - 1; // its logits predict the first scored token
    *logits = k->at >= scored;
    if (!*logits) end = scored;
  }
  return end - k->at;
}

static void plan_round(struct walk *w, size_t *count) {
  size_t rows = w->rows, share = w->piece / w->walking;
  float *logits = w->logits;
  if (!share) share = 1;
  *count = 0;
  for (size_t i = 0; i < w->walking; ++i) {
    struct walker *k = &w->walkers[i];
    bool scores;
    size_t n = span(w, k, &scores);
    if (n > share) n = share;
    if (scores && n > rows) n = rows;
    k->rows = n;
    k->logits = scores ? logits : NULL;
    if (scores) {
      rows -= n;
      logits += n * (size_t)w->vocabulary;
    }
    if (n)
      w->work[(*count)++] = (struct lane_work){
          .lane = k->lane, .ids = w->tree.nodes[k->node].ids + k->at, .count = n, .logits = k->logits};
  }
}

static void add_scores(struct walk *w, struct walker *k) {
  const int32_t *ids = w->tree.nodes[k->node].ids;
  for (size_t t = 0; t < k->rows && k->logits; ++t) {
    int32_t best, target = ids[k->at + t + 1];
    k->score.ll -= token_nll(k->logits + t * (size_t)w->vocabulary, w->vocabulary, target, &best);
    k->score.greedy &= best == target;
  }
  k->at += (uint32_t)k->rows;
  w->scorer->evaluated += k->rows;
}

// ---------------------------------------------------------------- ends

static void finish_leaf(struct walk *w, struct walker *k) {
  const struct request *r = &w->requests->items[w->tree.nodes[k->node].request];
  if (!w->scorer->done(w->scorer->user, r, &k->score)) w->stopped = true;
  free(k->score.made);
  k->score.made = NULL;
  w->idle[w->idle_count++] = k->lane;
}

static bool is_finished(const struct walk *w, const struct walker *k) {
  const struct prefix_node *n = &w->tree.nodes[k->node];
  if (k->at < n->end) return false;
  return n->request == PREFIX_NONE || k->score.made_count >= w->requests->items[n->request].make;
}

static void finish_nodes(struct walk *w) {
  for (size_t i = 0; i < w->walking;) {
    struct walker *k = &w->walkers[i];
    if (!is_finished(w, k)) {
      ++i;
      continue;
    }
    w->read[k->node] = true;
    w->lane_of[k->node] = k->lane;
    if (w->tree.nodes[k->node].request != PREFIX_NONE) finish_leaf(w, k);
    w->walkers[i] = w->walkers[--w->walking];
  }
}

// One token for every text that is being continued.
static void draw(struct walk *w) {
  uint32_t *lanes = must_resize(NULL, w->walking * sizeof *lanes);
  struct walker **who = must_resize(NULL, w->walking * sizeof *who);
  int32_t *tokens = must_resize(NULL, w->walking * sizeof *tokens);
  size_t n = 0;
  for (size_t i = 0; i < w->walking; ++i) {
    struct walker *k = &w->walkers[i];
    const struct prefix_node *node = &w->tree.nodes[k->node];
    if (node->request == PREFIX_NONE || k->at < node->end || !w->requests->items[node->request].make) continue;
    lanes[n] = k->lane;
    who[n++] = k;
  }
  if (n && !w->status) w->status = lanes_next(&w->lanes, lanes, n, tokens);
  for (size_t i = 0; i < n && !w->status; ++i) {
    struct request_score *s = &who[i]->score;
    s->made = must_resize(s->made, (s->made_count + 1) * sizeof *s->made);
    s->made[s->made_count++] = tokens[i];
    ++w->scorer->evaluated;
  }
  free(lanes);
  free(who);
  free(tokens);
}

// ---------------------------------------------------------------- the walk

static void run(struct walk *w) {
  size_t count;
  while (!w->status && !w->stopped && !interrupted()) {
    begin_nodes(w);
    if (!w->walking || w->status) break;
    plan_round(w, &count);
    if (count) w->status = lanes_eval(&w->lanes, w->work, count);
    for (size_t i = 0; i < w->walking && !w->status; ++i) add_scores(w, &w->walkers[i]);
    draw(w);
    if (!w->status) finish_nodes(w);
    progress_show(w->scorer->progress, w->scorer->evaluated, w->scorer->planned);
  }
  for (size_t i = 0; i < w->walking; ++i) free(w->walkers[i].score.made);
}

static void make_room(struct walk *w) {
  size_t nodes = w->tree.count, lanes = w->lanes.count, most = (size_t)LOGITS_MOST / (size_t)w->vocabulary;
  w->lane_of = must_resize(NULL, nodes * sizeof *w->lane_of);
  w->left = must_resize(NULL, nodes * sizeof *w->left);
  w->read = must_resize(NULL, nodes * sizeof *w->read);
  w->begun = must_resize(NULL, nodes);
  memset(w->read, 0, nodes * sizeof *w->read);
  memset(w->begun, 0, nodes);
  for (size_t i = 0; i < nodes; ++i) w->left[i] = w->tree.nodes[i].children;
  w->idle = must_resize(NULL, lanes * sizeof *w->idle);
  for (uint32_t i = 0; i < lanes; ++i) w->idle[i] = i;
  w->idle_count = (uint32_t)lanes;
  w->walkers = must_resize(NULL, lanes * sizeof *w->walkers);
  w->work = must_resize(NULL, lanes * sizeof *w->work);
  w->piece = w->scorer->options->batch ? w->scorer->options->batch : 512;
  if (w->piece < lanes) w->piece = lanes;
  w->rows = w->piece < most ? w->piece : most > lanes ? most : lanes; // every lane gets a row
  w->logits = must_resize(NULL, w->rows * (size_t)w->vocabulary * sizeof *w->logits);
}

static void leave(struct walk *w) {
  lanes_close(&w->lanes);
  prefix_tree_free(&w->tree);
  free(w->lane_of);
  free(w->left);
  free(w->read);
  free(w->begun);
  free(w->idle);
  free(w->walkers);
  free(w->work);
  free(w->logits);
}

int score_requests(struct scorer *scorer, struct requests *requests) {
  struct walk w = {.scorer = scorer, .requests = requests, .vocabulary = scorer->engine->model_info.vocabulary};
  uint64_t longest = 1;
  if (!requests->count) return EXIT_OK;
  for (size_t i = 0; i < requests->count; ++i) {
    const struct request *r = &requests->items[i];
    uint64_t length = (uint64_t)r->count + r->make;
    if (length > longest) longest = length;
    scorer->tokens += length - !r->make;
    scorer->planned += r->make;
  }
  prefix_tree_make(&w.tree, requests->items, requests->count, MOST_DEPTH);
  for (size_t i = 0; i < w.tree.count; ++i) scorer->planned += w.tree.nodes[i].end - w.tree.nodes[i].begin;
  int code = lanes_open(&w.lanes, scorer->engine, scorer->options, w.tree.depth + 1, longest);
  if (!code) {
    make_room(&w);
    run(&w);
    code = w.stopped ? EXIT_FAILED : complain_work(w.status);
  }
  leave(&w);
  return code;
}
