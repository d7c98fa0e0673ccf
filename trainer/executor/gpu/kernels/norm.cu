// Batch norm and sums over channels of x (batch, channels, space).
#include "team.cuh"

#define CHANNELS u32 batch, u32 channels, u32 space

// Adds EXPRESSION, in which at is the index of an element of the channel c. Teams
// take channels, or parts of size elements of them: the sum of a part goes to
// partial. RESULT is the channel's result, from sum.
#define SUMS u32 lanes, u32 across, u32 parts, u32 size
#define EACH_CHANNEL(EXPRESSION, RESULT) \
	SHARED static double shared[256]; \
	Team t = make_team(lanes, across); \
	EACH_ROW(row, t, channels * parts) { \
		u32 part = row / channels, c = row - part * channels, n = batch * space; \
		u32 from = part * size, end = n - from < size ? n : from + size; \
		double sum = 0; \
		for (u32 i = from + t.lane; part < parts && i < end; i += t.lanes) { \
			u32 b = i / space, at = (b * channels + c) * space + (i - b * space); \
			sum += EXPRESSION; \
		} \
		sum = team_sum(shared, t, sum); \
		if (part < parts && t.lane == 0) { \
			if (parts == 1) out[c] = (T)(RESULT); \
			else partial[c * parts + part] = sum; \
		} \
	}

DEVICE double inverse(double variance, double epsilon) { return 1 / root(variance + epsilon); }

template <typename T> DEVICE double square_from(T x, T mean) {
	double d = (double)x - (double)mean;
	return d * d;
}

#define STATISTICS(TYPE, S) \
	KERNEL(256) channel_sums_##S(TYPE *out, const TYPE *x, double *partial, double divisor, CHANNELS, SUMS) { \
		typedef TYPE T; \
		EACH_CHANNEL((double)x[at], sum / divisor) \
	} \
	KERNEL(256) channel_variances_##S(TYPE *out, const TYPE *x, const TYPE *means, double *partial, double divisor, CHANNELS, SUMS) { \
		typedef TYPE T; \
		EACH_CHANNEL(square_from(x[at], means[c]), sum / divisor) \
	} \
	KERNEL(256) scale_gradient_##S(TYPE *out, const TYPE *x, const TYPE *means, const TYPE *variances, const TYPE *dy, double *partial, \
		double epsilon, CHANNELS, SUMS) { \
		typedef TYPE T; \
		EACH_CHANNEL((double)(x[at] - means[c]) * (double)dy[at], sum * inverse((double)variances[c], epsilon)) \
	} \
	/* Each channel's n parts of the gradient of its scale. */ \
	KERNEL(256) finish_scale_##S(TYPE *out, const double *partial, const TYPE *variances, double epsilon, u32 channels, u32 n, u32 lanes) { \
		SHARED static double shared[256]; \
		Team t = make_team(lanes, 0); \
		EACH_ROW(c, t, channels) { \
			double sum = 0; \
			for (u32 i = t.lane; c < channels && i < n; i += t.lanes) sum += partial[c * n + i]; \
			sum = team_sum(shared, t, sum); \
			if (c < channels && t.lane == 0) out[c] = (TYPE)(sum * inverse((double)variances[c], epsilon)); \
		} \
	}
BOTH(STATISTICS)

// Teams take the rows (batch, channel) of space elements each.
#define NORMALISE(T, S) \
	KERNEL(256) normalise_##S(T *out, const T *x, const T *scales, const T *biases, const T *means, const T *variances, \
		double epsilon, CHANNELS, u32 lanes) { \
		Team t = make_team(lanes, 0); \
		EACH_ROW(row, t, batch * channels) { \
			if (row < batch * channels) { \
				u32 c = row % channels; \
				T f = (T)((double)scales[c] * inverse((double)variances[c], epsilon)), mean = means[c], bias = biases[c]; \
				for (u32 i = t.lane; i < space; i += lanes) out[row * space + i] = (x[row * space + i] - mean) * f + bias; \
			} \
		} \
	} \
	KERNEL(256) norm_gradient_##S(T *dx, const T *x, const T *scales, const T *means, const T *variances, const T *dy, \
		const T *scale_gradients, const T *bias_gradients, double epsilon, double count, CHANNELS, u32 lanes, u32 train) { \
		Team t = make_team(lanes, 0); \
		EACH_ROW(row, t, batch * channels) { \
			if (row < batch * channels) { \
				u32 c = row % channels; \
				double over = inverse((double)variances[c], epsilon); \
				T f = (T)((double)scales[c] * over), mean = means[c], shift = 0, slope = 0; \
				if (train) { \
					shift = (T)((double)bias_gradients[c] / count); \
					slope = (T)((double)scale_gradients[c] * over / count); \
				} \
				for (u32 i = t.lane, at = row * space + i; i < space; i += lanes, at += lanes) \
					dx[at] = f * ((dy[at] - shift) - (x[at] - mean) * slope); \
			} \
		} \
	}
BOTH(NORMALISE)
