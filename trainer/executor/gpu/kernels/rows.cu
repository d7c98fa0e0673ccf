// Operations on rows of classes: softmax, cross entropy, accuracy.
#include "math.cuh"
#include "team.cuh"

#define NONE (-INFINITE)

// ---- softmax along an axis, as package cpu computes it ----

// Row r begins at element r/inner*n*inner + r%inner; its elements lie inner apart.
#define ROW_START(r) ((r) / inner * n * inner + (r) % inner)

#define SOFTMAX(T, S) \
	KERNEL(256) softmax_##S(T *out, const T *a, u32 rows, u32 n, u32 inner, u32 log, u32 lanes) { \
		SHARED static double sums[256]; \
		SHARED static T maxima[256]; \
		Team t = make_team(lanes, inner > 1); \
		EACH_ROW(row, t, rows) { \
			u32 count = row < rows ? n : 0; \
			const T *x = a + ROW_START(row); \
			T *y = out + ROW_START(row), most = (T)NONE; \
			for (u32 i = t.lane; i < count; i += t.lanes) most = larger(most, x[i * inner]); \
			most = team_max(maxima, t, most); \
			double sum = 0; \
			for (u32 i = t.lane; i < count; i += t.lanes) { \
				T e = exp_of(x[i * inner] - most); \
				sum += (double)e; \
				if (!log) y[i * inner] = e; \
			} \
			sum = team_sum(sums, t, sum); \
			T total = log ? (T)log_of(sum) : T(0); \
			for (u32 i = t.lane; i < count; i += t.lanes) \
				y[i * inner] = log ? (x[i * inner] - most) - total : (T)((double)y[i * inner] / sum); \
		} \
	} \
	KERNEL(256) softmax_gradient_##S(T *out, const T *a, const T *dy, u32 rows, u32 n, u32 inner, u32 log, u32 lanes) { \
		SHARED static double sums[256]; \
		Team t = make_team(lanes, inner > 1); \
		EACH_ROW(row, t, rows) { \
			u32 count = row < rows ? n : 0; \
			const T *y = a + ROW_START(row), *g = dy + ROW_START(row); \
			T *to = out + ROW_START(row); \
			double sum = 0; \
			for (u32 i = t.lane; i < count; i += t.lanes) \
				sum += log ? (double)g[i * inner] : (double)g[i * inner] * (double)y[i * inner]; \
			T s = (T)team_sum(sums, t, sum); \
			for (u32 i = t.lane; i < count; i += t.lanes) { \
				u32 k = i * inner; \
				to[k] = log ? g[k] - exp_of(y[k]) * s : y[k] * (g[k] - s); \
			} \
		} \
	}
BOTH(SOFTMAX)

// ---- softmax over the last axis, as package nn computes it ----

// exponentials returns the largest element of a row and the sum of exp(x - largest).
template <typename T> DEVICE double row_max(T *shared, Team t, const T *x, u32 count) {
	T most = (T)NONE;
	for (u32 i = t.lane; i < count; i += t.lanes) {
		most = larger(most, x[i]);
	}
	return (double)team_max(shared, t, most);
}
template <typename T> DEVICE double row_sum(double *shared, Team t, const T *x, u32 count, double most) {
	double sum = 0;
	for (u32 i = t.lane; i < count; i += t.lanes) {
		sum += exp_of((double)x[i] - most);
	}
	return team_sum(shared, t, sum);
}

#define ROWWISE(T, S) \
	KERNEL(256) wide_softmax_##S(T *out, const T *a, u32 rows, u32 n, u32 log, u32 lanes) { \
		SHARED static double sums[256]; \
		SHARED static T maxima[256]; \
		Team t = make_team(lanes, 0); \
		EACH_ROW(row, t, rows) { \
			u32 count = row < rows ? n : 0; \
			const T *x = a + row * n; \
			double most = row_max(maxima, t, x, count), sum = row_sum(sums, t, x, count, most); \
			double total = log ? log_of(sum) : 0; \
			for (u32 i = t.lane; i < count; i += t.lanes) { \
				double v = (double)x[i] - most; \
				out[row * n + i] = (T)(log ? v - total : exp_of(v) / sum); \
			} \
		} \
	} \
	KERNEL(256) wide_softmax_gradient_##S(T *out, const T *a, const T *dy, u32 rows, u32 n, u32 log, u32 lanes) { \
		SHARED static double sums[256]; \
		Team t = make_team(lanes, 0); \
		EACH_ROW(row, t, rows) { \
			u32 count = row < rows ? n : 0; \
			const T *y = a + row * n, *g = dy + row * n; \
			double sum = 0; \
			for (u32 i = t.lane; i < count; i += t.lanes) sum += log ? (double)g[i] : (double)g[i] * (double)y[i]; \
			sum = team_sum(sums, t, sum); \
			for (u32 i = t.lane; i < count; i += t.lanes) { \
				double p = (double)y[i], d = (double)g[i]; \
				out[row * n + i] = (T)(log ? d - exp_of(p) * sum : p * (d - sum)); \
			} \
		} \
	}
BOTH(ROWWISE)

// ---- cross entropy and accuracy ----

// label_of returns the class of a row; kind says what type the labels have. A
// number that is no class becomes the number of classes.
DEVICE u32 label_of(const void *labels, u32 kind, u32 row, u32 classes) {
	double v;
	switch (kind) {
	case 1: v = (double)((const int *)labels)[row]; break;
	case 2: v = (double)((const i64 *)labels)[row]; break;
	case 3: v = (double)((const float *)labels)[row]; break;
	default: v = ((const double *)labels)[row];
	}
	if (!(v >= 0 && v < (double)classes)) {
		return classes;
	}
	u32 label = (u32)v;
	return (double)label == v ? label : classes;
}

// first_of returns the index of the first of the largest elements of a row; the
// number of elements if one of them is NaN.
template <typename T> DEVICE u32 first_of(const T *x, u32 n) {
	u32 best = 0;
	for (u32 i = 0; i < n; i++) {
		if (is_nan(x[i])) {
			return n;
		}
		if (x[i] > x[best]) {
			best = i;
		}
	}
	return best;
}

// Kind 0: the labels are weights of the classes, of type T.
#define ENTROPY(T, S) \
	KERNEL(256) entropy_##S(double *losses, const T *logits, const void *labels, u32 rows, u32 classes, u32 kind, u32 lanes) { \
		SHARED static double sums[256]; \
		SHARED static T maxima[256]; \
		Team t = make_team(lanes, 0); \
		EACH_ROW(row, t, rows) { \
			u32 count = row < rows ? classes : 0; \
			const T *x = logits + row * classes; \
			double most = row_max(maxima, t, x, count), sum = log_of(row_sum(sums, t, x, count, most)), loss = 0; \
			if (kind == 0) { \
				const T *weights = (const T *)labels + row * classes; \
				for (u32 i = t.lane; i < count; i += t.lanes) \
					if (weights[i] != 0) loss += (double)weights[i] * (sum + (most - (double)x[i])); \
			} else if (count > 0 && t.lane == 0) { \
				u32 label = label_of(labels, kind, row, classes); \
				loss = label < classes ? sum + (most - (double)x[label]) : NOT_A_NUMBER; \
			} \
			loss = team_sum(sums, t, loss); \
			if (count > 0 && t.lane == 0) losses[row] = loss; \
		} \
	} \
	KERNEL(256) entropy_gradient_##S(T *out, const T *logits, const void *labels, const T *dy, double divisor, u32 rows, u32 classes, u32 kind, u32 lanes) { \
		SHARED static double sums[256]; \
		SHARED static T maxima[256]; \
		Team t = make_team(lanes, 0); \
		EACH_ROW(row, t, rows) { \
			u32 count = row < rows ? classes : 0; \
			const T *x = logits + row * classes, *weights = (const T *)labels + row * classes; \
			double most = row_max(maxima, t, x, count), sum = row_sum(sums, t, x, count, most), weight = 1; \
			double factor = (double)dy[0] / divisor; \
			u32 label = classes; \
			if (kind == 0) { \
				weight = 0; \
				for (u32 i = t.lane; i < count; i += t.lanes) weight += (double)weights[i]; \
				weight = team_sum(sums, t, weight); \
			} else if (count > 0) { \
				label = label_of(labels, kind, row, classes); \
				if (label == classes) factor = NOT_A_NUMBER; \
			} \
			for (u32 i = t.lane; i < count; i += t.lanes) { \
				double p = weight * (exp_of((double)x[i] - most) / sum); \
				double less = kind == 0 ? (double)weights[i] : i == label ? 1 : 0; \
				out[row * classes + i] = (T)(factor * (p - less)); \
			} \
		} \
	} \
	KERNEL(256) right_##S(double *right, const T *logits, const void *labels, u32 rows, u32 classes, u32 kind) { \
		EACH(row, rows) { \
			u32 found = first_of(logits + row * classes, classes); \
			u32 label = kind == 0 ? first_of((const T *)labels + row * classes, classes) : label_of(labels, kind, row, classes); \
			right[row] = kind != 0 && label == classes ? NOT_A_NUMBER : found == label ? 1 : 0; \
		} \
	} \
	/* The sum of n numbers, divided. */ \
	KERNEL(256) total_##S(T *out, const double *a, double divisor, u32 n) { \
		SHARED static double sums[256]; \
		Team t = make_team(256, 0); \
		double sum = 0; \
		for (u32 i = t.lane; i < n; i += 256) sum += a[i]; \
		sum = team_sum(sums, t, sum); \
		if (t.lane == 0) out[0] = (T)(sum / divisor); \
	}
BOTH(ENTROPY)
