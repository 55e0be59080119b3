#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_shader_subgroup_arithmetic : require
// Workgroups (H + Hv, blocks): q and k of a key head, or v and dO of a value head, for one block. dO times 2^e has its
// largest number in [1, 2); the sequence's first block also regards the gradient of the state after the call.
#include "rule_matrix.h"
layout(local_size_x_id = RULE_MATRIX_SPEC_LANES) in;
layout(constant_id = RULE_MATRIX_SPEC_LANES) const uint LANES = 256;
layout(constant_id = RULE_MATRIX_SPEC_BLOCK) const uint BLOCK = 64;
layout(constant_id = RULE_MATRIX_SPEC_DK) const uint DK = 128;
layout(constant_id = RULE_MATRIX_SPEC_DV) const uint DV = 128;
layout(constant_id = RULE_MATRIX_SPEC_N) const uint N = 1;
layout(constant_id = RULE_MATRIX_SPEC_UNIT) const uint UNIT = 4;
layout(set = 0, binding = RULE_MATRIX_ROWS) restrict writeonly buffer rows_block { uvec4 rows[]; };
layout(set = 0, binding = RULE_MATRIX_GATES) restrict writeonly buffer gates_block { float gates[]; };
layout(set = 0, binding = RULE_MATRIX_PACK_QKV) readonly buffer qkv_block { float qkv[]; };
layout(set = 0, binding = RULE_MATRIX_PACK_QKV) readonly buffer qkv4_block { vec4 qkv4[]; };
layout(set = 0, binding = RULE_MATRIX_PACK_DO) readonly buffer do_block { float d_o[]; };
layout(set = 0, binding = RULE_MATRIX_PACK_DO) readonly buffer do4_block { vec4 d_o4[]; };
layout(set = 0, binding = RULE_MATRIX_PACK_DSTATE) readonly buffer dstate_block { float dstate[]; };
#include "rule_matrix_block.glsl"

shared float largest[LANES];

// Eight numbers from column c of a row that begins at `at` and has n; zeros from n on.
#define READ8(name, one, four)                                                                                         \
  void name(uint at, uint c, uint n, out vec4 low, out vec4 high) {                                                    \
    low = high = vec4(0);                                                                                              \
    if (UNIT == 4) {                                                                                                   \
      if (c < n) low = four[(at + c) / 4];                                                                             \
      if (c + 4 < n) high = four[(at + c) / 4 + 1];                                                                    \
    } else {                                                                                                           \
      for (uint i = 0; i < 4; i++) {                                                                                   \
        if (c + i < n) low[i] = one[at + c + i];                                                                       \
        if (c + 4 + i < n) high[i] = one[at + c + 4 + i];                                                              \
      }                                                                                                                \
    }                                                                                                                  \
  }
READ8(read_qkv, qkv, qkv4)
READ8(read_do, d_o, d_o4)

uvec4 pack8(vec4 low, vec4 high) {
  return uvec4(packHalf2x16(low.xy), packHalf2x16(low.zw), packHalf2x16(high.xy), packHalf2x16(high.zw));
}

const uint K8 = DK / 8, V8 = DV / 8;

void main() {
  const uint lane = gl_LocalInvocationIndex, group = gl_WorkGroupID.x, block = gl_WorkGroupID.y;
  const uint row8 = RULE_MATRIX_ROW(args.H, args.Hv, DK, DV) / 8, to = block * BLOCK * row8;
  const uint values8 = to + 2 * args.H * K8, v_at = (1 + N) * args.H * args.Dk;
  if (!find_block(block)) return;
  vec4 low, high;
  if (group < args.H) {
    const uint head = group;
    for (uint i = lane; i < BLOCK * K8; i += LANES) {
      uint r = i / K8, c = i % K8, t = (step0 + r) / N, m = (step0 + r) % N;
      uint at = (row + t) * args.qkv_stride + head * args.Dk;
      read_qkv(at, c * 8, t < T && m == N - 1 ? args.Dk : 0, low, high);
      rows[to + r * row8 + head * K8 + c] = pack8(low, high);
      read_qkv(at + (1 + m) * args.H * args.Dk, c * 8, t < T ? args.Dk : 0, low, high);
      rows[to + r * row8 + (args.H + head) * K8 + c] = pack8(low, high);
    }
    return;
  }
  const uint head = group - args.H;
  float most = 0.0;
  for (uint i = lane; i < BLOCK * V8; i += LANES) {
    uint r = i / V8, c = i % V8, t = (step0 + r) / N, m = (step0 + r) % N;
    uint at = (row + t) * args.qkv_stride + v_at + (m * args.Hv + head) * args.Dv;
    read_qkv(at, c * 8, t < T ? args.Dv : 0, low, high);
    rows[values8 + r * row8 + head * V8 + c] = pack8(low, high);
    read_do((row + t) * args.do_stride + head * args.Dv, c * 8, t < T && m == N - 1 ? args.Dv : 0, low, high);
    low = max(abs(low), abs(high));
    most = max(most, max(max(low.x, low.y), max(low.z, low.w)));
  }
  if (step0 == 0)
    for (uint i = lane; i < args.Dk * args.Dv; i += LANES)
      most = max(most, abs(dstate[slot * args.state_stride + head * args.Dk * args.Dv + i]));
  most = subgroupMax(most);
  if (subgroupElect()) largest[gl_SubgroupID] = most;
  barrier();
  for (uint i = 0; i < gl_NumSubgroups; i++) most = max(most, largest[i]);
  const int e = most > 0.0 ? clamp(127 - int(floatBitsToUint(most) >> 23), -126, 126) : 126;
  if (lane == 0) gates[args.scales_at + block * args.Hv + head] = float(e);
  const float by = ldexp(1.0, e);
  for (uint i = lane; i < BLOCK * V8; i += LANES) {
    uint r = i / V8, c = i % V8, t = (step0 + r) / N, m = (step0 + r) % N;
    read_do((row + t) * args.do_stride + head * args.Dv, c * 8, t < T && m == N - 1 ? args.Dv : 0, low, high);
    rows[values8 + r * row8 + (args.Hv + head) * V8 + c] = pack8(low * by, high * by);
  }
}
