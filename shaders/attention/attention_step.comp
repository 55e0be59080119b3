#version 450
#extension GL_GOOGLE_include_directive : require
#include "stored.glsl"
#extension GL_KHR_shader_subgroup_arithmetic : require
#extension GL_EXT_control_flow_attributes : require
// attention.comp for single tokens, where reading the cache takes most of the time. The cache is cut into parts, which
// workgroups read at the same time (flash decoding, Dao et al. 2023), each for up to QUERIES query heads of one key
// head. The last workgroup to finish joins the results of all parts, in order: with m the largest of the maxima m_p,
//   o = sum e^(m_p - m) y_p / sum e^(m_p - m) sum_p
// qkv (B, heads d ...), caches (slots, capacity, kv_heads, d), o (B, heads d).
// Workgroups (kv_heads ceil(heads / kv_heads / QUERIES), at least parts and single, B), parts <= LANES. A part is one
// or more runs of RUN keys. The number of parts and their length follow from the position, so that one recording fits
// all positions. If there are few parts, several workgroups share each part, with fewer query heads each; the other
// workgroups exit.
// A part is read in strips of up to LANES keys. SHARE invocations score each key of a run; then an invocation owns four
// columns of v in one of ROWS rows of keys. Three barriers per strip. Any d; a sequence has T <= 1.
//
// JOINED: the caches do not have the token's key and value yet. Every workgroup norms and rotates its queries and the
// key. The workgroups of the first part begin their sums with this key and value; for each key head, one of them stores
// the two. The norm is that of gated_norm.comp, the rotation that of rope_append.comp. o is multiplied by act(gate).
// (QUERIES + 1) ceil(d / 4) <= 4 QUERIES LANES and args.rotary <= QUERIES LANES must hold.
#include "attention_step.h"
layout(local_size_x_id = ATTENTION_STEP_SPEC_LANES) in;
layout(constant_id = ATTENTION_STEP_SPEC_D) const uint D = 64;
layout(constant_id = ATTENTION_STEP_SPEC_QUERIES) const uint QUERIES = 1;
layout(constant_id = ATTENTION_STEP_SPEC_ALIGNED) const uint ALIGNED = 0;
layout(constant_id = ATTENTION_STEP_SPEC_JOINED) const uint JOINED = 0;
layout(constant_id = ATTENTION_STEP_SPEC_NORM) const uint NORM = 0;
layout(constant_id = ATTENTION_STEP_SPEC_BATCH) const uint BATCH = 1;
layout(constant_id = ATTENTION_STEP_SPEC_ACTIVATION) const uint ACTIVATION = 0;
layout(constant_id = ATTENTION_STEP_SPEC_LONE) const uint LONE = 0;
layout(set = 0, binding = ATTENTION_O) writeonly buffer o_block { stored o[]; };
layout(set = 0, binding = ATTENTION_QKV) readonly buffer qkv_block { float qkv[]; };
layout(set = 0, binding = ATTENTION_CACHE_K) buffer cache_k_block { float cache_k[]; };
layout(set = 0, binding = ATTENTION_CACHE_K) readonly buffer cache_k4_block { vec4 cache_k4[]; };
layout(set = 0, binding = ATTENTION_CACHE_V) buffer cache_v_block { float cache_v[]; };
layout(set = 0, binding = ATTENTION_CACHE_V) readonly buffer cache_v4_block { vec4 cache_v4[]; };
layout(set = 0, binding = ATTENTION_SEQUENCES) readonly buffer sequences_block { sequence sequences[]; };
layout(set = 0, binding = ATTENTION_STEP_PARTS) coherent buffer parts_block { uint parts[]; };
layout(set = 0, binding = ATTENTION_STEP_TABLE) readonly buffer table_block { float table[]; };
layout(set = 0, binding = ATTENTION_STEP_WEIGHT) readonly buffer weight_block { float weight[]; };
#include "activation.glsl"

const uint LANES = gl_WorkGroupSize.x;
const uint D4 = (D + 3) / 4;
const uint SHARE = 4; // makes a subgroup's loads whole sectors; also the number of runs in a strip
const uint RUN = LANES / SHARE; // keys that are scored at once
const uint COLUMNS = D4 < LANES ? D4 : LANES;
const uint OWN = (D4 + COLUMNS - 1) / COLUMNS; // groups of four columns of an invocation
const uint ROWS = LANES / COLUMNS;             // 1 where OWN > 1
// Groups of four columns of a key that an invocation loads at once.
const uint TURNS = D4 % (2 * BATCH * SHARE) == 0 ? 2 * BATCH : D4 % (BATCH * SHARE) == 0 ? BATCH : 1;
const float LOWEST = -3.402823466e38;          // the score of no key; finite, so that differences are defined
const uint KEY = QUERIES, VALUE = QUERIES + 1; // the token's own, after the queries
shared vec4 queries[(QUERIES + 2) * D4];
shared vec4 strip[QUERIES * LANES]; // the SHARE partial sums of scores; at the end y
shared float weights[QUERIES * LANES];
shared float slots[QUERIES * LANES]; // of subgroups; of norms, their factors; in join() of parts
shared uint arrived;

vec4 key4(uint at, uint j) {
  if (ALIGNED != 0) return cache_k4[(at + j) / 4];
  uint left = D - j;
  at += j;
  return vec4(cache_k[at], left > 1 ? cache_k[at + 1] : 0.0, left > 2 ? cache_k[at + 2] : 0.0,
              left > 3 ? cache_k[at + 3] : 0.0);
}

vec4 value4(uint at, uint j) {
  if (ALIGNED != 0) return cache_v4[(at + j) / 4];
  uint left = D - j;
  at += j;
  return vec4(cache_v[at], left > 1 ? cache_v[at + 1] : 0.0, left > 2 ? cache_v[at + 2] : 0.0,
              left > 3 ? cache_v[at + 3] : 0.0);
}

// The gate of element i of the workgroup's heads.
float load_gate(uint row, uint head, uint i) {
  return JOINED != 0 && args.gate != 0 ? qkv[row * args.qkv_stride + args.gate + head * D + i] : 0.0;
}

// Writes o of `count` heads from `queries`. gate: the gate of element `lane`.
void store_o(uint lane, uint row, uint head, uint count, float gate) {
  barrier();
  [[dont_unroll]] for (uint i = lane; i < count * D; i += LANES) {
    float y = queries[i / D * D4 + i % D / 4][i % D % 4];
    if (i != lane) gate = load_gate(row, head, i);
    if (JOINED != 0 && args.gate != 0) y *= activate(ACTIVATION, gate);
    o[row * args.o_stride + head * D + i] = STORED(y);
  }
}

// ---------------------------------------------------------------- the token's queries, key and value

vec2 rotation(uint position, uint j) {
  vec2 turn = vec2(1.0, 0.0), of[4];
  [[unroll]] for (uint level = 0; level < 4; level++) {
    uint row = (level * 256 + (position >> (8 * level) & 255)) * args.table_stride;
    of[level] = vec2(table[row + j], table[row + args.rotary - args.rotary / 2 + j]);
  }
  [[unroll]] for (uint level = 0; level < 4; level++)
    if ((position >> (8 * level) & 255) != 0)
      turn = vec2(turn.x * of[level].x - turn.y * of[level].y, turn.x * of[level].y + turn.y * of[level].x);
  return turn;
}

// Stages `count` queries from `head` on, then with JOINED the key and the value. The sums of squares of fours are in
// strip, and the rotation is in weights.
void load_token(uint lane, uint row, uint pos, uint head, uint count, uint kv_head) {
  [[dont_unroll]] for (uint i = lane; i < (count + (JOINED != 0 ? 2 : 0)) * D4; i += LANES) {
    uint h = i / D4, j = i % D4 * 4, group = h < count ? head + h : args.heads + kv_head;
    uint from = row * args.qkv_stride + (group + (h > count ? args.kv_heads : 0)) * D;
    vec4 x = vec4(0.0), w = vec4(1.0);
    [[unroll]] for (uint k = 0; k < 4; k++) {
      if (D % 4 != 0 && j + k >= D) continue;
      x[k] = qkv[from + j + k];
      if (NORM != 0 && h <= count) w[k] = weight[group * args.weight_step + j + k];
    }
    if (JOINED == 0) w = vec4(args.scale);
    queries[(h < count ? h : KEY + h - count) * D4 + i % D4] = x * w;
    if (NORM != 0 && h <= count) strip[i / 4][i % 4] = dot(x, x);
  }
  if (JOINED != 0)
    [[dont_unroll]] for (uint j = lane; j < args.rotary / 2; j += LANES) {
      vec2 turn = rotation(pos, j);
      weights[2 * j] = turn.x;
      weights[2 * j + 1] = turn.y;
    }
  barrier();
}

// Computes the factors of the queries' norms and of the key's norm, into slots.
void norm_factors(uint count) {
  uint own = subgroupExclusiveAdd(1u), width = subgroupAdd(1u); // not every device fills a subgroup
  [[dont_unroll]] for (uint h = gl_SubgroupID; h <= count; h += gl_NumSubgroups) {
    float sum = 0.0;
    [[dont_unroll]] for (uint j = h * D4 + own; j < (h + 1) * D4; j += width) sum += strip[j / 4][j % 4];
    sum = subgroupAdd(sum);
    if (subgroupElect()) slots[h] = accurate_inversesqrt(sum / float(D) + args.eps);
  }
  barrier();
}

// Norms and rotates the queries and the key, and scales the queries. An invocation does two elements of a head, as in
// rope_append.comp.
void turn_token(uint lane, uint count) {
  const uint width = (D + 1) / 2, pairs = args.rotary / 2;
  [[dont_unroll]] for (uint i = lane; i < (count + 1) * width; i += LANES) {
    uint h = i / width, p = i % width, at = (h < count ? h : KEY) * D4;
    uint first = p < pairs ? p : pairs + p, second = first + (p < pairs ? pairs : width - pairs);
    float factor = (NORM != 0 ? slots[h] : 1.0) * (h < count ? args.scale : 1.0);
    vec2 x = factor * vec2(queries[at + first / 4][first % 4], second < D ? queries[at + second / 4][second % 4] : 0.0);
    if (p < pairs) {
      vec2 turn = vec2(weights[2 * p], weights[2 * p + 1]);
      x = vec2(x.x * turn.x - x.y * turn.y, x.x * turn.y + x.y * turn.x);
    }
    queries[at + first / 4][first % 4] = x.x;
    if (second < D) queries[at + second / 4][second % 4] = x.y;
  }
  barrier();
}

void append_token(uint lane, uint slot, uint pos, uint kv_head) {
  uint to = slot * args.cache_stride + (pos % args.capacity * args.kv_heads + kv_head) * D;
  [[dont_unroll]] for (uint j = lane; j < D; j += LANES) {
    cache_k[to + j] = queries[KEY * D4 + j / 4][j % 4];
    cache_v[to + j] = queries[VALUE * D4 + j / 4][j % 4];
  }
}

// The queries' scores of the token's own key, into weights.
void score_token(uint count) {
  uint own = subgroupExclusiveAdd(1u), width = subgroupAdd(1u);
  [[dont_unroll]] for (uint h = gl_SubgroupID; h < count; h += gl_NumSubgroups) {
    float sum = 0.0;
    [[dont_unroll]] for (uint j = own; j < D4; j += width) sum += dot(queries[h * D4 + j], queries[KEY * D4 + j]);
    sum = subgroupAdd(sum);
    if (subgroupElect()) weights[h] = sum;
  }
  barrier();
}

// ---------------------------------------------------------------- the cache

// Computes o of the workgroup's heads, into `queries`, from the parts' results: all heads at once, with JOINERS
// invocations that share the parts.
const uint ABREAST = QUERIES * D4 < LANES ? QUERIES * D4 : LANES;
const uint JOINERS = LANES / ABREAST;
void join(uint lane, uint used, uint count, uint record) {
  const uint step = ATTENTION_STEP_RECORD(D), head_step = args.parts * step;
  for (uint e = lane; e < count * used; e += LANES) {
    uint at = record + e / used * head_step + e % used * step, i = e / used * LANES + e % used;
    weights[i] = uintBitsToFloat(parts[at]);
    slots[i] = uintBitsToFloat(parts[at + 1]);
  }
  barrier();
  for (uint e = lane; e < count * used; e += LANES) {
    uint i = e / used * LANES;
    float top = LOWEST;
    for (uint p = 0; p < used; p++) top = max(top, weights[i + p]);
    i += e % used;
    float w = exp(weights[i] - top);
    strip[i].xy = vec2(w, w * slots[i]);
  }
  barrier();
  for (uint e = lane; e < count * used; e += LANES) {
    uint i = e / used * LANES + e % used;
    weights[i] = strip[i].x;
    slots[i] = strip[i].y;
  }
  barrier();
  for (uint i0 = 0; i0 < QUERIES * D4; i0 += ABREAST) {
    uint item = i0 + lane % ABREAST, i = item / D4, j = item % D4 * 4, joiner = lane / ABREAST;
    bool mine = joiner < JOINERS && i < count;
    vec4 y = vec4(0.0);
    if (mine)
      for (uint p0 = joiner; p0 < used; p0 += JOINERS * BATCH) {
        vec4 left[BATCH];
        [[unroll]] for (uint b = 0; b < BATCH; b++) { // past the last part, that part is read again
          uint at = record + i * head_step + min(p0 + b * JOINERS, used - 1) * step + 2 + j;
          [[unroll]] for (uint k = 0; k < 4; k++)
            left[b][k] = D % 4 == 0 || j + k < D ? uintBitsToFloat(parts[at + k]) : 0.0;
        }
        [[unroll]] for (uint b = 0; b < BATCH; b++) {
          uint part = p0 + b * JOINERS;
          y += (part < used ? weights[i * LANES + part] : 0.0) * left[b];
        }
      }
    if (JOINERS > 1) {
      strip[lane] = y;
      barrier();
      [[unroll]] for (uint r = 1; r < JOINERS; r++)
        if (joiner == 0) y += strip[lane + r * ABREAST];
    }
    if (!mine || joiner > 0) continue;
    float sum = 0.0;
    for (uint p = 0; p < used; p++) sum += slots[i * LANES + p];
    queries[item] = y / sum;
  }
}

void main() {
  uint lane = gl_LocalInvocationID.x, group = args.heads / args.kv_heads, across = (group + QUERIES - 1) / QUERIES;
  uint kv_head = gl_WorkGroupID.x / across, head = kv_head * group + gl_WorkGroupID.x % across * QUERIES;
  uint heads_end = min(head + QUERIES, (kv_head + 1) * group);
  sequence s = sequences[gl_WorkGroupID.z];
  if (s.T == 0) return;
  const uint row = LONE != 0 ? 0 : s.row, slot = LONE != 0 ? 0 : s.slot;
  uint first = args.window != 0 && s.pos + 1 > args.window ? s.pos + 1 - args.window : 0;
  uint end = s.pos + (JOINED != 0 ? 0 : 1);
  uint runs = max((end - first + RUN - 1) / RUN, 1u), each = (runs + args.parts - 1) / args.parts;
  each = max(each, uint(sqrt(float(runs) / 12.0))); // reading a run takes as long as joining 12 parts (H200)
  uint used = (runs + each - 1) / each; // parts that are not empty
  uint spread = clamp(args.single / used, 1u, QUERIES), heads = (QUERIES + spread - 1) / spread; // heads of a workgroup
  uint part = gl_WorkGroupID.y % used;
  head += gl_WorkGroupID.y / used * heads;
  if (head >= heads_end) return;
  uint count = min(heads, heads_end - head);
  first += part * each * RUN;
  end = min(end, first + each * RUN);
  uint cache_at = slot * args.cache_stride + kv_head * D, step = args.kv_heads * D;

  const bool begins = JOINED != 0 && part == 0; // with the token's own key and value
  const float gate = load_gate(row, head, min(lane, count * D - 1)); // loaded early, used last
  load_token(lane, row, s.pos, head, count, kv_head);
  if (NORM != 0) norm_factors(count);
  if (JOINED != 0) turn_token(lane, count);
  if (begins && head == kv_head * group) append_token(lane, slot, s.pos, kv_head);
  if (begins) score_token(count);

  float top[QUERIES], sum[QUERIES]; // sum: over this invocation's keys
  vec4 y[QUERIES * OWN];
  [[unroll]] for (uint i = 0; i < QUERIES; i++) {
    top[i] = begins && i < count ? weights[i] : LOWEST;
    sum[i] = begins && lane == 0 ? 1.0 : 0.0;
    [[unroll]] for (uint c = 0; c < OWN; c++) {
      uint j = lane + c * COLUMNS;
      y[i * OWN + c] = begins && lane < COLUMNS && j < D4 ? queries[VALUE * D4 + j] : vec4(0.0);
    }
  }

  uint ring = first % args.capacity; // where the strip begins; it wraps at most once
  for (uint p0 = first; p0 < end; p0 += LANES) {
    const uint keys = min(LANES, end - p0);
    [[dont_unroll]] for (uint from = 0; from < keys; from += RUN) {
      const uint key = from + lane / SHARE, place = ring + min(key, keys - 1); // later keys repeat the last
      const uint at = cache_at + (place < args.capacity ? place : place - args.capacity) * step;
      float score[QUERIES];
      [[unroll]] for (uint i = 0; i < QUERIES; i++) score[i] = 0.0;
      [[dont_unroll]] for (uint j0 = 0; j0 < D4; j0 += TURNS * SHARE) {
        vec4 k[TURNS];
        [[unroll]] for (uint t = 0; t < TURNS; t++) {
          uint j = j0 + t * SHARE + lane % SHARE;
          if (D4 % SHARE == 0 || j < D4) k[t] = key4(at, 4 * j);
        }
        [[unroll]] for (uint i = 0; i < QUERIES; i++) {
          if (i >= count) continue;
          [[unroll]] for (uint t = 0; t < TURNS; t++) {
            uint j = j0 + t * SHARE + lane % SHARE;
            if (D4 % SHARE == 0 || j < D4) score[i] += dot(queries[i * D4 + j], k[t]);
          }
        }
      }
      [[unroll]] for (uint i = 0; i < QUERIES; i++)
        if (i < count) strip[i * LANES + key][lane % SHARE] = score[i];
    }
    barrier();
    float whole[QUERIES];
    [[unroll]] for (uint i = 0; i < QUERIES; i++) {
      if (i >= count) continue;
      vec4 x = strip[i * LANES + lane];
      whole[i] = lane < keys ? x.x + x.y + x.z + x.w : LOWEST;
      float most = subgroupMax(whole[i]);
      if (subgroupElect()) slots[gl_SubgroupID * QUERIES + i] = most;
    }
    barrier();
    [[unroll]] for (uint i = 0; i < QUERIES; i++) {
      if (i >= count) continue;
      float most = top[i];
      for (uint g = 0; g < gl_NumSubgroups; g++) most = max(most, slots[g * QUERIES + i]);
      float shrink = exp(top[i] - most), w = lane < keys ? exp(whole[i] - most) : 0.0;
      top[i] = most;
      sum[i] = sum[i] * shrink + w;
      weights[i * LANES + lane] = w;
      [[unroll]] for (uint c = 0; c < OWN; c++) y[i * OWN + c] *= shrink;
    }
    barrier();
    [[unroll]] for (uint c = 0; c < OWN; c++) {
      uint j = 4 * (lane % COLUMNS + c * COLUMNS), row = lane / COLUMNS;
      if (row < ROWS && j < D)
        [[dont_unroll]] for (uint k0 = row; k0 < keys; k0 += ROWS * BATCH) {
          vec4 v[BATCH];
          [[unroll]] for (uint b = 0; b < BATCH; b++) { // past the last key, that key is read again
            uint place = ring + min(k0 + b * ROWS, keys - 1);
            v[b] = value4(cache_at + (place < args.capacity ? place : place - args.capacity) * step, j);
          }
          [[unroll]] for (uint b = 0; b < BATCH; b++) {
            uint k = k0 + b * ROWS;
            [[unroll]] for (uint i = 0; i < QUERIES; i++)
              if (i < count) y[i * OWN + c] += (k < keys ? weights[i * LANES + k] : 0.0) * v[b];
          }
        }
    }
    ring += LANES;
    if (ring >= args.capacity) ring -= args.capacity;
  }

  // Sums over all invocations and rows, in order. After the third barrier of the loop no invocation reads the slots.
  [[unroll]] for (uint i = 0; i < QUERIES; i++) {
    if (i >= count) continue;
    float ours = subgroupAdd(sum[i]);
    if (subgroupElect()) slots[gl_SubgroupID * QUERIES + i] = ours;
    if (ROWS > 1) strip[i * LANES + lane] = y[i * OWN];
  }
  barrier();
  uint counters = args.heads * gl_NumWorkGroups.z, record_step = args.parts * ATTENTION_STEP_RECORD(D);
  uint records = counters + gl_WorkGroupID.z * args.heads * record_step;
  [[unroll]] for (uint i = 0; i < QUERIES; i++) {
    if (i >= count) continue;
    float total = 0.0;
    for (uint g = 0; g < gl_NumSubgroups; g++) total += slots[g * QUERIES + i];
    uint record = records + (head + i) * record_step + part * ATTENTION_STEP_RECORD(D);
    [[unroll]] for (uint c = 0; c < OWN; c++) {
      uint j = 4 * (lane + c * COLUMNS);
      if (lane >= COLUMNS || j >= D) continue;
      vec4 all = y[i * OWN + c];
      [[unroll]] for (uint r = 1; r < ROWS; r++) all += strip[i * LANES + r * COLUMNS + lane];
      if (used == 1) {
        queries[i * D4 + j / 4] = all / total;
        continue;
      }
      [[unroll]] for (uint k = 0; k < 4; k++)
        if (D % 4 == 0 || j + k < D) parts[record + 2 + j + k] = floatBitsToUint(all[k]);
      if (c == 0 && lane == 0) {
        parts[record] = floatBitsToUint(top[i]);
        parts[record + 1] = floatBitsToUint(total);
      }
    }
  }
  if (used > 1) {
    memoryBarrierBuffer(); // before the counter that publishes them
    barrier();
    if (lane == 0) arrived = atomicAdd(parts[gl_WorkGroupID.z * args.heads + head], 1);
    barrier();
    if (arrived != used - 1) return;
    memoryBarrierBuffer();
    join(lane, used, count, records + head * record_step);
  }
  store_o(lane, row, head, count, gate);
}
