#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#extension GL_EXT_shader_16bit_storage : require
#extension GL_EXT_control_flow_attributes : require
// Joins the results of attention_matrix.comp where it cut the keys into parts: with m the largest of the maxima m_p,
//   o = sum 2^(m_p - m) y_p / sum 2^(m_p - m) sum_p
// Workgroups (the x of attention_matrix.comp TOKENS GROUP, ceil(T / TOKENS), B): a row, which is one token of a query
// head. An invocation owns four columns. Any d.
#include "attention_join.h"
layout(local_size_x_id = ATTENTION_JOIN_SPEC_LANES) in;
layout(constant_id = ATTENTION_JOIN_SPEC_D) const uint D = 64;
layout(constant_id = ATTENTION_JOIN_SPEC_KEYS) const uint KEYS = 32;
layout(constant_id = ATTENTION_JOIN_SPEC_GROUP) const uint GROUP = 1;
layout(constant_id = ATTENTION_JOIN_SPEC_ROWS) const uint ROWS = 64;
layout(set = 0, binding = ATTENTION_JOIN_O) restrict writeonly buffer o_block { float16_t o[]; };
layout(set = 0, binding = ATTENTION_JOIN_RECORDS) restrict readonly buffer records_block { vec4 records[]; };
layout(set = 0, binding = ATTENTION_JOIN_SEQUENCES) restrict readonly buffer sequences_block { sequence sequences[]; };
#include "attention_parts.glsl"

const uint LANES = gl_WorkGroupSize.x;
const uint TOKENS = ROWS / GROUP;
const uint RECORD = ATTENTION_MATRIX_RECORD(D);
const uint BATCH = 8;                 // records that are loaded at once
const float LOWEST = -3.402823466e38; // as in attention_matrix.comp

void main() {
  const uint x = gl_WorkGroupID.x / (TOKENS * GROUP), row = gl_WorkGroupID.x % (TOKENS * GROUP);
  const uint across = gl_NumWorkGroups.x / (TOKENS * GROUP), t = row / GROUP;
  const heads_of_group heads = heads_of(x);
  const sequence s = sequences[gl_WorkGroupID.z];
  const uint t0 = (gl_NumWorkGroups.y - 1 - gl_WorkGroupID.y) * TOKENS;
  if (t0 + t >= s.T || row % GROUP >= heads.count) return;
  const uint end = s.pos + min(t0 + TOKENS, s.T), keys = end - first_seen(s.pos + t0), each = keys_of_part(keys);
  const uint parts = (keys + each - 1) / each;
  const uint begin = (gl_WorkGroupID.z * gl_NumWorkGroups.y + gl_WorkGroupID.y) * args.parts * across + x;
  const uint to = (s.row + t0 + t) * args.o_stride + (heads.first + row % GROUP) * D;

  for (uint c = 4 * gl_LocalInvocationIndex; c < D; c += 4 * LANES) {
    float top = LOWEST, sum = 0.0;
    vec4 y = vec4(0.0);
    for (uint p0 = 0; p0 < parts; p0 += BATCH) {
      vec4 part[BATCH];
      vec2 stats[BATCH]; // their maxima and sums
      [[unroll]] for (uint i = 0; i < BATCH; i++) {
        const uint at = ((begin + min(p0 + i, parts - 1) * across) * ROWS + row) * RECORD;
        part[i] = records[at + c / 4];
        stats[i] = records[at + RECORD - 1].xy;
      }
      float most = top;
      [[unroll]] for (uint i = 0; i < BATCH; i++) most = max(most, stats[i].x);
      const float shrink = exp2(top - most);
      sum *= shrink;
      y *= shrink;
      top = most;
      [[unroll]] for (uint i = 0; i < BATCH; i++) {
        const float factor = p0 + i < parts ? exp2(stats[i].x - most) : 0.0;
        sum += factor * stats[i].y;
        y += factor * part[i];
      }
    }
    y /= sum;
    [[unroll]] for (uint k = 0; k < 4; k++)
      if (c + k < D) o[to + c + k] = float16_t(y[k]);
  }
}
