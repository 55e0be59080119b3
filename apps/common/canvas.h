// canvas.h: draws shapes and text in RGB for plot.c. Coordinates are pixels. Everything is drawn SAMPLES times larger
// and averaged when the image is written.
#ifndef CANVAS_H
#define CANVAS_H
#include <stdint.h>

struct rgb {
  uint8_t r, g, b;
};

struct canvas {
  int w, h; // pixels
  uint8_t *data;
  double x0, y0, x1, y1; // the clip rectangle
};

enum text_anchor { TEXT_LEFT, TEXT_CENTER, TEXT_RIGHT };

void canvas_begin(struct canvas *canvas, int w, int h); // white
void canvas_free(struct canvas *canvas);
void canvas_clip(struct canvas *canvas, double x0, double y0, double x1, double y1);
void canvas_unclip(struct canvas *canvas);
void canvas_rect(struct canvas *canvas, double x0, double y0, double x1, double y1, struct rgb color, double alpha);
void canvas_line(struct canvas *canvas, double x0, double y0, double x1, double y1, double width, struct rgb color);
// size: pixels from the top of capitals to the baseline. y: the middle of the capitals. A character that the font lacks
// is drawn as '?'.
void canvas_text(struct canvas *canvas, double x, double y, double size, enum text_anchor anchor, struct rgb color,
                 const char *text);
// Draws text that reads from bottom to top; x is the middle of the capitals.
void canvas_text_up(struct canvas *canvas, double x, double y, double size, enum text_anchor anchor, struct rgb color,
                    const char *text);
double canvas_text_width(double size, const char *text);
int canvas_write(const struct canvas *canvas, const char *path); // returns an exit code
#endif
