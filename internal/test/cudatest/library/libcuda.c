/* A stand-in for libcuda.so.1: the driver's symbols and argument layouts. Kernels are
 * the same sources, compiled for the CPU: see host.cuh. doc.go says what it checks.
 *
 * The file beside the library with ".options" after its name says what it claims; what
 * goes wrong is added to the one with ".log". */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3, NO_DEVICE = 100, INVALID_DEVICE = 101, INVALID_CONTEXT = 201,
	INVALID_PTX = 218, UNSUPPORTED_PTX = 222, INVALID_HANDLE = 400, NOT_FOUND = 500, NOT_READY = 600, ILLEGAL_ADDRESS = 700,
	CAPTURE_UNSUPPORTED = 900
};
enum kind { IN, OUT, LAUNCH, OTHER, WAIT, RECORD };
enum { STREAM = 0x5354, EVENT = 0x4556, GRAPH = 0x4752, CONTEXT = 0x4358, MODULE = 0x4d4f, FUNCTION = 0x4655 };
enum { GUARD = 256, GUARD_BYTE = 0xfa, UNDEFINED = 0xa5 };

struct event { int magic; uint64_t recorded, completed; }; /* how often it was recorded, and how often that was reached */

struct function {
	int magic;
	void (*run)(const char *params);
	unsigned bytes;
	char name[64];
};

struct op {
	enum kind kind;
	uint64_t device, length, target;
	void *host;
	struct event *event;
	struct function *function;
	int (*other)(const void *);
	unsigned grid[3], block[3];
	char params[512];
	struct op *next;
};

struct list { struct op *first, **last; };

struct stream {
	int magic;
	struct list queue;
	struct graph *captured; /* not NULL: work is recorded instead */
	struct stream *next;
};

struct graph { int magic; struct list work; };

struct module { int magic; char *source; };

/* memory is pinned memory, or the GPU's: the latter lies between guards. */
struct memory {
	char *begin;
	size_t length;
	struct memory *next;
};

const char *cuda_run(void (*kernel)(const char *), const char *params, const unsigned grid[3], const unsigned block[3]);

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct { unsigned long memory; int version, capable, noptx, seed, fault, stuck, eager; } options;
static char file[4096];
static void *self;
static int ready, fault, launched;
static size_t used, pace;
static int context = CONTEXT;
static __thread int *current;
static struct stream *streams;
static struct memory *pins, *blocks;

void standin_log(const char *call, const char *format, ...) {
	char name[sizeof file + 10], text[512];
	va_list more;
	va_start(more, format);
	vsnprintf(text, sizeof text, format, more);
	va_end(more);
	snprintf(name, sizeof name, "%s.log", file);
	FILE *log = fopen(name, "a");
	fprintf(log ? log : stderr, "%s: %s\n", call, text);
	if (log)
		fclose(log);
}

#define BEGIN pthread_mutex_lock(&lock)
#define END(code) do { int result = (code); pthread_mutex_unlock(&lock); return result; } while (0)
/* WITH_CONTEXT begins a call that needs a current context. */
#define WITH_CONTEXT \
	BEGIN; \
	if (current != &context) { standin_log(__func__, "no context is current on this thread"); END(INVALID_CONTEXT); } \
	if (fault) END(fault)
#define CHECK(p, kind) if ((p) == NULL || *(int *)(p) != (kind)) { standin_log(__func__, "an invalid handle"); END(INVALID_HANDLE); }
#define REFUSE(call, what) do { standin_log(call, what); END(INVALID_VALUE); } while (0)

/* make makes a handle. */
static int make(void *to, int magic, size_t size) {
	*(int **)to = calloc(1, size);
	**(int **)to = magic;
	return 0;
}

int cuInit(unsigned flags) {
	BEGIN;
	Dl_info found;
	if (ready || flags)
		END(flags ? INVALID_VALUE : 0);
	if (!dladdr(&context, &found))
		END(NO_DEVICE);
	snprintf(file, sizeof file, "%s", found.dli_fname);
	self = dlopen(file, RTLD_NOW | RTLD_NOLOAD);
	char name[sizeof file + 10];
	snprintf(name, sizeof name, "%s.options", file);
	FILE *from = fopen(name, "r");
	if (from == NULL || self == NULL)
		END(NO_DEVICE);
	ready = fscanf(from, "%lu %d %d %d %d %d %d %d", &options.memory, &options.version, &options.capable, &options.noptx,
		&options.seed, &options.fault, &options.stuck, &options.eager) == 8;
	fclose(from);
	pace = options.seed;
	END(ready ? 0 : NO_DEVICE);
}

int cuDriverGetVersion(int *version) { *version = options.version; return 0; }

int cuGetErrorName(int code, const char **name) {
	static const char *const names[] = {
		[INVALID_VALUE] = "CUDA_ERROR_INVALID_VALUE", [OUT_OF_MEMORY] = "CUDA_ERROR_OUT_OF_MEMORY", [NO_DEVICE] = "CUDA_ERROR_NO_DEVICE",
		[INVALID_DEVICE] = "CUDA_ERROR_INVALID_DEVICE", [INVALID_CONTEXT] = "CUDA_ERROR_INVALID_CONTEXT",
		[INVALID_PTX] = "CUDA_ERROR_INVALID_PTX", [UNSUPPORTED_PTX] = "CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
		[INVALID_HANDLE] = "CUDA_ERROR_INVALID_HANDLE", [NOT_FOUND] = "CUDA_ERROR_NOT_FOUND", [NOT_READY] = "CUDA_ERROR_NOT_READY",
		[ILLEGAL_ADDRESS] = "CUDA_ERROR_ILLEGAL_ADDRESS", [CAPTURE_UNSUPPORTED] = "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
	};
	*name = code > 0 && (size_t)code < sizeof names / sizeof *names ? names[code] : NULL;
	return *name ? 0 : INVALID_VALUE;
}

int cuDeviceGet(int *device, int index) {
	if (!ready)
		return NOT_INITIALIZED;
	*device = 7; /* a handle, and not the index */
	return index == 0 ? 0 : INVALID_DEVICE;
}

#define RETURN(device) return (device) == 7 ? 0 : INVALID_DEVICE
int cuDeviceGetName(char *name, int length, int device) { snprintf(name, length, "Stand-in GPU"); RETURN(device); }

int cuDeviceGetAttribute(int *value, int attribute, int device) {
	*value = attribute == 75 ? options.capable / 10 : attribute == 76 ? options.capable % 10 : 0;
	RETURN(device);
}

int cuDevicePrimaryCtxRetain(void **c, int device) { *c = &context; RETURN(device); }

int cuCtxSetCurrent(void *c) {
	current = c;
	return c == &context ? 0 : INVALID_CONTEXT;
}

static void note(struct memory **list, char *begin, size_t length) {
	struct memory *new = malloc(sizeof *new);
	*new = (struct memory){begin, length, *list};
	*list = new;
	memset(begin, UNDEFINED, length); /* nothing that anybody would take for a result */
}

/* forget takes memory that begins there from a list. */
static struct memory *forget(struct memory **list, const void *begin) {
	for (struct memory **at = list; *at; at = &(*at)->next)
		if ((*at)->begin == begin) {
			struct memory *found = *at;
			*at = found->next;
			return found;
		}
	return NULL;
}

static int inside(const struct memory *list, const void *p, size_t n) {
	for (; list; list = list->next)
		if ((char *)p >= list->begin && (char *)p + n <= list->begin + list->length)
			return 1;
	return 0;
}

/* busy says whether work is left on any stream. */
static int busy(void) {
	for (struct stream *s = streams; s; s = s->next)
		if (s->queue.first)
			return 1;
	return 0;
}

/* trampled says whether anything was written around the GPU's memory. */
static int trampled(void) {
	for (struct memory *m = blocks; m; m = m->next)
		for (int i = 0; i < GUARD; i++)
			if ((unsigned char)m->begin[-1 - i] != GUARD_BYTE || (unsigned char)m->begin[m->length + i] != GUARD_BYTE)
				return 1;
	return 0;
}

int cuMemAlloc_v2(uint64_t *address, size_t bytes) {
	WITH_CONTEXT;
	if (bytes == 0 || used + bytes > options.memory)
		END(bytes ? OUT_OF_MEMORY : INVALID_VALUE);
	char *p = aligned_alloc(256, (2 * GUARD + bytes + 255) / 256 * 256);
	memset(p, GUARD_BYTE, GUARD);
	memset(p + GUARD + bytes, GUARD_BYTE, GUARD);
	note(&blocks, p + GUARD, bytes);
	used += bytes;
	*address = (uint64_t)(p + GUARD);
	END(0);
}

int cuMemFree_v2(uint64_t address) {
	WITH_CONTEXT;
	struct memory *m = busy() ? NULL : forget(&blocks, (void *)address);
	if (m == NULL)
		REFUSE(__func__, "memory that was not allocated, or while work is left on a stream");
	used -= m->length;
	free(m->begin - GUARD);
	free(m);
	END(0);
}

int cuMemGetInfo_v2(size_t *available, size_t *total) {
	WITH_CONTEXT;
	*available = options.memory - used;
	*total = options.memory;
	END(0);
}

int cuMemHostAlloc(void **p, size_t bytes, unsigned flags) {
	WITH_CONTEXT;
	*p = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
	note(&pins, *p, bytes);
	END(0);
}

int cuMemFreeHost(void *p) {
	WITH_CONTEXT;
	struct memory *m = busy() ? NULL : forget(&pins, p);
	if (m == NULL)
		REFUSE(__func__, "no pinned memory, or still in use");
	free(m->begin);
	free(m);
	END(0);
}

static void append(struct list *l, const struct op *from) {
	struct op *new = malloc(sizeof *new);
	*new = *from;
	new->next = NULL;
	if (l->first == NULL)
		l->last = &l->first;
	*l->last = new;
	l->last = &new->next;
}

static int run(struct op *o) {
	if (o->kind == OTHER)
		return o->other(o->params);
	if (o->kind == RECORD)
		o->event->completed = o->target;
	if (o->kind == RECORD || o->kind == WAIT)
		return 0;
	const char *wrong = NULL, *name = "copy";
	if (o->kind == LAUNCH) {
		name = o->function->name;
		wrong = ++launched == options.fault ? "the fault that the test asked for" : cuda_run(o->function->run, o->params, o->grid, o->block);
	} else if (!inside(blocks, (void *)o->device, o->length))
		wrong = "the memory is not the gpu's";
	else
		memcpy(o->kind == IN ? (void *)o->device : o->host, o->kind == IN ? o->host : (void *)o->device, o->length);
	if (wrong == NULL && trampled())
		wrong = "it has written outside of allocated memory";
	if (wrong)
		standin_log(name, "%s", wrong);
	return wrong ? ILLEGAL_ADDRESS : 0;
}

/* advance runs the first piece of work of a stream, if it waits for nothing. */
static int advance(struct stream *s) {
	struct op *o = s->queue.first;
	if (o == NULL || (o->kind == WAIT && o->event->completed < o->target))
		return 0;
	s->queue.first = o->next;
	int code = run(o);
	if (code)
		fault = code; /* every later call fails with it */
	free(o);
	return 1;
}

/* work runs a few pieces of work of streams that chance picks. */
static void work(void) {
	for (int left = 4; left > 0 && !fault && options.stuck != 1; left--) {
		struct stream *s = streams;
		pace = pace * 1103515245 + 12345;
		for (unsigned skip = (pace >> 16) % 3; s && skip > 0; skip--)
			s = s->next ? s->next : streams;
		int moved = 0;
		for (struct stream *at = s; at && !moved; at = at->next)
			moved = advance(at);
		for (struct stream *at = streams; at && !moved; at = at->next)
			moved = advance(at);
		if (!moved)
			return;
		options.stuck -= options.stuck > 1;
	}
}

static int put(struct stream *s, const struct op *o) {
	if (s->captured && (o->kind == WAIT || o->kind == RECORD))
		return CAPTURE_UNSUPPORTED;
	append(s->captured ? &s->captured->work : &s->queue, o);
	while (options.eager && !fault && s->queue.first)
		advance(s);
	return fault;
}

static int copy(const char *call, struct stream *s, enum kind kind, uint64_t device, void *host, size_t n) {
	WITH_CONTEXT;
	CHECK(s, STREAM);
	if (!inside(pins, host, n))
		REFUSE(call, "the host's memory is not pinned");
	struct op o = {.kind = kind, .device = device, .host = host, .length = n};
	END(put(s, &o));
}

int cuMemcpyHtoDAsync_v2(uint64_t to, void *from, size_t n, struct stream *s) { return copy(__func__, s, IN, to, from, n); }
int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t n, struct stream *s) { return copy(__func__, s, OUT, from, to, n); }

int cuLaunchKernel(struct function *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared,
	struct stream *s, void **params, void **extra) {
	WITH_CONTEXT;
	CHECK(s, STREAM);
	CHECK(f, FUNCTION);
	if (gx * bx == 0 || gy * by == 0 || gz * bz == 0 || gy > 65535 || gz > 65535 || (uint64_t)bx * by * bz > 1024 || shared || params)
		REFUSE(f->name, "a shape that no gpu runs, or parameters one by one");
	struct op o = {.kind = LAUNCH, .function = f, .grid = {gx, gy, gz}, .block = {bx, by, bz}};
	void *block = NULL;
	size_t size = 0;
	for (; extra && *extra; extra += 2)
		if (*extra == (void *)1)
			block = extra[1];
		else if (*extra == (void *)2)
			size = *(size_t *)extra[1];
	if (block == NULL || size != f->bytes || size > sizeof o.params)
		REFUSE(f->name, "the parameters have another size than the kernel's");
	memcpy(o.params, block, size);
	END(put(s, &o));
}

/* standin_put puts other work on a stream, for the stand-in of cuBLAS. */
int standin_put(struct stream *s, int (*other)(const void *), const void *data, size_t length) {
	WITH_CONTEXT;
	CHECK(s, STREAM);
	struct op o = {.kind = OTHER, .other = other};
	memcpy(o.params, data, length < sizeof o.params ? length : sizeof o.params);
	END(put(s, &o));
}

int cuModuleLoadDataEx(struct module **m, const char *source, unsigned count, int *names, void **values) {
	WITH_CONTEXT;
	int major, minor, code = 0;
	const char *version = strstr(source, "\n.version "), *why = "line 1: this is no PTX";
	if (version == NULL || sscanf(version, "\n.version %d.%d", &major, &minor) != 2 || options.noptx)
		code = INVALID_PTX;
	else if (10 * major + minor > 65) {
		code = UNSUPPORTED_PTX;
		why = "the PTX is newer than 6.5";
	}
	for (unsigned i = 0; code && i < count; i++)
		if (names[i] == 5)
			snprintf(values[i], 64, "%s", why);
	if (code)
		END(code);
	make(m, MODULE, sizeof **m);
	(*m)->source = strdup(source);
	END(0);
}

int cuModuleGetFunction(struct function **f, struct module *m, const char *name) {
	WITH_CONTEXT;
	CHECK(m, MODULE);
	char entry[128], run[128], bytes[128];
	snprintf(entry, sizeof entry, ".entry %s(", name);
	snprintf(run, sizeof run, "run_%s", name);
	snprintf(bytes, sizeof bytes, "bytes_%s", name);
	unsigned *size = dlsym(self, bytes);
	if (strstr(m->source, entry) == NULL || size == NULL)
		END(NOT_FOUND);
	make(f, FUNCTION, sizeof **f);
	(*f)->run = (void (*)(const char *))dlsym(self, run);
	(*f)->bytes = *size;
	snprintf((*f)->name, sizeof (*f)->name, "%s", name);
	END(0);
}

int cuStreamCreate(struct stream **s, unsigned flags) {
	WITH_CONTEXT;
	make(s, STREAM, sizeof **s);
	(*s)->next = streams;
	streams = *s;
	END(0);
}

int cuStreamDestroy_v2(struct stream *s) {
	WITH_CONTEXT;
	CHECK(s, STREAM);
	if (s->queue.first)
		REFUSE(__func__, "work is left on the stream");
	struct stream **at = &streams;
	while (*at != s)
		at = &(*at)->next;
	*at = s->next;
	s->magic = 0;
	END(0);
}

int cuStreamWaitEvent(struct stream *s, struct event *e, unsigned flags) {
	WITH_CONTEXT;
	CHECK(s, STREAM);
	CHECK(e, EVENT);
	struct op o = {.kind = WAIT, .event = e, .target = e->recorded};
	END(put(s, &o));
}

int cuEventCreate(struct event **e, unsigned flags) {
	WITH_CONTEXT;
	END(make(e, EVENT, sizeof **e));
}

int cuEventRecord(struct event *e, struct stream *s) {
	WITH_CONTEXT;
	CHECK(s, STREAM);
	CHECK(e, EVENT);
	struct op o = {.kind = RECORD, .event = e, .target = e->recorded + 1};
	int code = put(s, &o);
	if (code == 0)
		e->recorded++;
	END(code);
}

int cuEventQuery(struct event *e) {
	WITH_CONTEXT;
	CHECK(e, EVENT);
	if (e->completed < e->recorded)
		work();
	END(fault ? fault : e->completed < e->recorded ? NOT_READY : 0);
}

int cuEventDestroy_v2(struct event *e) {
	WITH_CONTEXT;
	CHECK(e, EVENT);
	if (e->completed < e->recorded)
		standin_log(__func__, "the event is not done");
	e->magic = 0;
	END(0);
}

int cuStreamBeginCapture_v2(struct stream *s, int mode) {
	WITH_CONTEXT;
	CHECK(s, STREAM);
	END(make(&s->captured, GRAPH, sizeof *s->captured));
}

int cuStreamEndCapture(struct stream *s, struct graph **g) {
	WITH_CONTEXT;
	CHECK(s, STREAM);
	*g = s->captured;
	s->captured = NULL;
	END(*g ? 0 : INVALID_VALUE);
}

int cuGraphInstantiateWithFlags(struct graph **made, struct graph *g, unsigned long long flags) { *made = g; return 0; }

int cuGraphDestroy(struct graph *g) { return 0; }

int cuGraphLaunch(struct graph *g, struct stream *s) {
	WITH_CONTEXT;
	CHECK(g, GRAPH);
	CHECK(s, STREAM);
	for (struct op *o = g->work.first; o; o = o->next)
		put(s, o);
	END(fault);
}

int cuGraphExecDestroy(struct graph *g) {
	WITH_CONTEXT;
	CHECK(g, GRAPH);
	g->magic = 0; /* its work stays allocated: tests are short */
	END(0);
}
