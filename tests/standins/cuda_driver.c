/* A libcuda that says what it is told: the CUDA version of a driver, and what its initialisation comes to. It drives nothing. */
#include <stdlib.h>
#include <string.h>

static int told(const char *name) {
  const char *text = getenv(name);
  return text ? atoi(text) : 0;
}

int cuDriverGetVersion(int *version) { *version = told("MOCK_DRIVER_CUDA"); return 0; }
int cuInit(unsigned flags) { (void)flags; return told("MOCK_INIT"); }
int cuDeviceGetCount(int *count) { *count = 0; return 0; }
int cuGetExportTable(const void **table, const void *id) { *table = 0; (void)id; return 500; }
static int not_here(void) { return 801; }

int cuGetProcAddress(const char *name, void **function, int version, unsigned long long flags);
int cuGetProcAddress_v2(const char *name, void **function, int version, unsigned long long flags, int *status);

static void *find(const char *name, int version) {
  if (!strcmp(name, "cuGetProcAddress")) return version < 12000 ? (void *)cuGetProcAddress : (void *)cuGetProcAddress_v2;
  if (!strcmp(name, "cuDriverGetVersion")) return (void *)cuDriverGetVersion;
  if (!strcmp(name, "cuInit")) return (void *)cuInit;
  if (!strcmp(name, "cuDeviceGetCount")) return (void *)cuDeviceGetCount;
  if (!strcmp(name, "cuGetExportTable")) return (void *)cuGetExportTable;
  return (void *)not_here;
}

int cuGetProcAddress(const char *name, void **function, int version, unsigned long long flags) {
  (void)flags;
  *function = find(name, version);
  return 0;
}

int cuGetProcAddress_v2(const char *name, void **function, int version, unsigned long long flags, int *status) {
  if (status) *status = 0;
  return cuGetProcAddress(name, function, version, flags);
}
