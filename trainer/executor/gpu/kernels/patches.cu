// Patches of images as rows of a matrix, and back: Gorgonia's im2col and col2im.
#include "common.cuh"

// The matrix has a row for each place (batch, down, across) of the window, with
// the elements (channel, kernel row, kernel column) under it.
#define PATCHES u32 n, u32 channels, u32 height, u32 width, u32 out_height, u32 out_width, \
	u32 kernel_height, u32 kernel_width, u32 pad_down, u32 pad_across, u32 stride_down, u32 stride_across, u32 gap_down, u32 gap_across

// n is the number of elements of the matrix. Indices below 0 are large.
#define IM2COL(T, S) \
	KERNEL(256) im2col_##S(T *out, const T *images, PATCHES) { \
		EACH(at, n) { \
			u32 q = at / kernel_width, column = at - q * kernel_width, r = q / kernel_height, row = q - r * kernel_height; \
			u32 place = r / channels, c = r - place * channels, p = place / out_width, j = place - p * out_width; \
			u32 b = p / out_height, i = p - b * out_height; \
			u32 y = i * stride_down + row * gap_down - pad_down, x = j * stride_across + column * gap_across - pad_across; \
			out[at] = y < height && x < width ? images[((b * channels + c) * height + y) * width + x] : T(0); \
		} \
	}
BOTH(IM2COL)

// n is the number of elements of the images. Each is the sum of the elements of
// the matrix that cover it, place after place.
#define COL2IM(T, S) \
	KERNEL(256) col2im_##S(T *out, const T *matrix, PATCHES) { \
		EACH(at, n) { \
			u32 q = at / width, x = at - q * width + pad_across, r = q / height, y = q - r * height + pad_down; \
			u32 b = r / channels, c = r - b * channels; \
			T sum = 0; \
			for (u32 i = 0; i < out_height && i * stride_down <= y; i++) { \
				u32 down = y - i * stride_down, row = down / gap_down; \
				if (row >= kernel_height || row * gap_down != down) continue; \
				for (u32 j = 0; j < out_width && j * stride_across <= x; j++) { \
					u32 across = x - j * stride_across, column = across / gap_across; \
					if (column >= kernel_width || column * gap_across != across) continue; \
					u32 place = (b * out_height + i) * out_width + j; \
					sum += matrix[((place * channels + c) * kernel_height + row) * kernel_width + column]; \
				} \
			} \
			out[at] = sum; \
		} \
	}
BOTH(COL2IM)
