#define CUDA_RUNTIME
#include "host.cuh"
