// Convolution and its gradients, as products of matrices that are never in
// memory: the elements of images are read where the product needs them.
#include "tile.cuh"
#include "window.cuh"

// Dividers of a window's indices.
struct Dividers {
	Divider area, kernel_width, out_width, width, stride, count, places;
};
DEVICE Dividers dividers(Window w, u32 count) {
	return Dividers{divider(w.kernel_height * w.kernel_width), divider(w.kernel_width), divider(w.out_width), divider(w.width),
		divider(w.stride), divider(count), divider(w.out_height * w.out_width)};
}

// covered returns the element of an image that element e (channel, down, across)
// of the filter covers at a place; 0 on the pad. Indices below 0 are large
// unsigned numbers.
template <typename T> DEVICE T covered(const T *image, Window w, Dividers d, u32 e, u32 place) {
	u32 channel = e / d.area, in = e - channel * d.area.by;
	u32 down = in / d.kernel_width, across = in - down * w.kernel_width;
	u32 i = place / d.out_width, j = place - i * w.out_width;
	u32 y = i * w.stride + down - w.pad, x = j * w.stride + across - w.pad;
	return y < w.height && x < w.width ? image[(channel * w.height + y) * w.width + x] : T(0);
}

// The result of an image is (filters, places) = filters (filters, patch) x
// patches (patch, places). BLOCK_Z is the image.
#define CONVOLVE(T, S) \
	KERNEL(256) convolve_##S(T *out, const T *x, const T *filters, u32 count, WINDOW) { \
		Window w = MAKE_WINDOW; \
		Dividers d = dividers(w, count); \
		u32 places = out_height * out_width, patch = channels * kernel_height * kernel_width; \
		const T *image = x + (u64)BLOCK_Z * channels * height * width; \
		T *to = out + (u64)BLOCK_Z * count * places; \
		tile_product<T, 4, true, true>(0, patch, \
			[=](u32 i, u32 k) { return i < count ? filters[i * patch + k] : T(0); }, \
			[=](u32 k, u32 j) { return j < places ? covered(image, w, d, k, j) : T(0); }, \
			[=](u32 i, u32 j, T sum) { if (i < count && j < places) to[i * places + j] = sum; }); \
	}
BOTH(CONVOLVE)

// The gradient of an image is (channels, plane) = turned filters (channels,
// area*count) x gradients under them (area*count, plane): element (down, across,
// filter) of the sum, the filter innermost.
template <typename T> DEVICE T covering(const T *dy, Window w, Dividers d, u32 k, u32 at) {
	u32 e = k / d.count, filter = k - e * d.count.by, down = e / d.kernel_width, across = e - down * w.kernel_width;
	u32 row = at / d.width, y = row + w.pad - down, x = at - row * w.width + w.pad - across;
	u32 i = y / d.stride, j = x / d.stride; // y and x below 0 are large
	bool inside = (int)(y | x) >= 0 && i * w.stride == y && j * w.stride == x && i < w.out_height && j < w.out_width;
	return inside ? dy[(filter * w.out_height + i) * w.out_width + j] : T(0);
}

#define IMAGE_GRADIENT(T, S) \
	KERNEL(256) image_gradient_##S(T *dx, const T *filters, const T *dy, u32 count, WINDOW) { \
		Window w = MAKE_WINDOW; \
		Dividers d = dividers(w, count); \
		u32 plane = height * width, area = kernel_height * kernel_width; \
		const T *from = dy + (u64)BLOCK_Z * count * out_height * out_width; \
		T *to = dx + (u64)BLOCK_Z * channels * plane; \
		tile_product<T, 4, false, true>(0, area * count, \
			[=](u32 i, u32 k) { u32 e = k / d.count; return i < channels ? filters[((k - e * count) * channels + i) * area + e] : T(0); }, \
			[=](u32 k, u32 j) { return j < plane ? covering(from, w, d, k, j) : T(0); }, \
			[=](u32 i, u32 j, T sum) { if (i < channels && j < plane) to[i * plane + j] = sum; }); \
	}
BOTH(IMAGE_GRADIENT)

// The gradient of the filters is (filters, patch) = the sum over images of
// dy (filters, places) x turned patches (places, patch). Block BLOCK_Z adds the
// images from BLOCK_Z*images on.
#define FILTER_GRADIENT(T, S) \
	KERNEL(256) filter_gradient_##S(T *out, const T *x, const T *dy, u32 count, u32 batch, u32 images, WINDOW) { \
		Window w = MAKE_WINDOW; \
		Dividers d = dividers(w, count); \
		u32 places = out_height * out_width, patch = channels * kernel_height * kernel_width, image = channels * height * width; \
		u32 first = BLOCK_Z * images, last = batch - first < images ? batch : first + images; \
		T *to = out + (u64)BLOCK_Z * count * patch; \
		tile_product<T, 4, true, false>(first * places, last * places, \
			[=](u32 i, u32 k) { u32 b = k / d.places; return i < count ? dy[((u64)b * count + i) * places + (k - b * places)] : T(0); }, \
			[=](u32 k, u32 j) { u32 b = k / d.places; return j < patch ? covered(x + (u64)b * image, w, d, j, k - b * places) : T(0); }, \
			[=](u32 i, u32 j, T sum) { if (i < count && j < patch) to[i * patch + j] = sum; }); \
	}
BOTH(FILTER_GRADIENT)
