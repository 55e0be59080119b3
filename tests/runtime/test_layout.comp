#version 450
// Every kind of declaration that reflect must understand; computes nothing of use.
layout(local_size_x_id = 3, local_size_y = 2) in;
layout(constant_id = 0) const uint ROWS = 4;
layout(constant_id = 5) const bool WIDE = false;
layout(constant_id = 7) const int SHIFT = 1;
const uint COLS = (WIDE ? ROWS * 2 : ROWS) + (1 << SHIFT);

struct pair {
  uvec2 at;
  float weight[3];
};
layout(set = 0, binding = 0) readonly buffer in_block { uint head, tail[]; };
layout(set = 0, binding = 1) buffer state_block { float state[]; };
layout(set = 0, binding = 1) readonly buffer state4_block { vec4 state4[]; }; // a second view of the same
layout(set = 0, binding = 2) buffer mixed_block {
  readonly uint count;
  uint written[];
};
layout(push_constant) uniform args_block {
  uint first;
  pair pairs[2]; // at 8; 24 bytes each
  mat2 turn;     // at 56
  uint last;     // at 72
};
shared float tile[ROWS][COLS + 1];
shared uvec4 wide[gl_WorkGroupSize.x];
shared uint total;

void main() {
  uint i = gl_LocalInvocationIndex;
  tile[i % ROWS][i % COLS] = turn[0].x + pairs[1].weight[2];
  wide[gl_LocalInvocationID.x] = uvec4(head + tail[i], first, last, i);
  if (i == 0) total = count;
  barrier();
  state[i] += tile[0][0] + state4[i].x + float(wide[0].x);
  written[i] = total;
}
