#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_shader_subgroup_arithmetic : require
#extension GL_EXT_control_flow_attributes : require
// Draws the next token of a sequence. host/ops/cpu/cpu_sample.c is the definition, step by step.
//   z = logit, penalised;  w = e^((z - max z) / temperature);  top-k, then top-p, keep a prefix of the tokens by z
//   descending, ids ascending: a threshold on z and a number of tokens that may equal it; min-p drops w < min_p
//   token = the first id whose running sum of kept w exceeds u times their sum
// With PARTS, the largest z of each part of a large vocabulary, which another dispatch reads: parts (B, args.parts),
// pairs of the bits of z and the first id that has it. Workgroups (args.parts, B).
// logits (slots, V), seen (slots, ceil(V / 32)), tokens, sequences, sampling (B). Workgroups (B): one sequence. z is
// compared by an integer key of the same order; 15 parallel sums find 4 bits of a threshold at a time. All sums have a
// fixed order, so the same inputs give the same token. Any V.
#include "sample.h"
layout(local_size_x_id = SAMPLE_SPEC_LANES) in;
layout(constant_id = SAMPLE_SPEC_PARTS) const uint PARTS = 0;
layout(set = 0, binding = SAMPLE_TOKENS) writeonly buffer tokens_block { uint tokens[]; };
layout(set = 0, binding = SAMPLE_SEQUENCES) buffer sequences_block { sequence sequences[]; };
layout(set = 0, binding = SAMPLE_SEEN) buffer seen_block { uint seen[]; };
layout(set = 0, binding = SAMPLE_LOGITS) readonly buffer logits_block { float logits[]; };
layout(set = 0, binding = SAMPLE_SAMPLING) readonly buffer sampling_block { sampling samplings[]; };
layout(set = 0, binding = SAMPLE_PARTS) buffer parts_block { uint parts[]; };
#include "philox.glsl"
#include "reduce.glsl"

const uint LANES = gl_WorkGroupSize.x;
const uint DIGITS = 15;
shared float digit_slots[DIGITS * (LANES / 4 + 1)]; // subgroups have 4 lanes or more
shared float lane_sums[LANES];
shared uint list[LANES];
shared uint chosen_lane;
shared float chosen_before;

const float LARGEST = 3.402823466e38;

sampling p;
uint logits_at, seen_at;

// NaN becomes -infinity; infinities become the largest finite values, whose differences are defined. Drivers may assume
// that isnan() is false, so the bits decide.
float tame(float z) {
  return (floatBitsToUint(z) & 0x7fffffffu) > 0x7f800000u ? -LARGEST : clamp(z, -LARGEST, LARGEST);
}

// The logit of id i, penalised.
float adjust(float logit, uint i) {
  float z = tame(logit);
  float penalty = p.repetition_penalty;
  if (penalty != 0.0 && penalty != 1.0 && (seen[seen_at + i / 32] >> (i % 32) & 1) != 0)
    z = tame(z > 0.0 ? z / penalty : z * penalty);
  return z;
}

float adjusted(uint i) { return adjust(logits[logits_at + i], i); }

// This invocation's largest z of ids from ... to - 1, and the first id that has it; several logits are loaded at once.
float largest(uint lane, uint from, uint to, out uint first) {
  const uint AHEAD = 8;
  float most = -LARGEST;
  first = from + lane;
  for (uint i0 = from + lane; i0 < to; i0 += AHEAD * LANES) {
    float z[AHEAD];
    [[unroll]] for (uint a = 0; a < AHEAD; a++) z[a] = logits[logits_at + min(i0 + a * LANES, to - 1)];
    [[unroll]] for (uint a = 0; a < AHEAD; a++) {
      uint i = min(i0 + a * LANES, to - 1);
      z[a] = adjust(z[a], i);
      if (z[a] > most) most = z[a], first = i;
    }
  }
  return most;
}

// own: the invocation's largest z, first found at `first`. The maximum of the negated ids is the lowest id; floats are
// exact since V < 2^24.
uint lowest(float most, float own, uint first) {
  return uint(-workgroup_max(own == most ? -float(first) : -float(args.V)));
}

// Stores the largest logit of the workgroup's part of the vocabulary, and the first id that has it.
void find_in_part(uint lane, uint part, uint s) {
  uint from = part << args.part, first;
  float own = largest(lane, from, min(from + (1u << args.part), args.V), first), most = workgroup_max(own);
  uint id = lowest(most, own, first);
  if (lane != 0) return;
  parts[s * args.parts_stride + 2 * part] = floatBitsToUint(most);
  parts[s * args.parts_stride + 2 * part + 1] = id;
}

// What has been found for part `lane`.
float largest_of_part(uint s, uint lane, out uint first) {
  first = args.V;
  if (lane >= args.parts) return -LARGEST;
  uint at = s * args.parts_stride + 2 * lane;
  first = parts[at + 1];
  return uintBitsToFloat(parts[at]);
}

// The ids that are looked through, in ascending order: all V, or only those of the parts in `list`.
uint candidates;
bool listed;

uint id_at(uint i) { return listed ? list[i >> args.part] << args.part | i & (1u << args.part) - 1 : i; }

// The k largest logits, and all that equal the last of them, are in the parts whose largest logits are the k largest,
// or equal the last of those. own: the largest logit of part `lane`.
void list_parts(uint lane, uint k, float own) {
  lane_sums[lane] = own;
  barrier();
  uint before = 0, count = 0;
  for (uint i = 0; i < args.parts; i++)
    if (lane_sums[i] > own || (lane_sums[i] == own && i < lane)) before++;
  if (lane < args.parts && before == k - 1) chosen_before = own;
  barrier();
  before = 0;
  for (uint i = 0; i < args.parts; i++)
    if (lane_sums[i] >= chosen_before) {
      count++;
      if (i < lane) before++;
    }
  if (lane < args.parts && own >= chosen_before) list[before] = lane;
  listed = true;
  candidates = count << args.part;
  barrier();
}

// e^-200 is 0 in any case.
float weight(float z, float most) { return exp(max((z - most) / p.temperature, -200.0)); }

// Maps floats to unsigned integers of the same order; -0 equals 0.
uint order_key(float z) {
  uint bits = z == 0.0 ? 0 : floatBitsToUint(z);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

float key_value(uint key) { return uintBitsToFloat((key & 0x80000000u) != 0 ? key & 0x7fffffffu : ~key); }

// What top-k and top-p keep: keys above `key`, and the first `equals` tokens with that key.
struct cut {
  uint key;
  float equals;
};

// The cut that keeps the fewest tokens whose measure (1 each, or w if by_weight) reaches `target`. The measure of all
// keys >= x falls as x grows. Finds the largest x where it still reaches the target, from the highest digit down.
cut find_cut(uint lane, float target, bool by_weight, float most) {
  uint prefix = 0;
  float above = 0.0; // measure of all keys above those that begin with prefix
  for (int shift = 28; shift >= 0; shift -= 4) {
    float sums[DIGITS]; // measure of keys with a digit of at least 1, 2, ... 15
    [[unroll]] for (uint d = 0; d < DIGITS; d++) sums[d] = 0.0;
    for (uint i = lane; i < candidates; i += LANES) {
      uint id = id_at(i);
      if (id >= args.V) break;
      float z = adjusted(id);
      uint key = order_key(z);
      uint digit = key >> shift & 15;
      float measure = by_weight ? weight(z, most) : 1.0;
      if (shift < 28 && key >> (shift + 4) != prefix) measure = 0.0;
      [[unroll]] for (uint d = 0; d < DIGITS; d++) sums[d] += digit > d ? measure : 0.0;
    }
    barrier(); // the slots may still be read for the digit before
    [[unroll]] for (uint d = 0; d < DIGITS; d++) {
      float sum = subgroupAdd(sums[d]);
      if (subgroupElect()) digit_slots[gl_SubgroupID * DIGITS + d] = sum;
    }
    barrier();
    uint digit = 0;
    float beyond = 0.0; // measure of the larger digits
    for (uint d = DIGITS; d > 0 && digit == 0; d--) {
      float total = 0.0;
      for (uint g = 0; g < gl_NumSubgroups; g++) total += digit_slots[g * DIGITS + d - 1];
      if (above + total >= target)
        digit = d;
      else
        beyond = total;
    }
    above += beyond;
    prefix = prefix << 4 | digit;
  }
  float each = by_weight ? weight(key_value(prefix), most) : 1.0;
  return cut(prefix, each > 0.0 ? max(ceil((target - above) / each), 1.0) : 1.0);
}

// The first of this invocation's candidates, for steps where the order of ids matters.
uint first_of(uint lane) { return min(lane * ((candidates + LANES - 1) / LANES), candidates); }

float kept_weight(float z, float most, float least) {
  float w = weight(z, most);
  return w < least ? 0.0 : w;
}

// The sum of lane_sums before this invocation. All invocations have just written theirs.
float sum_before(uint lane) {
  barrier();
  float sum = 0.0;
  for (uint i = 0; i < lane; i++) sum += lane_sums[i];
  barrier();
  return sum;
}

// The number of tokens before this invocation's that have the key of the cut.
float equals_before(uint lane, cut c) {
  float n = 0.0;
  for (uint i = first_of(lane); i < first_of(lane + 1); i++) {
    uint id = id_at(i);
    if (id < args.V && order_key(adjusted(id)) == c.key) n += 1.0;
  }
  lane_sums[lane] = n;
  return sum_before(lane);
}

// Walks this invocation's kept tokens by id. Returns the sum of their weights, or the sum up to the first token where
// it exceeds `until`, which is stored in id.
float walk(uint lane, cut c, float equals, float most, float least, float until, inout uint id) {
  float sum = 0.0;
  for (uint i = first_of(lane); i < first_of(lane + 1); i++) {
    uint here = id_at(i);
    if (here >= args.V) break;
    float z = adjusted(here);
    uint key = order_key(z);
    if (key < c.key) continue;
    if (key == c.key) {
      equals += 1.0;
      if (equals > c.equals) continue;
    }
    float w = kept_weight(z, most, least);
    if (w == 0.0) continue;
    id = here;
    sum += w;
    if (sum > until) break;
  }
  return sum;
}

// own: the largest logit of part `lane`; without parts, any.
uint draw(uint lane, float most, float own, uint position) {
  cut c = cut(0, float(args.V));
  listed = false;
  candidates = args.V;
  if (p.top_k != 0 && p.top_k < args.parts) list_parts(lane, p.top_k, own);
  if (p.top_k != 0 && p.top_k < args.V) c = find_cut(lane, float(p.top_k), false, most);
  uint id = 0;
  if (p.top_p > 0.0 && p.top_p < 1.0) {
    float part = walk(lane, c, equals_before(lane, c), most, 0.0, LARGEST, id);
    cut k = find_cut(lane, p.top_p * workgroup_sum(part), true, most);
    if (k.key > c.key)
      c = k;
    else // top-k's prefix ends first, or both end among the same equals
      c.equals = k.key == c.key ? min(c.equals, k.equals) : c.equals;
  }
  float least = min(p.min_p, 1.0), equals = equals_before(lane, c);
  float sum = walk(lane, c, equals, most, least, LARGEST, id);
  lane_sums[lane] = sum;
  float before = sum_before(lane);
  if (lane == LANES - 1) chosen_before = before + sum;
  if (lane == 0) chosen_lane = 0;
  lane_sums[lane] = before;
  barrier();
  float u = float(philox(uvec4(position, 0, 0, 0), uvec2(p.seed_low, p.seed_high)).x >> 8) * exp2(-24.0);
  float until = u * chosen_before;
  barrier();
  // The invocation whose part of the running sum contains `until`: the last that begins at or below it and is not
  // empty.
  bool candidate = sum > 0.0 && before <= until;
  uint last = uint(workgroup_max(candidate ? float(lane) : 0.0));
  if (lane == last) {
    walk(lane, c, equals, most, least, until - before, id);
    chosen_lane = id;
  }
  barrier();
  return chosen_lane;
}

void main() {
  uint s = PARTS != 0 ? gl_WorkGroupID.y : gl_WorkGroupID.x, lane = gl_LocalInvocationID.x;
  sequence q = sequences[s];
  p = samplings[s];
  logits_at = q.slot * args.logits_stride;
  seen_at = q.slot * args.seen_stride;
  if (PARTS != 0) {
    find_in_part(lane, gl_WorkGroupID.x, s);
    return;
  }
  uint first;
  float own = args.parts != 0 ? largest_of_part(s, lane, first) : largest(lane, 0, args.V, first);
  float most = workgroup_max(own);
  bool any = most > -LARGEST;
  uint id = p.temperature > 0.0 && any ? draw(lane, most, own, q.pos + q.T) : lowest(most, own, first);
  if (id >= args.V) id = 0;
  barrier(); // all invocations have read the sequence and its seen tokens
  if (lane == 0) {
    tokens[s] = id;
    seen[seen_at + id / 32] |= 1u << (id % 32);
    sequences[s] = sequence(s, 1, q.pos + q.T, q.slot);
  }
}
