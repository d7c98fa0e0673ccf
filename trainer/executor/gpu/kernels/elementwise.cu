// Operations on elements: one operand, two operands, two operands that are
// repeated along some dimensions, and the gradients of activations.
#include "math.cuh"
#include "power.cuh"

// ---- one operand ----

DEVICE float abs_of(float x) { return float_of(bits_of(x) & 0x7fffffff); }
DEVICE double abs_of(double x) { return double_of(bits_of(x) & 0x7fffffffffffffff); }
template <typename T> DEVICE T sign_of(T x) { return x > 0 ? T(1) : x < 0 ? T(-1) : x; }
template <typename T> DEVICE T neg_of(T x) { return -x; }
template <typename T> DEVICE T square_of(T x) { return x * x; }
template <typename T> DEVICE T cube_of(T x) { return x * x * x; }
template <typename T> DEVICE T sqrt_of(T x) { return root(x); }
template <typename T> DEVICE T inv_of(T x) { return 1 / x; }
template <typename T> DEVICE T inv_sqrt_of(T x) { return 1 / root(x); }
DEVICE float ceil_of(float x) { return __builtin_ceilf(x); }
DEVICE double ceil_of(double x) { return __builtin_ceil(x); }
DEVICE float floor_of(float x) { return __builtin_floorf(x); }
DEVICE double floor_of(double x) { return __builtin_floor(x); }
template <typename T> DEVICE T relu_of(T x) { return larger(x, T(0)); }
template <typename T> DEVICE T wide_tanh_of(T x) { return (T)tanh_of((double)x); }
template <typename T> DEVICE T wide_sigmoid_of(T x) { return (T)(1 / (1 + exp_of(-(double)x))); }
template <typename T> DEVICE T copy_of(T x) { return x; }

#define UNARY(NAME, T, S) \
	KERNEL(256) unary_##NAME##_##S(T *out, const T *a, u32 n) { EACH(i, n) out[i] = NAME##_of(a[i]); }
#define UNARY_BOTH(NAME) UNARY(NAME, float, f32) UNARY(NAME, double, f64)

// FOUR_AT_ONCE is EACH with four elements of a thread in one round. READ(k, at)
// reads element at as the k-th of the round, WRITE(k, at) writes its result. A
// round waits for memory once. The last elements take rounds of their own. at is
// below 2^32, because a grid has at most 2^20 threads.
#define FOUR_AT_ONCE(n, READ, WRITE) \
	u32 i = BLOCK_X * THREADS_X + THREAD_X, next = BLOCKS_X * THREADS_X; \
	for (; i + 3 * next < n; i += 4 * next) { \
		_Pragma("unroll") for (u32 k = 0; k < 4; k++) { READ(k, i + k * next) } \
		_Pragma("unroll") for (u32 k = 0; k < 4; k++) { WRITE(k, i + k * next) } \
	} \
	for (; i < n; i += next) { READ(0, i) WRITE(0, i) }

// LIGHT is UNARY for functions that take less time than memory.
#define READ_ONE(k, at) x[k] = a[at];
#define LIGHT(NAME, T, S) \
	KERNEL(256) unary_##NAME##_##S(T *out, const T *a, u32 n) { \
		T x[4]; \
		auto write = [&](T x, u32 at) { out[at] = NAME##_of(x); }; \
		FOUR_AT_ONCE(n, READ_ONE, WRITE_ONE) \
	}
#define WRITE_ONE(k, at) write(x[k], at);
#define LIGHT_BOTH(NAME) LIGHT(NAME, float, f32) LIGHT(NAME, double, f64)
LIGHT_BOTH(abs)
LIGHT_BOTH(sign)
LIGHT_BOTH(ceil)
LIGHT_BOTH(floor)
LIGHT_BOTH(neg)
LIGHT_BOTH(square)
LIGHT_BOTH(cube)
UNARY_BOTH(sqrt)
UNARY_BOTH(inv)
UNARY_BOTH(inv_sqrt)
UNARY_BOTH(exp)
UNARY_BOTH(expm1)
UNARY_BOTH(log)
UNARY_BOTH(log1p)
UNARY_BOTH(log2)
UNARY_BOTH(tanh)
UNARY_BOTH(sigmoid)
UNARY_BOTH(softplus)
LIGHT_BOTH(relu)
UNARY_BOTH(wide_tanh)
UNARY_BOTH(wide_sigmoid)
LIGHT_BOTH(copy)

// ---- two operands ----

template <typename T> DEVICE T add_of(T x, T y) { return x + y; }
template <typename T> DEVICE T sub_of(T x, T y) { return x - y; }
template <typename T> DEVICE T mul_of(T x, T y) { return x * y; }
template <typename T> DEVICE T div_of(T x, T y) { return x / y; }
template <typename T> DEVICE T less_of(T x, T y) { return x < y ? T(1) : T(0); }
template <typename T> DEVICE T more_of(T x, T y) { return x > y ? T(1) : T(0); }
template <typename T> DEVICE T upto_of(T x, T y) { return x <= y ? T(1) : T(0); }
template <typename T> DEVICE T from_of(T x, T y) { return x >= y ? T(1) : T(0); }
template <typename T> DEVICE T equal_of(T x, T y) { return x == y ? T(1) : T(0); }
template <typename T> DEVICE T unequal_of(T x, T y) { return x != y ? T(1) : T(0); }
template <typename T> DEVICE T min_of(T x, T y) { return smaller(x, y); }
template <typename T> DEVICE T max_of(T x, T y) { return larger(x, y); }
// Gradients of activations, from the result y and its gradient g.
template <typename T> DEVICE T tanh_gradient_of(T y, T g) { return (1 - y * y) * g; }
template <typename T> DEVICE T sigmoid_gradient_of(T y, T g) { return g * (y * (1 - y)); }
template <typename T> DEVICE T relu_gradient_of(T y, T g) { return y > 0 ? g : T(0); }

// An operand with a step of 0 has one element.
#define BINARY(NAME, T, S) \
	KERNEL(256) binary_##NAME##_##S(T *out, const T *a, const T *b, u32 n, u32 step_a, u32 step_b) { \
		T x[4], y[4]; \
		auto write = [&](T x, T y, u32 at) { out[at] = NAME##_of(x, y); }; \
		FOUR_AT_ONCE(n, READ_TWO, WRITE_TWO) \
	}
#define READ_TWO(k, at) x[k] = a[(at) * step_a], y[k] = b[(at) * step_b];
#define WRITE_TWO(k, at) write(x[k], y[k], at);

// Five dimensions, the last one innermost. n0 is not needed.
#define SPREAD(NAME, T, S) \
	KERNEL(256) spread_##NAME##_##S(T *out, const T *a, const T *b, u32 n, u32 n1, u32 n2, u32 n3, u32 n4, \
		u32 a0, u32 a1, u32 a2, u32 a3, u32 a4, u32 b0, u32 b1, u32 b2, u32 b3, u32 b4) { \
		EACH(i, n) { \
			u32 q3 = i / n4, i4 = i - q3 * n4, q2 = q3 / n3, i3 = q3 - q2 * n3; \
			u32 q1 = q2 / n2, i2 = q2 - q1 * n2, i0 = q1 / n1, i1 = q1 - i0 * n1; \
			T x = a[i0 * a0 + i1 * a1 + i2 * a2 + i3 * a3 + i4 * a4]; \
			T y = b[i0 * b0 + i1 * b1 + i2 * b2 + i3 * b3 + i4 * b4]; \
			out[i] = NAME##_of(x, y); \
		} \
	}
#define BINARY_BOTH(NAME) BINARY(NAME, float, f32) BINARY(NAME, double, f64)
#define SPREAD_BOTH(NAME) BINARY_BOTH(NAME) SPREAD(NAME, float, f32) SPREAD(NAME, double, f64)
SPREAD_BOTH(add)
SPREAD_BOTH(sub)
SPREAD_BOTH(mul)
SPREAD_BOTH(div)
SPREAD_BOTH(less)
SPREAD_BOTH(more)
SPREAD_BOTH(upto)
SPREAD_BOTH(from)
SPREAD_BOTH(equal)
SPREAD_BOTH(unequal)
BINARY_BOTH(min)
BINARY_BOTH(max)
BINARY_BOTH(tanh_gradient)
BINARY_BOTH(sigmoid_gradient)
BINARY_BOTH(relu_gradient)
SPREAD_BOTH(power)

// ---- bias ----

// x has channels of inner elements; the bias has one element for each channel.
#define ADD_BIAS(T, S) \
	KERNEL(256) add_bias_##S(T *out, const T *x, const T *bias, u32 n, u32 channels, u32 inner) { \
		EACH(i, n) out[i] = x[i] + bias[i / inner % channels]; \
	}
BOTH(ADD_BIAS)
