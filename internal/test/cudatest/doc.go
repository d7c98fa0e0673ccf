// Package cudatest is a stand-in for NVIDIA's driver library, libcuda.so.1,
// for tests without a GPU. The library is written in C and has the driver's
// symbols and argument layouts. It contains the kernels of package kernels,
// compiled by g++ with host.cuh, which defines CUDA's keywords for the CPU. A
// program that loads the library sees a driver with one GPU.
//
//	driver := cudatest.Start(t, cudatest.Options{})
//	// PLX_CUDA and PLX_CUBLAS are set for this process and its child processes.
//	gpu, err := cuda.Open(0)
//
// The stand-in is stricter than a real driver, to detect mistakes that would
// show only on some machines. Every call requires that its context is current
// on the calling thread. Copies require pinned memory. New memory is filled
// with values that no test takes for a result. Freeing memory fails while work
// is pending. The stand-in detects writes of a kernel just before or after
// allocated memory.
//
// Work on a stream only runs when the program polls an event. Then a few
// operations run, on streams that a random generator picks (Options.Seed). If
// an event between two streams is missing, the work will sooner or later run
// in the wrong order. If a program reads a result before the work is done, the
// result is wrong.
//
// The threads of a block run one after the other between barriers, in
// ascending and then in descending order. This reveals many missing barriers.
// It always detects threads that do not reach the same barrier. Valgrind finds
// the other missing barriers, see [Watch].
//
// Options.BLAS adds a stand-in for cuBLAS, whose matrix products are work on a
// stream too. Without this option, programs do not look for cuBLAS, because a
// real cuBLAS does not work with this driver.
//
// After a fault, every later call fails, as on a GPU. Then the test that
// started the driver fails and prints the fault.
//
// If the environment variable PLX_TEST_GPU is set, Start uses the machine's
// own driver, so that the same tests check a real GPU: see
// internal/tools/gpucheck.
package cudatest
