// eval_score: evaluates the tree of requests with all lanes. A node whose parent is done takes a lane with a copy of
// the parent's state and evaluates its tokens. Leaves are scored or generate tokens. Each round gives the device some
// tokens of every active lane.
#include "common.h"
#include "eval.h"
#include "eval_prefix.h"
#include "lanes.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_DEPTH = 8, ROUND_BATCHES = 4 };

// The progress of a node.
struct walker {
  uint32_t node, lane;
  uint32_t at;                // number of the node's tokens that were evaluated
  struct request_score score; // only for a leaf
  size_t count;               // tokens in this round
  deltaic_score *scores;      // scores of this round; NULL: not requested
};

struct walk {
  struct scorer *scorer;
  struct lanes lanes;
  struct prefix_tree tree;
  struct requests *requests;
  uint32_t *lane_of;  // (nodes) lane that holds the state of a finished inner node
  uint32_t *left;     // (nodes) number of children that have not begun
  bool *read, *begun; // (nodes)
  size_t first;       // no earlier node is waiting
  uint32_t *idle, idle_count;
  struct walker *walkers; // (lanes)
  size_t walking;
  size_t round;          // the most tokens in one round
  int32_t *targets;      // (round)
  deltaic_score *scores; // (round)
  deltaic_piece *pieces; // (lanes)
  deltaic_status status;
  bool stopped;
};

static bool is_leaf(const struct prefix_node *n) { return n->request != PREFIX_NONE; }

static const struct request *request_of(const struct walk *w, const struct walker *k) {
  const struct prefix_node *n = &w->tree.nodes[k->node];
  return is_leaf(n) ? &w->requests->items[n->request] : NULL;
}

// ---------------------------------------------------------------- lanes for nodes

// A leaf frees its lane itself. An inner node keeps its lane for its children, so enough lanes for the deepest path
// must remain. If no node is active, the first node in order is on that path.
static bool may_begin(const struct walk *w, const struct prefix_node *n) {
  if (is_leaf(n) || !w->walking) return w->idle_count > 0;
  return w->idle_count > w->tree.depth;
}

static void begin_node(struct walk *w, uint32_t node) {
  const struct prefix_node *n = &w->tree.nodes[node];
  deltaic_session *session = w->lanes.session;
  uint32_t lane;
  if (n->parent != PREFIX_ROOT && --w->left[n->parent] == 0)
    lane = w->lane_of[n->parent]; // the last child continues in the parent's lane
  else {
    lane = w->idle[--w->idle_count];
    w->status = n->parent == PREFIX_ROOT ? deltaic_sequence_reset(session, lane)
                                         : deltaic_sequence_copy(session, lane, w->lane_of[n->parent]);
  }
  w->begun[node] = true;
  w->walkers[w->walking++] = (struct walker){.node = node, .lane = lane, .at = n->begin, .score.greedy = true};
}

// Starts nodes in order. A node waits for its parent, whose subtree follows it.
static void begin_nodes(struct walk *w) {
  while (w->first < w->tree.count && w->begun[w->first]) ++w->first;
  for (size_t i = w->first; i < w->tree.count && !w->status && w->walking < w->lanes.count; ++i) {
    const struct prefix_node *n = &w->tree.nodes[i];
    if (w->begun[i] || (n->parent != PREFIX_ROOT && !w->read[n->parent])) continue;
    bool inherits = n->parent != PREFIX_ROOT && w->left[n->parent] == 1;
    if (!inherits && !may_begin(w, n)) break;
    begin_node(w, (uint32_t)i);
  }
}

// ---------------------------------------------------------------- a round

// A GPU takes longer for a small batch than its share of a full batch. After two full batches, tokens that do not fill
// a third are left for the next round, with the sequences that begin there.
static void keep_full_batches(struct walk *w, size_t tokens) {
  size_t over = tokens > 2 * (size_t)w->lanes.batch ? tokens % w->lanes.batch : 0;
  for (size_t i = w->walking; i-- > 0 && over;) {
    struct walker *k = &w->walkers[i];
    size_t less = k->count < over ? k->count : over;
    k->count -= less;
    over -= less;
  }
}

// Gives every lane the same share, then the rest to lanes with more tokens.
static void share_round(struct walk *w) {
  size_t share = w->round / w->walking, left = w->round;
  for (size_t i = 0; i < w->walking; ++i) {
    struct walker *k = &w->walkers[i];
    size_t rest = w->tree.nodes[k->node].end - k->at;
    k->count = rest < share ? rest : share;
    left -= k->count;
  }
  for (size_t i = 0; i < w->walking; ++i) {
    struct walker *k = &w->walkers[i];
    size_t rest = w->tree.nodes[k->node].end - k->at - k->count, more = rest < left ? rest : left;
    k->count += more;
    left -= more;
  }
  keep_full_batches(w, w->round - left);
}

// targets[t] is the token after the round's t-th if it is to be scored, else -1. Returns false if none is scored.
static bool set_targets(const struct walk *w, const struct walker *k, int32_t *targets) {
  const struct request *r = request_of(w, k);
  bool any = false;
  for (size_t t = 0; t < k->count; ++t) {
    size_t next = k->at + t + 1;
    bool scored = r && !r->make && next >= r->context;
    targets[t] = scored ? r->ids[next] : -1;
    any |= scored;
  }
  return any;
}

static size_t make_pieces(struct walk *w) {
  size_t used = 0, count = 0;
  for (size_t i = 0; i < w->walking; ++i) {
    struct walker *k = &w->walkers[i];
    if (!k->count) continue;
    k->scores = set_targets(w, k, w->targets + used) ? w->scores + used : NULL;
    w->pieces[count++] = (deltaic_piece){.sequence = k->lane,
                                         .tokens = w->tree.nodes[k->node].ids + k->at,
                                         .count = k->count,
                                         .targets = k->scores ? w->targets + used : NULL,
                                         .scores = k->scores};
    used += k->count;
  }
  return count;
}

static void add_scores(struct walk *w, struct walker *k) {
  const struct request *r = request_of(w, k);
  for (size_t t = 0; t < k->count && k->scores; ++t) {
    if (k->at + t + 1 < r->context) continue;
    k->score.ll += (double)k->scores[t].log_probability;
    k->score.greedy &= k->scores[t].likeliest;
  }
  k->at += (uint32_t)k->count;
  w->scorer->evaluated += k->count;
}

static void read_round(struct walk *w) {
  share_round(w);
  size_t count = make_pieces(w);
  if (count) w->status = deltaic_session_eval_batch(w->lanes.session, w->pieces, count);
  for (size_t i = 0; i < w->walking && !w->status; ++i) add_scores(w, &w->walkers[i]);
}

// Generates one token for every sequence that is being continued.
static void draw_round(struct walk *w) {
  uint32_t *lanes = must_resize(NULL, w->walking * sizeof *lanes);
  struct walker **who = must_resize(NULL, w->walking * sizeof *who);
  int32_t *tokens = must_resize(NULL, w->walking * sizeof *tokens);
  size_t n = 0;
  for (size_t i = 0; i < w->walking; ++i) {
    struct walker *k = &w->walkers[i];
    const struct request *r = request_of(w, k);
    if (!r || !r->make || k->at < w->tree.nodes[k->node].end) continue;
    lanes[n] = k->lane;
    who[n++] = k;
  }
  if (n && !w->status) w->status = deltaic_session_next_batch(w->lanes.session, lanes, n, NULL, tokens, NULL);
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

// ---------------------------------------------------------------- finished nodes

static void finish_leaf(struct walk *w, struct walker *k) {
  if (!w->scorer->done(w->scorer->user, request_of(w, k), &k->score)) w->stopped = true;
  free(k->score.made);
  k->score.made = NULL;
  w->idle[w->idle_count++] = k->lane;
}

static void finish_nodes(struct walk *w) {
  for (size_t i = 0; i < w->walking;) {
    struct walker *k = &w->walkers[i];
    const struct request *r = request_of(w, k);
    if (k->at < w->tree.nodes[k->node].end || (r && k->score.made_count < r->make)) {
      ++i;
      continue;
    }
    w->read[k->node] = true;
    w->lane_of[k->node] = k->lane;
    if (r) finish_leaf(w, k);
    w->walkers[i] = w->walkers[--w->walking];
  }
}

// ---------------------------------------------------------------- the walk

static void run(struct walk *w) {
  while (!w->status && !w->stopped && !interrupted()) {
    begin_nodes(w);
    if (!w->walking || w->status) break;
    read_round(w);
    draw_round(w);
    if (!w->status) finish_nodes(w);
    progress_show(w->scorer->progress, w->scorer->evaluated, w->scorer->planned);
  }
  for (size_t i = 0; i < w->walking; ++i) free(w->walkers[i].score.made);
}

// Runs the walk, and measures the device's busy time if requested.
static void run_watched(struct walk *w) {
  if (w->scorer->busy) w->status = deltaic_session_busy_begin(w->lanes.session);
  run(w);
  if (w->scorer->busy && !w->status) w->status = deltaic_session_busy_end(w->lanes.session, &w->scorer->busy_seconds);
}

static void make_room(struct walk *w) {
  size_t nodes = w->tree.count, lanes = w->lanes.count;
  w->lane_of = must_resize(NULL, nodes * sizeof *w->lane_of);
  w->left = must_resize(NULL, nodes * sizeof *w->left);
  w->read = must_resize(NULL, nodes * sizeof *w->read);
  w->begun = must_resize(NULL, nodes * sizeof *w->begun);
  memset(w->read, 0, nodes * sizeof *w->read);
  memset(w->begun, 0, nodes * sizeof *w->begun);
  for (size_t i = 0; i < nodes; ++i) w->left[i] = w->tree.nodes[i].children;
  w->idle = must_resize(NULL, lanes * sizeof *w->idle);
  for (uint32_t i = 0; i < lanes; ++i) w->idle[i] = i;
  w->idle_count = (uint32_t)lanes;
  w->walkers = must_resize(NULL, lanes * sizeof *w->walkers);
  w->pieces = must_resize(NULL, lanes * sizeof *w->pieces);
  w->round = (size_t)ROUND_BATCHES * w->lanes.batch;
  w->targets = must_resize(NULL, w->round * sizeof *w->targets);
  w->scores = must_resize(NULL, w->round * sizeof *w->scores);
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
  free(w->pieces);
  free(w->targets);
  free(w->scores);
}

int score_requests(struct scorer *scorer, struct requests *requests) {
  struct walk w = {.scorer = scorer, .requests = requests};
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
  int code = lanes_open(&w.lanes, scorer->engine, scorer->options, w.tree.depth, w.tree.count, longest);
  if (!code) {
    make_room(&w);
    run_watched(&w);
    code = w.stopped ? EXIT_FAILED : complain_work(w.status);
  }
  leave(&w);
  return code;
}
