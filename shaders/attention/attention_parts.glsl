// attention_parts.glsl: which query heads and keys a workgroup of attention_matrix.comp has. Needs GROUP, the query heads
// of a workgroup, and KEYS, the keys that it stages at once.

uint first_seen(uint position) {
  return args.window != 0 && position + 1 > args.window ? position + 1 - args.window : 0;
}

struct heads_of_group {
  uint kv_head, first, count; // `count` query heads from `first` on, all of this key head
};

// of workgroup x of a block of tokens
heads_of_group heads_of(uint x) {
  const uint group = args.heads / args.kv_heads, across = (group + GROUP - 1) / GROUP;
  const uint kv_head = x / across, first = kv_head * group + x % across * GROUP;
  return heads_of_group(kv_head, first, min(GROUP, (kv_head + 1) * group - first));
}

// The keys that a block of tokens sees are cut into parts of so many, at most args.parts of them.
uint keys_of_part(uint keys) {
  const uint each = max((keys + args.parts - 1) / args.parts, ATTENTION_MATRIX_LEAST);
  return (each + KEYS - 1) / KEYS * KEYS;
}
