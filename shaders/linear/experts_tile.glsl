// experts_tile.glsl: rows of a tile that are choices of one expert, in the order of group.comp. Define ORDER_BINDING
// and STARTS_BINDING before including it; args.tiles is an experts_tile_args.
layout(set = 0, binding = ORDER_BINDING) readonly buffer order_block { uint order[]; };
layout(set = 0, binding = STARTS_BINDING) readonly buffer starts_block { uint starts[]; };
uint tile_expert, tile_first, tile_end; // the tile's expert, and its places in `order`

// Finds tile `tile` of `size` rows among those of all experts. False: there are fewer, or its expert's weights are
// not bound.
bool find_tile(uint tile, uint size) {
  uint before = 0;
  for (tile_expert = 0; tile_expert < args.tiles.experts; tile_expert++) {
    tile_first = starts[tile_expert];
    tile_end = starts[tile_expert + 1];
    uint tiles = (tile_end - tile_first + size - 1) / size;
    if (tile < before + tiles) {
      tile_first += (tile - before) * size;
      return tile_expert - args.tiles.first < args.tiles.count; // wraps to a large number below `first`
    }
    before += tiles;
  }
  return false;
}

uint choice(uint t) { return order[tile_first + t]; }

#define ROWS_OF_TILE (tile_end - tile_first)
#define X_ROW(t) (choice(t) / args.tiles.share)
#define Y_ROW(t) choice(t)
#define EXPERT_GROUPS(rows) ((tile_expert - args.tiles.first) * (rows) * (args.w_stride / 8))
