// Pools and their gradients. A thread computes one element of the result. The
// gradient of an element adds what the windows over it give, in their order.
#include "window.cuh"

// A Range is the part [from, to) of an axis of size elements that the window
// covers at a place.
struct Range {
	u32 from, to;
};
DEVICE Range covered_by(u32 place, u32 kernel, u32 size, Window w) {
	u32 at = place * w.stride, end = at + kernel; // on the padded axis
	return Range{at > w.pad ? at - w.pad : 0, end - w.pad < size ? end - w.pad : size};
}

// places_over are the places at which the window covers element x of an axis.
DEVICE Range places_over(u32 x, u32 kernel, u32 places, Window w) {
	u32 at = x + w.pad, last = at / w.stride + 1;
	return Range{at >= kernel ? (at - kernel) / w.stride + 1 : 0, last < places ? last : places};
}

// largest_of returns the index of the first of the largest elements, or of the
// first NaN.
template <typename T> DEVICE u32 largest_of(const T *x, Range rows, Range columns, u32 width) {
	u32 best = rows.from * width + columns.from;
	T most = x[best];
	for (u32 i = rows.from; i < rows.to; i++) {
		for (u32 j = columns.from; j < columns.to; j++) {
			T v = x[i * width + j];
			if (v > most || (is_nan(v) && !is_nan(most))) {
				best = i * width + j;
				most = v;
			}
		}
	}
	return best;
}

// n is the number of elements of the result.
#define POOL(T, S) \
	KERNEL(256) max_pool_##S(T *out, const T *x, u32 n, WINDOW) { \
		Window w = MAKE_WINDOW; \
		EACH(at, n) { \
			u32 q = at / out_width, plane = q / out_height; \
			Range rows = covered_by(q - plane * out_height, kernel_height, height, w); \
			Range columns = covered_by(at - q * out_width, kernel_width, width, w); \
			const T *image = x + plane * height * width; \
			T most = image[rows.from * width + columns.from]; \
			for (u32 i = rows.from; i < rows.to; i++) \
				for (u32 j = columns.from; j < columns.to; j++) most = larger(most, image[i * width + j]); \
			out[at] = most; \
		} \
	} \
	KERNEL(256) avg_pool_##S(T *out, const T *x, u32 n, WINDOW) { \
		Window w = MAKE_WINDOW; \
		EACH(at, n) { \
			u32 q = at / out_width, plane = q / out_height; \
			Range rows = covered_by(q - plane * out_height, kernel_height, height, w); \
			Range columns = covered_by(at - q * out_width, kernel_width, width, w); \
			const T *image = x + plane * height * width; \
			T sum = 0; \
			for (u32 i = rows.from; i < rows.to; i++) \
				for (u32 j = columns.from; j < columns.to; j++) sum += image[i * width + j]; \
			out[at] = sum / (T)((rows.to - rows.from) * (columns.to - columns.from)); \
		} \
	} \
	KERNEL(256) max_pool_gradient_##S(T *dx, const T *x, const T *dy, u32 n, WINDOW) { \
		Window w = MAKE_WINDOW; \
		EACH(at, n) { \
			u32 q = at / width, plane = q / height, row = q - plane * height, column = at - q * width; \
			const T *image = x + plane * height * width, *from = dy + plane * out_height * out_width; \
			Range down = places_over(row, kernel_height, out_height, w), across = places_over(column, kernel_width, out_width, w); \
			T sum = 0; \
			for (u32 i = down.from; i < down.to; i++) \
				for (u32 j = across.from; j < across.to; j++) { \
					Range rows = covered_by(i, kernel_height, height, w), columns = covered_by(j, kernel_width, width, w); \
					if (largest_of(image, rows, columns, width) == row * width + column) sum += from[i * out_width + j]; \
				} \
			dx[at] = sum; \
		} \
	} \
	KERNEL(256) avg_pool_gradient_##S(T *dx, const T *dy, u32 n, WINDOW) { \
		Window w = MAKE_WINDOW; \
		EACH(at, n) { \
			u32 q = at / width, plane = q / height; \
			const T *from = dy + plane * out_height * out_width; \
			Range down = places_over(q - plane * height, kernel_height, out_height, w), across = places_over(at - q * width, kernel_width, out_width, w); \
			T sum = 0; \
			for (u32 i = down.from; i < down.to; i++) \
				for (u32 j = across.from; j < across.to; j++) { \
					Range rows = covered_by(i, kernel_height, height, w), columns = covered_by(j, kernel_width, width, w); \
					sum += from[i * out_width + j] / (T)((rows.to - rows.from) * (columns.to - columns.from)); \
				} \
			dx[at] = sum; \
		} \
	}
BOTH(POOL)
