/* A stand-in for libcublas.so: cuBLAS's symbols and argument layouts. The stand-in for
 * the driver, which PLX_CUDA names, puts the products on its streams.
 *
 * It is stricter than cuBLAS: a product needs a workspace of the caller's that was set
 * after the stream, and precise numbers. FAILING names a function that fails. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NOT_INITIALIZED = 1, ALLOC_FAILED = 3, INVALID_VALUE = 7, EXECUTION_FAILED = 13, NOT_SUPPORTED = 15 };
enum { HANDLE = 0x4842, DEFAULT_MATH = 0, LEAST_WORKSPACE = 4 << 20 };

struct handle {
	int magic, mode;
	void *stream;
	uint64_t workspace, room;
};

struct product {
	uint32_t size, turn_a, turn_b, m, n, k, lda, ldb, ldc, count;
	uint64_t a, b, c, step_a, step_b, step_c, workspace, room;
	double alpha, beta;
};

static int (*put)(void *stream, int (*work)(const void *), const void *data, size_t length);
static int (*memory)(size_t *available, size_t *total); /* a call that wants a context */
static void (*log_line)(const char *call, const char *format, ...);

static int complain(const char *call, const char *what, int status) {
	if (log_line)
		log_line(call, "%s", what);
	return status;
}

static struct { int known, major; char failing[64]; } options;

/* fails reads the file beside the library with ".options" after its name, once. */
static int fails(const char *call) {
	char name[4200];
	Dl_info found;
	if (!options.known && dladdr(&options, &found)) {
		snprintf(name, sizeof name, "%s.options", found.dli_fname);
		FILE *file = fopen(name, "r");
		options.known = file && fscanf(file, "%d %63s", &options.major, options.failing) == 2;
		if (file)
			fclose(file);
	}
	return strcmp(call, options.failing) == 0;
}

#define BEGIN if (fails(__func__)) return EXECUTION_FAILED
#define CHECK(h) BEGIN; if ((h) == NULL || (h)->magic != HANDLE) return complain(__func__, "an invalid handle", NOT_INITIALIZED)

int cublasGetProperty(int type, int *value) {
	BEGIN;
	const int version[] = {options.major, 4, 5};
	if (type < 0 || type > 2)
		return INVALID_VALUE;
	*value = version[type];
	return 0;
}

int cublasCreate_v2(struct handle **h) {
	BEGIN;
	const char *driver = getenv("PLX_CUDA");
	void *library = driver ? dlopen(driver, RTLD_NOW | RTLD_NOLOAD) : NULL;
	if (library == NULL)
		return complain(__func__, "the stand-in for the driver is not open", NOT_INITIALIZED);
	*(void **)&put = dlsym(library, "standin_put");
	*(void **)&log_line = dlsym(library, "standin_log");
	*(void **)&memory = dlsym(library, "cuMemGetInfo_v2");
	size_t available, total;
	if (put == NULL || memory == NULL || memory(&available, &total))
		return complain(__func__, "no context is current on this thread", NOT_INITIALIZED);
	*h = calloc(1, sizeof **h);
	(*h)->magic = HANDLE;
	return 0;
}

int cublasDestroy_v2(struct handle *h) {
	CHECK(h);
	h->magic = 0;
	return 0;
}

int cublasSetStream_v2(struct handle *h, void *stream) {
	CHECK(h);
	h->stream = stream;
	h->workspace = h->room = 0; /* the caller's memory is forgotten */
	return 0;
}

int cublasSetWorkspace_v2(struct handle *h, uint64_t workspace, size_t room) {
	CHECK(h);
	if (workspace % 256 || room < LEAST_WORKSPACE)
		return complain(__func__, "the workspace is not aligned, or small", INVALID_VALUE);
	h->workspace = workspace;
	h->room = room;
	return 0;
}

int cublasSetMathMode(struct handle *h, int mode) {
	CHECK(h);
	h->mode = mode;
	return 0;
}

/* Each element is added in descending order of k, so that the result is not that of
 * plx's own kernels. The library works in the workspace: what is there is lost. */
#define MULTIPLY(NAME, T) \
	static int NAME(const void *data) { \
		const struct product *p = data; \
		memset((void *)p->workspace, 0xa5, 256); \
		memset((void *)(p->workspace + p->room - 256), 0xa5, 256); \
		log_line("product", "%u x %u x %u", p->m, p->n, p->k); \
		for (uint32_t pair = 0; pair < p->count; pair++) { \
			const T *a = (const T *)p->a + pair * p->step_a, *b = (const T *)p->b + pair * p->step_b; \
			T *c = (T *)p->c + pair * p->step_c; \
			for (uint32_t j = 0; j < p->n; j++) \
				for (uint32_t i = 0; i < p->m; i++) { \
					T sum = 0; \
					for (uint32_t k = p->k; k-- > 0;) \
						sum += a[p->turn_a ? i * p->lda + k : k * p->lda + i] * b[p->turn_b ? k * p->ldb + j : j * p->ldb + k]; \
					c[j * p->ldc + i] = sum; \
				} \
		} \
		return 0; \
	}
MULTIPLY(multiply32, float)
MULTIPLY(multiply64, double)

static int multiply(const char *call, struct handle *h, struct product p) {
	if (h->workspace == 0 || h->mode != DEFAULT_MATH)
		return complain(call, "no workspace, or a mode that rounds", NOT_SUPPORTED);
	if ((int)p.m <= 0 || (int)p.n <= 0 || (int)p.k <= 0 || (int)p.count <= 0 || p.turn_a > 1 || p.turn_b > 1)
		return complain(call, "a size or an operation", INVALID_VALUE);
	if (p.lda < (p.turn_a ? p.k : p.m) || p.ldb < (p.turn_b ? p.n : p.k) || p.ldc < p.m)
		return complain(call, "a leading dimension", INVALID_VALUE);
	if (p.alpha != 1 || p.beta != 0)
		return complain(call, "alpha is not 1, or beta not 0", INVALID_VALUE);
	p.workspace = h->workspace;
	p.room = h->room;
	return put(h->stream, p.size == 4 ? multiply32 : multiply64, &p, sizeof p) ? EXECUTION_FAILED : 0;
}

#define GEMM(NAME, T) \
	int NAME##_v2(struct handle *h, int ta, int tb, int m, int n, int k, const T *alpha, uint64_t a, int lda, uint64_t b, int ldb, \
		const T *beta, uint64_t c, int ldc) { \
		CHECK(h); \
		struct product p = {sizeof(T), ta, tb, m, n, k, lda, ldb, ldc, 1, a, b, c, 0, 0, 0, 0, 0, *alpha, *beta}; \
		return multiply(__func__, h, p); \
	} \
	int NAME##StridedBatched(struct handle *h, int ta, int tb, int m, int n, int k, const T *alpha, uint64_t a, int lda, long long sa, \
		uint64_t b, int ldb, long long sb, const T *beta, uint64_t c, int ldc, long long sc, int count) { \
		CHECK(h); \
		struct product p = {sizeof(T), ta, tb, m, n, k, lda, ldb, ldc, count, a, b, c, sa, sb, sc, 0, 0, *alpha, *beta}; \
		return multiply(__func__, h, p); \
	}
GEMM(cublasSgemm, float)
GEMM(cublasDgemm, double)
