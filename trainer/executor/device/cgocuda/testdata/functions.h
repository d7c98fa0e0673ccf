/* The driver's functions, as far as gorgonia.org/cu and package cgocuda call them: see cuda.h. */

/* Driver and devices. */
CUresult cuInit(unsigned flags);
CUresult cuDriverGetVersion(int *version);
CUresult cuGetErrorName(CUresult, const char **name);
CUresult cuDeviceGet(CUdevice *device, int ordinal);
CUresult cuDeviceGetCount(int *count);
CUresult cuDeviceGetName(char *name, int size, CUdevice);
CUresult cuDeviceGetUuid(CUuuid *, CUdevice);
CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute, CUdevice);
CUresult cuDeviceTotalMem(size_t *bytes, CUdevice);
CUresult cuDeviceCanAccessPeer(int *can, CUdevice, CUdevice peer);
CUresult cuDeviceGetP2PAttribute(int *value, CUdevice_P2PAttribute, CUdevice from, CUdevice to);
CUresult cuDevicePrimaryCtxGetState(CUdevice, unsigned *flags, int *active);
CUresult cuDevicePrimaryCtxRelease(CUdevice), cuDevicePrimaryCtxReset(CUdevice);
CUresult cuDevicePrimaryCtxRetain(CUcontext *, CUdevice);
CUresult cuDevicePrimaryCtxSetFlags(CUdevice, unsigned flags);

/* Contexts. */
CUresult cuCtxCreate(CUcontext *, unsigned flags, CUdevice);
CUresult cuCtxDestroy(CUcontext), cuCtxPushCurrent(CUcontext), cuCtxSetCurrent(CUcontext);
CUresult cuCtxPopCurrent(CUcontext *), cuCtxGetCurrent(CUcontext *);
CUresult cuCtxSynchronize(void), cuCtxResetPersistingL2Cache(void);
CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned flags), cuCtxDisablePeerAccess(CUcontext peer);
CUresult cuCtxGetApiVersion(CUcontext, unsigned *version);
CUresult cuCtxGetDevice(CUdevice *), cuCtxGetFlags(unsigned *flags);
CUresult cuCtxGetCacheConfig(CUfunc_cache *), cuCtxSetCacheConfig(CUfunc_cache);
CUresult cuCtxGetLimit(size_t *value, CUlimit), cuCtxSetLimit(CUlimit, size_t value);
CUresult cuCtxGetSharedMemConfig(CUsharedconfig *), cuCtxSetSharedMemConfig(CUsharedconfig);
CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest);

/* Modules, and the linker at run time. */
CUresult cuModuleLoad(CUmodule *, const char *file), cuModuleUnload(CUmodule);
CUresult cuModuleLoadData(CUmodule *, const void *), cuModuleLoadFatBinary(CUmodule *, const void *);
CUresult cuModuleLoadDataEx(CUmodule *, const void *, unsigned n, CUjit_option *, void **values);
CUresult cuModuleGetFunction(CUfunction *, CUmodule, const char *name);
CUresult cuModuleGetGlobal(CUdeviceptr *, size_t *bytes, CUmodule, const char *name);
CUresult cuModuleGetSurfRef(CUsurfref *, CUmodule, const char *name);
CUresult cuModuleGetTexRef(CUtexref *, CUmodule, const char *name);
CUresult cuLinkCreate(unsigned n, CUjit_option *, void **values, CUlinkState *);
CUresult cuLinkAddData(CUlinkState, CUjitInputType, void *data, size_t bytes, const char *name,
	unsigned n, CUjit_option *, void **values);
CUresult cuLinkAddFile(CUlinkState, CUjitInputType, const char *file, unsigned n, CUjit_option *, void **values);
CUresult cuLinkComplete(CUlinkState, void **cubin, size_t *bytes), cuLinkDestroy(CUlinkState);

/* Functions on a device. */
CUresult cuLaunchKernel(CUfunction, unsigned gridX, unsigned gridY, unsigned gridZ, unsigned blockX,
	unsigned blockY, unsigned blockZ, unsigned shared, CUstream, void **parameters, void **extra);
CUresult cuFuncGetAttribute(int *value, CUfunction_attribute, CUfunction);
CUresult cuFuncSetCacheConfig(CUfunction, CUfunc_cache);
CUresult cuFuncSetSharedMemConfig(CUfunction, CUsharedconfig);
CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction, int size, size_t shared);
CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, CUfunction, int size,
	size_t shared, unsigned flags);

/* Streams and events. */
CUresult cuStreamCreate(CUstream *, unsigned flags), cuStreamDestroy(CUstream);
CUresult cuStreamCreateWithPriority(CUstream *, unsigned flags, int priority);
CUresult cuStreamGetFlags(CUstream, unsigned *flags), cuStreamGetPriority(CUstream, int *priority);
CUresult cuStreamQuery(CUstream), cuStreamSynchronize(CUstream);
CUresult cuStreamWaitEvent(CUstream, CUevent, unsigned flags);
CUresult cuStreamAttachMemAsync(CUstream, CUdeviceptr, size_t bytes, unsigned flags);
CUresult cuStreamWaitValue32(CUstream, CUdeviceptr, cuuint32_t value, unsigned flags);
CUresult cuStreamWriteValue32(CUstream, CUdeviceptr, cuuint32_t value, unsigned flags);
CUresult cuEventCreate(CUevent *, unsigned flags), cuEventDestroy(CUevent);
CUresult cuEventRecord(CUevent, CUstream), cuEventQuery(CUevent), cuEventSynchronize(CUevent);
CUresult cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end);

/* Memory. */
CUresult cuMemAlloc(CUdeviceptr *, size_t bytes), cuMemFree(CUdeviceptr), cuMemFreeHost(void *);
CUresult cuMemHostAlloc(void **, size_t bytes, unsigned flags);
CUresult cuMemAllocManaged(CUdeviceptr *, size_t bytes, unsigned flags);
CUresult cuMemAllocPitch(CUdeviceptr *, size_t *pitch, size_t width, size_t height, unsigned element);
CUresult cuMemGetAddressRange(CUdeviceptr *base, size_t *bytes, CUdeviceptr);
CUresult cuMemGetInfo(size_t *unused, size_t *total);
CUresult cuMemAdvise(CUdeviceptr, size_t bytes, CUmem_advise, CUdevice);
CUresult cuMemPrefetchAsync(CUdeviceptr, size_t bytes, CUdevice, CUstream);
CUresult cuPointerGetAttribute(void *value, CUpointer_attribute, CUdeviceptr);
CUresult cuPointerSetAttribute(const void *value, CUpointer_attribute, CUdeviceptr);

/* Copies: of host (H), device (D) and array (A), to the first from the second. */
CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t bytes);
CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream);
CUresult cuMemcpyHtoD(CUdeviceptr to, const void *from, size_t bytes);
CUresult cuMemcpyHtoDAsync(CUdeviceptr to, const void *from, size_t bytes, CUstream);
CUresult cuMemcpyDtoH(void *to, CUdeviceptr from, size_t bytes);
CUresult cuMemcpyDtoHAsync(void *to, CUdeviceptr from, size_t bytes, CUstream);
CUresult cuMemcpyDtoD(CUdeviceptr to, CUdeviceptr from, size_t bytes);
CUresult cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream);
CUresult cuMemcpyDtoA(CUarray to, size_t offset, CUdeviceptr from, size_t bytes);
CUresult cuMemcpyAtoD(CUdeviceptr to, CUarray from, size_t offset, size_t bytes);
CUresult cuMemcpyHtoA(CUarray to, size_t offset, const void *from, size_t bytes);
CUresult cuMemcpyHtoAAsync(CUarray to, size_t offset, const void *from, size_t bytes, CUstream);
CUresult cuMemcpyAtoH(void *to, CUarray from, size_t offset, size_t bytes);
CUresult cuMemcpyAtoHAsync(void *to, CUarray from, size_t offset, size_t bytes, CUstream);
CUresult cuMemcpyAtoA(CUarray to, size_t offset, CUarray from, size_t at, size_t bytes);
CUresult cuMemcpyPeer(CUdeviceptr to, CUcontext, CUdeviceptr from, CUcontext, size_t bytes);
CUresult cuMemcpyPeerAsync(CUdeviceptr to, CUcontext, CUdeviceptr from, CUcontext, size_t bytes, CUstream);
CUresult cuMemcpy2D(const CUDA_MEMCPY2D *), cuMemcpy2DUnaligned(const CUDA_MEMCPY2D *);
CUresult cuMemcpy2DAsync(const CUDA_MEMCPY2D *, CUstream);
CUresult cuMemcpy3D(const CUDA_MEMCPY3D *), cuMemcpy3DAsync(const CUDA_MEMCPY3D *, CUstream);
CUresult cuMemcpy3DPeer(const CUDA_MEMCPY3D_PEER *);
CUresult cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D_PEER *, CUstream);

/* Filling memory, with elements of three widths. */
#define MEMSET(bits, element)                                                                     \
	CUresult cuMemsetD##bits(CUdeviceptr, element, size_t n);                                     \
	CUresult cuMemsetD##bits##Async(CUdeviceptr, element, size_t n, CUstream);                    \
	CUresult cuMemsetD2D##bits(CUdeviceptr, size_t pitch, element, size_t width, size_t height);  \
	CUresult cuMemsetD2D##bits##Async(CUdeviceptr, size_t pitch, element, size_t width, size_t height, CUstream)
MEMSET(8, unsigned char);
MEMSET(16, unsigned short);
MEMSET(32, unsigned);

/* Arrays, and references to textures and surfaces. */
CUresult cuArrayCreate(CUarray *, const CUDA_ARRAY_DESCRIPTOR *), cuArrayDestroy(CUarray);
CUresult cuArray3DCreate(CUarray *, const CUDA_ARRAY3D_DESCRIPTOR *);
CUresult cuArrayGetDescriptor(CUDA_ARRAY_DESCRIPTOR *, CUarray);
CUresult cuArray3DGetDescriptor(CUDA_ARRAY3D_DESCRIPTOR *, CUarray);
CUresult cuTexRefGetAddress(CUdeviceptr *, CUtexref);
CUresult cuTexRefGetAddressMode(CUaddress_mode *, CUtexref, int dimension);
CUresult cuTexRefGetArray(CUarray *, CUtexref);
CUresult cuTexRefGetBorderColor(float *colour, CUtexref);
CUresult cuTexRefGetFilterMode(CUfilter_mode *, CUtexref);
CUresult cuTexRefGetFlags(unsigned *flags, CUtexref);
CUresult cuTexRefGetFormat(CUarray_format *, int *channels, CUtexref);
CUresult cuTexRefGetMaxAnisotropy(int *, CUtexref);
CUresult cuTexRefSetAddress(size_t *offset, CUtexref, CUdeviceptr, size_t bytes);
CUresult cuTexRefSetAddress2D(CUtexref, const CUDA_ARRAY_DESCRIPTOR *, CUdeviceptr, size_t pitch);
CUresult cuTexRefSetAddressMode(CUtexref, int dimension, CUaddress_mode);
CUresult cuTexRefSetArray(CUtexref, CUarray, unsigned flags);
CUresult cuTexRefSetBorderColor(CUtexref, float *colour);
CUresult cuTexRefSetFilterMode(CUtexref, CUfilter_mode), cuTexRefSetMipmapFilterMode(CUtexref, CUfilter_mode);
CUresult cuTexRefSetFlags(CUtexref, unsigned flags);
CUresult cuTexRefSetFormat(CUtexref, CUarray_format, int components);
CUresult cuTexRefSetMaxAnisotropy(CUtexref, unsigned);
CUresult cuTexRefSetMipmapLevelBias(CUtexref, float bias);
CUresult cuTexRefSetMipmapLevelClamp(CUtexref, float least, float most);
CUresult cuSurfRefGetArray(CUarray *, CUsurfref), cuSurfRefSetArray(CUsurfref, CUarray, unsigned flags);

/* Graphs. */
#define MEMBER CUgraphNode *, CUgraph, const CUgraphNode *needs, size_t n
CUresult cuGraphAddEmptyNode(MEMBER), cuGraphAddChildGraphNode(MEMBER, CUgraph child);
CUresult cuGraphAddHostNode(MEMBER, const CUDA_HOST_NODE_PARAMS *);
CUresult cuGraphAddKernelNode(MEMBER, const CUDA_KERNEL_NODE_PARAMS *);
CUresult cuGraphAddMemcpyNode(MEMBER, const CUDA_MEMCPY3D *, CUcontext);
CUresult cuGraphAddMemsetNode(MEMBER, const CUDA_MEMSET_NODE_PARAMS *, CUcontext);
CUresult cuGraphAddDependencies(CUgraph, const CUgraphNode *from, const CUgraphNode *to, size_t n);
CUresult cuGraphClone(CUgraph *, CUgraph), cuGraphCreate(CUgraph *, unsigned flags);
CUresult cuGraphDestroy(CUgraph), cuGraphDestroyNode(CUgraphNode), cuGraphExecDestroy(CUgraphExec);
CUresult cuStreamBeginCapture(CUstream, CUstreamCaptureMode), cuStreamEndCapture(CUstream, CUgraph *);
CUresult cuGraphInstantiateWithFlags(CUgraphExec *, CUgraph, unsigned long long flags);
CUresult cuGraphLaunch(CUgraphExec, CUstream);
CUresult cuGraphGetEdges(CUgraph, CUgraphNode *from, CUgraphNode *to, size_t *n);
