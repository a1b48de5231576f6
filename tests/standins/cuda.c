/* A stand-in for libcuda.so.1: the few calls that node/validate.py makes, on "GPUs" that are memory of this process.
 *
 * It computes: matrix products, patterns and copies are really done, by the name of the kernel (what the PTX of that name does is tested
 * elsewhere). Time is not measured but made up from fixed rates, so that a figure is the same on every machine. And it can be wrong:
 * STANDIN_FAULT names one fault, which strikes GPU STANDIN_FAULT_GPU (1) alone. STANDIN_GPUS (2) and STANDIN_MEMORY_MIB (32) size it.
 *
 *   init:CODE        cuInit returns CODE          late:CODE:TIMES  cuInit returns CODE so many times, then succeeds
 *   fail:CALL:CODE   CALL returns CODE            hang:CALL        CALL never returns
 *   die:CALL         CALL ends the process        bit-flip, nan    one number of each matrix product is wrong
 *   no-kernel        kernels do not run           no-time          the GPU's clock stands still
 *   slow             everything takes 1/0.7       stuck-bit        one bit of its memory is always 0
 *   copy             copies within it, peer-copy copies to it: one word is wrong; host-copy: one byte on the way back
 *   fewer            one GPU less                 full             almost no memory can be had
 */
#define _GNU_SOURCE
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef unsigned long long Pointer;
enum { MOST = 16, CALL_LENGTH = 64 };

static double now_s[MOST];
static size_t used[MOST];
static __thread int current;

static int number_of(const char *name, int otherwise)
{
    const char *text = getenv(name);
    return text && *text ? atoi(text) : otherwise;
}

static int gpus(void) { const char *f = getenv("STANDIN_FAULT"); return number_of("STANDIN_GPUS", 2) - (f && !strcmp(f, "fewer")); }

/* Whether the fault `name` strikes here; what stands behind its name is copied to `rest`. */
static int struck(const char *name, int device, char *rest)
{
    const char *fault = getenv("STANDIN_FAULT");
    size_t length = strlen(name);
    if (!fault || strncmp(fault, name, length) || (fault[length] && fault[length] != ':')) return 0;
    if (device >= 0 && device != number_of("STANDIN_FAULT_GPU", 1)) return 0;
    if (rest) snprintf(rest, CALL_LENGTH, "%s", fault[length] ? fault + length + 1 : "");
    return 1;
}

/* What befalls the call `name`: it returns a code, or the call hangs or dies here. */
int standin_call(const char *name, int device)
{
    char rest[CALL_LENGTH];
    if (struck("hang", device, rest) && !strcmp(rest, name)) for (;;) pause();
    if (struck("die", device, rest) && !strcmp(rest, name)) abort();
    if (struck("fail", device, rest)) {
        char *code = strchr(rest, ':');
        if (code && !strncmp(rest, name, strlen(name)) && (size_t)(code - rest) == strlen(name)) return atoi(code + 1);
    }
    return 0;
}

int standin_struck(const char *name, int device) { return struck(name, device, 0); }
int standin_current(void) { return current; }

void standin_spend(int device, double seconds)
{
    if (struck("no-time", device, 0)) return;
    now_s[device] += struck("slow", device, 0) ? seconds / 0.7 : seconds;
}

#define BEGIN do { int code = standin_call(__func__, current); if (code) return code; } while (0)
#define SPEND(seconds) standin_spend(current, seconds)

int cuInit(unsigned flags)
{
    static int asked;
    char rest[CALL_LENGTH];
    (void)flags;
    if (struck("init", -1, rest)) return atoi(rest);
    if (struck("late", -1, rest) && asked++ < atoi(strchr(rest, ':') + 1)) return atoi(rest);
    BEGIN;
    return 0;
}
int cuDriverGetVersion(int *version) { *version = 12080; return 0; }
int cuDeviceGetCount(int *count) { *count = gpus(); return 0; }
int cuDeviceGet(int *device, int index) { *device = index; return index < gpus() ? 0 : 101; }
int cuDeviceGetName(char *name, int length, int device) { (void)device; snprintf(name, length, "Stand-in GPU"); return 0; }
int cuDeviceGetUuid(unsigned char *raw, int device) { memset(raw, 0x11, 16); raw[15] = (unsigned char)device; return 0; }
int cuDeviceGetAttribute(int *value, int which, int device) { (void)device; *value = which == 75 ? 9 : 0; return 0; }
int cuDeviceCanAccessPeer(int *can, int one, int other) { *can = one != other; return 0; }
int cuDevicePrimaryCtxRetain(void **context, int device)
{
    int code = standin_call(__func__, device);
    *context = (void *)(intptr_t)(device + 1);
    return code;
}
int cuCtxSetCurrent(void *context) { current = (int)(intptr_t)context - 1; return 0; }
int cuCtxEnablePeerAccess(void *context, unsigned flags) { (void)context; (void)flags; return 0; }
int cuCtxSynchronize(void) { BEGIN; return 0; }
int cuStreamCreate(void **stream, unsigned flags) { (void)flags; *stream = (void *)(intptr_t)1; return 0; }
int cuStreamSynchronize(void *stream) { (void)stream; return 0; }

static size_t memory(void) { return (size_t)number_of("STANDIN_MEMORY_MIB", 32) << 20; }
int cuMemGetInfo_v2(size_t *free_now, size_t *total) { *total = memory(); *free_now = *total - used[current]; return 0; }
int cuMemAlloc_v2(Pointer *at, size_t size)
{
    size_t *block;
    BEGIN;
    if (used[current] + size > memory() || (struck("full", current, 0) && size > 4096)) return 2;
    block = malloc(size + 16);
    if (!block) return 2;
    block[0] = size;
    used[current] += size;
    *at = (Pointer)(uintptr_t)(block + 2);
    return 0;
}
int cuMemFree_v2(Pointer at)
{
    size_t *block = (size_t *)(uintptr_t)at - 2;
    used[current] -= block[0];
    free(block);
    return 0;
}
int cuMemAllocHost_v2(void **at, size_t size) { *at = malloc(size); return *at ? 0 : 2; }
int cuMemsetD8_v2(Pointer at, unsigned char byte, size_t size) { BEGIN; memset((void *)(uintptr_t)at, byte, size); return 0; }

int cuMemcpyHtoD_v2(Pointer to, const void *from, size_t size)
{
    BEGIN;
    memcpy((void *)(uintptr_t)to, from, size);
    SPEND(size / 25e9);
    return 0;
}
int cuMemcpyDtoH_v2(void *to, Pointer from, size_t size)
{
    BEGIN;
    memcpy(to, (void *)(uintptr_t)from, size);
    if (size > 4096 && struck("host-copy", current, 0)) ((unsigned char *)to)[4097] ^= 1;
    SPEND(size / 20e9);
    return 0;
}
int cuMemcpyHtoDAsync_v2(Pointer to, const void *from, size_t size, void *stream) { (void)stream; return cuMemcpyHtoD_v2(to, from, size); }
int cuMemcpyDtoHAsync_v2(void *to, Pointer from, size_t size, void *stream) { (void)stream; return cuMemcpyDtoH_v2(to, from, size); }
int cuMemcpyDtoDAsync_v2(Pointer to, Pointer from, size_t size, void *stream)
{
    (void)stream;
    BEGIN;
    memcpy((void *)(uintptr_t)to, (void *)(uintptr_t)from, size);
    if (struck("copy", current, 0)) ((uint32_t *)(uintptr_t)to)[size / 8] ^= 0x00400000;
    SPEND(2.0 * size / 2e12);
    return 0;
}
int cuMemcpyPeerAsync(Pointer to, void *there, Pointer from, void *here, size_t size, void *stream)
{
    (void)stream; (void)here;
    BEGIN;
    memcpy((void *)(uintptr_t)to, (void *)(uintptr_t)from, size);
    if (struck("peer-copy", (int)(intptr_t)there - 1, 0)) ((uint32_t *)(uintptr_t)to)[77] = 0;
    SPEND(size / 300e9);
    return 0;
}

struct Event { double at_s; };
int cuEventCreate(struct Event **event, unsigned flags) { (void)flags; *event = calloc(1, sizeof **event); return 0; }
int cuEventRecord(struct Event *event, void *stream) { (void)stream; event->at_s = now_s[current]; return 0; }
int cuEventSynchronize(struct Event *event) { (void)event; BEGIN; return 0; }
int cuEventElapsedTime(float *took_ms, struct Event *first, struct Event *second)
{
    *took_ms = (float)((second->at_s - first->at_s) * 1e3);
    return 0;
}

static const char *const KERNELS[] = {"muster_fill", "muster_check", "muster_matmul"};
int cuModuleLoadData(void **module, const char *text)
{
    BEGIN;
    *module = (void *)(intptr_t)1;
    return strncmp(text, ".version ", 9) ? 218 : 0;
}
int cuModuleGetFunction(const char **function, void *module, const char *name)
{
    (void)module;
    for (size_t i = 0; i < sizeof KERNELS / sizeof *KERNELS; i++)
        if (!strcmp(KERNELS[i], name)) { *function = KERNELS[i]; return 0; }
    return 500;
}

static uint32_t word(uint64_t i, uint32_t mul, uint32_t add, uint32_t flip)
{
    return ((uint32_t)i * mul + add + (uint32_t)(i >> 32)) ^ flip;
}

static void fill(void **given)
{
    uint32_t *at = *(uint32_t **)given[0];
    uint64_t words = *(uint64_t *)given[1];
    for (uint64_t i = 0; i < words; i++) at[i] = word(i, *(uint32_t *)given[2], *(uint32_t *)given[3], *(uint32_t *)given[4]);
    if (struck("stuck-bit", current, 0) && words > 70000) at[70000] &= ~0x80u;
    SPEND(4.0 * words / 2e12);
}

static void check(void **given)
{
    uint32_t *at = *(uint32_t **)given[0];
    uint64_t words = *(uint64_t *)given[1], *out = *(uint64_t **)given[5];
    for (uint64_t i = 0; i < words; i++) {
        uint32_t wrong = at[i] ^ word(i, *(uint32_t *)given[2], *(uint32_t *)given[3], *(uint32_t *)given[4]);
        if (!wrong) continue;
        out[0]++;
        out[1] |= wrong;
        if (i < out[2]) out[2] = i;
    }
    out[3] += words;
    SPEND(4.0 * words / 2e12);
}

static void matmul(void **given)
{
    float *c = *(float **)given[0], *a = *(float **)given[1], *b = *(float **)given[2];
    uint32_t n = *(uint32_t *)given[3];
    memset(c, 0, 4ul * n * n);
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = 0; k < n; k++)
            for (uint32_t j = 0; j < n; j++) c[i * n + j] += a[i * n + k] * b[k * n + j];
    if (struck("bit-flip", current, 0)) ((uint32_t *)c)[5 * n + 17] ^= 1u << 20;
    if (struck("nan", current, 0)) c[(n - 1) * n + 3] = NAN;
    SPEND(2.0 * n * n * n / 20e12);
}

int cuLaunchKernel(const char *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared,
                   void *stream, void **given, void **extra)
{
    (void)gz; (void)by; (void)bz; (void)shared; (void)stream; (void)extra;
    BEGIN;
    if (bx != 256) return 1;
    if (struck("no-kernel", current, 0)) { SPEND(1e-6); return 0; }
    if (!strcmp(function, "muster_fill")) fill(given);
    else if (!strcmp(function, "muster_check")) check(given);
    else if (gx != *(unsigned *)given[3] / 64 || gy != gx) return 1;
    else matmul(given);
    return 0;
}
