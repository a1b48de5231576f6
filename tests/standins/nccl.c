/* A stand-in for libnccl.so.2 over the stand-in for libcuda: sums over all ranks, really, in the order of the ranks.
 *
 * Faults, as in cuda.c: missing-rank (the sum lacks STANDIN_FAULT_GPU's numbers), sum-nan (that rank gets one NaN), hang:CALL, fail:CALL:CODE.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

int standin_call(const char *name, int device);
int standin_struck(const char *name, int device);
void standin_spend(int device, double seconds);

struct Comm { int device; };
static struct { const float *from; float *to; size_t count; int device; } asked[16];
static int waiting;

int ncclCommInitAll(struct Comm **comms, int count, const int *devices)
{
    int code = standin_call(__func__, -1);
    for (int i = 0; i < count; i++) {
        comms[i] = malloc(sizeof **comms);
        comms[i]->device = devices[i];
    }
    return code;
}
int ncclGroupStart(void) { waiting = 0; return 0; }
int ncclAllReduce(const void *from, void *to, size_t count, int type, int operation, struct Comm *comm, void *stream)
{
    (void)stream;
    if (type != 7 || operation != 0) return 4;
    asked[waiting].from = from;
    asked[waiting].to = to;
    asked[waiting].count = count;
    asked[waiting++].device = comm->device;
    return 0;
}
int ncclGroupEnd(void)
{
    int code = standin_call(__func__, -1);
    size_t count = asked[0].count;
    float *sum = calloc(count, sizeof *sum);
    for (int rank = 0; rank < waiting; rank++)
        for (size_t i = 0; i < count && !standin_struck("missing-rank", asked[rank].device); i++) sum[i] += asked[rank].from[i];
    for (int rank = 0; rank < waiting; rank++) {
        memcpy(asked[rank].to, sum, 4 * count);
        if (standin_struck("sum-nan", asked[rank].device)) asked[rank].to[count / 2] = NAN;
    }
    int slow = 0;  /* all wait for the slowest */
    for (int rank = 0; rank < waiting; rank++) slow |= standin_struck("slow", asked[rank].device);
    for (int rank = 0; rank < waiting; rank++)
        standin_spend(asked[rank].device, 4.0 * count * 2 * (waiting - 1) / waiting / 400e9 / (slow && !standin_struck("slow", asked[rank].device) ? 0.7 : 1));
    free(sum);
    return code;
}
