// reduce.glsl: sums and maxima over a workgroup, with the same bits in every invocation and every run: a subgroup
// operation, then one value per subgroup through shared memory, added in order. Works for any subgroup size. Call it
// from uniform control flow.
shared float reduce_slots[gl_WorkGroupSize.x];

float workgroup_sum(float x) {
  x = subgroupAdd(x);
  if (gl_NumSubgroups == 1) return x;
  barrier(); // the previous reduction may still be reading
  if (subgroupElect()) reduce_slots[gl_SubgroupID] = x;
  barrier();
  float total = 0.0;
  for (uint i = 0; i < gl_NumSubgroups; i++) total += reduce_slots[i];
  return total;
}

float workgroup_max(float x) {
  x = subgroupMax(x);
  if (gl_NumSubgroups == 1) return x;
  barrier();
  if (subgroupElect()) reduce_slots[gl_SubgroupID] = x;
  barrier();
  float top = reduce_slots[0];
  for (uint i = 1; i < gl_NumSubgroups; i++) top = max(top, reduce_slots[i]);
  return top;
}
