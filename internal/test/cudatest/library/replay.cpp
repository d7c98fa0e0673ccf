// Runs recorded launches with a thread of the system for each CUDA thread, so that
// valgrind sees races and wrong addresses. watch.go describes the file.
//
// Each operand has memory of its own, of exactly its size. Those that a kernel must not
// read have undefined contents.
#include "host.cuh"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

static FILE *file;

static unsigned number() {
	unsigned n;
	if (fread(&n, sizeof n, 1, file) != 1) {
		fprintf(stderr, "replay: the file is cut\n");
		exit(3);
	}
	return n;
}

static void bytes(void *to, size_t n) {
	if (n > 0 && fread(to, n, 1, file) != 1) {
		fprintf(stderr, "replay: the file is cut\n");
		exit(3);
	}
}

static void launch(char **operands) {
	char name[64], params[512];
	unsigned grid[3], block[3], length = number();
	bytes(name, length);
	name[length] = 0;
	for (unsigned &n : grid) n = number();
	for (unsigned &n : block) n = number();
	unsigned pointers = number();
	for (unsigned i = 0; i < pointers; i++) memcpy(params + 8 * i, &operands[number()], 8);
	bytes(params + 8 * pointers, number());
	char run[80];
	snprintf(run, sizeof run, "run_%s", name);
	void (*kernel)(const char *) = (void (*)(const char *))dlsym(RTLD_DEFAULT, run);
	if (kernel == NULL) {
		fprintf(stderr, "replay: there is no kernel %s\n", name);
		exit(3);
	}
	cuda_run(kernel, params, grid, block);
}

int main(int argc, char **argv) {
	file = argc == 2 ? fopen(argv[1], "rb") : NULL;
	if (file == NULL) return 3;
	int wrong = 0;
	for (unsigned left = number(); left > 0; left--) {
		unsigned count = number(), *sizes = new unsigned[count];
		char **operands = new char *[count];
		for (unsigned i = 0; i < count; i++) {
			sizes[i] = number();
			operands[i] = (char *)malloc(sizes[i]);
			if (number()) bytes(operands[i], sizes[i]);
		}
		for (unsigned launches = number(); launches > 0; launches--) launch(operands);
		unsigned results = number();
		for (unsigned i = 0; i < results; i++) {
			char *want = (char *)malloc(sizes[i]);
			bytes(want, sizes[i]);
			if (sizes[i] && memcmp(want, operands[i], sizes[i])) wrong++; // also tells memcheck of undefined results
			free(want);
		}
		for (unsigned i = 0; i < count; i++) free(operands[i]);
		delete[] operands;
		delete[] sizes;
	}
	fprintf(stderr, "replay: %d wrong results\n", wrong);
	return wrong ? 4 : 0;
}
