// The rules of package optimizer, product by product in its order.
#include "common.cuh"

// What changes from step to step lies in device memory, in the variable's type;
// the order is that of update.go.
template <typename T> struct Constants {
	T rate, mu, rest, accumulator, epsilon, beta1, beta2, rest1, rest2, corrected, spread, scale, decay, shrink;
};

// prepare returns the gradient that the rule uses, and decays x if the decay is
// decoupled.
template <typename T> DEVICE T prepare(const Constants<T> &c, T &x, T g) {
	g = c.scale * g;
	if (c.decay != 0) {
		g = g + c.decay * x;
	} else if (c.shrink != 0) {
		x = x - c.shrink * x;
	}
	return g;
}

// go is 1 if x is neither NaN nor infinite, else 0. An update whose go is 0 changes
// nothing.
#define FINITE(T, S) \
	KERNEL(256) finite_##S(u32 *go, const T *x) { \
		if (THREAD_X == 0) *go = *x - *x == 0; \
	}
BOTH(FINITE)

// A record has the Constants of one variable, and at its end the size of its type.
enum { RECORD = 128, THREADS = 256 };

// Adds squares in their order, and scales the updates of all variables so that the
// root of the sum is at most limit.
KERNEL(THREADS) clip(char *records, const double *squares, double limit, u32 n, u32 variables) {
	SHARED static double some[THREADS];
	SHARED static double factor;
	double sum = 0;
	for (u32 from = 0; from < n; from += THREADS) {
		if (from + THREAD_X < n) some[THREAD_X] = squares[from + THREAD_X];
		BARRIER();
		if (THREAD_X == 0) {
			for (u32 i = 0; i < THREADS && from + i < n; i++) sum += some[i];
		}
		BARRIER();
	}
	if (THREAD_X == 0) {
		double norm = root(sum);
		factor = norm > limit ? limit / norm : 1;
	}
	BARRIER();
	for (u32 i = THREAD_X; i < variables; i += THREADS) {
		char *record = records + (u64)i * RECORD;
		if (*(u32 *)(record + RECORD - 4) == sizeof(float)) {
			((Constants<float> *)record)->scale = (float)factor;
		} else {
			((Constants<double> *)record)->scale = factor;
		}
	}
}

#define RULES(T, S) \
	KERNEL(256) sgd_##S(T *variable, const T *gradient, const Constants<T> *constants, const u32 *go, u32 n) { \
		if (*go == 0) return; \
		Constants<T> c = *constants; \
		EACH(i, n) { \
			T x = variable[i], g = prepare(c, x, gradient[i]); \
			variable[i] = x - c.rate * g; \
		} \
	} \
	KERNEL(256) momentum_##S(T *variable, const T *gradient, const Constants<T> *constants, const u32 *go, T *means, u32 n, u32 nesterov) { \
		if (*go == 0) return; \
		Constants<T> c = *constants; \
		EACH(i, n) { \
			T x = variable[i], g = prepare(c, x, gradient[i]), by = c.mu * means[i] + g; \
			means[i] = by; \
			if (nesterov) by = g + c.mu * by; \
			variable[i] = x - c.rate * by; \
		} \
	} \
	KERNEL(256) adagrad_##S(T *variable, const T *gradient, const Constants<T> *constants, const u32 *go, T *sums, u32 n) { \
		if (*go == 0) return; \
		Constants<T> c = *constants; \
		EACH(i, n) { \
			T x = variable[i], g = prepare(c, x, gradient[i]), a = sums[i] + g * g; \
			sums[i] = a; \
			variable[i] = x - c.rate * g / (root(c.accumulator + a) + c.epsilon); \
		} \
	} \
	KERNEL(256) adam_##S(T *variable, const T *gradient, const Constants<T> *constants, const u32 *go, T *means, T *squares, u32 n) { \
		if (*go == 0) return; \
		Constants<T> c = *constants; \
		EACH(i, n) { \
			T x = variable[i], g = prepare(c, x, gradient[i]); \
			T m = c.beta1 * means[i] + c.rest1 * g, v = c.beta2 * squares[i] + c.rest2 * g * g; \
			means[i] = m; \
			squares[i] = v; \
			variable[i] = x - c.corrected * m / (root(v) * c.spread + c.epsilon); \
		} \
	} \
	KERNEL(256) average_##S(T *variable, const T *gradient, const Constants<T> *constants, const u32 *go, u32 n) { \
		if (*go == 0) return; \
		Constants<T> c = *constants; \
		EACH(i, n) variable[i] = c.mu * variable[i] + c.rest * gradient[i]; \
	}
BOTH(RULES)
