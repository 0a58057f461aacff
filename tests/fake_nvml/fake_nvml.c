/* fake_nvml: a stand-in for libnvidia-ml.so.1 whose machine is a text file.
 *
 * FAKE_NVML_STATE names the state file.  It is looked at on every call (stat, and
 * parsed again if it was replaced), so a test or a fake job changes the machine
 * while a monitor runs.  One record a line, "kind key=value ...", values with
 * spaces in double quotes, '#' starts a comment:
 *
 *   system driver=580.82.07 nvml=13.580.82.07 cuda=13000
 *   gpu  index=0 uuid=GPU-... name="NVIDIA A100-SXM4-40GB" total=42949672960 reserved=... base=...
 *   mig  gpu=0 index=0 gi=7 ci=0 uuid=MIG-... total=... reserved=...
 *   proc gpu=0 pid=1234 start=98765 bytes=4294967296 type=C [mig=0] [show=PID] [sticky=1]
 *   fail fn=nvmlDeviceGetTemperature [gpu=0] code=3      (fn=* for every function)
 *   delay fn=nvmlDeviceGetMemoryInfo [gpu=0] us=200000
 *   link a=0 b=1 level=20 [p2p=0]
 *   acct gpu=0 pid=1234 start=98765 max=... gpuutil=55 started=... ended=...
 *   event seq=1 gpu=0 type=8 data=79
 *
 * FAKE_NVML_CALLS names a file that grows by a byte with every call.
 *
 * A number may be NA: on a gpu line the query is then NOT_SUPPORTED, and for bytes= of
 * a proc line NVML reports "not available" (real=... says what the process holds).
 *
 * As with the real driver, a process that is gone (or a zombie, or whose pid now
 * belongs to another process) holds no memory and is not listed: a proc record
 * counts only while /proc/PID/stat has the same start time, unless sticky=1.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#ifdef FAKE_NVML_ABI_CHECK
#define NVML_NO_UNVERSIONED_FUNC_DEFS
#include <nvml.h>
#else
#include "nvml_abi.h"
#endif

typedef unsigned int u32;
typedef unsigned long long u64;
#define NA64 (~0ULL)
#define NOINST 0xFFFFFFFFu
#define MAXKV 48
#define MAXDEV 64
#define MAXMIG 16

_Static_assert(sizeof(nvmlMemory_v2_t) == 40, "nvmlMemory_v2 is 0x02000028");
_Static_assert(sizeof(nvmlProcessInfo_v1_t) == 16, "");
_Static_assert(sizeof(nvmlProcessInfo_v2_t) == 24, "");
_Static_assert(sizeof(nvmlProcessDetail_v1_t) == 32, "");
_Static_assert(sizeof(nvmlProcessDetailList_t) == 24, "");
_Static_assert(sizeof(nvmlProcessUtilizationSample_t) == 32, "");
_Static_assert(sizeof(nvmlAccountingStats_t) == 56, "");
_Static_assert(sizeof(nvmlPciInfo_t) == 68, "");
_Static_assert(sizeof(nvmlEventData_t) == 32, "");
_Static_assert(sizeof(nvmlFieldValue_t) == 40, "");
_Static_assert(sizeof(nvmlDeviceAttributes_t) == 40, "");
_Static_assert(sizeof(nvmlTemperature_t) == 12, "");

/* ------------------------------------------------------------ state file -- */
typedef struct { const char *kind; int n; const char *k[MAXKV], *v[MAXKV]; } Rec;
static struct { char *text; Rec *rec; int n; struct stat st; int ok; } S;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int refs;                       /* nvmlInit count, like the real one */

static void parse(char *p)
{
    int cap = 0;
    S.n = 0;
    while (*p) {
        char *end = strchrnul(p, '\n');
        int last = !*end;
        *end = 0;
        Rec r = {0};
        while (*p) {
            while (*p == ' ' || *p == '\t' || *p == '\r') p++;
            if (!*p || *p == '#') break;
            char *tok = p, *val = NULL;
            while (*p && *p != ' ' && *p != '\t' && *p != '\r') {
                if (*p == '=' && !val) {
                    *p++ = 0;
                    val = p;
                    if (*p == '"') {
                        val = ++p;
                        p = strchrnul(p, '"');
                        break;
                    }
                } else p++;
            }
            if (*p) *p++ = 0;
            if (!r.kind) r.kind = tok;
            else if (val && r.n < MAXKV) { r.k[r.n] = tok; r.v[r.n++] = val; }
        }
        if (r.kind) {
            if (S.n == cap) {
                cap = cap ? 2 * cap : 64;
                Rec *grown = realloc(S.rec, cap * sizeof(Rec));
                if (!grown) return;
                S.rec = grown;
            }
            S.rec[S.n++] = r;
        }
        if (last) break;
        p = end + 1;
    }
}

static void reload(void)
{
    const char *path = getenv("FAKE_NVML_STATE");
    struct stat st;
    if (!path || stat(path, &st)) { S.ok = 0; return; }
    if (S.ok && st.st_ino == S.st.st_ino && st.st_size == S.st.st_size &&
        st.st_mtim.tv_sec == S.st.st_mtim.tv_sec && st.st_mtim.tv_nsec == S.st.st_mtim.tv_nsec)
        return;
    FILE *f = fopen(path, "re");
    if (!f) { S.ok = 0; return; }
    fstat(fileno(f), &st);             /* of the file we read, not of a later one */
    free(S.text); free(S.rec);
    S.rec = NULL;
    S.n = 0;
    S.text = calloc(1, st.st_size + 1);
    if (S.text && fread(S.text, 1, st.st_size, f) <= (size_t)st.st_size) parse(S.text);
    fclose(f);
    S.st = st;
    S.ok = 1;
}

static const char *gets_(const Rec *r, const char *key, const char *dflt)
{
    for (int i = 0; r && i < r->n; i++)
        if (!strcmp(r->k[i], key)) return r->v[i];
    return dflt;
}
static u64 getn(const Rec *r, const char *key, u64 dflt)
{
    const char *s = gets_(r, key, NULL);
    if (!s) return dflt;
    return strcmp(s, "NA") ? strtoull(s, NULL, 0) : NA64;
}
static const Rec *find(const char *kind, const char *k1, u64 v1, const char *k2, u64 v2)
{
    for (int i = 0; i < S.n; i++) {
        const Rec *r = &S.rec[i];
        if (!strcmp(r->kind, kind) && getn(r, k1, NA64) == v1 && (!k2 || getn(r, k2, NA64) == v2))
            return r;
    }
    return NULL;
}
static u32 count(const char *kind, const char *key, u64 v)
{
    u32 n = 0;
    for (int i = 0; i < S.n; i++)
        n += !strcmp(S.rec[i].kind, kind) && (!key || getn(&S.rec[i], key, NA64) == v);
    return n;
}

/* --------------------------------------------------------------- handles -- */
/* A handle is the address of a cell, so that wild pointers can be refused. */
struct nvmlDevice_st { char pad; };
static struct nvmlDevice_st cells[MAXDEV][MAXMIG + 1];
typedef struct { u32 gpu; int mig; const Rec *g, *m; } Dev;

static nvmlDevice_t handle(u32 gpu, int mig) { return &cells[gpu][mig + 1]; }
static int decode(nvmlDevice_t h, Dev *d)
{
    uintptr_t a = (uintptr_t)h, base = (uintptr_t)cells;
    if (a < base || a >= base + sizeof cells) return 0;
    u32 i = (a - base) / sizeof cells[0][0];
    d->gpu = i / (MAXMIG + 1);
    d->mig = (int)(i % (MAXMIG + 1)) - 1;
    return 1;
}
static int resolve(nvmlDevice_t h, Dev *d)   /* only under the lock */
{
    if (!decode(h, d)) return 0;
    d->g = find("gpu", "index", d->gpu, NULL, 0);
    d->m = d->mig < 0 ? NULL : find("mig", "gpu", d->gpu, "index", d->mig);
    return 1;
}

/* --------------------------------------------------- entering a function -- */
static int rule(const Rec *r, const char *kind, const char *fn, u64 gpu)
{
    const char *f = gets_(r, "fn", "");
    u64 g = getn(r, "gpu", NA64);
    return !strcmp(r->kind, kind) && (!strcmp(f, fn) || !strcmp(f, "*")) && (g == NA64 || g == gpu);
}
/* One byte per call into the file of FAKE_NVML_CALLS, whatever process makes it: its size is their number. */
static void note_call(void)
{
    static int fd = -2;
    if (fd == -2) {
        const char *path = getenv("FAKE_NVML_CALLS");
        fd = path ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600) : -1;
    }
    if (fd >= 0 && write(fd, ".", 1) != 1) fd = -1;
}

/* Lock, look at the state, sleep and fail as it says.  On success the lock is held. */
static nvmlReturn_t enter(const char *fn, u64 gpu, int need_init)
{
    u64 us = 0;
    u32 code = NVML_SUCCESS;
    pthread_mutex_lock(&lock);
    note_call();
    reload();
    if (need_init && !refs) { pthread_mutex_unlock(&lock); return NVML_ERROR_UNINITIALIZED; }
    for (int i = 0; i < S.n; i++) {
        if (rule(&S.rec[i], "delay", fn, gpu)) us += getn(&S.rec[i], "us", 0);
        if (rule(&S.rec[i], "fail", fn, gpu)) code = (u32)getn(&S.rec[i], "code", NVML_ERROR_UNKNOWN);
    }
    if (us) {
        pthread_mutex_unlock(&lock);
        struct timespec t = { us / 1000000, us % 1000000 * 1000 };
        nanosleep(&t, NULL);
        pthread_mutex_lock(&lock);
        reload();
    }
    if (code == NVML_SUCCESS && !S.ok) code = NVML_ERROR_DRIVER_NOT_LOADED;
    if (code) pthread_mutex_unlock(&lock);
    return (nvmlReturn_t)code;
}
static nvmlReturn_t enter_dev(const char *fn, nvmlDevice_t h, Dev *d)
{
    if (!decode(h, d)) return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t r = enter(fn, d->gpu, 1);
    if (r) return r;
    resolve(h, d);
    if (!d->g || getn(d->g, "lost", 0)) r = NVML_ERROR_GPU_IS_LOST;
    else if (d->mig >= 0 && !d->m) r = NVML_ERROR_INVALID_ARGUMENT;
    if (r) pthread_mutex_unlock(&lock);
    return r;
}
static nvmlReturn_t leave(nvmlReturn_t r) { pthread_mutex_unlock(&lock); return r; }

#define ENTER() do { nvmlReturn_t r_ = enter(__func__, NA64, 1); if (r_) return r_; } while (0)
#define ENTER_DEV() Dev d; do { nvmlReturn_t r_ = enter_dev(__func__, device, &d); if (r_) return r_; } while (0)
#define NOT_ON_MIG() do { if (d.m) return leave(NVML_ERROR_NOT_SUPPORTED); } while (0)
#define NEED(p) do { if (!(p)) return NVML_ERROR_INVALID_ARGUMENT; } while (0)

static nvmlReturn_t put_str(char *out, u32 len, const char *s)
{
    if (!out) return NVML_ERROR_INVALID_ARGUMENT;
    if (strlen(s) + 1 > len) return NVML_ERROR_INSUFFICIENT_SIZE;
    strcpy(out, s);
    return NVML_SUCCESS;
}
/* One number of the gpu record; "NA" or absent without default = NOT_SUPPORTED. */
static nvmlReturn_t put_u32(const Rec *r, const char *key, u64 dflt, u32 *out)
{
    u64 v = getn(r, key, dflt);
    if (v == NA64) return NVML_ERROR_NOT_SUPPORTED;
    *out = (u32)v;
    return NVML_SUCCESS;
}

/* ------------------------------------------------- processes and memory -- */
static int alive(const Rec *p)
{
    char path[64], buf[1024], state;
    u64 start = 0, want = getn(p, "start", 0);
    if (getn(p, "sticky", 0)) return 1;
    snprintf(path, sizeof path, "/proc/%llu/stat", getn(p, "pid", 0));
    FILE *f = fopen(path, "re");
    if (!f) return 0;
    size_t n = fread(buf, 1, sizeof buf - 1, f);
    fclose(f);
    buf[n] = 0;
    char *q = strrchr(buf, ')');        /* the command name may hold anything */
    if (!q || sscanf(q + 1, " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u"
                            " %*d %*d %*d %*d %*d %*d %llu", &state, &start) != 2)
        return 0;
    return state != 'Z' && state != 'X' && (!want || want == start);
}
static int on_dev(const Rec *p, const Dev *d)
{
    if (strcmp(p->kind, "proc") || getn(p, "gpu", NA64) != d->gpu) return 0;
    return d->mig < 0 || getn(p, "mig", NA64) == (u64)d->mig;
}
static u64 held(const Rec *p)           /* what it really holds; bytes=NA hides it from NVML only */
{
    u64 b = getn(p, "bytes", 0);
    return getn(p, "real", b == NA64 ? 0 : b);
}
static nvmlReturn_t memory(const Dev *d, u64 *total, u64 *reserved, u64 *used, u64 *fre)
{
    const Rec *r = d->m ? d->m : d->g;
    *total = getn(r, "total", NA64);
    if (*total == NA64) return NVML_ERROR_NOT_SUPPORTED;
    *reserved = getn(r, "reserved", 0);
    *used = getn(r, "base", 0);
    for (int i = 0; i < S.n; i++)
        if (on_dev(&S.rec[i], d) && alive(&S.rec[i])) *used += held(&S.rec[i]);
    if (*used > *total - *reserved) *used = *total - *reserved;
    *fre = *total - *reserved - *used;
    return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *m)
{
    u64 res;
    NEED(m);
    ENTER_DEV();
    nvmlReturn_t r = memory(&d, &m->total, &res, &m->used, &m->free);
    if (!r) m->used += res;             /* version 1 counts the reserved part as used */
    return leave(r);
}
nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *m)
{
    NEED(m);
    if (m->version != (sizeof *m | 2u << 24)) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    ENTER_DEV();
    return leave(memory(&d, &m->total, &m->reserved, &m->used, &m->free));
}
nvmlReturn_t nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t device, nvmlBAR1Memory_t *b)
{
    NEED(b);
    ENTER_DEV();
    b->bar1Total = getn(d.m ? d.m : d.g, "bar1", 256ULL << 20);
    b->bar1Used = 2ULL << 20;
    b->bar1Free = b->bar1Total - b->bar1Used;
    return leave(NVML_SUCCESS);
}

/* kinds: a string of type letters, C compute, G graphics, M MPS client.
 * stride: 16 (v1), 24 (v2 and v3) or 32 (what driver 535.43-535.86 wrote for v3). */
static nvmlReturn_t processes(const Dev *d, const char *kinds, u32 stride, u32 *n, void *out)
{
    u32 cap = *n, used = 0;
    for (int i = 0; i < S.n; i++) {
        const Rec *p = &S.rec[i];
        if (!on_dev(p, d) || !strchr(kinds, *gets_(p, "type", "C")) || !alive(p)) continue;
        if (out && used < cap) {
            nvmlProcessDetail_v1_t e;   /* the longest layout; the others are its prefixes */
            memset(&e, 0, sizeof e);
            e.pid = (u32)getn(p, "show", getn(p, "pid", 0));
            e.usedGpuMemory = getn(p, "bytes", 0);
            const Rec *m = find("mig", "gpu", d->gpu, "index", getn(p, "mig", NA64));
            e.gpuInstanceId = m ? (u32)getn(m, "gi", 0) : NOINST;
            e.computeInstanceId = m ? (u32)getn(m, "ci", 0) : NOINST;
            memcpy((char *)out + (size_t)used * stride, &e, stride);
        }
        used++;
    }
    *n = used;
    return used > cap || (used && !out) ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}
#define PROCS(NAME, TYPE, KINDS)                                                   \
    nvmlReturn_t NAME(nvmlDevice_t device, u32 *n, TYPE *out)                      \
    {                                                                              \
        NEED(n);                                                                   \
        ENTER_DEV();                                                               \
        u32 stride = sizeof(TYPE);                                                 \
        const Rec *sys = S.n ? find("system", "v3stride", 32, NULL, 0) : NULL;     \
        if (sys && strstr(__func__, "_v3")) {                                      \
            stride = 32;        /* stay inside the caller's array of 24-byte entries */ \
            *n = *n * 24 / 32;                                                     \
        }                                                                          \
        return leave(processes(&d, KINDS, stride, n, out));                        \
    }
PROCS(nvmlDeviceGetComputeRunningProcesses, nvmlProcessInfo_v1_t, "CM")
PROCS(nvmlDeviceGetComputeRunningProcesses_v2, nvmlProcessInfo_v2_t, "CM")
PROCS(nvmlDeviceGetComputeRunningProcesses_v3, nvmlProcessInfo_t, "CM")
PROCS(nvmlDeviceGetGraphicsRunningProcesses, nvmlProcessInfo_v1_t, "G")
PROCS(nvmlDeviceGetGraphicsRunningProcesses_v2, nvmlProcessInfo_v2_t, "G")
PROCS(nvmlDeviceGetGraphicsRunningProcesses_v3, nvmlProcessInfo_t, "G")
PROCS(nvmlDeviceGetMPSComputeRunningProcesses, nvmlProcessInfo_v1_t, "M")
PROCS(nvmlDeviceGetMPSComputeRunningProcesses_v2, nvmlProcessInfo_v2_t, "M")
PROCS(nvmlDeviceGetMPSComputeRunningProcesses_v3, nvmlProcessInfo_t, "M")

nvmlReturn_t nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t device, nvmlProcessDetailList_t *l)
{
    static const char *kinds[] = { "CM", "G", "M", "CGM" };
    NEED(l);
    if (l->version != (sizeof *l | 1u << 24)) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    if (l->mode > 3) return NVML_ERROR_INVALID_ARGUMENT;
    ENTER_DEV();
    return leave(processes(&d, kinds[l->mode], sizeof *l->procArray, &l->numProcArrayEntries, l->procArray));
}
nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device, nvmlProcessUtilizationSample_t *s,
                                             u32 *n, u64 since)
{
    NEED(n);
    ENTER_DEV();
    if (d.m || getn(d.g, "mig", 0)) return leave(NVML_ERROR_NOT_SUPPORTED);
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    u64 now = t.tv_sec * 1000000ULL + t.tv_nsec / 1000;
    u32 cap = *n, used = 0;
    if (!s) { *n = 100; return leave(NVML_ERROR_INSUFFICIENT_SIZE); }
    for (int i = 0; i < S.n; i++) {
        const Rec *p = &S.rec[i];
        u32 sm = (u32)getn(p, "sm", 0);
        if (!on_dev(p, &d) || !sm || now <= since || used >= cap || !alive(p)) continue;
        s[used++] = (nvmlProcessUtilizationSample_t){ .pid = (u32)getn(p, "show", getn(p, "pid", 0)),
            .timeStamp = now, .smUtil = sm, .memUtil = (u32)getn(p, "membw", sm / 2) };
    }
    *n = used;
    return leave(used ? NVML_SUCCESS : NVML_ERROR_NOT_FOUND);
}

/* ------------------------------------------------------------- accounting -- */
nvmlReturn_t nvmlDeviceGetAccountingMode(nvmlDevice_t device, nvmlEnableState_t *mode)
{
    NEED(mode);
    ENTER_DEV();
    u32 v = 0;
    nvmlReturn_t r = put_u32(d.g, "accounting", 0, &v);
    *mode = v;
    return leave(r);
}
nvmlReturn_t nvmlDeviceGetAccountingBufferSize(nvmlDevice_t device, u32 *n)
{
    NEED(n);
    ENTER_DEV();
    *n = 4000;
    return leave(NVML_SUCCESS);
}
nvmlReturn_t nvmlDeviceGetAccountingPids(nvmlDevice_t device, u32 *n, u32 *pids)
{
    NEED(n);
    ENTER_DEV();
    u32 cap = *n, used = 0;
    for (int i = 0; i < S.n; i++)
        if (!strcmp(S.rec[i].kind, "acct") && getn(&S.rec[i], "gpu", NA64) == d.gpu) {
            if (pids && used < cap) pids[used] = (u32)getn(&S.rec[i], "pid", 0);
            used++;
        }
    *n = used;
    return leave(used > cap ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS);
}
nvmlReturn_t nvmlDeviceGetAccountingStats(nvmlDevice_t device, u32 pid, nvmlAccountingStats_t *st)
{
    NEED(st);
    ENTER_DEV();
    const Rec *a = find("acct", "gpu", d.gpu, "pid", pid);
    if (!getn(d.g, "accounting", 0)) return leave(NVML_ERROR_NOT_SUPPORTED);
    if (!a) return leave(NVML_ERROR_NOT_FOUND);
    memset(st, 0, sizeof *st);
    st->gpuUtilization = (u32)getn(a, "gpuutil", 0);
    st->maxMemoryUsage = getn(a, "max", 0);
    st->startTime = getn(a, "started", 0);
    st->isRunning = alive(a);
    st->time = st->isRunning ? 0 : getn(a, "ms", 0);   /* 0 while it runs */
    return leave(NVML_SUCCESS);
}

/* ------------------------------------------------------- init and system -- */
nvmlReturn_t nvmlInitWithFlags(u32 flags)
{
    (void)flags;
    nvmlReturn_t r = enter("nvmlInit", NA64, 0);
    if (r) return r;
    refs++;
    return leave(NVML_SUCCESS);
}
nvmlReturn_t nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
#ifndef FAKE_NVML_ABI_CHECK
nvmlReturn_t nvmlInit(void) { return nvmlInitWithFlags(0); }
#endif
nvmlReturn_t nvmlShutdown(void)
{
    pthread_mutex_lock(&lock);
    if (!refs) return leave(NVML_ERROR_UNINITIALIZED);
    refs--;
    return leave(NVML_SUCCESS);
}
const char *nvmlErrorString(nvmlReturn_t r)
{
    switch ((int)r) {
    case 0: return "Success";
    case 1: return "Uninitialized";
    case 2: return "Invalid Argument";
    case 3: return "Not Supported";
    case 4: return "Insufficient Permissions";
    case 6: return "Not Found";
    case 7: return "Insufficient Size";
    case 9: return "Driver Not Loaded";
    case 10: return "Timeout";
    case 13: return "Function Not Found";
    case 15: return "GPU is lost";
    case 16: return "GPU requires reset";
    case 18: return "Driver/library version mismatch";
    case 25: return "Argument version mismatch";
    default: return "Unknown Error";
    }
}
#define SYS_STR(NAME, KEY, DFLT)                                                   \
    nvmlReturn_t NAME(char *s, u32 len)                                            \
    {                                                                              \
        ENTER();                                                                   \
        const Rec *r = NULL;                                                       \
        for (int i = 0; i < S.n && !r; i++) if (!strcmp(S.rec[i].kind, "system")) r = &S.rec[i]; \
        return leave(put_str(s, len, gets_(r, KEY, DFLT)));                        \
    }
SYS_STR(nvmlSystemGetDriverVersion, "driver", "580.82.07")
SYS_STR(nvmlSystemGetNVMLVersion, "nvml", "13.580.82.07")
nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *v)
{
    NEED(v);
    ENTER();
    *v = 13000;
    for (int i = 0; i < S.n; i++)
        if (!strcmp(S.rec[i].kind, "system")) *v = (int)getn(&S.rec[i], "cuda", 13000);
    return leave(NVML_SUCCESS);
}
nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *v) { return nvmlSystemGetCudaDriverVersion_v2(v); }
nvmlReturn_t nvmlSystemGetProcessName(u32 pid, char *name, u32 len)
{
    char path[64], buf[4096] = "";
    ENTER();
    snprintf(path, sizeof path, "/proc/%u/cmdline", pid);
    FILE *f = fopen(path, "re");
    if (!f) return leave(NVML_ERROR_NOT_FOUND);
    size_t n = fread(buf, 1, sizeof buf - 1, f);
    fclose(f);
    buf[n] = 0;
    if (len) snprintf(name, len, "%s", buf);
    return leave(NVML_SUCCESS);
}

/* -------------------------------------------------------- finding devices -- */
nvmlReturn_t nvmlDeviceGetCount_v2(u32 *n)
{
    NEED(n);
    ENTER();
    *n = count("gpu", NULL, 0);
    return leave(NVML_SUCCESS);
}
static nvmlReturn_t found(const Rec *g, nvmlDevice_t *dev)
{
    u64 i = g ? getn(g, "index", NA64) : NA64;
    if (i >= MAXDEV) return NVML_ERROR_NOT_FOUND;
    if (getn(g, "lost", 0)) return NVML_ERROR_GPU_IS_LOST;
    *dev = handle((u32)i, -1);
    return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(u32 i, nvmlDevice_t *dev)
{
    NEED(dev);
    nvmlReturn_t r = enter(__func__, i, 1);
    if (r) return r;
    const Rec *g = find("gpu", "index", i, NULL, 0);
    return leave(g ? found(g, dev) : NVML_ERROR_INVALID_ARGUMENT);
}
nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *dev)
{
    NEED(dev && uuid);
    ENTER();
    for (int i = 0; i < S.n; i++) {
        const Rec *r = &S.rec[i];
        if (strcmp(gets_(r, "uuid", ""), uuid)) continue;
        if (!strcmp(r->kind, "gpu")) return leave(found(r, dev));
        if (!strcmp(r->kind, "mig")) {
            *dev = handle((u32)getn(r, "gpu", 0), (int)getn(r, "index", 0));
            return leave(NVML_SUCCESS);
        }
    }
    return leave(NVML_ERROR_NOT_FOUND);
}
static void bus_of(const Dev *d, char *out, size_t len)
{
    char dflt[32];
    snprintf(dflt, sizeof dflt, "00000000:%02X:00.0", d->gpu + 1);
    snprintf(out, len, "%s", gets_(d->g, "bus", dflt));
}
nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *bus, nvmlDevice_t *dev)
{
    char mine[32];
    u32 a[4], b[4];
    NEED(dev && bus);
    ENTER();
    if (sscanf(bus, "%x:%x:%x.%x", a, a + 1, a + 2, a + 3) == 4)
        for (u32 i = 0; i < MAXDEV; i++) {
            Dev d;
            resolve(handle(i, -1), &d);
            if (!d.g) continue;
            bus_of(&d, mine, sizeof mine);
            if (sscanf(mine, "%x:%x:%x.%x", b, b + 1, b + 2, b + 3) == 4 && !memcmp(a, b, sizeof a))
                return leave(found(d.g, dev));
        }
    return leave(NVML_ERROR_NOT_FOUND);
}

/* --------------------------------------------------------------- identity -- */
nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *s, u32 len)
{
    char full[160];
    ENTER_DEV();
    const char *name = gets_(d.g, "name", "Fake GPU");
    if (d.m) snprintf(full, sizeof full, "%s MIG %s", name, gets_(d.m, "profile", "1g.10gb"));
    else snprintf(full, sizeof full, "%s", name);
    return leave(put_str(s, len, full));
}
nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *s, u32 len)
{
    char dflt[64];
    ENTER_DEV();
    snprintf(dflt, sizeof dflt, "GPU-00000000-0000-0000-0000-%012u", d.gpu);
    return leave(put_str(s, len, gets_(d.m ? d.m : d.g, "uuid", dflt)));
}
nvmlReturn_t nvmlDeviceGetSerial(nvmlDevice_t device, char *s, u32 len)
{
    ENTER_DEV();
    const char *v = gets_(d.g, "serial", NULL);
    return leave(v ? put_str(s, len, v) : NVML_ERROR_NOT_SUPPORTED);
}
nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, u32 *i)
{
    NEED(i);
    ENTER_DEV();
    *i = d.m ? (u32)d.mig : d.gpu;
    return leave(NVML_SUCCESS);
}
nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *p)
{
    NEED(p);
    ENTER_DEV();
    NOT_ON_MIG();
    memset(p, 0, sizeof *p);
    char bus[32];
    bus_of(&d, bus, sizeof bus);
    sscanf(bus, "%x:%x:%x", &p->domain, &p->bus, &p->device);
    snprintf(p->busId, sizeof p->busId, "%s", bus);
    snprintf(p->busIdLegacy, sizeof p->busIdLegacy, "%04X:%02X:%02X.0", p->domain & 0xffff,
             p->bus & 0xff, p->device & 0xff);
    return leave(NVML_SUCCESS);
}

/* --------------------------------------------- plain numbers of a gpu line -- */
/* MIG: 1 = also answered for a MIG handle.  DFLT NA64 = NOT_SUPPORTED unless the file says. */
#define NUM(NAME, TYPE, KEY, DFLT, MIG)                                            \
    nvmlReturn_t NAME(nvmlDevice_t device, TYPE *out)                              \
    {                                                                              \
        NEED(out);                                                                 \
        ENTER_DEV();                                                               \
        if (!(MIG)) NOT_ON_MIG();                                                  \
        u64 v_ = getn(d.g, KEY, DFLT);                                             \
        if (v_ == NA64) return leave(NVML_ERROR_NOT_SUPPORTED);                    \
        *out = (TYPE)v_;                                                           \
        return leave(NVML_SUCCESS);                                                \
    }
NUM(nvmlDeviceGetMinorNumber, u32, "minor", d.gpu, 0)
NUM(nvmlDeviceGetBrand, nvmlBrandType_t, "brand", 5, 1)
NUM(nvmlDeviceGetArchitecture, nvmlDeviceArchitecture_t, "arch", 7, 1)
NUM(nvmlDeviceGetFanSpeed, u32, "fan", NA64, 0)
NUM(nvmlDeviceGetPowerUsage, u32, "power", 50000, 0)
NUM(nvmlDeviceGetPowerManagementLimit, u32, "limit", 400000, 0)
NUM(nvmlDeviceGetPowerManagementDefaultLimit, u32, "limit", 400000, 0)
NUM(nvmlDeviceGetEnforcedPowerLimit, u32, "limit", 400000, 0)
NUM(nvmlDeviceGetTotalEnergyConsumption, u64, "energy", 0, 0)
NUM(nvmlDeviceGetPerformanceState, nvmlPstates_t, "pstate", 0, 0)
NUM(nvmlDeviceGetCurrentClocksEventReasons, u64, "throttle", 0, 0)
NUM(nvmlDeviceGetCurrentClocksThrottleReasons, u64, "throttle", 0, 0)
NUM(nvmlDeviceGetComputeMode, nvmlComputeMode_t, "computemode", 0, 1)
NUM(nvmlDeviceGetPersistenceMode, nvmlEnableState_t, "persistence", 1, 1)
NUM(nvmlDeviceGetDisplayMode, nvmlEnableState_t, "display", 0, 0)
NUM(nvmlDeviceGetDisplayActive, nvmlEnableState_t, "display", 0, 0)
NUM(nvmlDeviceGetRetiredPagesPendingStatus, nvmlEnableState_t, "retiredpending", NA64, 0)
NUM(nvmlDeviceGetMaxPcieLinkGeneration, u32, "pciegen", 4, 0)
NUM(nvmlDeviceGetMaxPcieLinkWidth, u32, "pciewidth", 16, 0)
NUM(nvmlDeviceGetCurrPcieLinkGeneration, u32, "pciegen", 4, 0)
NUM(nvmlDeviceGetCurrPcieLinkWidth, u32, "pciewidth", 16, 0)
NUM(nvmlDeviceGetNumaNodeId, u32, "numa", NA64, 0)
NUM(nvmlDeviceGetVirtualizationMode, nvmlGpuVirtualizationMode_t, "virt", 0, 0)
NUM(nvmlDeviceGetSupportedEventTypes, u64, "events", 0x1f, 0)

nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor)
{
    NEED(major && minor);
    ENTER_DEV();
    u64 cc = getn(d.g, "cc", 80);
    *major = (int)(cc / 10);
    *minor = (int)(cc % 10);
    return leave(NVML_SUCCESS);
}
nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *u)
{
    NEED(u);
    ENTER_DEV();
    if (d.m || getn(d.g, "mig", 0)) return leave(NVML_ERROR_NOT_SUPPORTED);
    nvmlReturn_t r = put_u32(d.g, "util", 0, &u->gpu);
    if (!r) r = put_u32(d.g, "memutil", 0, &u->memory);
    return leave(r);
}
static nvmlReturn_t codec(const Dev *d, const char *key, u32 *u, u32 *period)
{
    if (d->m || getn(d->g, "mig", 0)) return NVML_ERROR_NOT_SUPPORTED;
    if (period) *period = 167000;
    return put_u32(d->g, key, 0, u);
}
nvmlReturn_t nvmlDeviceGetEncoderUtilization(nvmlDevice_t device, u32 *u, u32 *period)
{ NEED(u); ENTER_DEV(); return leave(codec(&d, "enc", u, period)); }
nvmlReturn_t nvmlDeviceGetDecoderUtilization(nvmlDevice_t device, u32 *u, u32 *period)
{ NEED(u); ENTER_DEV(); return leave(codec(&d, "dec", u, period)); }
nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, nvmlTemperatureSensors_t sensor, u32 *t)
{
    NEED(t);
    if (sensor) return NVML_ERROR_INVALID_ARGUMENT;
    ENTER_DEV();
    NOT_ON_MIG();
    return leave(put_u32(d.g, "temp", 35, t));
}
nvmlReturn_t nvmlDeviceGetTemperatureV(nvmlDevice_t device, nvmlTemperature_t *t)
{
    u32 v = 0;
    NEED(t);
    if (t->version != (sizeof *t | 1u << 24)) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    ENTER_DEV();
    NOT_ON_MIG();
    nvmlReturn_t r = put_u32(d.g, "temp", 35, &v);
    t->temperature = (int)v;
    return leave(r);
}
nvmlReturn_t nvmlDeviceGetTemperatureThreshold(nvmlDevice_t device, nvmlTemperatureThresholds_t k, u32 *t)
{ (void)k; NEED(t); ENTER_DEV(); NOT_ON_MIG(); return leave(put_u32(d.g, "maxtemp", 92, t)); }
nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t device, nvmlClockType_t k, u32 *c)
{ NEED(c); ENTER_DEV(); NOT_ON_MIG(); return leave(put_u32(d.g, k == 2 ? "memclock" : "clock", 1410, c)); }
nvmlReturn_t nvmlDeviceGetMaxClockInfo(nvmlDevice_t device, nvmlClockType_t k, u32 *c)
{ (void)k; NEED(c); ENTER_DEV(); NOT_ON_MIG(); return leave(put_u32(d.g, "maxclock", 1410, c)); }
nvmlReturn_t nvmlDeviceGetPcieThroughput(nvmlDevice_t device, nvmlPcieUtilCounter_t k, u32 *v)
{ NEED(v); ENTER_DEV(); NOT_ON_MIG(); return leave(put_u32(d.g, k ? "pcierx" : "pcietx", 0, v)); }
nvmlReturn_t nvmlDeviceGetCpuAffinity(nvmlDevice_t device, u32 words, unsigned long *set)
{
    NEED(words && set);
    ENTER_DEV();
    memset(set, 0, words * sizeof *set);
    set[0] = (unsigned long)getn(d.g, "cpus", 1);
    return leave(NVML_SUCCESS);
}

/* ----------------------------------------------------------------- health -- */
nvmlReturn_t nvmlDeviceGetEccMode(nvmlDevice_t device, nvmlEnableState_t *cur, nvmlEnableState_t *pend)
{
    NEED(cur && pend);
    ENTER_DEV();
    u64 v = getn(d.g, "ecc", NA64);
    if (v == NA64) return leave(NVML_ERROR_NOT_SUPPORTED);
    *cur = *pend = v;
    return leave(NVML_SUCCESS);
}
nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, nvmlMemoryErrorType_t type,
                                         nvmlEccCounterType_t counter, u64 *n)
{
    NEED(n);
    (void)counter;
    ENTER_DEV();
    NOT_ON_MIG();
    if (getn(d.g, "ecc", NA64) == NA64) return leave(NVML_ERROR_NOT_SUPPORTED);
    *n = getn(d.g, type ? "eccunc" : "ecccorr", 0);
    return leave(NVML_SUCCESS);
}
nvmlReturn_t nvmlDeviceGetRetiredPages(nvmlDevice_t device, nvmlPageRetirementCause_t cause, u32 *n, u64 *addr)
{
    NEED(n);
    ENTER_DEV();
    u64 have = getn(d.g, cause ? "retireddbe" : "retiredsbe", NA64);
    if (d.m || have == NA64) return leave(NVML_ERROR_NOT_SUPPORTED);
    u32 cap = *n;
    *n = (u32)have;
    if (have > cap || (have && !addr)) return leave(NVML_ERROR_INSUFFICIENT_SIZE);
    for (u32 i = 0; i < have; i++) addr[i] = 0x1000ULL * (i + 1);
    return leave(NVML_SUCCESS);
}
nvmlReturn_t nvmlDeviceGetRemappedRows(nvmlDevice_t device, u32 *corr, u32 *unc, u32 *pending, u32 *failed)
{
    NEED(corr && unc && pending && failed);
    ENTER_DEV();
    if (d.m || getn(d.g, "remapunc", NA64) == NA64) return leave(NVML_ERROR_NOT_SUPPORTED);
    *corr = (u32)getn(d.g, "remapcorr", 0);
    *unc = (u32)getn(d.g, "remapunc", 0);
    *pending = (u32)getn(d.g, "remappending", 0);
    *failed = (u32)getn(d.g, "remapfailed", 0);
    return leave(NVML_SUCCESS);
}
nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int n, nvmlFieldValue_t *v)
{
    NEED(v && n > 0);
    ENTER_DEV();
    for (int i = 0; i < n; i++) {
        char key[24];
        snprintf(key, sizeof key, "fi%u", v[i].fieldId);  /* e.g. fi186=71000 on the gpu line */
        u64 x = getn(d.g, key, NA64);
        v[i].nvmlReturn = x == NA64 ? NVML_ERROR_NOT_SUPPORTED : NVML_SUCCESS;
        v[i].valueType = 3;                               /* unsigned long long */
        v[i].value.ullVal = x == NA64 ? 0 : x;
    }
    return leave(NVML_SUCCESS);
}

/* -------------------------------------------------------------------- MIG -- */
nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, u32 *cur, u32 *pend)
{
    NEED(cur && pend);
    ENTER_DEV();
    u64 v = getn(d.g, "mig", NA64);
    if (d.m || v == NA64) return leave(NVML_ERROR_NOT_SUPPORTED);
    *cur = *pend = (u32)v;
    return leave(NVML_SUCCESS);
}
nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, u32 *n)
{
    NEED(n);
    ENTER_DEV();
    *n = getn(d.g, "mig", NA64) == NA64 ? 0 : 7;
    return leave(NVML_SUCCESS);
}
nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, u32 i, nvmlDevice_t *out)
{
    NEED(out);
    ENTER_DEV();
    if (d.m || getn(d.g, "mig", 0) != 1) return leave(NVML_ERROR_NOT_SUPPORTED);
    if (i >= MAXMIG) return leave(NVML_ERROR_INVALID_ARGUMENT);
    if (!find("mig", "gpu", d.gpu, "index", i)) return leave(NVML_ERROR_NOT_FOUND);
    *out = handle(d.gpu, (int)i);
    return leave(NVML_SUCCESS);
}
nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t device, nvmlDevice_t *parent)
{
    NEED(parent);
    ENTER_DEV();
    if (!d.m) return leave(NVML_ERROR_INVALID_ARGUMENT);
    *parent = handle(d.gpu, -1);
    return leave(NVML_SUCCESS);
}
nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, u32 *is)
{ NEED(is); ENTER_DEV(); *is = d.m != NULL; return leave(NVML_SUCCESS); }
nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t device, u32 *id)
{ NEED(id); ENTER_DEV(); return leave(d.m ? put_u32(d.m, "gi", 0, id) : NVML_ERROR_INVALID_ARGUMENT); }
nvmlReturn_t nvmlDeviceGetComputeInstanceId(nvmlDevice_t device, u32 *id)
{ NEED(id); ENTER_DEV(); return leave(d.m ? put_u32(d.m, "ci", 0, id) : NVML_ERROR_INVALID_ARGUMENT); }
nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t device, nvmlDeviceAttributes_t *a)
{
    NEED(a);
    ENTER_DEV();
    if (!d.m) return leave(NVML_ERROR_NOT_SUPPORTED);
    memset(a, 0, sizeof *a);
    a->gpuInstanceSliceCount = a->computeInstanceSliceCount = (u32)getn(d.m, "slices", 1);
    a->memorySizeMB = getn(d.m, "total", 0) >> 20;
    return leave(NVML_SUCCESS);
}

/* --------------------------------------------------------------- topology -- */
static const Rec *link_of(u64 a, u64 b)
{
    const Rec *r = find("link", "a", a, "b", b);
    return r ? r : find("link", "a", b, "b", a);
}
nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t device, nvmlDevice_t other, nvmlGpuTopologyLevel_t *l)
{
    Dev o;
    NEED(l);
    ENTER_DEV();
    if (d.m || !resolve(other, &o) || !o.g) return leave(NVML_ERROR_INVALID_ARGUMENT);
    *l = d.gpu == o.gpu ? 0 : getn(link_of(d.gpu, o.gpu), "level", 50);   /* 50 = SYSTEM */
    return leave(NVML_SUCCESS);
}
nvmlReturn_t nvmlDeviceGetP2PStatus(nvmlDevice_t device, nvmlDevice_t other, nvmlGpuP2PCapsIndex_t k,
                                    nvmlGpuP2PStatus_t *st)
{
    Dev o;
    (void)k;
    NEED(st);
    ENTER_DEV();
    if (d.m || !resolve(other, &o) || !o.g) return leave(NVML_ERROR_INVALID_ARGUMENT);
    *st = getn(link_of(d.gpu, o.gpu), "p2p", 1);   /* 0 OK, 1 chipset not supported */
    return leave(NVML_SUCCESS);
}
nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t device, u32 link, nvmlEnableState_t *on)
{
    NEED(on);
    ENTER_DEV();
    u64 n = getn(d.g, "nvlinks", 0);
    if (!n || link >= n) return leave(NVML_ERROR_NOT_SUPPORTED);
    *on = 1;
    return leave(NVML_SUCCESS);
}
nvmlReturn_t nvmlDeviceGetNvLinkVersion(nvmlDevice_t device, u32 link, u32 *v)
{
    NEED(v);
    ENTER_DEV();
    u64 n = getn(d.g, "nvlinks", 0);
    if (!n || link >= n) return leave(NVML_ERROR_NOT_SUPPORTED);
    *v = 3;
    return leave(NVML_SUCCESS);
}

/* ------------------- exported by a current driver, never supported here -- */
#ifndef FAKE_NVML_ABI_CHECK
#define STUB(NAME) nvmlReturn_t NAME(void) { return NVML_ERROR_NOT_SUPPORTED; }
STUB(nvmlDeviceGetDriverModel)
STUB(nvmlDeviceGetDriverModel_v2)
STUB(nvmlDeviceGetConfComputeMemSizeInfo)
STUB(nvmlDeviceGetFanSpeed_v2)
STUB(nvmlDeviceGetMemoryErrorCounter)
STUB(nvmlDeviceGetProcessesUtilizationInfo)
STUB(nvmlDeviceGetRetiredPages_v2)
STUB(nvmlDeviceGetRowRemapperHistogram)
STUB(nvmlDeviceGetSupportedVgpus)
STUB(nvmlDeviceGetViolationStatus)
STUB(nvmlDeviceGetGspFirmwareMode)
#endif

/* ----------------------------------------------------------------- events -- */
struct nvmlEventSet_st { u64 seen, mask[MAXDEV]; };
static u64 newest(void)
{
    u64 m = 0;
    for (int i = 0; i < S.n; i++)
        if (!strcmp(S.rec[i].kind, "event") && getn(&S.rec[i], "seq", 0) > m) m = getn(&S.rec[i], "seq", 0);
    return m;
}
nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *set)
{
    NEED(set);
    ENTER();
    *set = calloc(1, sizeof **set);
    if (*set) (*set)->seen = newest();  /* only what happens from now on */
    return leave(*set ? NVML_SUCCESS : NVML_ERROR_UNKNOWN);
}
nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, u64 types, nvmlEventSet_t set)
{
    NEED(set);
    ENTER_DEV();
    NOT_ON_MIG();
    if (types & ~getn(d.g, "events", 0x1f)) return leave(NVML_ERROR_NOT_SUPPORTED);
    set->mask[d.gpu] |= types;
    return leave(NVML_SUCCESS);
}
nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *out, u32 ms)
{
    NEED(set && out);
    for (u32 waited = 0;; waited += 5) {
        ENTER();
        const Rec *best = NULL;
        for (int i = 0; i < S.n; i++) {
            const Rec *e = &S.rec[i];
            u64 g = getn(e, "gpu", NA64), seq = getn(e, "seq", 0);
            if (!strcmp(e->kind, "event") && g < MAXDEV && seq > set->seen &&
                (set->mask[g] & getn(e, "type", 0)) && (!best || seq < getn(best, "seq", 0)))
                best = e;
        }
        if (best) {
            set->seen = getn(best, "seq", 0);
            *out = (nvmlEventData_t){ .device = handle((u32)getn(best, "gpu", 0), -1),
                .eventType = getn(best, "type", 0), .eventData = getn(best, "data", 0),
                .gpuInstanceId = NOINST, .computeInstanceId = NOINST };
            return leave(NVML_SUCCESS);
        }
        leave(NVML_SUCCESS);
        if (waited >= ms) return NVML_ERROR_TIMEOUT;
        nanosleep(&(struct timespec){ 0, 5000000 }, NULL);
    }
}
nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set) { free(set); return NVML_SUCCESS; }
