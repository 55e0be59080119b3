// llvm_passes.c: preloaded into tests on lavapipe. It replaces LLVMRunPasses() to run three cheap passes instead of
// mem2reg.
//
// With GALLIVM_PERF=nopt lavapipe asks for one pass over a kernel, mem2reg. LLVM then spends most of its time on
// instruction selection, block by block. Three cheap passes leave it fewer and shorter blocks.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef void *run_passes(void *module, const char *passes, void *machine, void *options);

// LLVM's own is found from the driver that calls: nobody else has loaded that library.
static run_passes *find(void *caller) {
  Dl_info driver;
  void *library = dladdr(caller, &driver) ? dlopen(driver.dli_fname, RTLD_LAZY | RTLD_NOLOAD) : NULL;
  void *found = library ? dlsym(library, "LLVMRunPasses") : NULL;
  run_passes *function = NULL;
  memcpy(&function, &found, sizeof function);
  if (function) return function;
  fprintf(stderr, "llvm_passes: this driver has no LLVMRunPasses\n");
  abort();
}

void *LLVMRunPasses(void *module, const char *passes, void *machine, void *options);
void *LLVMRunPasses(void *module, const char *passes, void *machine, void *options) {
  run_passes *next = find(__builtin_return_address(0));
  return next(module, strcmp(passes, "mem2reg") ? passes : "sroa,early-cse,simplifycfg", machine, options);
}
