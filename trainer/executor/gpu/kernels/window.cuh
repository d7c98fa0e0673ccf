// How a kernel (the filter of a convolution or the window of a pool) moves over
// images (batch, channels, height, width).
#pragma once
#include "common.cuh"

#define WINDOW u32 channels, u32 height, u32 width, u32 kernel_height, u32 kernel_width, u32 stride, u32 pad, u32 out_height, u32 out_width
#define MAKE_WINDOW Window{channels, height, width, kernel_height, kernel_width, stride, pad, out_height, out_width}

struct Window {
	u32 channels, height, width, kernel_height, kernel_width, stride, pad, out_height, out_width;
};
