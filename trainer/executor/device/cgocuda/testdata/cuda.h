/* A stand-in for the header of the CUDA driver, so that the build tag cu is
 * compiled and tested on machines without CUDA: what gorgonia.org/cu v0.9.6 and
 * package cgocuda name, and no more. It was written for plx from their calls.
 *
 * It is for compiling and for stand-ins of the driver only. What
 * cgocuda calls is as in the driver; of the rest the names and types are, but not
 * the numbers of constants, and not the symbols of functions that have several
 * versions.
 */
#ifndef PLX_STAND_IN_CUDA_H
#define PLX_STAND_IN_CUDA_H

#include <stdint.h>
#include <stdlib.h>

#include "constants.h"

#define CUDA_VERSION 0

/* The functions of cgocuda's whose symbols have a version. */
#define cuEventDestroy cuEventDestroy_v2
#define cuMemAlloc cuMemAlloc_v2
#define cuMemFree cuMemFree_v2
#define cuMemGetInfo cuMemGetInfo_v2
#define cuMemcpyDtoDAsync cuMemcpyDtoDAsync_v2
#define cuMemcpyDtoHAsync cuMemcpyDtoHAsync_v2
#define cuMemcpyHtoDAsync cuMemcpyHtoDAsync_v2
#define cuStreamBeginCapture cuStreamBeginCapture_v2
#define cuStreamDestroy cuStreamDestroy_v2

typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef uint32_t cuuint32_t;
typedef struct { char bytes[16]; } CUuuid;

/* What only the driver looks into. */
typedef struct plx_array *CUarray;
typedef struct plx_context *CUcontext;
typedef struct plx_event *CUevent;
typedef struct plx_function *CUfunction;
typedef struct plx_graph *CUgraph;
typedef struct plx_graph_exec *CUgraphExec;
typedef struct plx_graph_member *CUgraphNode;
typedef struct plx_link *CUlinkState;
typedef struct plx_module *CUmodule;
typedef struct plx_stream *CUstream;
typedef struct plx_surface *CUsurfref;
typedef struct plx_texture *CUtexref;
typedef void (*CUhostFn)(void *data);

typedef struct {
	size_t Width, Height;
	CUarray_format Format;
	unsigned NumChannels;
} CUDA_ARRAY_DESCRIPTOR;

typedef struct {
	size_t Width, Height, Depth;
	CUarray_format Format;
	unsigned NumChannels, Flags;
} CUDA_ARRAY3D_DESCRIPTOR;

typedef struct {
	size_t srcXInBytes, srcY;
	CUmemorytype srcMemoryType;
	const void *srcHost;
	CUdeviceptr srcDevice;
	CUarray srcArray;
	size_t srcPitch, dstXInBytes, dstY;
	CUmemorytype dstMemoryType;
	void *dstHost;
	CUdeviceptr dstDevice;
	CUarray dstArray;
	size_t dstPitch, WidthInBytes, Height;
} CUDA_MEMCPY2D;

/* The two copies in three dimensions differ in what names a context. */
#define COPY3D(name, source, destination)                                      \
	typedef struct {                                                           \
		size_t srcXInBytes, srcY, srcZ, srcLOD;                                \
		CUmemorytype srcMemoryType;                                            \
		const void *srcHost;                                                   \
		CUdeviceptr srcDevice;                                                 \
		CUarray srcArray;                                                      \
		source;                                                                \
		size_t srcPitch, srcHeight, dstXInBytes, dstY, dstZ, dstLOD;           \
		CUmemorytype dstMemoryType;                                            \
		void *dstHost;                                                         \
		CUdeviceptr dstDevice;                                                 \
		CUarray dstArray;                                                      \
		destination;                                                           \
		size_t dstPitch, dstHeight, WidthInBytes, Height, Depth;               \
	} name
COPY3D(CUDA_MEMCPY3D, void *reserved0, void *reserved1);
COPY3D(CUDA_MEMCPY3D_PEER, CUcontext srcContext, CUcontext dstContext);

typedef struct {
	CUfunction func;
	unsigned gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes;
	void **kernelParams, **extra;
} CUDA_KERNEL_NODE_PARAMS;

typedef struct {
	CUdeviceptr dst;
	size_t pitch;
	unsigned value, elementSize;
	size_t width, height;
} CUDA_MEMSET_NODE_PARAMS;

typedef struct {
	CUhostFn fn;
	void *userData;
} CUDA_HOST_NODE_PARAMS;

#include "functions.h"

#endif
