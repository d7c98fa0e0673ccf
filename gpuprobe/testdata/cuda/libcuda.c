/* A stand-in for the few functions of the CUDA driver that gpuprobe calls: two
 * devices, the second of which is first on the bus. scripts/check-cuda.sh
 * builds it. */
#include <stddef.h>
#include <string.h>

enum { NOT_INITIALIZED = 3, PCI_BUS_ID = 33, COMPUTE_CAPABILITY_MAJOR = 75 };

static int started;

int cuInit(unsigned int flags) {
	started = 1;
	return 0;
}

int cuDeviceGetCount(int *count) {
	*count = 2;
	return started ? 0 : NOT_INITIALIZED;
}

int cuDeviceGetName(char *name, int size, int device) {
	strncpy(name, device ? "Stand-in B" : "Stand-in A", size);
	return 0;
}

int cuDeviceTotalMem_v2(size_t *bytes, int device) {
	*bytes = (size_t)16 << 30;
	return 0;
}

int cuDeviceGetUuid(unsigned char *uuid, int device) {
	memset(uuid, device + 1, 16);
	return 0;
}

int cuDeviceGetAttribute(int *value, int attribute, int device) {
	*value = 0;
	if (attribute == PCI_BUS_ID)
		*value = device ? 0x10 : 0x20;
	if (attribute == COMPUTE_CAPABILITY_MAJOR)
		*value = 8;
	return 0;
}
