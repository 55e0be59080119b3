// canvas: draws shapes and text. A letter is a set of dots on a grid of 5 x 8, and strokes with round ends join
// adjacent dots, so letters are smooth at any size.
#include "canvas.h"
#include "common.h" // complain, must_resize

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STB_IMAGE_WRITE_IMPLEMENTATION
#define STB_IMAGE_WRITE_STATIC
#include <stb/stb_image_write.h>

enum { SAMPLES = 3, GLYPH_WIDTH = 5, GLYPH_ROWS = 8, CAPITALS = 7 };

// Printable ASCII from ' ' on: one byte per column, the top row in the lowest bit.
static const uint8_t font[95][GLYPH_WIDTH] = {
    {0x00, 0x00, 0x00, 0x00, 0x00}, {0x00, 0x00, 0x5f, 0x00, 0x00}, {0x00, 0x07, 0x00, 0x07, 0x00},
    {0x14, 0x7f, 0x14, 0x7f, 0x14}, {0x24, 0x2a, 0x7f, 0x2a, 0x12}, {0x23, 0x13, 0x08, 0x64, 0x62},
    {0x36, 0x49, 0x56, 0x20, 0x50}, {0x00, 0x08, 0x07, 0x03, 0x00}, {0x00, 0x1c, 0x22, 0x41, 0x00},
    {0x00, 0x41, 0x22, 0x1c, 0x00}, {0x2a, 0x1c, 0x7f, 0x1c, 0x2a}, {0x08, 0x08, 0x3e, 0x08, 0x08},
    {0x00, 0x80, 0x70, 0x30, 0x00}, {0x08, 0x08, 0x08, 0x08, 0x08}, {0x00, 0x00, 0x60, 0x60, 0x00},
    {0x20, 0x10, 0x08, 0x04, 0x02}, {0x3e, 0x51, 0x49, 0x45, 0x3e}, {0x00, 0x42, 0x7f, 0x40, 0x00},
    {0x72, 0x49, 0x49, 0x49, 0x46}, {0x21, 0x41, 0x49, 0x4d, 0x33}, {0x18, 0x14, 0x12, 0x7f, 0x10},
    {0x27, 0x45, 0x45, 0x45, 0x39}, {0x3c, 0x4a, 0x49, 0x49, 0x31}, {0x41, 0x21, 0x11, 0x09, 0x07},
    {0x36, 0x49, 0x49, 0x49, 0x36}, {0x46, 0x49, 0x49, 0x29, 0x1e}, {0x00, 0x00, 0x14, 0x00, 0x00},
    {0x00, 0x40, 0x34, 0x00, 0x00}, {0x00, 0x08, 0x14, 0x22, 0x41}, {0x14, 0x14, 0x14, 0x14, 0x14},
    {0x00, 0x41, 0x22, 0x14, 0x08}, {0x02, 0x01, 0x59, 0x09, 0x06}, {0x3e, 0x41, 0x5d, 0x59, 0x4e},
    {0x7c, 0x12, 0x11, 0x12, 0x7c}, {0x7f, 0x49, 0x49, 0x49, 0x36}, {0x3e, 0x41, 0x41, 0x41, 0x22},
    {0x7f, 0x41, 0x41, 0x41, 0x3e}, {0x7f, 0x49, 0x49, 0x49, 0x41}, {0x7f, 0x09, 0x09, 0x09, 0x01},
    {0x3e, 0x41, 0x41, 0x51, 0x73}, {0x7f, 0x08, 0x08, 0x08, 0x7f}, {0x00, 0x41, 0x7f, 0x41, 0x00},
    {0x20, 0x40, 0x41, 0x3f, 0x01}, {0x7f, 0x08, 0x14, 0x22, 0x41}, {0x7f, 0x40, 0x40, 0x40, 0x40},
    {0x7f, 0x02, 0x1c, 0x02, 0x7f}, {0x7f, 0x04, 0x08, 0x10, 0x7f}, {0x3e, 0x41, 0x41, 0x41, 0x3e},
    {0x7f, 0x09, 0x09, 0x09, 0x06}, {0x3e, 0x41, 0x51, 0x21, 0x5e}, {0x7f, 0x09, 0x19, 0x29, 0x46},
    {0x26, 0x49, 0x49, 0x49, 0x32}, {0x03, 0x01, 0x7f, 0x01, 0x03}, {0x3f, 0x40, 0x40, 0x40, 0x3f},
    {0x1f, 0x20, 0x40, 0x20, 0x1f}, {0x3f, 0x40, 0x38, 0x40, 0x3f}, {0x63, 0x14, 0x08, 0x14, 0x63},
    {0x03, 0x04, 0x78, 0x04, 0x03}, {0x61, 0x59, 0x49, 0x4d, 0x43}, {0x00, 0x7f, 0x41, 0x41, 0x41},
    {0x02, 0x04, 0x08, 0x10, 0x20}, {0x00, 0x41, 0x41, 0x41, 0x7f}, {0x04, 0x02, 0x01, 0x02, 0x04},
    {0x40, 0x40, 0x40, 0x40, 0x40}, {0x00, 0x03, 0x07, 0x08, 0x00}, {0x20, 0x54, 0x54, 0x78, 0x40},
    {0x7f, 0x28, 0x44, 0x44, 0x38}, {0x38, 0x44, 0x44, 0x44, 0x28}, {0x38, 0x44, 0x44, 0x28, 0x7f},
    {0x38, 0x54, 0x54, 0x54, 0x18}, {0x00, 0x08, 0x7e, 0x09, 0x02}, {0x18, 0xa4, 0xa4, 0x9c, 0x78},
    {0x7f, 0x08, 0x04, 0x04, 0x78}, {0x00, 0x44, 0x7d, 0x40, 0x00}, {0x20, 0x40, 0x40, 0x3d, 0x00},
    {0x7f, 0x10, 0x28, 0x44, 0x00}, {0x00, 0x41, 0x7f, 0x40, 0x00}, {0x7c, 0x04, 0x78, 0x04, 0x78},
    {0x7c, 0x08, 0x04, 0x04, 0x78}, {0x38, 0x44, 0x44, 0x44, 0x38}, {0xfc, 0x18, 0x24, 0x24, 0x18},
    {0x18, 0x24, 0x24, 0x18, 0xfc}, {0x7c, 0x08, 0x04, 0x04, 0x08}, {0x48, 0x54, 0x54, 0x54, 0x24},
    {0x04, 0x04, 0x3f, 0x44, 0x24}, {0x3c, 0x40, 0x40, 0x20, 0x7c}, {0x1c, 0x20, 0x40, 0x20, 0x1c},
    {0x3c, 0x40, 0x30, 0x40, 0x3c}, {0x44, 0x28, 0x10, 0x28, 0x44}, {0x4c, 0x90, 0x90, 0x90, 0x7c},
    {0x44, 0x64, 0x54, 0x4c, 0x44}, {0x00, 0x08, 0x36, 0x41, 0x00}, {0x00, 0x00, 0x77, 0x00, 0x00},
    {0x00, 0x41, 0x36, 0x08, 0x00}, {0x02, 0x01, 0x02, 0x04, 0x02},
};

void canvas_begin(struct canvas *c, int w, int h) {
  size_t bytes = (size_t)w * (size_t)h * SAMPLES * SAMPLES * 3;
  *c = (struct canvas){.w = w, .h = h, .data = must_resize(NULL, bytes)};
  memset(c->data, 255, bytes);
  canvas_unclip(c);
}

void canvas_free(struct canvas *c) {
  free(c->data);
  *c = (struct canvas){0};
}

void canvas_clip(struct canvas *c, double x0, double y0, double x1, double y1) {
  c->x0 = x0;
  c->y0 = y0;
  c->x1 = x1;
  c->y1 = y1;
}

void canvas_unclip(struct canvas *c) { canvas_clip(c, 0, 0, c->w, c->h); }

// ---------------------------------------------------------------- shapes

// Selects the samples whose centres lie in [from, to), clipped to [least, most).
static void sample_range(double from, double to, double least, double most, int *first, int *end) {
  from = fmax(from, least);
  to = fmin(to, most);
  *first = (int)ceil(from * SAMPLES - 0.5);
  *end = to > from ? (int)ceil(to * SAMPLES - 0.5) : *first;
}

static void blend(struct canvas *c, int x, int y, struct rgb color, double alpha) {
  uint8_t *p = c->data + 3 * ((size_t)y * (size_t)(c->w * SAMPLES) + (size_t)x);
  p[0] = (uint8_t)(p[0] + alpha * (color.r - p[0]) + 0.5);
  p[1] = (uint8_t)(p[1] + alpha * (color.g - p[1]) + 0.5);
  p[2] = (uint8_t)(p[2] + alpha * (color.b - p[2]) + 0.5);
}

void canvas_rect(struct canvas *c, double x0, double y0, double x1, double y1, struct rgb color, double alpha) {
  int left, right, top, bottom;
  sample_range(x0, x1, c->x0, c->x1, &left, &right);
  sample_range(y0, y1, c->y0, c->y1, &top, &bottom);
  for (int y = top; y < bottom; ++y)
    for (int x = left; x < right; ++x) blend(c, x, y, color, alpha);
}

// Covers all samples within width / 2 of the segment.
void canvas_line(struct canvas *c, double x0, double y0, double x1, double y1, double width, struct rgb color) {
  int left, right, top, bottom;
  double dx = x1 - x0, dy = y1 - y0, length = dx * dx + dy * dy, reach = width / 2;
  sample_range(fmin(x0, x1) - reach, fmax(x0, x1) + reach, c->x0, c->x1, &left, &right);
  sample_range(fmin(y0, y1) - reach, fmax(y0, y1) + reach, c->y0, c->y1, &top, &bottom);
  for (int y = top; y < bottom; ++y)
    for (int x = left; x < right; ++x) {
      double px = (x + 0.5) / SAMPLES - x0, py = (y + 0.5) / SAMPLES - y0;
      double t = length > 0 ? fmin(fmax((px * dx + py * dy) / length, 0), 1) : 0;
      px -= t * dx;
      py -= t * dy;
      if (px * px + py * py <= reach * reach) blend(c, x, y, color, 1);
    }
}

// ---------------------------------------------------------------- text

struct pen {
  struct canvas *canvas;
  double x, y, dot; // position of the dot (0, 0) of the next letter; distance between dots
  bool up;
  struct rgb color;
};

static void stroke(const struct pen *p, int x0, int y0, int x1, int y1) {
  double width = 1.15 * p->dot, d = p->dot;
  if (p->up)
    canvas_line(p->canvas, p->x + y0 * d, p->y - x0 * d, p->x + y1 * d, p->y - x1 * d, width, p->color);
  else
    canvas_line(p->canvas, p->x + x0 * d, p->y + y0 * d, p->x + x1 * d, p->y + y1 * d, width, p->color);
}

static bool lit(const uint8_t *glyph, int x, int y) {
  return x >= 0 && x < GLYPH_WIDTH && y >= 0 && y < GLYPH_ROWS && (glyph[x] >> y & 1);
}

static void draw_glyph(const struct pen *p, char letter) {
  const uint8_t *glyph = font[(letter < ' ' || letter > '~' ? '?' : letter) - ' '];
  for (int x = 0; x < GLYPH_WIDTH; ++x)
    for (int y = 0; y < GLYPH_ROWS; ++y) {
      if (!lit(glyph, x, y)) continue;
      stroke(p, x, y, x, y);
      if (lit(glyph, x + 1, y)) stroke(p, x, y, x + 1, y);
      if (lit(glyph, x, y + 1)) stroke(p, x, y, x, y + 1);
      // Draw a diagonal only if no corner joins the two dots already.
      for (int up = -1; up <= 1; up += 2)
        if (lit(glyph, x + 1, y + up) && !lit(glyph, x + 1, y) && !lit(glyph, x, y + up))
          stroke(p, x, y, x + 1, y + up);
    }
}

static double dot_of(double size) { return size / CAPITALS; }

double canvas_text_width(double size, const char *text) {
  return (double)strlen(text) * (GLYPH_WIDTH + 1) * dot_of(size);
}

static double shift_of(double size, enum text_anchor anchor, const char *text) {
  double width = canvas_text_width(size, text);
  return anchor == TEXT_LEFT ? 0 : anchor == TEXT_RIGHT ? width : width / 2;
}

void canvas_text(struct canvas *c, double x, double y, double size, enum text_anchor anchor, struct rgb color,
                 const char *text) {
  double dot = dot_of(size);
  struct pen pen = {c, x - shift_of(size, anchor, text) + dot / 2, y - 3 * dot, dot, false, color};
  for (; *text; ++text, pen.x += (GLYPH_WIDTH + 1) * dot) draw_glyph(&pen, *text);
}

void canvas_text_up(struct canvas *c, double x, double y, double size, enum text_anchor anchor, struct rgb color,
                    const char *text) {
  double dot = dot_of(size);
  struct pen pen = {c, x - 3 * dot, y + shift_of(size, anchor, text) - dot / 2, dot, true, color};
  for (; *text; ++text, pen.y -= (GLYPH_WIDTH + 1) * dot) draw_glyph(&pen, *text);
}

// ---------------------------------------------------------------- files

// Returns the mean of a pixel's samples.
static uint8_t average(const struct canvas *c, int x, int y, int channel) {
  unsigned sum = 0;
  for (int j = 0; j < SAMPLES; ++j)
    for (int i = 0; i < SAMPLES; ++i)
      sum += c->data[3 * ((size_t)(y * SAMPLES + j) * (size_t)(c->w * SAMPLES) + (size_t)(x * SAMPLES + i)) +
                     (size_t)channel];
  return (uint8_t)((sum + SAMPLES * SAMPLES / 2) / (SAMPLES * SAMPLES));
}

static void write_bytes(void *stream, void *data, int size) { fwrite(data, 1, (size_t)size, stream); }

int canvas_write(const struct canvas *c, const char *path) {
  uint8_t *pixels = must_resize(NULL, (size_t)c->w * (size_t)c->h * 3), *p = pixels;
  for (int y = 0; y < c->h; ++y)
    for (int x = 0; x < c->w; ++x)
      for (int channel = 0; channel < 3; ++channel) *p++ = average(c, x, y, channel);
  struct new_file file;
  int code = output_begin(&file, path);
  if (!code) {
    bool made = stbi_write_png_to_func(write_bytes, file.stream, c->w, c->h, 3, pixels, 3 * c->w);
    if (!made) code = complain(EXIT_FAILED, "%s: no memory for the picture", path);
    code = output_end(&file, path, code);
  }
  free(pixels);
  return code;
}
