// desk: a page on which a model continues the text at the cursor, in three alternatives beside each other.
//
//   desk [--model MODEL] [--device N] [--tokens N] [--seed N] [FILE]
//
//   Ctrl+Return       continue the text before the cursor
//   Alt+1, 2, 3       take this alternative into the page, also while it is written
//   Escape            stop
//   Ctrl+Q            close
//   Ctrl+Z, Ctrl+Y    undo, redo: a continuation is one step, and nothing is computed again
//
// The model runs in a thread (desk_writer). Once a frame the page collects what is new. Standard output gets a line for
// each continuation, and at the end the times between frames while the model worked, and the text.
#define _POSIX_C_SOURCE 200809L // clock_gettime
#include "desk_writer.h"

#include <gtk/gtk.h>
#include <stdio.h>
#include <time.h>

// The times between two frames while the model works, in microseconds.
struct frames {
  gint64 last, worked;     // when the last frame was, and this thread's processor time until then
  gint64 longest, busiest; // the most time, and the most processor time of this thread
  unsigned count, late;    // late: over LATE
};
enum { LATE = 50000 };

struct desk {
  GtkWindow *window;
  GtkTextView *page;
  GtkTextBuffer *buffer;
  GtkTextBuffer *columns[ALTERNATIVES];
  GtkWidget *boxes[ALTERNATIVES];
  GtkLabel *status;
  struct desk_writer *writer;
  struct desk_news news;
  bool writing;             // from Ctrl+Return to the end of the continuation
  char *text[ALTERNATIVES]; // of the last continuation
  int taken;                // the alternative that is in the page
  GtkTextMark *begin, *end; // of what it wrote there
  uint64_t seed;            // of the next continuation
  struct frames frames;
  int code;
};

static struct {
  char *model, **files;
  int device, tokens;
  gint64 seed;
} options = {.tokens = 48, .seed = 1};

static const char style[] = "textview { font: 13pt serif; }"
                            "frame.taken { border: 2px solid #3584e4; }"
                            "window > box { margin: 0 6px 6px 6px; }"
                            "label { font-size: 10pt; }";

// ---------------------------------------------------------------- the text in the page

// What the model wrote is in the page as one user action, which undo takes back as a whole.
static void replace_continuation(struct desk *d, const char *text) {
  GtkTextIter begin, end;
  gtk_text_buffer_get_iter_at_mark(d->buffer, &begin, d->begin);
  gtk_text_buffer_get_iter_at_mark(d->buffer, &end, d->end);
  g_autofree char *old = gtk_text_buffer_get_text(d->buffer, &begin, &end, FALSE);
  if (g_str_has_prefix(text, old)) {
    gtk_text_buffer_insert(d->buffer, &end, text + strlen(old), -1);
  } else {
    gtk_text_buffer_delete(d->buffer, &begin, &end);
    gtk_text_buffer_insert(d->buffer, &end, text, -1);
  }
  gtk_text_buffer_get_iter_at_mark(d->buffer, &end, d->end);
  gtk_text_buffer_place_cursor(d->buffer, &end);
  gtk_text_view_scroll_mark_onscreen(d->page, gtk_text_buffer_get_insert(d->buffer));
}

static void mark_taken(struct desk *d, int alternative) {
  gtk_widget_remove_css_class(d->boxes[d->taken], "taken");
  gtk_widget_add_css_class(d->boxes[alternative], "taken");
  d->taken = alternative;
}

static void take(struct desk *d, int alternative) {
  if (!d->text[alternative] || !d->begin) return;
  mark_taken(d, alternative);
  if (!d->writing) gtk_text_buffer_begin_user_action(d->buffer);
  replace_continuation(d, d->text[alternative]);
  if (!d->writing) gtk_text_buffer_end_user_action(d->buffer);
}

static void forget_marks(struct desk *d) {
  if (d->begin) gtk_text_buffer_delete_mark(d->buffer, d->begin);
  if (d->end) gtk_text_buffer_delete_mark(d->buffer, d->end);
  d->begin = d->end = NULL;
}

// ---------------------------------------------------------------- once a frame

static void end_continuation(struct desk *d) {
  gtk_text_buffer_end_user_action(d->buffer);
  gtk_text_view_set_editable(d->page, TRUE);
  d->writing = false;
  printf("read %u tokens, remembered %u, wrote %u\n", d->news.read, d->news.remembered, d->news.written);
}

static void show_status(struct desk *d) {
  static const char *const phases[] = {"opening the model", "Ctrl+Return continues the text", "reading", "writing"};
  const struct desk_news *n = &d->news;
  g_autofree char *kernels = n->kernels && n->phase != DESK_IDLE ? g_strdup_printf(", %u kernels", n->kernels) : NULL;
  g_autofree char *line = g_strdup_printf(
      "%s%s  ·  %u tokens read in %.0f ms, %u remembered  ·  %d × %u written, %.0f a second  ·  longest frame %.1f ms",
      *n->failure ? n->failure : phases[n->phase], kernels ? kernels : "", n->read, 1e3 * n->read_seconds,
      n->remembered, ALTERNATIVES, n->written, n->written ? ALTERNATIVES * n->written / n->write_seconds : 0,
      1e-3 * (double)d->frames.longest);
  if (strcmp(gtk_label_get_text(d->status), line)) gtk_label_set_text(d->status, line);
}

static void collect(struct desk *d) {
  struct desk_news before = d->news;
  if (!desk_writer_collect(d->writer, &d->news)) return;
  for (int i = 0; i < ALTERNATIVES; ++i) {
    if (!d->news.text[i]) continue;
    g_free(d->text[i]);
    d->text[i] = d->news.text[i];
    gtk_text_buffer_set_text(d->columns[i], d->text[i], -1);
    if (i == d->taken && d->writing) replace_continuation(d, d->text[i]);
  }
  if (strcmp(before.failure, d->news.failure)) fprintf(stderr, "desk: %s\n", d->news.failure);
  if (d->news.phase == DESK_OPENING && *d->news.failure) d->code = 1;
  if (before.phase == DESK_OPENING && d->news.phase == DESK_IDLE) printf("opened\n");
  if (d->writing && d->news.done != before.done) end_continuation(d);
  show_status(d);
}

static void measure_frame(struct frames *f, bool writing) {
  struct timespec processor;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &processor);
  gint64 now = g_get_monotonic_time(), worked = processor.tv_sec * G_USEC_PER_SEC + processor.tv_nsec / 1000;
  if (f->last) {
    f->longest = MAX(f->longest, now - f->last);
    f->busiest = MAX(f->busiest, worked - f->worked);
    f->late += now - f->last > LATE;
    ++f->count;
  }
  f->last = writing ? now : 0;
  f->worked = worked;
}

// The frame clock's hook, while there is something to wait for.
static gboolean on_frame(GtkWidget *widget, GdkFrameClock *clock, void *user) {
  (void)widget, (void)clock;
  struct desk *d = user;
  measure_frame(&d->frames, d->writing);
  collect(d);
  if (d->code) gtk_window_close(d->window);
  return d->code || d->news.phase == DESK_IDLE ? G_SOURCE_REMOVE : G_SOURCE_CONTINUE;
}

// ---------------------------------------------------------------- keys

static void begin_continuation(struct desk *d) {
  if (d->writing || d->news.phase == DESK_OPENING || d->code) return;
  GtkTextIter start, cursor;
  forget_marks(d);
  gtk_text_buffer_get_start_iter(d->buffer, &start);
  gtk_text_buffer_get_iter_at_mark(d->buffer, &cursor, gtk_text_buffer_get_insert(d->buffer));
  g_autofree char *text = gtk_text_buffer_get_text(d->buffer, &start, &cursor, FALSE);
  d->begin = gtk_text_buffer_create_mark(d->buffer, NULL, &cursor, TRUE);
  d->end = gtk_text_buffer_create_mark(d->buffer, NULL, &cursor, FALSE);
  gtk_text_buffer_begin_user_action(d->buffer);
  gtk_text_view_set_editable(d->page, FALSE);
  mark_taken(d, 0);
  d->writing = true;
  d->frames.last = 0;
  d->news.phase = DESK_READING; // until the first news
  desk_writer_start(d->writer, text, d->seed++);
  gtk_widget_add_tick_callback(GTK_WIDGET(d->window), on_frame, d, NULL);
}

static gboolean on_key(GtkEventControllerKey *keys, guint key, guint code, GdkModifierType state, void *user) {
  (void)keys, (void)code;
  struct desk *d = user;
  state &= GDK_CONTROL_MASK | GDK_ALT_MASK | GDK_SHIFT_MASK;
  if (key == GDK_KEY_Return && state == GDK_CONTROL_MASK)
    begin_continuation(d);
  else if (key >= GDK_KEY_1 && key < GDK_KEY_1 + ALTERNATIVES && state == GDK_ALT_MASK)
    take(d, (int)(key - GDK_KEY_1));
  else if (key == GDK_KEY_q && state == GDK_CONTROL_MASK)
    gtk_window_close(d->window);
  else if (key == GDK_KEY_Escape && d->writing)
    desk_writer_stop(d->writer);
  else if (d->writing)
    return key != GDK_KEY_Page_Up && key != GDK_KEY_Page_Down; // the page belongs to the model until it has ended
  else if (key == GDK_KEY_z && state == GDK_CONTROL_MASK) {
    forget_marks(d); // the alternatives belong to a text that is no longer there
    gtk_text_buffer_undo(d->buffer);
  } else if (key == GDK_KEY_y && state == GDK_CONTROL_MASK)
    gtk_text_buffer_redo(d->buffer);
  else
    return FALSE;
  return TRUE;
}

// ---------------------------------------------------------------- the window

static GtkWidget *scrolled(GtkWidget *child) {
  GtkWidget *scroll = gtk_scrolled_window_new();
  gtk_scrolled_window_set_policy(GTK_SCROLLED_WINDOW(scroll), GTK_POLICY_NEVER, GTK_POLICY_AUTOMATIC);
  gtk_scrolled_window_set_child(GTK_SCROLLED_WINDOW(scroll), child);
  return scroll;
}

static GtkWidget *text_view(int margin) {
  GtkWidget *view = gtk_text_view_new();
  gtk_text_view_set_wrap_mode(GTK_TEXT_VIEW(view), GTK_WRAP_WORD_CHAR);
  gtk_text_view_set_left_margin(GTK_TEXT_VIEW(view), margin);
  gtk_text_view_set_right_margin(GTK_TEXT_VIEW(view), margin);
  gtk_text_view_set_top_margin(GTK_TEXT_VIEW(view), margin / 2);
  gtk_text_view_set_bottom_margin(GTK_TEXT_VIEW(view), margin / 2);
  return view;
}

static GtkWidget *make_columns(struct desk *d) {
  GtkWidget *row = gtk_box_new(GTK_ORIENTATION_HORIZONTAL, 6);
  gtk_box_set_homogeneous(GTK_BOX(row), TRUE);
  gtk_widget_set_size_request(row, -1, 190);
  for (int i = 0; i < ALTERNATIVES; ++i) {
    char title[16];
    g_snprintf(title, sizeof title, "Alt+%d", i + 1);
    GtkWidget *view = text_view(8);
    gtk_text_view_set_editable(GTK_TEXT_VIEW(view), FALSE);
    gtk_text_view_set_cursor_visible(GTK_TEXT_VIEW(view), FALSE);
    gtk_widget_set_focusable(view, FALSE);
    d->columns[i] = gtk_text_view_get_buffer(GTK_TEXT_VIEW(view));
    d->boxes[i] = gtk_frame_new(title);
    gtk_frame_set_child(GTK_FRAME(d->boxes[i]), scrolled(view));
    gtk_box_append(GTK_BOX(row), d->boxes[i]);
  }
  return row;
}

static void make_window(struct desk *d, GtkApplication *application) {
  GtkCssProvider *css = gtk_css_provider_new();
  GtkWidget *box = gtk_box_new(GTK_ORIENTATION_VERTICAL, 6), *page = text_view(24);
  GtkEventController *keys = gtk_event_controller_key_new();
  d->window = GTK_WINDOW(gtk_application_window_new(application));
  gtk_css_provider_load_from_data(css, style, -1);
  gtk_style_context_add_provider_for_display(gdk_display_get_default(), GTK_STYLE_PROVIDER(css),
                                             GTK_STYLE_PROVIDER_PRIORITY_APPLICATION);
  g_object_unref(css);
  d->page = GTK_TEXT_VIEW(page);
  d->buffer = gtk_text_view_get_buffer(d->page);
  d->status = GTK_LABEL(gtk_label_new(NULL));
  gtk_label_set_xalign(d->status, 0);
  GtkWidget *scroll = scrolled(page);
  gtk_widget_set_vexpand(scroll, TRUE);
  gtk_box_append(GTK_BOX(box), scroll);
  gtk_box_append(GTK_BOX(box), make_columns(d));
  gtk_box_append(GTK_BOX(box), GTK_WIDGET(d->status));
  gtk_window_set_child(d->window, box);
  gtk_window_set_title(d->window, "desk");
  gtk_window_set_default_size(d->window, 900, 620);
  gtk_event_controller_set_propagation_phase(keys, GTK_PHASE_CAPTURE);
  g_signal_connect(keys, "key-pressed", G_CALLBACK(on_key), d);
  gtk_widget_add_controller(GTK_WIDGET(d->window), keys);
  gtk_widget_add_tick_callback(GTK_WIDGET(d->window), on_frame, d, NULL);
  gtk_widget_grab_focus(page);
}

static gboolean on_close(GtkWindow *window, void *user) {
  (void)window;
  struct desk *d = user;
  GtkTextIter start, end;
  gtk_text_buffer_get_bounds(d->buffer, &start, &end);
  g_autofree char *text = gtk_text_buffer_get_text(d->buffer, &start, &end, FALSE);
  const struct frames *f = &d->frames;
  printf("frames %u, over 50 ms %u, longest %.1f ms, most processor time %.1f ms\ntext %s\n", f->count, f->late,
         1e-3 * (double)f->longest, 1e-3 * (double)f->busiest, text);
  return FALSE; // it closes
}

static void on_activate(GtkApplication *application, void *user) {
  struct desk *d = user;
  g_autofree char *text = NULL;
  make_window(d, application);
  g_signal_connect(d->window, "close-request", G_CALLBACK(on_close), d);
  if (options.files && g_file_get_contents(options.files[0], &text, NULL, NULL))
    gtk_text_buffer_set_text(d->buffer, text, -1);
  gtk_window_present(d->window);
}

static int run(struct desk *d, char *name) {
  GtkApplication *application = gtk_application_new(NULL, G_APPLICATION_NON_UNIQUE);
  g_signal_connect(application, "activate", G_CALLBACK(on_activate), d);
  d->seed = (uint64_t)options.seed;
  d->writer =
      desk_writer_new(options.model ? options.model : "models/novelist", options.device, (uint32_t)options.tokens);
  int code = g_application_run(G_APPLICATION(application), 1, &name);
  desk_writer_free(d->writer);
  g_object_unref(application);
  for (int i = 0; i < ALTERNATIVES; ++i) g_free(d->text[i]);
  return d->code ? d->code : code;
}

int main(int argc, char **argv) {
  static const GOptionEntry entries[] = {
      {"model", 'm', 0, G_OPTION_ARG_FILENAME, &options.model, "a model's folder or GGUF file", "MODEL"},
      {"device", 'd', 0, G_OPTION_ARG_INT, &options.device, "0: the best; -1: the CPU; 1, 2, ...: a GPU", "N"},
      {"tokens", 'n', 0, G_OPTION_ARG_INT, &options.tokens, "the most tokens of a continuation", "N"},
      {"seed", 's', 0, G_OPTION_ARG_INT64, &options.seed, "of the first continuation", "N"},
      {G_OPTION_REMAINING, 0, 0, G_OPTION_ARG_FILENAME_ARRAY, &options.files, NULL, "[FILE]"},
      {NULL, 0, 0, 0, NULL, NULL, NULL}};
  struct desk d = {0};
  g_autoptr(GError) error = NULL;
  g_autoptr(GOptionContext) context = g_option_context_new("- a page that goes on by itself");
  g_option_context_add_main_entries(context, entries, NULL);
  if (!g_option_context_parse(context, &argc, &argv, &error)) return fprintf(stderr, "desk: %s\n", error->message), 2;
  if (options.tokens < 1) return fputs("desk: --tokens is at least 1\n", stderr), 2;
  setvbuf(stdout, NULL, _IOLBF, 0);
  return run(&d, argv[0]);
}
