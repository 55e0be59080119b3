// llvm_passes.c: preloaded into tests on lavapipe. It replaces LLVMRunPasses() to run three cheap passes instead of
// mem2reg.
//
// With GALLIVM_PERF=nopt lavapipe asks for one pass over a kernel, mem2reg. LLVM then spends most of its time on
// instruction selection, block by block. Three cheap passes leave it fewer and shorter blocks.
//
// Lavapipe reads buffers with masked gathers. Where gathers are slow, as on AMD's Zen, LLVM makes a branch and a load of
// each lane, and after each starts over at the kernel's first block. Tuned for a processor whose gathers are fast, which
// changes no instruction set, a gather is one instruction of AVX2.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef void *run_passes(void *module, const char *passes, void *machine, void *options);
typedef void *get_of(void *of);
typedef void *create_attribute(void *context, const char *key, unsigned key_length, const char *value, unsigned length);
typedef void add_attribute(void *function, unsigned index, void *attribute);

// LLVM's own are found from the driver that calls: nobody else has loaded that library.
static void find(void *caller, const char *name, void *function) {
  Dl_info driver;
  void *library = dladdr(caller, &driver) ? dlopen(driver.dli_fname, RTLD_LAZY | RTLD_NOLOAD) : NULL;
  void *found = library ? dlsym(library, name) : NULL;
  if (!found) {
    fprintf(stderr, "llvm_passes: this driver has no %s\n", name);
    abort();
  }
  memcpy(function, &found, sizeof found);
}

static void tune(void *caller, void *module) {
  static const char key[] = "tune-cpu", value[] = "skylake";
  get_of *context, *first, *next;
  create_attribute *create;
  add_attribute *add;
  find(caller, "LLVMGetModuleContext", &context);
  find(caller, "LLVMGetFirstFunction", &first);
  find(caller, "LLVMGetNextFunction", &next);
  find(caller, "LLVMCreateStringAttribute", &create);
  find(caller, "LLVMAddAttributeAtIndex", &add);
  void *attribute = create(context(module), key, sizeof key - 1, value, sizeof value - 1);
  const unsigned the_function = ~0u; // LLVMAttributeFunctionIndex
  for (void *f = first(module); f; f = next(f)) add(f, the_function, attribute);
}

void *LLVMRunPasses(void *module, const char *passes, void *machine, void *options);
void *LLVMRunPasses(void *module, const char *passes, void *machine, void *options) {
  void *caller = __builtin_return_address(0);
  run_passes *next;
  find(caller, "LLVMRunPasses", &next);
  if (strcmp(passes, "mem2reg")) return next(module, passes, machine, options);
  tune(caller, module);
  return next(module, "sroa,early-cse,simplifycfg", machine, options);
}
