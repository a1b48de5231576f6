/* Asks a CUDA runtime library how many devices there are, and prints the error code it gives. */
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv) {
  void *runtime = argc > 1 ? dlopen(argv[1], RTLD_NOW) : 0;
  int (*ask)(int *) = runtime ? (int (*)(int *))dlsym(runtime, "cudaGetDeviceCount") : 0;
  int count = -1;
  if (!ask) { fprintf(stderr, "%s\n", dlerror()); return 2; }
  printf("%d\n", ask(&count));
  return 0;
}
