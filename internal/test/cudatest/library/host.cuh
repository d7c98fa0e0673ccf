// The words of CUDA C for g++, so that kernels run on the CPU: a thread for each
// CUDA thread of a block, a barrier for BARRIER, blocks one after another.
//
// One file of a library defines CUDA_RUNTIME before it includes this one. Threads are
// fibers there, which take turns, and with CUDA_THREADS threads of the system, which
// valgrind watches. The objects of kernels are the same for both.
#pragma once
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <tuple>

#define KERNEL(threads) extern "C" void
#define DEVICE static __attribute__((always_inline)) inline
#define SHARED // the variables are static: a block has them alone, because blocks take turns

struct Place {
	unsigned x, y, z;
};
extern thread_local struct Here {
	Place thread, block, threads, blocks;
} cuda_here;
extern "C" void cuda_barrier();

#define BARRIER() cuda_barrier()
#define THREAD_X cuda_here.thread.x
#define BLOCK_X cuda_here.block.x
#define BLOCK_Y cuda_here.block.y
#define BLOCK_Z cuda_here.block.z
#define BLOCKS_X cuda_here.blocks.x
#define THREADS_X cuda_here.threads.x

#define __nvvm_sqrt_rn_f(x) sqrtf(x)
#define __nvvm_sqrt_rn_d(x) sqrt(x)

// take reads the next parameter of a block of them: each is aligned to its size.
template <typename T> static T take(const char *params, size_t &at) {
	T x;
	at = (at + sizeof x - 1) / sizeof x * sizeof x;
	memcpy(&x, params + at, sizeof x);
	at += sizeof x;
	return x;
}
template <typename... A> static void call(void (*kernel)(A...), const char *params) {
	size_t at = 0;
	std::tuple<A...> all{take<A>(params, at)...};
	std::apply(kernel, all);
}
template <typename... A> static constexpr unsigned bytes_of(void (*)(A...)) {
	size_t at = 0;
	((at = (at + sizeof(A) - 1) / sizeof(A) * sizeof(A) + sizeof(A)), ...);
	return at;
}

// LAUNCHER makes a kernel callable by its name.
#define LAUNCHER(NAME) \
	extern "C" void run_##NAME(const char *params) { call(NAME, params); } \
	extern "C" const unsigned bytes_##NAME; \
	const unsigned bytes_##NAME = bytes_of(NAME);

// cuda_run runs all blocks of a grid. It returns NULL, or what is wrong with the kernel.
extern "C" const char *cuda_run(void (*kernel)(const char *), const char *params, const unsigned grid[3], const unsigned block[3]);

#ifdef CUDA_RUNTIME
thread_local Here cuda_here;

// each_block calls f for each place in a grid.
template <typename F> static void each_block(const unsigned grid[3], F f) {
	for (unsigned z = 0; z < grid[2]; z++)
		for (unsigned y = 0; y < grid[1]; y++)
			for (unsigned x = 0; x < grid[0]; x++)
				f(Place{x, y, z});
}
static Place place_of(unsigned thread, const unsigned block[3]) {
	return Place{thread % block[0], thread / block[0] % block[1], thread / block[0] / block[1]};
}

#ifdef CUDA_THREADS
#include <pthread.h>

static pthread_barrier_t barrier, turn; // of a block's threads; of them and the caller, before and after a launch
extern "C" void cuda_barrier() { pthread_barrier_wait(&barrier); }

static struct {
	void (*kernel)(const char *);
	const char *params;
	const unsigned *grid, *block;
	unsigned threads;
} job;
static pthread_t threads[1024];

static void *run_thread(void *number) {
	for (;;) {
		pthread_barrier_wait(&turn);
		if (job.kernel == NULL) return NULL;
		each_block(job.grid, [&](Place b) {
			cuda_here = Here{place_of((size_t)number, job.block), b, {job.block[0], job.block[1], job.block[2]}, {job.grid[0], job.grid[1], job.grid[2]}};
			job.kernel(job.params);
			cuda_barrier(); // the next block uses the same shared memory
		});
		pthread_barrier_wait(&turn);
	}
}
extern "C" const char *cuda_run(void (*kernel)(const char *), const char *params, const unsigned grid[3], const unsigned block[3]) {
	unsigned n = block[0] * block[1] * block[2], before = job.threads;
	job = {NULL, params, grid, block, n};
	if (n != before && before > 0) { // the threads end
		pthread_barrier_wait(&turn);
		for (unsigned i = 0; i < before; i++) pthread_join(threads[i], NULL);
	}
	if (n != before) {
		pthread_barrier_init(&barrier, NULL, n);
		pthread_barrier_init(&turn, NULL, n + 1);
		for (unsigned i = 0; i < n; i++) pthread_create(&threads[i], NULL, run_thread, (void *)(size_t)i);
	}
	job.kernel = kernel;
	pthread_barrier_wait(&turn);
	pthread_barrier_wait(&turn);
	return NULL;
}
#else
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <ucontext.h>

enum { FIBERS = 1024, STACK = 64 << 10 };
static struct Fiber {
	ucontext_t context;
	jmp_buf at; // where it goes on
	bool begun, ended;
} fibers[FIBERS];
static Fiber *current;
static jmp_buf scheduler;
static sigjmp_buf fallen;
static void fall(int) { siglongjmp(fallen, 1); }
static void (*running)(const char *);
static const char *parameters;

// pause lets the scheduler go on. A fiber may go on on another thread in the next
// launch, so nothing around it may keep the address of cuda_here.
static __attribute__((noinline)) void pause_fiber() {
	if (!_setjmp(current->at)) _longjmp(scheduler, 1);
}
extern "C" void cuda_barrier() { pause_fiber(); }

static void run_fiber() {
	for (;;) {
		running(parameters);
		current->ended = true;
		pause_fiber();
	}
}
static __attribute__((noinline)) void go_on(Fiber *f) {
	current = f;
	if (_setjmp(scheduler)) return;
	if (f->begun) _longjmp(f->at, 1);
	f->begun = true;
	getcontext(&f->context);
	f->context.uc_stack.ss_sp = malloc(STACK);
	f->context.uc_stack.ss_size = STACK;
	makecontext(&f->context, run_fiber, 0);
	setcontext(&f->context);
}
extern "C" const char *cuda_run(void (*kernel)(const char *), const char *params, const unsigned grid[3], const unsigned block[3]) {
	unsigned n = block[0] * block[1] * block[2];
	const char *wrong = n > FIBERS ? "too many threads" : NULL;
	running = kernel;
	parameters = params;
	struct sigaction catching = {}, before;
	catching.sa_handler = fall;
	catching.sa_flags = SA_ONSTACK;
	sigaction(SIGSEGV, &catching, &before);
	if (sigsetjmp(fallen, 1)) { // no later launch comes: the fibers stay as they are
		sigaction(SIGSEGV, &before, NULL);
		return "an address where no memory is";
	}
	each_block(grid, [&](Place b) {
		unsigned ended = 0;
		for (unsigned i = 0; i < n; i++) fibers[i].ended = false;
		for (unsigned round = 0; !wrong && ended == 0; round++) {
			for (unsigned k = 0; k < n; k++) {
				unsigned i = round % 2 ? n - 1 - k : k; // a missing barrier shows in one order or the other
				cuda_here = Here{place_of(i, block), b, {block[0], block[1], block[2]}, {grid[0], grid[1], grid[2]}};
				go_on(&fibers[i]);
				ended += fibers[i].ended;
			}
			if (ended > 0 && ended < n) wrong = "some threads of a block wait at a barrier, and others have ended";
		}
	});
	sigaction(SIGSEGV, &before, NULL);
	return wrong;
}
#endif
#endif
