/* A stand-in for libcuda.so.1: the driver's symbols and argument layouts, with a
 * machine behind a Unix socket instead of a GPU. doc.go says what it checks.
 *
 * A request is two 32-bit numbers, the command and the length of what follows. An
 * answer is two 32-bit numbers, the driver's code and the length of what follows. */
#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum {
	INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3, NO_DEVICE = 100, INVALID_DEVICE = 101,
	INVALID_CONTEXT = 201, INVALID_HANDLE = 400, NOT_READY = 600, CAPTURE_UNSUPPORTED = 900, UNKNOWN = 999
};
enum { HELLO, ALLOC, FREE, INFO, LOAD, UNLOAD, KERNEL, WRITE, READ, COPY, SET, LAUNCH, PRODUCT, WAIT, RECORD };
enum { STREAM = 0x5354, EVENT = 0x4556, GRAPH = 0x4752, CONTEXT = 0x4358, MODULE = 0x4d4f, FUNCTION = 0x4655 };

struct event {
	int magic;
	uint64_t recorded, completed; /* how often it was recorded, and how often that was reached */
};

struct function {
	int magic;
	uint64_t id;
	uint32_t count, bytes, offset[64], size[64];
};

struct op {
	int kind;
	uint64_t to, from, length, target;
	void *host;
	struct event *event;
	struct function *function;
	uint32_t shape[7];
	unsigned char params[4096];
	struct op *next;
};

struct list {
	struct op *first, **last;
};

struct stream {
	int magic;
	struct list queue;
	struct graph *captured; /* not NULL: work is recorded instead */
	struct stream *next;
};

struct graph {
	int magic;
	struct list work;
};

struct module {
	int magic;
	uint64_t id;
};

struct pinned {
	char *begin;
	size_t length;
	struct pinned *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int server = -1, fault;
static unsigned pace;
static int stuck; /* pieces of work until the GPU stops; 0 means that it never does */
static struct { uint64_t total; uint32_t version, major, minor, devices; char name[64]; } facts;
static int context = CONTEXT;
static __thread int *current;
static struct stream *streams;
static struct pinned *pins;

static void complain(const char *call, const char *what) {
	fprintf(stderr, "stand-in libcuda: %s: %s\n", call, what);
}

/* move sends or receives all bytes, and reports whether it could. */
static int move(int out, void *p, size_t n) {
	for (size_t at = 0; at < n;) {
		ssize_t k = out ? send(server, (char *)p + at, n - at, MSG_NOSIGNAL) : recv(server, (char *)p + at, n - at, 0);
		if (k < 0 && errno == EINTR)
			continue;
		if (k <= 0)
			return 0;
		at += k;
	}
	return 1;
}

/* ask sends a request of two parts, and puts the answer into at most n bytes. */
static int ask(uint32_t command, const void *a, uint32_t la, const void *b, uint32_t lb, void *answer, uint32_t n) {
	uint32_t head[2] = {command, la + lb};
	int32_t back[2];
	if (!move(1, head, sizeof head) || !move(1, (void *)a, la) || !move(1, (void *)b, lb) || !move(0, back, sizeof back))
		return UNKNOWN;
	if ((uint32_t)back[1] > n || !move(0, answer, back[1]))
		return UNKNOWN;
	return back[0];
}

#define BEGIN pthread_mutex_lock(&lock)
#define END(code) do { int result = (code); pthread_mutex_unlock(&lock); return result; } while (0)
/* WITH_CONTEXT begins a call that needs a current context. */
#define WITH_CONTEXT \
	BEGIN; \
	if (current != &context) { complain(__func__, "no context is current on this thread"); END(INVALID_CONTEXT); } \
	if (fault) END(fault)
#define CHECK(p, kind) if ((p) == NULL || *(int *)(p) != (kind)) { complain(__func__, "an invalid handle"); END(INVALID_HANDLE); }

int cuInit(unsigned flags) {
	BEGIN;
	if (flags)
		END(INVALID_VALUE);
	if (server >= 0)
		END(0);
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	const char *path = getenv("CUDATEST_SOCKET"), *seed = getenv("CUDATEST_SEED");
	if (path == NULL || strlen(path) >= sizeof address.sun_path)
		END(NO_DEVICE);
	strcpy(address.sun_path, path);
	server = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (server < 0 || connect(server, (struct sockaddr *)&address, sizeof address) < 0) {
		close(server);
		server = -1;
		END(NO_DEVICE);
	}
	pace = seed ? atoi(seed) : 1;
	stuck = getenv("CUDATEST_STUCK") ? atoi(getenv("CUDATEST_STUCK")) : 0;
	END(ask(HELLO, NULL, 0, NULL, 0, &facts, sizeof facts));
}

int cuDriverGetVersion(int *version) { *version = facts.version; return 0; }

int cuGetErrorName(int code, const char **name) {
	switch (code) {
	case INVALID_VALUE: *name = "CUDA_ERROR_INVALID_VALUE"; return 0;
	case OUT_OF_MEMORY: *name = "CUDA_ERROR_OUT_OF_MEMORY"; return 0;
	case NO_DEVICE: *name = "CUDA_ERROR_NO_DEVICE"; return 0;
	case INVALID_DEVICE: *name = "CUDA_ERROR_INVALID_DEVICE"; return 0;
	case INVALID_CONTEXT: *name = "CUDA_ERROR_INVALID_CONTEXT"; return 0;
	case 218: *name = "CUDA_ERROR_INVALID_PTX"; return 0;
	case 222: *name = "CUDA_ERROR_UNSUPPORTED_PTX_VERSION"; return 0;
	case INVALID_HANDLE: *name = "CUDA_ERROR_INVALID_HANDLE"; return 0;
	case 500: *name = "CUDA_ERROR_NOT_FOUND"; return 0;
	case NOT_READY: *name = "CUDA_ERROR_NOT_READY"; return 0;
	case 700: *name = "CUDA_ERROR_ILLEGAL_ADDRESS"; return 0;
	case 716: *name = "CUDA_ERROR_MISALIGNED_ADDRESS"; return 0;
	case 719: *name = "CUDA_ERROR_LAUNCH_FAILED"; return 0;
	case CAPTURE_UNSUPPORTED: *name = "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"; return 0;
	}
	*name = NULL;
	return INVALID_VALUE;
}

int cuDeviceGetCount(int *count) { *count = facts.devices; return server < 0 ? NOT_INITIALIZED : 0; }

int cuDeviceGet(int *device, int index) {
	if (server < 0)
		return NOT_INITIALIZED;
	*device = index + 7; /* a handle, and not the index */
	return index >= 0 && index < (int)facts.devices ? 0 : INVALID_DEVICE;
}

int cuDeviceGetName(char *name, int length, int device) {
	snprintf(name, length, "%s", facts.name);
	return device < 7 ? INVALID_DEVICE : 0;
}

int cuDeviceTotalMem_v2(size_t *bytes, int device) { *bytes = facts.total; return device < 7 ? INVALID_DEVICE : 0; }

int cuDeviceGetAttribute(int *value, int attribute, int device) {
	*value = attribute == 75 ? facts.major : attribute == 76 ? facts.minor : 0;
	return device < 7 ? INVALID_DEVICE : 0;
}

int cuDevicePrimaryCtxRetain(void **c, int device) {
	*c = &context;
	return device < 7 ? INVALID_DEVICE : 0;
}

int cuCtxSetCurrent(void *c) {
	if (c != &context)
		return INVALID_CONTEXT;
	current = c;
	return 0;
}

int cuMemAlloc_v2(uint64_t *address, size_t bytes) {
	WITH_CONTEXT;
	uint64_t n = bytes;
	END(n ? ask(ALLOC, &n, sizeof n, NULL, 0, address, sizeof *address) : INVALID_VALUE);
}

/* busy says whether work is left on any stream. */
static int busy(void) {
	for (struct stream *s = streams; s; s = s->next)
		if (s->queue.first)
			return 1;
	return 0;
}

int cuMemFree_v2(uint64_t address) {
	WITH_CONTEXT;
	if (busy()) {
		complain(__func__, "memory is freed while work is left on a stream");
		END(INVALID_VALUE);
	}
	END(ask(FREE, &address, sizeof address, NULL, 0, NULL, 0));
}

int cuMemGetInfo_v2(size_t *available, size_t *total) {
	WITH_CONTEXT;
	uint64_t answer[2] = {0};
	int code = ask(INFO, NULL, 0, NULL, 0, answer, sizeof answer);
	*available = answer[0];
	*total = answer[1];
	END(code);
}

int cuMemHostAlloc(void **p, size_t bytes, unsigned flags) {
	WITH_CONTEXT;
	struct pinned *new = calloc(1, sizeof *new);
	new->begin = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
	memset(new->begin, 0xa5, bytes); /* undefined contents, and not zeros */
	new->length = bytes;
	new->next = pins;
	pins = new;
	*p = new->begin;
	END(0);
}

int cuMemFreeHost(void *p) {
	WITH_CONTEXT;
	for (struct pinned **at = &pins; *at; at = &(*at)->next)
		if ((*at)->begin == p && !busy()) {
			struct pinned *old = *at;
			*at = old->next;
			free(old->begin);
			free(old);
			END(0);
		}
	complain(__func__, "no pinned memory, or still in use");
	END(INVALID_VALUE);
}

static int is_pinned(const void *p, size_t n) {
	for (struct pinned *at = pins; at; at = at->next)
		if ((char *)p >= at->begin && (char *)p + n <= at->begin + at->length)
			return 1;
	return 0;
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

static int put(struct stream *s, const struct op *o) {
	if (s->captured && (o->kind == WAIT || o->kind == RECORD))
		return CAPTURE_UNSUPPORTED;
	append(s->captured ? &s->captured->work : &s->queue, o);
	return 0;
}

int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t n, struct stream *s) {
	WITH_CONTEXT;
	CHECK(s, STREAM);
	if (!is_pinned(from, n)) {
		complain(__func__, "the host's memory is not pinned");
		END(INVALID_VALUE);
	}
	struct op o = {.kind = WRITE, .to = to, .host = (void *)from, .length = n};
	END(put(s, &o));
}

int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t n, struct stream *s) {
	WITH_CONTEXT;
	CHECK(s, STREAM);
	if (!is_pinned(to, n)) {
		complain(__func__, "the host's memory is not pinned");
		END(INVALID_VALUE);
	}
	struct op o = {.kind = READ, .from = from, .host = to, .length = n};
	END(put(s, &o));
}

int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t n, struct stream *s) {
	WITH_CONTEXT;
	CHECK(s, STREAM);
	struct op o = {.kind = COPY, .to = to, .from = from, .length = n};
	END(put(s, &o));
}

int cuMemsetD8Async(uint64_t to, unsigned char value, size_t n, struct stream *s) {
	WITH_CONTEXT;
	CHECK(s, STREAM);
	struct op o = {.kind = SET, .to = to, .from = value, .length = n};
	END(put(s, &o));
}

/* collect copies the parameters of a launch, given one by one or as a block. */
static int collect(struct op *o, void **params, void **extra) {
	struct function *f = o->function;
	if ((params == NULL) == (extra == NULL) && f->bytes > 0)
		return INVALID_VALUE;
	for (uint32_t i = 0; params && i < f->count; i++)
		memcpy(o->params + f->offset[i], params[i], f->size[i]);
	if (params || f->bytes == 0)
		return 0;
	void *block = NULL;
	size_t size = 0;
	for (; *extra; extra += 2)
		if (*extra == (void *)1)
			block = extra[1];
		else if (*extra == (void *)2)
			size = *(size_t *)extra[1];
		else
			return INVALID_VALUE;
	if (block == NULL || size != f->bytes) {
		complain("cuLaunchKernel", "the parameters' size is not the kernel's");
		return INVALID_VALUE;
	}
	memcpy(o->params, block, size);
	return 0;
}

int cuLaunchKernel(struct function *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared,
	struct stream *s, void **params, void **extra) {
	WITH_CONTEXT;
	CHECK(s, STREAM);
	CHECK(f, FUNCTION);
	if (gx * bx == 0 || gy * by == 0 || gz * bz == 0 || gy > 65535 || gz > 65535 || (uint64_t)bx * by * bz > 1024)
		END(INVALID_VALUE);
	struct op o = {.kind = LAUNCH, .function = f, .shape = {gx, gy, gz, bx, by, bz, shared}};
	int code = collect(&o, params, extra);
	END(code ? code : put(s, &o));
}

/* standin_product puts a product on a stream, for the stand-in of cuBLAS. */
int standin_product(struct stream *s, const void *product, size_t length) {
	WITH_CONTEXT;
	CHECK(s, STREAM);
	struct op o = {.kind = PRODUCT, .length = length};
	if (length > sizeof o.params)
		END(INVALID_VALUE);
	memcpy(o.params, product, length);
	END(put(s, &o));
}

int cuModuleLoadDataEx(struct module **m, const char *source, unsigned count, int *options, void **values) {
	WITH_CONTEXT;
	char answer[8192] = {0};
	int code = ask(LOAD, source, strlen(source), NULL, 0, answer, sizeof answer - 1);
	char *buffer = NULL;
	size_t room = 0;
	for (unsigned i = 0; i < count; i++)
		if (options[i] == 5)
			buffer = values[i];
		else if (options[i] == 6)
			room = (size_t)values[i];
	if (code && buffer && room)
		snprintf(buffer, room, "%s", answer);
	if (code)
		END(code);
	*m = calloc(1, sizeof **m);
	(*m)->magic = MODULE;
	memcpy(&(*m)->id, answer, sizeof (*m)->id);
	END(0);
}

int cuModuleUnload(struct module *m) {
	WITH_CONTEXT;
	CHECK(m, MODULE);
	m->magic = 0;
	END(ask(UNLOAD, &m->id, sizeof m->id, NULL, 0, NULL, 0));
}

int cuModuleGetFunction(struct function **f, struct module *m, const char *name) {
	WITH_CONTEXT;
	CHECK(m, MODULE);
	struct function *new = calloc(1, sizeof *new);
	int code = ask(KERNEL, &m->id, sizeof m->id, name, strlen(name), &new->id, sizeof *new - offsetof(struct function, id));
	new->magic = FUNCTION;
	if (code)
		free(new);
	else
		*f = new;
	END(code);
}

int cuStreamCreate(struct stream **s, unsigned flags) {
	WITH_CONTEXT;
	*s = calloc(1, sizeof **s);
	(*s)->magic = STREAM;
	(*s)->next = streams;
	streams = *s;
	END(0);
}

int cuStreamDestroy_v2(struct stream *s) {
	WITH_CONTEXT;
	CHECK(s, STREAM);
	if (s->queue.first) {
		complain(__func__, "work is left on the stream");
		END(INVALID_VALUE);
	}
	for (struct stream **at = &streams; *at; at = &(*at)->next)
		if (*at == s) {
			*at = s->next;
			break;
		}
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
	*e = calloc(1, sizeof **e);
	(*e)->magic = EVENT;
	END(0);
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

static int run(struct op *o) {
	uint64_t three[3] = {o->to, o->from, o->length};
	struct { uint64_t id; uint32_t shape[7], pad; } launch;
	switch (o->kind) {
	case WRITE:
		return ask(WRITE, &o->to, sizeof o->to, o->host, o->length, NULL, 0);
	case READ:
		return ask(READ, &three[1], 16, NULL, 0, o->host, o->length);
	case COPY:
	case SET:
		return ask(o->kind, three, sizeof three, NULL, 0, NULL, 0);
	case LAUNCH:
		launch.id = o->function->id;
		memcpy(launch.shape, o->shape, sizeof o->shape);
		launch.pad = 0;
		return ask(LAUNCH, &launch, sizeof launch, o->params, o->function->bytes, NULL, 0);
	case PRODUCT:
		return ask(PRODUCT, o->params, o->length, NULL, 0, NULL, 0);
	case RECORD:
		o->event->completed = o->target;
	}
	return 0;
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
	for (int left = 4; left > 0 && !fault && stuck != 1; left--) {
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
		if (stuck > 1)
			stuck--;
	}
}

int cuEventQuery(struct event *e) {
	WITH_CONTEXT;
	CHECK(e, EVENT);
	if (e->completed < e->recorded)
		work();
	if (fault)
		END(fault);
	END(e->completed < e->recorded ? NOT_READY : 0);
}

int cuEventDestroy_v2(struct event *e) {
	WITH_CONTEXT;
	CHECK(e, EVENT);
	if (e->completed < e->recorded)
		complain(__func__, "the event is not done");
	e->magic = 0;
	END(0);
}

int cuStreamBeginCapture_v2(struct stream *s, int mode) {
	WITH_CONTEXT;
	CHECK(s, STREAM);
	s->captured = calloc(1, sizeof *s->captured);
	s->captured->magic = GRAPH;
	END(0);
}

int cuStreamEndCapture(struct stream *s, struct graph **g) {
	WITH_CONTEXT;
	CHECK(s, STREAM);
	*g = s->captured;
	s->captured = NULL;
	END(*g ? 0 : INVALID_VALUE);
}

int cuGraphInstantiateWithFlags(struct graph **made, struct graph *g, unsigned long long flags) {
	WITH_CONTEXT;
	CHECK(g, GRAPH);
	*made = calloc(1, sizeof **made);
	(*made)->magic = GRAPH;
	for (struct op *o = g->work.first; o; o = o->next)
		append(&(*made)->work, o);
	END(0);
}

int cuGraphLaunch(struct graph *g, struct stream *s) {
	WITH_CONTEXT;
	CHECK(g, GRAPH);
	CHECK(s, STREAM);
	for (struct op *o = g->work.first; o; o = o->next)
		append(&s->queue, o);
	END(0);
}

int cuGraphDestroy(struct graph *g) {
	WITH_CONTEXT;
	CHECK(g, GRAPH);
	for (struct op *o = g->work.first, *next; o; o = next) {
		next = o->next;
		free(o);
	}
	g->magic = 0;
	END(0);
}

int cuGraphExecDestroy(struct graph *g) { return cuGraphDestroy(g); }
