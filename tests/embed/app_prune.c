// app_prune FOLDER: a selection of half of the model's key channels; and that an error of libdeltaic_prune is the one
// that libdeltaic reports.
#include <deltaic_prune.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv) {
  deltaic_select_options half = DELTAIC_INIT(deltaic_select_options);
  deltaic_selection *selection;
  if (argc != 2 || deltaic_select("nowhere", NULL, &half, &selection) == DELTAIC_OK ||
      !strstr(deltaic_last_error(), "nowhere"))
    return 1;
  half.method = "l1";
  half.cut = 0.5;
  if (deltaic_select(argv[1], NULL, &half, &selection)) {
    fprintf(stderr, "%s\n", deltaic_last_error());
    return 1;
  }
  printf("%d heads\n", (int)deltaic_selection_count(selection));
  deltaic_selection_free(selection);
  return 0;
}
