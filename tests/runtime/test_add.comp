#version 450
// y = a + scale * b, n numbers. One number an invocation. Any n and workgroup size.
layout(local_size_x_id = 0) in;
layout(set = 0, binding = 0) readonly buffer a_block { float a[]; };
layout(set = 0, binding = 1) readonly buffer b_block { float b[]; };
layout(set = 0, binding = 2) writeonly buffer y_block { float y[]; };
layout(push_constant) uniform args_block {
  uint n;
  float scale;
};

void main() {
  uint i = gl_GlobalInvocationID.x;
  if (i < n) y[i] = a[i] + scale * b[i];
}
